-- Why a job is not running, or what became of it, the most decisive reason first. No locks.
SELECT * FROM :"schema".why(:id::bigint)
