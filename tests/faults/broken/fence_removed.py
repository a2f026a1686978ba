"""A finish by id alone: whoever comes last ends the job."""

from __future__ import annotations

from tests.faults.broken import overlay


def apply() -> None:
    """Break the build."""
    overlay.replace("job/finish", " AND job.claim_id = wanted.claim_id", "")
