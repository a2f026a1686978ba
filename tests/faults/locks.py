"""Row locks of a stranger: on jobs that wait in line, and on jobs that run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from tests.support.history import History

_ENQUEUE_AND_LOCK = """
SELECT e.id FROM unnest(%s::jsonb[]) AS p (payload)
CROSS JOIN LATERAL samecommit.enqueue('nap', p.payload, max_attempts => 50) AS e;
COMMIT;
BEGIN;
SELECT id FROM samecommit.job WHERE payload->>'key' = ANY (%s) AND claim_id IS NULL FOR UPDATE SKIP LOCKED
"""
_RUNNING = "SELECT id, claim_id FROM samecommit.job WHERE claim_id IS NOT NULL LIMIT %s FOR UPDATE SKIP LOCKED"
_WORKED = """
SELECT id, claim_id FROM samecommit.job
WHERE id = ANY (%s) AND kind IN ('nap', 'doze') AND payload->>'seconds' ~ '^[0-9.]{1,9}$'
  AND claimed_at + make_interval(secs => (payload->>'seconds')::float8) < clock_timestamp() - interval '0.5 s'
"""
LANDED = """
SELECT count(*) FROM samecommit.job_history AS h
JOIN unnest(%s::bigint[], %s::bigint[]) AS w (id, claim_id) ON h.id = w.id AND h.claim_id = w.claim_id
"""
"""How many jobs have ended under the very claims that they had while they were locked."""
UNCLAIMED = "SELECT count(*) FROM samecommit.job WHERE id = ANY (%s) AND claims = 0"


def enqueue_locked(conn: psycopg.Connection[Any], folder: Path, name: str, count: int) -> list[int]:
    """Enqueue jobs and lock them before anybody can claim them; the ids of those that are locked.

    It is one message to the server, which has nothing to wait for between the commit and the locks.
    """
    keys = [f"{name}-{n}" for n in range(count)]
    history = History(folder / f"client-{name}.jsonl")
    history.write("enqueue", type="invoke", keys=keys)
    try:
        payloads = [f'{{"key": "{key}", "seconds": 0.0}}' for key in keys]
        cursor = psycopg.ClientCursor(conn).execute(_ENQUEUE_AND_LOCK, [payloads, keys])
        found = [[row[0] for row in result] if result.description else [] for result in cursor.results()]
        history.write("enqueue", type="ok", keys=keys, ids=found[0])
        return found[-1]
    except psycopg.Error:
        history.write("enqueue", type="unknown", keys=keys)
        raise
    finally:
        history.close()


def lock_running(conn: psycopg.Connection[Any], most: int) -> list[int]:
    """Lock jobs that run; their ids."""
    return [row[0] for row in conn.execute(_RUNNING, [most])]


def those_that_worked(conn: psycopg.Connection[Any], locked: list[int]) -> list[list[int]]:
    """Ids and claims of those whose handlers must have ended by now: they are there because they are locked."""
    rows = conn.execute(_WORKED, [locked]).fetchall()
    return [[row[0] for row in rows], [row[1] for row in rows]]
