"""What is given back at a shutdown spends an attempt."""

from __future__ import annotations

from samecommit.worker import executor
from samecommit.worker.verdict import Settle


def apply() -> None:
    """Break the build."""
    assert hasattr(executor, "GIVE_BACK"), "this build is not broken"
    setattr(executor, "GIVE_BACK", Settle(None, spends=True))  # noqa: B010 - it is imported there, not exported
