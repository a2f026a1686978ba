"""Produces events to a Kafka topic.

Two ways:

- **idempotent** (default): the producer drops repeats of its own retries, and what is in doubt, also after a crash, is looked
  for in the topic before it is sent again.
- **transactional** (``transactional=True``): each batch is one transaction, which also stores the position, as the offsets of
  two consumer groups that have the destination's name and no consumer (window and number). A producer that was replaced is
  fenced. Effectively once for readers with ``isolation.level=read_committed``.

``acks=all`` always; how many copies that means is the topic's ``min.insync.replicas``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from samecommit.event import Event, Position, StoredEvent
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Duplicate, Lookup, Outcome, Rejected, Retry
from samecommit.outbox.sink import ReadBack, StoredPosition, Target, Traits
from samecommit.outbox.sinks.kafka_look import TARGET_HEADER, KafkaLook
from samecommit.outbox.sinks.needed import needed

_RECORD_ROOM = 8_192
_FLUSH_SECONDS = 0.1
_REJECTS = ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD")
_UNSENT = ("_PURGE_QUEUE", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "_AUTHENTICATION")
_FORBIDDEN = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
_ALONE = Retry("not sent, since one before it was not taken")


class KafkaTopic:
    """The sink.

    Args:
        servers: the brokers to begin with (``bootstrap.servers``).
        topic: which topic; ``{destination}`` is filled in.
        transactional: store the position with each batch.
        max_bytes: the broker's ``max.message.bytes``, so that a larger event is refused when it is emitted.
        timeout_seconds: how long a record is tried, and a broker waited for; shorter than the destination's ``send_seconds``.
        settle_seconds: how long a record may be in its partition and not be shown. While a replica that is in sync does not
            answer, the leader shows nothing new, and takes it out after ``replica.lag.time.max.ms`` and half of that again:
            a record that is sent again before is there twice. With one copy it can be short.
        config: further settings of librdkafka, for producer and reader (security, compression).
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        transactional: bool = False,
        max_bytes: int = 1_000_000,
        timeout_seconds: float = 8.0,
        settle_seconds: float = 45.0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._servers, self._topic_form, self._config = servers, topic, dict(config or {})
        self._is_transactional, self._max_bytes, self._seconds = transactional, max_bytes, timeout_seconds
        way = StoredPosition() if transactional else ReadBack(settle_seconds)
        self.traits = Traits(idempotency=way, keeps_key_order=transactional)
        self._kafka: Any = None
        self._producer: Any = None
        self._readers: tuple[Any, ...] = ()
        self._topic = self._name = ""
        self._position: Position | None = None
        self._look: KafkaLook | None = None

    def __repr__(self) -> str:
        return f"<KafkaTopic {self._topic_form!r}{' transactional' if self._is_transactional else ''}>"

    def complaint(self, event: Event) -> str | None:
        """Refuse what is larger than the broker takes."""
        if len(event.data) + _RECORD_ROOM > self._max_bytes:
            return f"{len(event.data):,} bytes of data and its headers do not fit into {self._max_bytes:,}"
        return None

    async def connect(self, target: Target) -> None:
        """Make a producer and see that the topic is there.

        Raises:
            DependencyMissing: confluent-kafka is not installed.
            KafkaException: no broker can be reached, or the transactions of the producer before this one cannot be ended.
            LookupError: the topic does not exist.
        """
        self._kafka = needed("confluent_kafka", "kafka")
        self._topic = self._topic_form.replace("{destination}", target.destination)
        self._name = target.name
        common = {"bootstrap.servers": self._servers, "log_level": 2, "error_cb": _quiet, **self._config}
        settings: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "message.max.bytes": self._max_bytes,
            "message.timeout.ms": int(self._seconds * 1000),
        }
        if self._is_transactional:
            settings |= {
                "transactional.id": self._name,
                "transaction.timeout.ms": max(int(self._seconds * 1000), 10_000),
            }
        reading = {"enable.auto.commit": False, "auto.offset.reset": "earliest", **common}
        groups = [f"{self._name}:{part}" for part in ("window", "number")]
        self._producer = self._kafka.Producer({**settings, **common})
        self._readers = tuple(self._kafka.Consumer({"group.id": group, **reading}) for group in groups)
        known = await _call(self._producer.list_topics, self._topic, self._seconds)
        if known.topics[self._topic].error is not None or not known.topics[self._topic].partitions:
            raise LookupError(f"topic {self._topic!r}: {known.topics[self._topic].error or 'it has no partitions'}")
        if self._is_transactional:
            await _call(self._producer.init_transactions, self._seconds)
            self._position = await self._stored()

    async def _stored(self) -> Position | None:
        place = self._kafka.TopicPartition(self._topic, 0)
        window, number = [(await _call(it.committed, [place], self._seconds))[0].offset for it in self._readers]
        return Position(window, number) if min(window, number) >= 0 else None

    async def close(self) -> None:
        """Give up what is in flight."""
        producer, self._producer = self._producer, None
        readers, self._readers = self._readers, ()
        self._look = None
        if producer is not None:
            with suppress(Exception):
                producer.purge()
                await _call(producer.flush, _FLUSH_SECONDS)
        for reader in readers:
            await _call(reader.close)

    async def position(self) -> Position | None:
        """Return the position that the last transaction has stored."""
        return self._position

    # -------------------------------------------------------------------------------------------------------------- send

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Produce, and wait for every delivery report."""
        if self._producer is None:
            return [DestinationDown("the producer is closed")] * len(batch)
        if not self._is_transactional:
            return await self._produce(batch)
        fresh = [event for event in batch if not self._is_stored(event)]
        numbers = {event.number for event in fresh}
        done = iter(await self._transact(fresh))
        return [next(done, _ALONE) if event.number in numbers else Duplicate() for event in batch]

    def _is_stored(self, event: StoredEvent) -> bool:
        return event.position is not None and self._position is not None and event.position <= self._position

    async def _produce(self, events: Sequence[StoredEvent]) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(events)

        def tell(index: int, error: Any, message: Any) -> None:
            outcomes[index] = self._reported(error, message)

        for index, event in enumerate(events):
            try:
                self._producer.produce(
                    self._topic,
                    event.data,
                    None if event.key is None else event.key.encode(),
                    headers=self._headers(event),
                    on_delivery=partial(tell, index),
                )
            except self._kafka.KafkaException as error:
                outcomes[index] = self._reported(error.args[0], None)
            except BufferError:
                outcomes[index] = DestinationDown("the producer's queue is full", 1.0)
        while None in outcomes:
            await _call(self._producer.flush, _FLUSH_SECONDS)
        return [outcome or _ALONE for outcome in outcomes]

    def _headers(self, event: StoredEvent) -> list[tuple[str, bytes]]:
        headers = [(f"ce_{name}", value.encode()) for name, value in event.attributes().items()]
        return [*headers, ("content-type", event.content_type.encode()), (TARGET_HEADER, self._name.encode())]

    def _reported(self, error: Any, message: Any) -> Outcome:
        if error is None:
            return Delivered(f"{message.topic()}[{message.partition()}]@{message.offset()}")
        reason, name = error.str(), error.name()
        if name in _REJECTS:
            return Rejected(reason)
        if name in _UNSENT or name in _FORBIDDEN:
            return DestinationDown(reason)
        return Doubt(reason)

    async def _transact(self, events: Sequence[StoredEvent]) -> list[Outcome]:
        """Send as one transaction; up to the first that is not taken when there is one, which ends the list."""
        if not events:
            return []
        await _call(self._producer.begin_transaction)
        outcomes = await self._produce(events)
        for index, outcome in enumerate(outcomes):
            if not isinstance(outcome, Delivered):
                await _call(self._producer.abort_transaction, self._seconds)
                given_up = DestinationDown(outcome.reason) if isinstance(outcome, Doubt) else outcome
                return [*await self._transact(events[:index]), given_up]
        position = max((event.position for event in events if event.position is not None), default=None)
        for reader, part in zip(self._readers, position or (), strict=False):
            place = self._kafka.TopicPartition(self._topic, 0, part)
            group = reader.consumer_group_metadata()
            await _call(self._producer.send_offsets_to_transaction, [place], group, self._seconds)
        await _call(self._producer.commit_transaction, self._seconds)
        self._position = position or self._position
        return outcomes

    # -------------------------------------------------------------------------------------------------------------- look

    async def find_existing(self, batch: Sequence[StoredEvent]) -> Sequence[Lookup]:
        """Look for events in the topic, from the time at which the oldest was emitted on."""
        if self._look is None or not self._look.covers(batch):
            self._look = KafkaLook(self._topic, self._name, batch)
        await _call(self._look.go_on, self._readers[0], self._kafka)
        return [self._look.lookup(event) for event in batch]


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what blocks, on a thread: each such call has a time limit of its own."""
    return await asyncio.to_thread(function, *arguments)


def _quiet(_error: Any) -> None:
    """Say nothing: what fails is told by what is awaited."""
