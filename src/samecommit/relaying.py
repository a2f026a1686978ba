"""A worker with the outbox beside it: one process that runs jobs, expands and relays events."""

from __future__ import annotations

from typing import Any

from samecommit.outbox.relays import Outbox
from samecommit.worker.worker import Worker


class RelayingWorker(Worker):
    """Runs the outbox for as long as it works: deliveries are jobs, so the outbox ends after the last handler.

    Args:
        outbox: its destinations; its delivery tasks are among the worker's.
        worker: what a `Worker` takes.
    """

    def __init__(self, outbox: Outbox, *worker: Any) -> None:
        super().__init__(*worker)
        self._outbox = outbox

    async def run(self) -> None:
        """Work and relay until `stop`."""
        await self._outbox.start()
        try:
            await super().run()
        finally:
            await self._outbox.finish()
