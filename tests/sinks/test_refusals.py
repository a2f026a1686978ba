"""What each system refuses in its own way, and what the sink makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aio_pika
import nats
import pytest
from nats.js.api import StreamConfig
from redis.asyncio import Redis
from tests.sinks.conftest import Start, broker_of
from tests.sinks.mock_kafka import MSG_SIZE_TOO_LARGE, NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED, MockKafka
from tests.sinks.story import TARGET, renewed
from tests.sinks.test_conformance import connected, events, opened

from samecommit.errors import DependencyMissing
from samecommit.event import StoredEvent
from samecommit.outbox.courier import Courier
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Outcome, Retry, Throttled
from samecommit.outbox.sink import ReadBack, Sink
from samecommit.outbox.sinks.kafka import KafkaTopic
from samecommit.outbox.sinks.nats import NatsStream
from samecommit.outbox.sinks.needed import needed
from samecommit.outbox.sinks.rabbitmq import RabbitMQ
from samecommit.outbox.sinks.redis import RedisStream, beside
from samecommit.outbox.sinks.sns import SnsTopic
from samecommit.outbox.sinks.sqs import SqsQueue


def kinds(outcomes: Any) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


# ------------------------------------------------------------------------------------------------------------------- redis


async def test_redis_a_full_server_takes_nothing_and_the_position_stays(started: Start) -> None:
    broker = broker_of("redis", started)
    async with connected(broker) as sink, Redis(port=broker.server.port) as admin:
        assert isinstance(sink, RedisStream)
        await sink.send(events(2))
        await admin.config_set("maxmemory", "1")
        try:
            outcomes = await sink.send(events(3, first=3))
        finally:
            await admin.config_set("maxmemory", "0")
        assert isinstance(outcomes[0], DestinationDown)
        assert "OOM" in outcomes[0].reason
        assert len(await broker.received()) == 2
        assert (await sink.position()) == events(1, first=2)[0].position


async def test_redis_a_key_of_another_kind_takes_nothing(started: Start) -> None:
    broker = broker_of("redis", started)
    async with opened(broker), Redis(port=broker.server.port) as admin:
        await admin.set(broker.name, "something else")
        courier = Courier(broker.sink(), TARGET, 5.0)
        outcomes = await courier.send(events(3), renewed)
        assert isinstance(outcomes[0], DestinationDown)
        assert "WRONGTYPE" in outcomes[0].reason
        await admin.delete(broker.name)
        assert kinds(await courier.send(events(3), renewed)) == ["Delivered"] * 3
        await courier.close()


async def test_redis_forgotten_scripts_are_sent_again(started: Start) -> None:
    broker = broker_of("redis", started)
    async with connected(broker) as sink, Redis(port=broker.server.port) as admin:
        await admin.script_flush()
        assert kinds(await sink.send(events(2))) == ["Delivered"] * 2


async def test_redis_a_stream_is_trimmed_when_asked(started: Start) -> None:
    broker = broker_of("redis", started)
    async with opened(broker):
        sink = RedisStream(f"redis://127.0.0.1:{broker.server.port}", broker.name, max_entries=100)
        await sink.connect(TARGET)
        await sink.send(events(450))
        await sink.close()
        assert 100 <= len(await broker.received()) <= 250


@pytest.mark.parametrize(
    ("stream", "key"),
    [
        ("orders", "{orders}:n"),
        ("{shop}:orders", "{shop}:n"),
        ("a{b}c{d}", "{b}:n"),
        ("{}x", "{{}x}:n"),
    ],
)
def test_redis_the_position_lies_in_the_streams_slot(stream: str, key: str) -> None:
    assert beside(stream, "n") == key


# -------------------------------------------------------------------------------------------------------------------- nats


@asynccontextmanager
async def nats_stream(broker: Any, **config: Any) -> AsyncIterator[Sink]:
    """A sink for the broker's stream, changed."""
    async with opened(broker):
        admin = await nats.connect(f"nats://127.0.0.1:{broker.server.port}")
        await admin.jetstream().update_stream(StreamConfig(name=broker.name, subjects=[f"{broker.name}.>"], **config))
        await admin.close()
        sink = broker.sink()
        await sink.connect(TARGET)
        try:
            yield sink
        finally:
            await sink.close()


async def test_nats_too_large_for_the_stream_is_the_events_fault_and_no_others(started: Start) -> None:
    batch = [*events(1), *events(1, first=2, data=b"x" * 20_000), *events(1, first=3)]
    async with nats_stream(broker_of("nats", started), max_msg_size=10_000) as sink:
        assert kinds(await sink.send(batch)) == ["Delivered", "Rejected", "Delivered"]


