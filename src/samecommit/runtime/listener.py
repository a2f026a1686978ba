"""The connection that listens, always in autocommit mode: a listener inside a transaction would block the cluster's queue.

A connection that has died silently is found by a query every few seconds; after each reconnect the worker looks once, since
what was said in between is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from samecommit.storage.link import AsyncLink

_CHECK_SECONDS = 5.0


class Listener:
    """Hears one channel.

    Args:
        link: a connection of its own.
        channel: the installation's channel.
        on_message: called with each payload.
        on_gap: called after a (re)connect: something may have been missed.
    """

    def __init__(
        self, link: AsyncLink, channel: str, on_message: Callable[[str], None], on_gap: Callable[[], None]
    ) -> None:
        self._link, self._channel = link, channel
        self._on_message, self._on_gap = on_message, on_gap
        self._connects = 0

    async def run_once(self) -> float:
        """Listen for a while; one turn."""
        conn = await self._link.connection()
        if self._connects != self._link.connects:
            await self._link.define("worker/listen", channel=self._channel)
            self._connects = self._link.connects
            self._on_gap()
        async for notice in conn.notifies(timeout=_CHECK_SECONDS):
            self._on_message(notice.payload)
        await self._link.fetch("worker/ping")
        return 0.0
