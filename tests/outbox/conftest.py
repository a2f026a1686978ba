"""What some of the outbox's tests ask for."""

from typing import Any

import psycopg
import pytest


@pytest.fixture
def numbers_from_one(conn: psycopg.Connection[Any]) -> None:
    """Let the windows of this test's log count from 1, and not from the milliseconds since 1970."""
    conn.execute(
        "UPDATE samecommit.setting SET value = jsonb_build_object('floor', 0, 'timeline',"
        " (SELECT greatest(c.timeline_id, r.min_recovery_end_timeline) FROM pg_control_checkpoint() AS c, pg_control_recovery() AS r))"
        " WHERE name = 'outbox_line'"
    )
