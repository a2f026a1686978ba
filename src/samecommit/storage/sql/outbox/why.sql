-- Why a destination gets nothing, the most decisive reason first. No locks.
SELECT * FROM :"schema".why_destination(:destination::text)
