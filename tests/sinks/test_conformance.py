"""What every sink must do against its real server, whatever goes wrong between them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg
import pytest
from tests.sinks.broker import Broker
from tests.sinks.story import TARGET, carry, check, emit_many, is_success, renewed, stage

from samecommit.event import Position, StoredEvent
from samecommit.outbox.courier import Courier
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Duplicate, Found, NotFound
from samecommit.outbox.sink import PositionSink, ReadBackSink, Sink, StoredPosition

Conn = psycopg.Connection[Any]
BYTES = bytes(range(256))


@asynccontextmanager
async def opened(broker: Broker) -> AsyncIterator[Broker]:
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Sink]:
    async with opened(broker):
        sink = broker.sink()
        await sink.connect(TARGET)
        try:
            yield sink
        finally:
            await sink.close()


def events(count: int, *, key: str | None = "a", first: int = 1, **changes: Any) -> list[StoredEvent]:
    """Return events of one key that follow each other."""
    made = StoredEvent(
        id="",
        source="/shop",
        type="thing.done",
        data=b"{}",
        key=key,
        time=datetime.now(UTC),
        number=0,
    )
    return [
        msgspec.structs.replace(
            made, **{"id": f"event-{broker_id()}-{n}", "number": n, "position": Position(1, n), **changes}
        )
        for n in range(first, first + count)
    ]


_ids = iter(range(10**9))


def broker_id() -> int:
    return next(_ids)


def holds_position(sink: Sink) -> bool:
    return isinstance(sink.traits.idempotency, StoredPosition)


# ------------------------------------------------------------------------------------------------------ what it carries


async def test_an_event_arrives_with_its_bytes_and_attributes(broker: Broker) -> None:
    (event,) = events(
        1,
        key="müller & söhne/7",
        data=BYTES,
        content_type="application/x-thing",
        subject="thing 7",
        extensions={"traceparent": "00-ab-cd-01"},
        version=3,
    )
    async with connected(broker) as sink:
        assert sink.complaint(event) is None
        assert [is_success(o) for o in await sink.send([event])] == [True]
        (got,) = await broker.received()
    assert (got.id, got.key, got.data) == (event.id, event.key, BYTES)
    expected = {**event.attributes(), "datacontenttype": "application/x-thing"}
    assert {name: got.attributes.get(name) for name in expected} == expected


async def test_a_batch_keeps_the_order_of_its_keys(broker: Broker) -> None:
    batch = [e for pair in zip(events(20, key="a"), events(20, key="b", first=101), strict=True) for e in pair]
    batch.sort(key=lambda event: event.number)
    async with connected(broker) as sink:
        room = sink.traits.batch
        for start in range(0, len(batch), room):
            part = batch[start : start + room]
            waves = [part] if sink.traits.keeps_key_order or holds_position(sink) else [[event] for event in part]
            for wave in waves:
                assert all(is_success(o) for o in await sink.send(wave))
        got = await broker.received()
    check(got, [(event.id, event.key) for event in batch], may_repeat=False)


async def test_an_event_of_one_mebibyte_arrives_or_is_complained_of(broker: Broker) -> None:
    (event,) = events(1, data=b"x" * 1_048_576, content_type="application/octet-stream")
    async with connected(broker) as sink:
        if sink.complaint(event) is None:
            assert is_success((await sink.send([event]))[0])
            assert [len(got.data) for got in await broker.received()] == [1_048_576]


async def test_without_a_key_and_without_data(broker: Broker) -> None:
    batch = events(3, key=None, data=b"", content_type="application/octet-stream")
    for event in batch:
        assert event.key is None
    async with connected(broker) as sink:
        assert all(is_success(o) for o in await sink.send(batch))
        assert {(got.id, got.key, got.data) for got in await broker.received()} == {(e.id, None, b"") for e in batch}


# ----------------------------------------------------------------------------------------------------- repeats and places


async def test_a_late_event_is_sent_and_leaves_the_position(broker: Broker) -> None:
    first, second = events(2)
    (late,) = events(1, first=50, position=None)
    async with connected(broker) as sink:
        assert is_success((await sink.send([first]))[0])
        assert is_success((await sink.send([late]))[0])
        assert is_success((await sink.send([second]))[0])
        if isinstance(sink, PositionSink) and holds_position(sink):
            assert await sink.position() == second.position
        assert [got.id for got in await broker.received()] == [first.id, late.id, second.id]
        assert "sequence" not in (await broker.received())[1].attributes


async def test_a_replay_arrives_though_the_event_is_there_and_leaves_the_position(broker: Broker) -> None:
    first, second, third = events(3)
    again = msgspec.structs.replace(first, position=None, replay=7)
    async with connected(broker) as sink:
        assert all(is_success(o) for o in await sink.send([first, second]))
        assert [type(o) for o in await sink.send([again])] == [Delivered]
        assert is_success((await sink.send([third]))[0])
        if isinstance(sink, PositionSink) and holds_position(sink):
            assert await sink.position() == third.position
        if isinstance(sink, ReadBackSink):
            other = msgspec.structs.replace(again, replay=8)
            assert [type(it) for it in await sink.find_existing([again, other])] == [Found, NotFound]
        received = await broker.received()
        assert [got.id for got in received] == [first.id, second.id, first.id, third.id]
        assert received[2].attributes["replay"] == "7"


async def test_a_stored_position_outlives_the_connection_and_refuses_what_is_behind_it(broker: Broker) -> None:
    batch = events(5)
    async with connected(broker) as sink:
        if not (isinstance(sink, PositionSink) and holds_position(sink)):
            pytest.skip("it stores no position")
        assert await sink.position() is None
        assert all(is_success(o) for o in await sink.send(batch[:3]))
        await sink.close()
        again = broker.sink()
        assert isinstance(again, PositionSink)
        await again.connect(TARGET)
        assert await again.position() == batch[2].position
        outcomes = await again.send(batch)
        await again.close()
        assert [type(o) for o in outcomes[:3]] == [Duplicate] * 3
        assert [got.id for got in await broker.received()] == [event.id for event in batch]


async def test_a_relay_that_wakes_up_behind_another_writes_nothing_twice(broker: Broker) -> None:
    batch = events(6)
    async with connected(broker) as sleeper:
        if not holds_position(sleeper):
            pytest.skip("it stores no position")
        assert all(is_success(o) for o in await sleeper.send(batch[:2]))
        follower = broker.sink()
        await follower.connect(TARGET)
        assert all(is_success(o) for o in await follower.send(batch[2:]))
        woken = Courier(sleeper, TARGET, 5.0)
        woken._is_connected = True
        await woken.send(batch[2:4], renewed)
        await woken.send([*batch[4:], *events(1, first=7)], renewed)
        await woken.close()
        await follower.close()
        ids = [got.id for got in await broker.received()]
    assert len(ids) == len(set(ids)), "a repeat is visible"
    assert ids[:6] == [event.id for event in batch]


async def test_a_look_finds_what_is_there_and_nothing_else(broker: Broker) -> None:
    there, absent = events(3), events(2, first=10)
    async with connected(broker) as sink:
        if not isinstance(sink, ReadBackSink):
            pytest.skip("it cannot be read")
        assert all(is_success(o) for o in await sink.send(there))
        found = await sink.find_existing([there[2], absent[0], there[0], absent[1]])
        assert [type(it) for it in found] == [Found, NotFound, Found, NotFound]
        assert [type(it) for it in await sink.find_existing(absent)] == [NotFound, NotFound]


async def test_ids_are_unique_within_their_source_only(broker: Broker) -> None:
    (first,) = events(1, id="7", source="/orders")
    (second,) = events(1, first=2, id="7", source="/invoices")
    late = msgspec.structs.replace(second, number=3, position=None, source="/parcels")
    async with connected(broker) as sink:
        assert is_success((await sink.send([first]))[0])
        if isinstance(sink, ReadBackSink):
            assert [type(it) for it in await sink.find_existing([first, second])] == [Found, NotFound]
        for event in (second, late, msgspec.structs.replace(late, number=4, source="/returns")):
            assert [type(o) for o in await sink.send([event])] == [Delivered]
        sources = [got.attributes["source"] for got in await broker.received()]
    assert sorted(sources) == ["/invoices", "/orders", "/parcels", "/returns"]


async def test_another_destination_and_shard_have_positions_of_their_own(broker: Broker) -> None:
    async with connected(broker) as sink:
        if not (isinstance(sink, PositionSink) and holds_position(sink)) or broker.owns_its_place:
            pytest.skip("it stores no position, or has its place for itself")
        assert is_success((await sink.send(events(1)))[0])
        other = broker.sink()
        await other.connect(dataclasses.replace(TARGET, shard=1))
        assert isinstance(other, PositionSink)
        assert await other.position() is None
        await other.close()


# ----------------------------------------------------------------------------------------------------------- what fails


async def test_a_server_that_refuses_took_nothing_and_is_used_again(broker: Broker) -> None:
    batch = events(2)
    async with opened(broker):
        courier = Courier(broker.sink(), TARGET, 5.0)
        broker.refuse()
        assert all(isinstance(o, DestinationDown) for o in await courier.send(batch, renewed))
        broker.heal()
        assert all(is_success(o) for o in await courier.send(batch, renewed))
        await courier.close()
        assert [got.id for got in await broker.received()] == [event.id for event in batch]


async def test_a_server_that_is_slow_is_waited_for(broker: Broker) -> None:
    batch = events(3)
    async with opened(broker):
        courier = Courier(broker.sink(), TARGET, 10.0)
        broker.slow(0.05)
        assert all(is_success(o) for o in await courier.send(batch, renewed))
        await courier.close()
        assert len(await broker.received()) == 3


async def test_a_server_that_is_too_slow_leaves_a_doubt(broker: Broker) -> None:
    batch = events(3)
    async with opened(broker):
        courier = Courier(broker.sink(), TARGET, 10.0)
        assert await courier.connect() is None
        courier._seconds = 0.5
        broker.slow(5.0)
        assert any(isinstance(o, Doubt) for o in await courier.send(batch, renewed))
        broker.heal()
        await courier.close()


async def test_a_sink_may_be_closed_at_any_time(broker: Broker) -> None:
    async with opened(broker):
        sink = broker.sink()
        await sink.close()
        await sink.connect(TARGET)
        await sink.close()
        await sink.close()
        courier = Courier(sink, TARGET, 5.0)
        assert all(is_success(o) for o in await courier.send(events(1), renewed))
        await courier.close()


# ------------------------------------------------------------------------------------------------- with the relay before it


@pytest.mark.parametrize("nth", [0, 23, 59])
async def test_an_answer_is_lost_after_the_write(dsn: str, conn: Conn, broker: Broker, nth: int) -> None:
    async with opened(broker):
        async with stage(dsn, broker.sink()) as relaying:
            emitted = emit_many(conn, 60)
            broker.lose_answer(emitted[nth][0])
            got = await carry(relaying, broker, [id_ for id_, _ in emitted])
        assert broker.fired, "nothing was lost"
        check(got, emitted, may_repeat=broker.shows_repeats)


@pytest.mark.parametrize("nth", [0, 31])
async def test_the_connection_is_cut_in_the_middle_of_a_send(dsn: str, conn: Conn, broker: Broker, nth: int) -> None:
    async with opened(broker):
        async with stage(dsn, broker.sink()) as relaying:
            emitted = emit_many(conn, 60)
            broker.cut_in(emitted[nth][0])
            got = await carry(relaying, broker, [id_ for id_, _ in emitted])
        assert broker.fired, "nothing was cut"
        check(got, emitted, may_repeat=broker.shows_repeats)


async def test_the_server_refuses_and_comes_back(dsn: str, conn: Conn, broker: Broker) -> None:
    async with opened(broker), stage(dsn, broker.sink()) as relaying:
        first = emit_many(conn, 12)
        await carry(relaying, broker, [id_ for id_, _ in first])
        broker.refuse()
        second = emit_many(conn, 12)
        await relaying.later(5.0)
        await relaying.later(5.0)
        assert len(await broker.received()) >= 12
        broker.heal()
        got = await carry(relaying, broker, [id_ for id_, _ in second])
        check(got, first + second, may_repeat=broker.shows_repeats)


async def test_a_relay_is_cut_off_and_another_goes_on(dsn: str, conn: Conn, broker: Broker) -> None:
    async with opened(broker), stage(dsn, broker.sink()) as relaying:
        emitted = emit_many(conn, 40)
        await relaying.run(turns=4)  # takes the position and sends; nothing is written down yet
        assert await broker.received()
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch', fence = fence + 1")
        await relaying.relay._courier.close()
        relaying.relay = relaying.another(holder=2)
        got = await carry(relaying, broker, [id_ for id_, _ in emitted])
        check(got, emitted, may_repeat=broker.shows_repeats)


@pytest.mark.parametrize(
    "broker",
    ["redis", "nats", "nats owned", pytest.param("rabbitmq", marks=pytest.mark.slow)],
    indirect=True,
)
async def test_the_server_is_killed_and_comes_back(dsn: str, conn: Conn, broker: Broker) -> None:
    async with opened(broker), stage(dsn, broker.sink()) as relaying:
        first = emit_many(conn, 12)
        await carry(relaying, broker, [id_ for id_, _ in first])
        second = emit_many(conn, 12)
        broker.restart()
        got = await carry(relaying, broker, [id_ for id_, _ in second])
        check(got, first + second, may_repeat=broker.shows_repeats)
