"""NATS JetStream, on a stream that others may write to, and on one that the destination owns."""

from __future__ import annotations

from urllib.parse import unquote

import nats
from nats.js.api import DeliverPolicy
from tests.sinks.broker import Broker, Got

from samecommit.outbox.sinks.nats import NatsStream


class NatsBroker(Broker):
    owns_its_place = False

    @property
    def _url(self) -> str:
        return f"nats://127.0.0.1:{self.server.port}"

    async def make(self) -> None:
        client = await nats.connect(self._url)
        await client.jetstream().add_stream(name=self.name, subjects=[f"{self.name}.>"])
        await client.close()

    def sink(self) -> NatsStream:
        return NatsStream(
            f"nats://127.0.0.1:{self.proxy.port}",
            self.name,
            subject=f"{self.name}.{{type}}",
            owns_stream=self.owns_its_place,
        )

    async def received(self) -> list[Got]:
        client = await nats.connect(self._url)
        stream = client.jetstream()
        found: list[Got] = []
        count = (await stream.stream_info(self.name)).state.messages
        reader = await stream.subscribe("", stream=self.name, ordered_consumer=True, deliver_policy=DeliverPolicy.ALL)
        for _ in range(count):
            message = await reader.next_msg(timeout=5.0)
            headers = {name: unquote(value) for name, value in (message.headers or {}).items()}
            attributes = {name[3:]: value for name, value in headers.items() if name.startswith("ce-")}
            found.append(
                Got(
                    id=attributes["id"],
                    key=attributes.get("partitionkey"),
                    data=message.data,
                    attributes=attributes,
                )
            )
        await client.close()
        return found


class OwnedNatsBroker(NatsBroker):
    owns_its_place = True
