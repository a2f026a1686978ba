"""A reaper that looks at a clock which is ahead of the database's."""

from __future__ import annotations

from tests.faults.broken import overlay


def apply() -> None:
    """Break the build."""
    overlay.replace(
        "chore/expire_workers",
        "WHERE expires_at <= clock_timestamp()",
        "WHERE expires_at <= clock_timestamp() + interval '2.5 s'",
    )
