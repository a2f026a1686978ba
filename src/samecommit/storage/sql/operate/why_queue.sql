-- Why nothing of a queue runs, the most decisive reason first. No locks.
SELECT * FROM :"schema".why_queue(:queue::text)
