-- Whether anything is due or runs: what draining waits for. No locks; for the small tables of a test.
SELECT EXISTS (SELECT FROM :"schema".job AS j
               WHERE j.claim_id IS NOT NULL OR (j.state = 'ready' AND j.run_at <= clock_timestamp() AND j.blocked_by IS NULL))