async def test_nats_an_owned_stream_stops_at_the_first_that_is_not_taken(started: Start) -> None:
    broker = broker_of("nats owned", started)
    batch = [*events(1), *events(1, first=2, data=b"x" * 20_000), *events(2, first=3)]
    async with nats_stream(broker, max_msg_size=10_000) as sink:
        outcomes = await sink.send(batch)
        assert kinds(outcomes)[:2] == ["Delivered", "Rejected"]
        assert not any(isinstance(o, Delivered) for o in outcomes[2:])
        assert len(await broker.received()) == 1


async def test_nats_too_large_for_the_server_is_not_even_sent(started: Start) -> None:
    large = events(1, first=2, data=b"x" * 1_048_576, content_type="application/octet-stream")
    for name in ("nats", "nats owned"):
        async with connected(broker_of(name, started)) as sink:
            assert sink.complaint(large[0]) is not None
            assert kinds(await sink.send([*events(1), *large, *events(1, first=3)]))[:2] == ["Delivered", "Rejected"]
            assert kinds(await sink.send(events(1, first=4))) == ["Delivered"], "the connection was lost"


async def test_nats_a_subject_that_no_stream_takes_is_tried_again(started: Start) -> None:
    broker = broker_of("nats", started)
    async with opened(broker):
        sink = NatsStream(f"nats://127.0.0.1:{broker.server.port}", broker.name, subject="elsewhere.{type}")
        await sink.connect(TARGET)
        (outcome,) = await sink.send(events(1))
        await sink.close()
    assert isinstance(outcome, Retry)
    assert f"takes {broker.name}.>" in outcome.reason


async def test_nats_a_full_stream_takes_nothing(started: Start) -> None:
    config = {"max_msgs": 1, "discard": "new"}
    async with nats_stream(broker_of("nats", started), **config) as sink:
        outcomes = await sink.send(events(2))
    assert kinds(outcomes) == ["Delivered", "DestinationDown"]


async def test_nats_a_missing_stream_is_told(started: Start) -> None:
    broker = broker_of("nats", started)
    async with opened(broker):
        courier = Courier(NatsStream(f"nats://127.0.0.1:{broker.server.port}", "NOT_THERE"), TARGET, 5.0)
        (outcome,) = await courier.send(events(1), renewed)
        assert isinstance(outcome, DestinationDown)
        assert "stream not found" in outcome.reason


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
async def test_nats_a_stream_that_drops_what_was_read_is_refused(started: Start, retention: str) -> None:
    broker = broker_of("nats", started)
    async with opened(broker):
        admin = await nats.connect(f"nats://127.0.0.1:{broker.server.port}")
        name = f"{broker.name}-{retention}"
        await admin.jetstream().add_stream(name=name, subjects=[f"{name}.>"], retention=retention)
        await admin.close()
        url = f"nats://127.0.0.1:{broker.server.port}"
        for owns in (False, True):
            courier = Courier(NatsStream(url, name, subject=f"{name}.{{type}}", owns_stream=owns), TARGET, 5.0)
            (outcome,) = await courier.send(events(1), renewed)
            await courier.close()
            assert isinstance(outcome, DestinationDown)
            assert f"has retention '{retention}'" in outcome.reason


async def test_nats_a_stream_that_is_not_owned_is_refused(started: Start) -> None:
    broker = broker_of("nats", started)
    async with connected(broker) as sink:
        await sink.send(events(1))
        owner = NatsStream(f"nats://127.0.0.1:{broker.server.port}", broker.name, owns_stream=True)
        await owner.connect(TARGET)  # the same destination has written there: it goes on without a position
        assert await owner.position() is None
        await owner.close()
        admin = await nats.connect(f"nats://127.0.0.1:{broker.server.port}")
        await admin.jetstream().publish(f"{broker.name}.other", b"")
        await admin.close()
        with pytest.raises(RuntimeError, match="give the destination a stream of its own"):
            await owner.connect(TARGET)
        await owner.close()


@pytest.mark.parametrize("type_", ["a..b", "a.", "thing."])
def test_nats_a_type_that_makes_no_subject_is_complained_of(type_: str) -> None:
    (event,) = events(1, type=type_)
    assert "is no subject" in (NatsStream("nats://x", "s").complaint(event) or "")


# ------------------------------------------------------------------------------------------------------------------- kafka


