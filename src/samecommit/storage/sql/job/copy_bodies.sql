-- Streams in the payloads that are too large for the job's row.
COPY :"schema".body (job_id, created_at, payload) FROM STDIN
