-- Empties one of the inbox's two tables when it is time. Takes its exclusive lock, for half a second at most.
SELECT :"schema".empty_inbox(make_interval(secs => :keep_seconds::float8))
