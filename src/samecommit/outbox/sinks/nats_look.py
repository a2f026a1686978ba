"""Looks for messages in a stream by reading the headers of what was stored since the oldest of them was emitted.

A long stream is read in several calls: each goes on where the last one ended, and answers *unsure* until the end is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from samecommit.event import StoredEvent
from samecommit.outbox.outcomes import Found, Lookup, NotFound, Unsure
from samecommit.outbox.sinks.needed import needed

# How far the clocks of database and server may be apart.
_SKEW = timedelta(minutes=10)
_SECONDS, _ROOM = 3.0, 1_000


def identity(target: str, source: str, event_id: str, replay: int) -> str:
    """Return what a message is known by: the event of one source for one target, each replay of its own."""
    prefix = _prefix(target, source)
    return f"{prefix}:{event_id}:r{replay}" if replay else f"{prefix}:{event_id}"


@lru_cache(maxsize=1024)
def _prefix(target: str, source: str) -> str:
    return blake2b(f"{target}\n{source}".encode(), digest_size=8).hexdigest()


class Look:
    """One look for some events.

    Args:
        target: whose messages count.
        wanted: the events by identity.
    """

    def __init__(self, target: str, wanted: Mapping[str, StoredEvent]) -> None:
        self._target, self._wanted = target, frozenset(wanted)
        self._since = min(event.time for event in wanted.values()) - _SKEW
        self._next = 0
        self._found: dict[str, str] = {}
        self._is_done = False

    def covers(self, wanted: Mapping[str, StoredEvent]) -> bool:
        """Whether this look is for those events, too."""
        return self._wanted.issuperset(wanted)

    def lookup(self, name: str) -> Lookup:
        """Return what is known of one event."""
        if name in self._found:
            return Found(self._found[name])
        return NotFound() if self._is_done else Unsure("the stream is long: still looking")

    async def go_on(self, jetstream: Any, stream: str) -> bool:
        """Read on for a few seconds; True at the end of the stream."""
        until = asyncio.get_running_loop().time() + _SECONDS
        consumer = await jetstream.pull_subscribe("", stream=stream, config=self._config())
        try:
            left = (await consumer.consumer_info()).num_pending
            while left > 0 and asyncio.get_running_loop().time() < until:
                for message in await consumer.fetch(min(left, _ROOM), timeout=_SECONDS):
                    self._see(message)
                    left -= 1
        finally:
            await consumer.unsubscribe()
        self._is_done = left <= 0
        return self._is_done

    def _config(self) -> Any:
        api = needed("nats.js.api", "nats")
        policy = api.DeliverPolicy
        return api.ConsumerConfig(
            deliver_policy=policy.BY_START_SEQUENCE if self._next else policy.BY_START_TIME,
            opt_start_seq=self._next or None,
            opt_start_time=None if self._next else self._since,
            ack_policy=api.AckPolicy.NONE,
            headers_only=True,
            inactive_threshold=30.0,
            mem_storage=True,
        )

    def _see(self, message: Any) -> None:
        sequence = message.metadata.sequence.stream
        self._next = sequence + 1
        headers: dict[str, str] = message.headers or {}
        if headers.get("Samecommit-Target") == self._target:
            source, event_id = headers.get("ce-source", ""), headers.get("ce-id", "")
            name = identity(self._target, source, event_id, int(headers.get("ce-replay", "0")))
            if name in self._wanted:
                self._found[name] = f"{message.metadata.stream}:{sequence}"
