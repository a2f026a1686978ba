"""The database's own account of a run: triggers write every change of a job, a claim and a lease, with its time.

The system's word is no evidence against itself, so the checkers trust these rows. A row's number is taken while the job
is locked, so the numbers of one job are in the order of its changes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import psycopg

_TABLE = """
CREATE SCHEMA audit;
CREATE TABLE audit.change (
    n          bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    xid        bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    app        text NOT NULL DEFAULT current_setting('application_name'),
    what       text NOT NULL,
    op         text NOT NULL,
    job_id     bigint,
    key        text,
    old_claim  bigint,
    new_claim  bigint,
    state      text,
    in_line    boolean,
    attempts   int,
    claims     int,
    crashes    int,
    lost       int,
    most       int,
    run_at     timestamptz,
    lease_id   bigint,
    expires_at timestamptz
);
"""
_OF_JOB = """
CREATE FUNCTION audit.of_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO audit.change (what, op, job_id, key, old_claim, state, in_line, attempts, claims, crashes, lost, most, run_at)
        VALUES ('job', 'delete', OLD.id, OLD.payload->>'key', OLD.claim_id, OLD.state, OLD.pos IS NOT NULL, OLD.attempts,
                OLD.claims, OLD.crashes, OLD.lost, OLD.max_attempts, OLD.run_at);
    ELSE
        INSERT INTO audit.change (what, op, job_id, key, old_claim, new_claim, state, in_line, attempts, claims, crashes,
                                  lost, most, run_at)
        VALUES ('job', lower(TG_OP), NEW.id, NEW.payload->>'key', CASE WHEN TG_OP = 'UPDATE' THEN OLD.claim_id END,
                NEW.claim_id, NEW.state, NEW.pos IS NOT NULL, NEW.attempts, NEW.claims, NEW.crashes, NEW.lost,
                NEW.max_attempts, NEW.run_at);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON {schema}.job FOR EACH ROW EXECUTE FUNCTION audit.of_job();
"""
_OF_HISTORY = """
CREATE FUNCTION audit.of_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    h {schema}.job_history;
BEGIN
    IF TG_OP = 'DELETE' THEN h := OLD; ELSE h := NEW; END IF;
    INSERT INTO audit.change (what, op, job_id, key, new_claim, state, attempts, claims, crashes, most, run_at)
    VALUES ('history', lower(TG_OP), h.id, h.payload->>'key', h.claim_id, h.state, h.attempts, h.claims, h.crashes,
            h.max_attempts, h.run_at);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON {schema}.job_history
    FOR EACH ROW EXECUTE FUNCTION audit.of_history();
"""
_OF_CLAIM = """
CREATE FUNCTION audit.of_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.change (what, op, new_claim, lease_id) VALUES ('claim', 'insert', NEW.claim_id, NEW.lease_id);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT ON {schema}.claim FOR EACH ROW EXECUTE FUNCTION audit.of_claim();
"""
_OF_WORKER = """
CREATE FUNCTION audit.of_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO audit.change (what, op, lease_id, expires_at) VALUES ('lease', 'delete', OLD.lease_id, OLD.expires_at);
    ELSE
        INSERT INTO audit.change (what, op, lease_id, expires_at) VALUES ('lease', lower(TG_OP), NEW.lease_id, NEW.expires_at);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON {schema}.worker FOR EACH ROW EXECUTE FUNCTION audit.of_worker();
"""
_DUMP = """
SELECT n, extract(epoch FROM at)::float8 AS at, xid, app, what, op, job_id, key, old_claim, new_claim, state, in_line, attempts,
       claims, crashes, lost, most, extract(epoch FROM run_at)::float8 AS run_at, lease_id,
       extract(epoch FROM expires_at)::float8 AS expires_at
