"""Publishes events to a RabbitMQ exchange, persistent, mandatory and confirmed.

RabbitMQ drops no repeats: a message whose confirmation was lost is published again, and receivers drop it by ``message_id``
(see the inbox). A message that no queue takes comes back and is tried again later; without ``mandatory`` the broker would
confirm it and throw it away.

CloudEvents has no binding for AMQP 0-9-1: attributes are headers ``cloudEvents_<name>``, as in the one for AMQP 1.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from samecommit.event import Event, StoredEvent
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Outcome, Rejected, Retry, Throttled
from samecommit.outbox.sink import NoIdempotency, Target, Traits
from samecommit.outbox.sinks.needed import needed

_SHORT = 255
_PERSISTENT = 2
_NACKED = "Basic.Nack"


class RabbitMQ:
    """The sink.

    Args:
        url: the broker (``amqp://``, ``amqps://``).
        exchange: which exchange; it must exist. Empty is the default one, whose routing keys are queues' names.
        routing_key: ``{type}`` is the event's type, ``{destination}`` and ``{shard}`` as configured.
        max_bytes: the broker's ``max_message_size``.
        options: further ones for aio-pika's ``connect``.
    """

    traits = Traits(idempotency=NoIdempotency())

    def __init__(
        self,
        url: str,
        exchange: str = "",
        routing_key: str = "{type}",
        *,
        max_bytes: int = 16_777_216,
        **options: Any,
    ) -> None:
        self._url, self._exchange_name, self._options = url, exchange, options
        self._routing_form, self._max_bytes = routing_key, max_bytes
        self._pika: Any = None
        self._connection: Any = None
        self._channel: Any = None
        self._exchange: Any = None
        self._routing = ""

    def __repr__(self) -> str:
        return f"<RabbitMQ exchange {self._exchange_name!r}>"

    def complaint(self, event: Event) -> str | None:
        """Refuse what is larger than the broker takes, and texts that are longer than AMQP's short strings."""
        if len(event.data) > self._max_bytes:
            return f"{len(event.data):,} bytes of data do not fit into {self._max_bytes:,}"
        short = {"type": event.type, "content type": event.content_type, "id": event.id}
        for name, text in short.items():
            if len(text.encode()) > _SHORT - 16:
                return f"its {name} is longer than {_SHORT - 16} bytes"
        return None

    async def connect(self, target: Target) -> None:
        """Connect, and see that the exchange is there.

        Raises:
            DependencyMissing: aio-pika is not installed.
            aiormq.exceptions.AMQPError, OSError: the broker cannot be reached, or the exchange is missing.
        """
        self._pika = needed("aio_pika", "rabbitmq")
        form = self._routing_form.replace("{destination}", target.destination)
        self._routing = form.replace("{shard}", str(target.shard))
        self._connection = await self._pika.connect(self._url, **self._options)
        await self._open_channel()

    async def _open_channel(self) -> None:
        self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        if self._exchange_name:
            self._exchange = await self._channel.get_exchange(self._exchange_name, ensure=True)
        else:
            self._exchange = self._channel.default_exchange

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Publish all, and wait for every confirmation."""
        if self._exchange is None:
            return [DestinationDown("the connection is closed")] * len(batch)
        if self._channel.is_closed:  # the broker closes it over one message
            await self._open_channel()
        outcomes = list(await asyncio.gather(*(self._publish(event) for event in batch)))
        if len(batch) == 1 and isinstance(outcomes[0], Doubt) and "PRECONDITION_FAILED" in outcomes[0].reason:
            return [Rejected(outcomes[0].reason)]  # the channel was closed because of this message and no other
        return outcomes

    async def _publish(self, event: StoredEvent) -> Outcome:
        routing_key = self._routing.replace("{type}", event.type)
        errors = self._pika.exceptions
        try:
            await self._exchange.publish(self._message(event), routing_key, mandatory=True)
        except errors.PublishError:
            return Retry(
                f"no queue takes messages of exchange {self._exchange_name!r} with routing key {routing_key!r}"
            )
        except errors.DeliveryError as error:  # a full queue that rejects, or the broker's own trouble
            return Throttled(None, f"not confirmed: {getattr(error.frame, 'name', None) or _NACKED}")
        except errors.AMQPError as error:
            return Doubt(f"{type(error).__name__}: {error}")
        except ConnectionError as error:
            return Doubt(f"the connection was lost: {error}")
        return Delivered(event.dedupe_id)

    def _message(self, event: StoredEvent) -> Any:
        return self._pika.Message(
            event.data,
            headers={f"cloudEvents_{name}": value for name, value in event.attributes().items()},
            content_type=event.content_type,
            delivery_mode=_PERSISTENT,
            message_id=event.dedupe_id,
            type=event.type,
            timestamp=event.time,
        )
