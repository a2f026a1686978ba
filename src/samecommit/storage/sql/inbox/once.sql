-- Notes a message as taken. Inserts into inbox_a, then inbox_b, by their primary keys; waits for whoever notes the same one.
SELECT :"schema".inbox_once(:consumer::text, :source::text, :id::text)
