"""A chore that throws away what was enqueued a while ago, whether it has ended or not."""

from __future__ import annotations

from typing import Any

from tests.faults.broken import overlay

from samecommit.maintenance.chores import Chores

_PRUNE = """-- Throws old jobs away. Locks job rows.
DELETE FROM :"schema".job
WHERE created_at < clock_timestamp() - interval '1 s' AND claim_id IS NULL AND state = 'ready'
RETURNING id
"""


def apply() -> None:
    """Break the build."""
    overlay.add("broken/prune", _PRUNE)
    promote: Any = Chores.promote

    async def prune(self: Chores) -> float:
        await self._link.fetch("broken/prune")
        return float(await promote(self))

    Chores.promote = prune  # type: ignore[method-assign]