@pytest.fixture(scope="module")
def mock() -> Iterator[MockKafka]:
    cluster = MockKafka()
    cluster.make_topic("t", 3)
    yield cluster
    cluster.stop()


@asynccontextmanager
async def on_mock(mock: MockKafka, **options: Any) -> AsyncIterator[KafkaTopic]:
    sink = KafkaTopic(mock.servers, "t", timeout_seconds=2.0, **options)
    await sink.connect(TARGET)
    try:
        yield sink
    finally:
        await sink.close()


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ([NOT_ENOUGH_REPLICAS] * 2, "Delivered"),
        ([MSG_SIZE_TOO_LARGE], "Rejected"),
        ([TOPIC_AUTHORIZATION_FAILED], "DestinationDown"),
    ],
)
async def test_kafka_what_a_broker_answers(mock: MockKafka, codes: list[int], kind: str) -> None:
    async with on_mock(mock) as sink:
        assert kinds(await sink.send(events(1))) == ["Delivered"]
        mock.fail_produce(*codes)
        assert kinds(await sink.send(events(1, first=2))) == [kind]


def test_kafka_is_looked_into_when_a_silent_replica_has_been_taken_out() -> None:
    way = KafkaTopic("x:1", "t").traits.idempotency
    assert isinstance(way, ReadBack)
    assert way.settle_seconds >= 1.5 * 30.0, "replica.lag.time.max.ms, looked at every half of it"
    assert KafkaTopic("x:1", "t", settle_seconds=1.0).traits.idempotency == ReadBack(1.0)


async def test_kafka_a_broker_that_goes_silent_leaves_a_doubt(mock: MockKafka) -> None:
    async with on_mock(mock) as sink:
        await sink.send(events(1))
        mock.set_delay(30.0)
        try:
            assert kinds(await sink.send(events(1, first=2))) == ["Doubt"]
        finally:
            mock.set_delay(0.0)


async def test_kafka_too_large_for_the_client_is_the_events_fault_and_no_others(mock: MockKafka) -> None:
    large = events(1, first=2, data=b"x" * 1_100_000)
    async with on_mock(mock) as sink:
        assert sink.complaint(large[0]) is not None
        assert kinds(await sink.send([*events(1), *large, *events(1, first=3)])) == [
            "Delivered",
            "Rejected",
            "Delivered",
        ]


async def test_kafka_a_transaction_ends_before_the_first_that_is_not_taken(started: Start) -> None:
    broker = broker_of("kafka transactional", started)
    large = events(1, first=3, data=b"x" * 1_100_000)
    async with connected(broker) as sink:
        outcomes = await sink.send([*events(2), *large, *events(1, first=4)])
        assert kinds(outcomes) == ["Delivered", "Delivered", "Rejected", "Retry"]
        assert await sink.position() == events(1, first=2)[0].position  # type: ignore[attr-defined]


async def test_kafka_a_missing_topic_is_told(mock: MockKafka) -> None:
    sink = KafkaTopic(mock.servers, "not there", timeout_seconds=2.0, config={"allow.auto.create.topics": False})
    outcome = (await Courier(sink, TARGET, 5.0).send(events(1), renewed))[0]
    assert isinstance(outcome, DestinationDown)
    assert "not there" in outcome.reason


# ---------------------------------------------------------------------------------------------------------------- rabbitmq


async def test_rabbitmq_what_no_queue_takes_is_not_lost(started: Start) -> None:
    broker = broker_of("rabbitmq", started)
    batch = [*events(1), *events(1, first=2, type="other.thing"), *events(1, first=3)]
    async with connected(broker) as sink:
        outcomes = await sink.send(batch)
        assert kinds(outcomes) == ["Delivered", "Retry", "Delivered"]
        assert isinstance(outcomes[1], Retry)
        assert "'other.thing'" in outcomes[1].reason
        assert len(await broker.received()) == 2


async def test_rabbitmq_a_full_queue_stops_the_destination(started: Start) -> None:
    broker = broker_of("rabbitmq", started)
    async with opened(broker):
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{broker.server.port}/")
        channel = await connection.channel()
        limits: Any = {"x-max-length": 2, "x-overflow": "reject-publish"}
        await channel.declare_queue(f"{broker.name}-full", durable=True, arguments=limits)
        await connection.close()
        sink = RabbitMQ(f"amqp://guest:guest@127.0.0.1:{broker.server.port}/", routing_key=f"{broker.name}-full")
        await sink.connect(TARGET)
        first = await sink.send(events(2))
        second = await sink.send(events(1, first=3))
        await sink.close()
    assert kinds(first) == ["Delivered"] * 2
    assert isinstance(second[0], Throttled)


