-- How many jobs are in each state. No locks; for the small tables of a test.
SELECT j.state, count(*) FROM :"schema".jobs AS j GROUP BY j.state
