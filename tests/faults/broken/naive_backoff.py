"""A backoff without a cap."""

from __future__ import annotations

from samecommit.retry import Backoff


def apply() -> None:
    """Break the build."""

    def step(self: Backoff, attempts: int) -> float:
        return 20.0 * 2.0**attempts

    Backoff.step = step  # type: ignore[method-assign]
