"""Adds events to a Redis or Valkey stream, with the position in the same script: effectively once.

One Lua script compares each event with the stored position, adds what is behind it and writes the new position, so a relay
that wakes up after another has taken over adds nothing twice. An event outside the order (a replay, a late retry) has a key
of its own instead, kept for `remember_seconds`. Position and stream share a hash slot, so a cluster will do.

What the server acknowledged is as durable as its settings say (``appendonly``, ``appendfsync``, replicas).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from samecommit.event import Event, Position, StoredEvent
from samecommit.outbox.outcomes import Delivered, DestinationDown, Duplicate, Outcome, Retry
from samecommit.outbox.sink import StoredPosition, Target, Traits
from samecommit.outbox.sinks.needed import needed

_WEEK = 604_800

# KEYS: the stream, the position, then one for each late event. ARGV: the most entries to keep (0 for all), how long a late
# event is remembered, the events as MessagePack (each its position, empty when late, and its fields), then the data of each.
# With each field as an argument of its own the client would spend three times as long as on all the rest.
# Positions are of one width, so they compare as texts. What cannot be added ends the batch: the position covers all before.
_ADD = """
local stored, answers, late = redis.call('GET', KEYS[2]) or '', {}, 3
local newest = stored
for n, event in ipairs(cmsgpack.unpack(ARGV[3])) do
    local position, is_there = event[1], false
    if position == '' then
        is_there = redis.call('EXISTS', KEYS[late]) == 1
    else
        is_there = position <= newest
    end
    if is_there then
        answers[n] = ''
    else
        local added
        if ARGV[1] == '0' then
            added = redis.pcall('XADD', KEYS[1], '*', 'data', ARGV[3 + n], unpack(event[2]))
        else
            added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'data', ARGV[3 + n], unpack(event[2]))
        end
        if type(added) == 'table' and added.err then
            answers[n] = '!' .. added.err
            break
        end
        answers[n] = added
        if position == '' then
            redis.call('SET', KEYS[late], added, 'EX', ARGV[2])
        else
            newest = position
        end
    end
    if position == '' then
        late = late + 1
    end
end
if newest ~= stored then
    redis.call('SET', KEYS[2], newest)
end
return answers
"""


class RedisStream:
    """The sink.

    Args:
        url: the server, as redis-py takes it (``redis://``, ``rediss://``, ``unix://``).
        stream: the stream's key; ``{destination}`` and ``{shard}`` are filled in.
        max_entries: about how many entries the stream keeps; None keeps all.
        remember_seconds: how long an event outside the order is remembered, to drop its repeats.
        options: further ones for redis-py's client.
    """

    traits = Traits(idempotency=StoredPosition(), keeps_key_order=True)

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        max_entries: int | None = None,
        remember_seconds: int = _WEEK,
        **options: Any,
    ) -> None:
        self._url, self._stream, self._options = url, stream, options
        self._heads = (str(max_entries or 0), str(remember_seconds))
        self._client: Any = None
        self._keys = ("", "")
        self._sha = ""

    def __repr__(self) -> str:
        return f"<RedisStream {self._stream!r}>"

    def complaint(self, event: Event) -> str | None:
        """Take every event."""

    async def connect(self, target: Target) -> None:
        """Connect and load the script.

        Raises:
            DependencyMissing: redis-py is not installed.
            redis.exceptions.RedisError: the server cannot be reached or used.
        """
        redis = needed("redis.asyncio", "redis")
        stream = self._stream.format(destination=target.destination, shard=target.shard)
        self._keys = (stream, beside(stream, target.name))
        # Nothing is repeated by the client: what became of a script is asked for by its position.
        once = redis.retry.Retry(needed("redis.backoff", "redis").NoBackoff(), 0)
        options: dict[str, Any] = {"single_connection_client": True, "protocol": 2, "retry": once, **self._options}
        self._client = redis.Redis.from_url(self._url, **options)
        self._sha = await self._client.script_load(_ADD)

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def position(self) -> Position | None:
        """Return the stored position."""
        stored: bytes | None = await self._client.get(self._keys[1])
        return Position.parse(stored.decode()) if stored else None

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Add the events that are behind the stored position."""
        if self._client is None:
            return [DestinationDown("the connection is closed")] * len(batch)
        late = [f"{self._keys[1]}:{event.identity}" for event in batch if event.position is None]
        keys = (*self._keys, *late)
        events = msgspec.msgpack.encode([(str(event.position or ""), _fields(event)) for event in batch])
        try:
            answers = await self._run(str(len(keys)), *keys, *self._heads, events, *(event.data for event in batch))
        except needed("redis.exceptions", "redis").ResponseError as error:  # refused before anything was written
            return [DestinationDown(str(error))] * len(batch)
        outcomes = [_outcome(answer) for answer in answers]
        return outcomes + [Retry("not sent, since one before it was not taken")] * (len(batch) - len(outcomes))

    async def _run(self, *call: str | bytes) -> list[bytes]:
        try:
            return cast("list[bytes]", await self._client.execute_command("EVALSHA", self._sha, *call))
        except needed("redis.exceptions", "redis").NoScriptError:  # scripts were flushed: nothing ran
            return cast("list[bytes]", await self._client.execute_command("EVAL", _ADD, *call))


def beside(stream: str, name: str) -> str:
    """Return a key of that name in the same hash slot of a cluster as the stream."""
    start = stream.find("{")
    end = stream.find("}", start + 1)
    tag = stream[start + 1 : end] if 0 <= start < end - 1 else stream
    return f"{{{tag}}}:{name}"


def _fields(event: StoredEvent) -> list[str]:
    fields = ["ce_datacontenttype", event.content_type]
    for name, value in event.attributes().items():
        fields += (f"ce_{name}", value)
    return fields


def _outcome(answer: bytes) -> Outcome:
    if not answer:
        return Duplicate()
    if answer.startswith(b"!"):
        return DestinationDown(answer[1:].decode(errors="replace"))
    return Delivered(answer.decode())
