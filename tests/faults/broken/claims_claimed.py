"""A claim that does not look whether the job is free."""

from __future__ import annotations

from tests.faults.broken import overlay


def apply() -> None:
    """Break the build."""
    overlay.replace(
        "claim/claim",
        "AND j.claim_id IS NULL",
        "AND (j.claim_id IS NULL OR j.claimed_at < clock_timestamp() - interval '0.3 s')",
    )
