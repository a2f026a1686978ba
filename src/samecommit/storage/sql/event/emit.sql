-- Stores one event in the caller's transaction. Values travel as texts and numbers: a
-- codec that an application has set for jsonb or bytea is not met.
SELECT e.number, e.id
FROM :"schema".store_event(
    type         => :type::text,
    data         => CASE WHEN :is_base64::boolean THEN pg_catalog.decode(:data::text, 'base64')
                         ELSE pg_catalog.convert_to(:data::text, 'UTF8') END,
    key          => :key::text,
    id           => :id::text,
    source       => :source::text,
    subject      => :subject::text,
    content_type => :content_type::text,
    version      => :version::int,
    extensions   => :extensions::text::jsonb) AS e