async def test_rabbitmq_too_large_for_the_broker_is_found_out_alone(started: Start) -> None:
    large = events(1, first=2, data=b"x" * 2_100_000)
    async with opened(broker_of("rabbitmq", started)) as broker:
        courier = Courier(broker.sink(), TARGET, 5.0)
        together = await courier.send([*events(1), *large], renewed)
        assert isinstance(together[1], Doubt)
        assert kinds(await courier.send(large, renewed)) == ["Rejected"]
        assert kinds(await courier.send(events(1, first=3), renewed)) == ["Delivered"]
        await courier.close()


async def test_rabbitmq_a_missing_exchange_is_told(started: Start) -> None:
    broker = broker_of("rabbitmq", started)
    sink = RabbitMQ(f"amqp://guest:guest@127.0.0.1:{broker.server.port}/", "not there")
    outcome = (await Courier(sink, TARGET, 5.0).send(events(1), renewed))[0]
    assert isinstance(outcome, DestinationDown)
    assert "not there" in outcome.reason


# --------------------------------------------------------------------------------------------------------------------- aws


class Answering(SqsQueue):
    """Gives the answers that it is told in place of the service's."""

    answer: Mapping[str, Any]

    async def send_entries(self, client: Any, name: str, entries: list[dict[str, Any]]) -> Mapping[str, Any]:
        return self.answer


async def sent(answer: Mapping[str, Any], batch: list[StoredEvent]) -> list[Outcome]:
    sink = Answering("https://queue/x.fifo", region="us-east-1")
    sink.answer, sink._client = answer, object()
    sink._errors = needed("botocore.exceptions", "sqs")
    return list(await sink.send(batch))


async def test_sqs_every_entry_of_a_batch_has_an_answer_of_its_own() -> None:
    answer = {
        "Successful": [{"Id": "0", "MessageId": "m", "SequenceNumber": "9"}],
        "Failed": [
            {"Id": "1", "Code": "InvalidMessageContents", "Message": "no", "SenderFault": True},
            {"Id": "2", "Code": "InternalError", "Message": "oops", "SenderFault": False},
            {"Id": "3", "Code": "RequestThrottled", "Message": "slow", "SenderFault": True},
        ],
    }
    outcomes = await sent(answer, events(5))
    assert outcomes[0] == Delivered("9")
    assert kinds(outcomes) == ["Delivered", "Rejected", "Retry", "Throttled", "Doubt"]


async def test_sqs_batches_hold_ten_and_no_more_than_the_limit_of_bytes() -> None:
    sink = SqsQueue("https://queue/x", max_bytes=3_000)
    batch = [
        *events(12),
        *events(3, first=20, data=b'"' + b"x" * 1_000 + b'"'),
        *events(1, first=30, data=b"9" * 4_000),
    ]
    outcomes: dict[int, Outcome] = {}
    parts = list(sink._parts(list(enumerate(batch)), outcomes))
    assert max(len(part) for part in parts) <= 10
    assert sum(len(part) for part in parts) == 15
    for part in parts:
        assert sum(len(entry["MessageBody"].encode()) for entry in part.values()) <= 3_000
    assert kinds(outcomes.values()) == ["Rejected"]


async def test_sqs_a_key_that_is_no_group_id_is_hashed_and_stays_the_same() -> None:
    sink = SqsQueue("https://queue/x.fifo")
    odd, plain = sink._order(events(1, key="ü" * 150)[0]), sink._order(events(1, key="order-7")[0])
    assert len(odd["MessageGroupId"]) == 64
    assert sink._order(events(1, key="ü" * 150)[0])["MessageGroupId"] == odd["MessageGroupId"]
    assert plain["MessageGroupId"] == "order-7"
    without = {sink._order(event)["MessageGroupId"] for event in events(3, key=None)}
    assert len(without) == 3


def test_sqs_and_sns_complain_of_what_they_could_never_take() -> None:
    queue, topic = SqsQueue("https://queue/x"), SnsTopic("arn:aws:sns:us-east-1:1:x")
    (fits,) = events(1, data=b'"' + b"x" * 200_000 + b'"')
    (medium,) = events(1, data=b"x" * 250_000, content_type="application/octet-stream")
    (noxml,) = events(1, data='"\uffff"'.encode())
    assert (queue.complaint(fits), topic.complaint(fits), queue.complaint(medium)) == (None, None, None)
    assert "262,144" in (topic.complaint(medium) or "")
    assert "XML" in (queue.complaint(noxml) or "")


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "application/vnd.shop+json", "application/json"]
)
def test_sqs_and_sns_look_at_json_of_every_name(content_type: str) -> None:
    (noxml,) = events(1, data='"\uffff"'.encode(), content_type=content_type)
    assert "XML" in (SqsQueue("https://queue/x").complaint(noxml) or "")


