-- Every new order becomes a job, whoever inserts it: psql, an ETL tool, another language. The job is part of the insert.
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text NOT NULL);

CREATE FUNCTION enqueue_receipt() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM samecommit.enqueue(
        kind    => 'send_receipt',
        payload => jsonb_build_object('order_id', NEW.id, 'email', NEW.email),
        queue   => 'mail');
    RETURN NEW;
END
$$;

CREATE TRIGGER receipt AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION enqueue_receipt();
