-- A person's word on a held delivery: its job is released with it. Locks the job.
SELECT CASE j.state WHEN 'held' THEN :"schema".release(j.id, jsonb_build_object('verdict', :verdict::text, 'ref', :reference::text))
                    ELSE j.state END AS outcome
FROM :"schema".job AS j
WHERE j.id = :id::bigint AND j.kind = format('deliver:%s', :destination::text)
