"""A loop that nobody can end: its stop waits for it, and it goes on."""

from __future__ import annotations

import asyncio

from samecommit.runtime.service import Service


def apply() -> None:
    """Break the build."""

    async def stop(self: Service, timeout_seconds: float = 5.0) -> None:
        await asyncio.Event().wait()

    Service.stop = stop  # type: ignore[method-assign]
