"""RabbitMQ: a topic exchange and a durable queue."""

from __future__ import annotations

import aio_pika
from tests.sinks.broker import Broker, Got, texts
from tests.sinks.servers import Server

from samecommit.outbox.sinks.rabbitmq import RabbitMQ


class RabbitBroker(Broker):
    shows_repeats = True

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._got: list[Got] = []

    @property
    def direct(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.server.port}/"

    async def make(self) -> None:
        connection = await aio_pika.connect(self.direct)
        channel = await connection.channel()
        exchange = await channel.declare_exchange(self.name, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(self.name, durable=True)
        await queue.bind(exchange, "thing.#")
        await connection.close()

    def sink(self) -> RabbitMQ:
        return RabbitMQ(f"amqp://guest:guest@127.0.0.1:{self.proxy.port}/", self.name)

    async def received(self) -> list[Got]:
        connection = await aio_pika.connect(self.direct)
        channel = await connection.channel()
        queue = await channel.get_queue(self.name)
        while (message := await queue.get(fail=False, no_ack=True)) is not None:
            headers = texts(dict(message.headers))
            attributes = {n.removeprefix("cloudEvents_"): v for n, v in headers.items()}
            attributes["datacontenttype"] = message.content_type or ""
            self._got.append(
                Got(
                    id=attributes["id"],
                    key=attributes.get("partitionkey"),
                    data=message.body,
                    attributes=attributes,
                )
            )
        await connection.close()
        return list(self._got)
