"""Redis Streams."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from tests.sinks.broker import Broker, Got, texts

from samecommit.outbox.sinks.redis import RedisStream


class RedisBroker(Broker):
    async def make(self) -> None:
        pass

    def sink(self) -> RedisStream:
        return RedisStream(f"redis://127.0.0.1:{self.proxy.port}", self.name)

    async def received(self) -> list[Got]:
        async with Redis(port=self.server.port) as client:
            entries: Any = await client.xrange(self.name)
        found: list[Got] = []
        for _, fields in entries:
            data = fields.pop(b"data")
            attributes = {name.removeprefix("ce_"): value for name, value in texts(fields).items()}
            found.append(Got(id=attributes["id"], key=attributes.get("partitionkey"), data=data, attributes=attributes))
        return found
