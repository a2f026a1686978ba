"""A reaper that takes what has been claimed for a while, whether its worker lives or not."""

from __future__ import annotations

from tests.faults.broken import overlay


def apply() -> None:
    """Break the build."""
    overlay.replace(
        "chore/reap",
        'WHERE NOT EXISTS (SELECT FROM :"schema".worker AS w WHERE w.lease_id = c.lease_id)',
        "WHERE c.claimed_at < clock_timestamp() - interval '1 second'",
    )
