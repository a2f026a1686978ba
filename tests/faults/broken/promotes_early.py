"""A promoter whose clock is a second ahead of the database's."""

from __future__ import annotations

from tests.faults.broken import overlay


def apply() -> None:
    """Break the build."""
    overlay.replace(
        "chore/promote",
        "AND j.run_at <= (SELECT now FROM moment)",
        "AND j.run_at <= (SELECT now FROM moment) + interval '1 s'",
    )
