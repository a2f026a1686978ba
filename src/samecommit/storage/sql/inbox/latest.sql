-- Notes the newest number of a key. Locks that key's row of inbox_newest, by its primary key.
SELECT :"schema".inbox_latest(:consumer::text, :source::text, :key::text, :number::bigint)
