-- What holds of every row, checked in all databases of the tests. The product's tables go without: see migration 0001.
ALTER TABLE samecommit.job
    ADD CONSTRAINT job_state CHECK (state IN ('ready', 'held', 'failed')),
    ADD CONSTRAINT job_line CHECK (pos IS NULL OR (state = 'ready' AND blocked_by IS NULL)),
    ADD CONSTRAINT job_blocked CHECK (blocked_by IS NULL OR (state = 'ready' AND blocked_by IN ('kind', 'suspect', 'limit'))),
    ADD CONSTRAINT job_running CHECK (claim_id IS NULL OR state = 'ready'),
    ADD CONSTRAINT job_since CHECK ((since_at IS NOT NULL) = (state <> 'ready')),
    ADD CONSTRAINT job_kind CHECK (kind !~ '[\u0001-\u001f\u007f-\u009f]' AND kind = btrim(kind) AND length(kind) BETWEEN 1 AND 200),
    ADD CONSTRAINT job_unique CHECK ((unique_scope IS NULL) = (unique_key IS NULL)),
    ADD CONSTRAINT job_priority CHECK (priority BETWEEN -100 AND 100),
    ADD CONSTRAINT job_max_attempts CHECK (max_attempts >= 1);

ALTER TABLE samecommit.job_history
    ADD CONSTRAINT job_history_state CHECK (state IN ('done', 'cancelled', 'failed'));

ALTER TABLE samecommit.event
    ADD CONSTRAINT event_lane CHECK (lane BETWEEN 0 AND 1023),
    ADD CONSTRAINT event_texts CHECK (id <> '' AND source <> '' AND type <> '' AND key <> '' AND content_type <> '');
