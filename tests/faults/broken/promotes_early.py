"""A promoter whose clock is a second ahead of the database's."""

from __future__ import annotations

from tests.faults.broken import overlay


def apply() -> None:
    """Break the build."""
    overlay.replace(
        "chore/promote", "AND j.run_at <= clock_timestamp()", "AND j.run_at <= clock_timestamp() + interval '1 s'"
    )