FROM audit.change
ORDER BY n
"""
_TABLES = """
SELECT 'job' AS place, id, payload->>'key' AS key, state, claim_id, attempts, crashes, claims, last_error, hold_reason, blocked_by
FROM {schema}.job
UNION ALL
SELECT 'history', id, payload->>'key', state, claim_id, attempts, crashes, claims, last_error, NULL, NULL
FROM {schema}.job_history
"""
_RESOURCES = {
    "connections": """SELECT count(*) FROM pg_stat_activity
        WHERE application_name LIKE 'samecommit %' AND datname = current_database()""",
    "idle_in_transaction": """SELECT count(*) FROM pg_stat_activity
        WHERE state LIKE 'idle in transaction%' AND datname = current_database()""",
    "advisory_locks": """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
    "prepared_transactions": "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()",
    "workers": "SELECT count(*) FROM {schema}.worker",
    "claims": "SELECT count(*) FROM {schema}.claim",
    "cancellations": "SELECT count(*) FROM {schema}.cancellation",
}
_LEDGER = """
SELECT (SELECT count(*) FROM {schema}.job) AS jobs, (SELECT count(*) FROM {schema}.job WHERE state = 'ready') AS ready, (SELECT count(*) FROM {schema}.job_history) AS history,
       (SELECT count(*) FROM audit.change WHERE what = 'job' AND op = 'insert') AS inserted,
       (SELECT count(*) FROM audit.change WHERE what = 'history' AND op = 'delete') AS brought_back
"""


def install(dsn: str, schema: str = "samecommit") -> None:
    """Put the triggers on a fresh installation."""
    with psycopg.connect(dsn) as conn:
        for part in (_TABLE, _OF_JOB, _OF_HISTORY, _OF_CLAIM, _OF_WORKER):
            conn.execute(_named(part, schema))


def sample(dsn: str, schema: str = "samecommit") -> dict[str, int]:
    """Count all there is, in one snapshot."""
    with psycopg.connect(dsn, connect_timeout=5) as conn:
        cursor = conn.execute(_named(_LEDGER, schema))
        assert cursor.description is not None
        return dict(zip([column.name for column in cursor.description], cursor.fetchone() or (), strict=True))


def wait_for_the_dead(dsn: str, living: int, seconds: float, schema: str = "samecommit") -> None:
    """Wait until the reaper has seen every death, for a while: a killed worker's row stays until its lease is over."""
    text = _named("SELECT (SELECT count(*) FROM {schema}.worker), (SELECT count(*) FROM {schema}.claim)", schema)
    until = time.monotonic() + seconds
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < until:
            leases, claims = conn.execute(text).fetchone() or (0, 0)
            if leases <= living and not claims:
                return
            time.sleep(0.1)


def dump(dsn: str, folder: Path, log: Path | None = None, log_start: int = 0, schema: str = "samecommit") -> None:
    """Write the audit, the tables and what is still held into a run's folder, as one snapshot sees them."""
    with psycopg.connect(dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        _copy(conn, _DUMP, folder / "audit.jsonl")
        _write(folder / "tables.jsonl", _rows(conn, _named(_TABLES, schema).decode()))
        counts = {name: _rows(conn, _named(text, schema).decode())[0]["count"] for name, text in _RESOURCES.items()}
        _write(folder / "resources.jsonl", [counts])
    if log is not None:
        (folder / "postgres.log").write_bytes(log.read_bytes()[log_start:])


def _named(text: str, schema: str) -> bytes:
    return text.replace("{schema}", '"' + schema.replace('"', '""') + '"').encode()


def _rows(conn: psycopg.Connection[Any], text: str) -> list[dict[str, Any]]:
    cursor = conn.execute(text.encode())
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _copy(conn: psycopg.Connection[Any], text: str, path: Path) -> None:
    """Write millions of rows without holding them."""
    with conn.cursor("dump") as cursor, path.open("wb") as file:
        cursor.itersize = 10_000
        cursor.execute(text.encode())
        names: list[str] = []
        for row in cursor:
            names = names or [column.name for column in cursor.description or ()]
            file.write(msgspec.json.encode(dict(zip(names, row, strict=True))) + b"\n")


def _write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
