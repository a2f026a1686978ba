"""An end that is written whether its row is taken or not."""

from __future__ import annotations

from tests.faults.broken import overlay


def apply() -> None:
    """Break the build."""
    overlay.replace(
        "job/finish",
        """DELETE FROM :"schema".job
    USING mine
    WHERE job.ctid = mine.ctid""",
        """UPDATE :"schema".job
    SET claim_id = NULL, claimed_at = NULL
    FROM mine
    WHERE job.ctid = mine.ctid""",
    )
