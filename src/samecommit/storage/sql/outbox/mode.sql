-- What kind a destination is: stream or jobs. No locks.
SELECT d.mode FROM :"schema".destination AS d WHERE d.name = :destination::text