def test_sqs_and_sns_measure_what_is_not_json_as_base64() -> None:
    (lines,) = events(1, data=b"x" * 900_000, content_type="application/x-ndjson")
    (binary,) = events(1, data=b"\xef\xbf\xbf", content_type="application/x-ndjson")
    queue = SqsQueue("https://queue/x")
    assert len(lines.structured()) > 1_048_576
    assert "do not fit" in (queue.complaint(lines) or "")
    assert queue.complaint(binary) is None


@pytest.mark.parametrize("changes", [{"subject": "\uffff"}, {"key": "\ufffe"}, {"extensions": {"tenant": "\uffff"}}])
def test_sqs_and_sns_complain_of_attributes_that_xml_cannot_hold(changes: dict[str, Any]) -> None:
    (event,) = events(1, **changes)
    assert "attributes" in (SqsQueue("https://queue/x").complaint(event) or "")


class Small(SqsQueue):
    """A queue of a service that takes less at once than is known here."""

    def __init__(self, most: int) -> None:
        super().__init__("https://queue/x", region="us-east-1")
        self._client, self._errors, self.most = object(), needed("botocore.exceptions", "sqs"), most

    async def send_entries(self, client: Any, name: str, entries: list[dict[str, Any]]) -> Mapping[str, Any]:
        if sum(len(entry["MessageBody"]) for entry in entries) > self.most:
            error = {"Code": "AWS.SimpleQueueService.BatchRequestTooLong", "Message": "too long"}
            raise self._errors.ClientError({"Error": error}, "SendMessageBatch")
        return {"Successful": [{"Id": entry["Id"], "MessageId": entry["Id"]} for entry in entries]}


async def test_sqs_what_is_too_long_for_the_service_is_the_events_fault_and_no_others() -> None:
    large = events(1, first=3, data=b'"' + b"x" * 3_000 + b'"')
    outcomes = await Small(most=1_000).send([*events(2), *large, *events(3, first=4)])
    assert kinds(outcomes) == ["Delivered", "Delivered", "Rejected", "Delivered", "Delivered", "Delivered"]


async def test_sqs_a_missing_queue_is_told(started: Start) -> None:
    broker = broker_of("sqs", started)
    async with opened(broker):
        sink = SqsQueue(f"http://127.0.0.1:{broker.server.port}/000000000000/not-there", **broker.through)  # type: ignore[attr-defined]
        outcome = (await Courier(sink, TARGET, 5.0).send(events(1), renewed))[0]
    assert isinstance(outcome, DestinationDown)
    assert "NonExistentQueue" in outcome.reason or "QueueDoesNotExist" in outcome.reason


class Knocking(SqsQueue):
    """Notes as whom it would ask for the queue."""

    async def look_at_it(self, client: Any, name: str) -> None:
        self.known_as = client._request_signer._credentials.access_key


async def test_sqs_replaced_credentials_are_read_at_the_next_connect(  # B21
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    sink = Knocking("https://queue/x", region="us-east-1")
    for key in ("old", "new"):
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = x\n")
        await sink.connect(TARGET)
        assert sink.known_as == key
        await sink.close()


# --------------------------------------------------------------------------------------------------------------- libraries


@pytest.mark.parametrize(
    ("sink", "module", "extra"),
    [
        (RedisStream("redis://x", "s"), "redis.asyncio", "redis"),
        (NatsStream("nats://x", "s"), "nats", "nats"),
        (KafkaTopic("x:1", "t"), "confluent_kafka", "kafka"),
        (RabbitMQ("amqp://x"), "aio_pika", "rabbitmq"),
        (SqsQueue("https://x/q"), "aiobotocore.session", "sqs"),
        (SnsTopic("arn:x"), "aiobotocore.session", "sqs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_missing_library_says_what_to_install(
    sink: Sink, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("samecommit.outbox.sinks.needed.import_module", absent)
    with pytest.raises(DependencyMissing, match=rf'{module} is not installed: pip install "samecommit\[{extra}\]"'):
        await sink.connect(TARGET)
    assert repr(sink).startswith("<")
    await sink.close()
