"""The outbox of a process: destinations beside one another, waking, and a worker that relays."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.outbox.support import Scripted, emit
from tests.outbox.test_jobs import Crm
from tests.support.recorder import Recorder
from tests.support.waiting import until

from samecommit import App, WorkerConfig
from samecommit.outbox.outcomes import Delivered, DestinationDown, Rejected
from samecommit.outbox.sinks.file import File
from samecommit.outbox.sinks.table import Table
from samecommit.outbox.told import DestinationStopped, RelayStarted, RelayStopped, ReplayEnded
from samecommit.signals import ServiceFailed
from samecommit.storage.link import AsyncLink, LinkBusy
from samecommit.storage.operate_outbox import EventFilter

Conn = psycopg.Connection[Any]


@asynccontextmanager
async def relaying(app: App, relays: int) -> AsyncIterator[Recorder]:
    """Run the application's relay until the block ends."""
    recorder = Recorder(app)
    outbox = app.relay()
    running = asyncio.create_task(outbox.run())
    await until(lambda: len(recorder.all(RelayStarted)) == relays, what="all relays")
    try:
        yield recorder
    finally:
        outbox.stop()
        await running


def has(sink: Scripted, numbers: list[int]) -> bool:
    return sorted(sink.numbers) == numbers


def has_more(sink: Scripted, count: int) -> bool:
    return len(sink.taken) > count


def ends_with(sink: Scripted, numbers: list[int]) -> bool:
    return sink.numbers[-len(numbers) :] == numbers


async def test_one_that_is_down_or_poisoned_slows_no_other(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    sinks = [Scripted() for _ in range(8)]
    sinks[1].answer = lambda _: DestinationDown("refused")
    sinks[2].answer = lambda _: Rejected("bad")
    for number, sink in enumerate(sinks):
        app.stream(f"to-{number}", sink)
    async with relaying(app, 8) as recorder:
        numbers = [n for key in "abc" for n in emit(conn, key, 5)]
        for sink in (*sinks[:1], *sinks[3:]):
            await until(partial(has, sink, numbers))
        await recorder.one(DestinationStopped, lambda s: s.destination == "to-1")
    assert not recorder.all(ServiceFailed)
    assert sinks[1].taken == sinks[2].taken == []


@pytest.mark.pg15
@pytest.mark.session("the doorbell")
async def test_a_sleeping_relay_is_woken_by_the_emitter(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    sink = Scripted()
    app.stream("there", sink)
    async with relaying(app, 1):
        holds = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objid = 64"
        await until(lambda: conn.execute(holds).fetchone() == (1,), what="the bell is held")
        for _ in range(3):
            before, began = len(sink.taken), time.monotonic()
            emit(conn, "a")
            await until(partial(has_more, sink, before))
            assert time.monotonic() - began < 1.5, "it slept until its poll"


@pytest.mark.parametrize("busy", ["event/rebase", "queue/create", "event/add_destination"])
async def test_a_start_that_meets_another_one_s_locks_tries_again(
    busy: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    fetch = AsyncLink.fetch

    async def fetch_later(link: AsyncLink, label: str, **values: Any) -> Any:
        tries.append(label)
        if label == busy and tries.count(label) == 1:
            raise LinkBusy("canceling statement due to lock timeout")
        return await fetch(link, label, **values)

    monkeypatch.setattr(AsyncLink, "fetch", fetch_later)
    app = App(dsn)
    app.destination("crm")(Crm())
    async with relaying(app, 1):
        assert tries.count(busy) == 2


async def test_polling_alone_is_enough(dsn: str, conn: Conn) -> None:
    app = App(dsn, worker=WorkerConfig(doorbell=False))
    sink = Scripted()
    app.stream("there", sink)
    async with relaying(app, 1):
        numbers = emit(conn, "a", 2)
        await until(lambda: sink.numbers == numbers)


async def test_shards_share_the_keys(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    sink = Scripted(keeps_key_order=True)
    app.stream("there", lambda: sink, shards=4)
    async with relaying(app, 4):
        numbers = [n for key in range(20) for n in emit(conn, str(key), 2)]
        await until(lambda: sorted(sink.numbers) == numbers)
    lanes = {frozenset(event.lane % 4 for event in batch) for batch in sink.batches}
    assert all(len(lane) == 1 for lane in lanes)
    orders: dict[str | None, list[int]] = {}
    for event in sink.taken:
        orders.setdefault(event.key, []).append(event.number)
    assert all(order == sorted(order) for order in orders.values())


def in_files(directory: Path) -> list[list[int]]:
    texts = [file.read_text() for file in directory.glob("*.log")]
    return [[int(json.loads(line)["lognumber"]) for line in text.splitlines()] for text in texts]


async def test_each_shard_has_a_sink_of_its_own(dsn: str, conn: Conn, tmp_path: Path) -> None:
    app = App(dsn)
    app.stream("table", lambda: Table(dsn), shards=4)
    app.stream("files", lambda: File(tmp_path / "{shard}.log"), shards=4)
    async with relaying(app, 8):
        emitted = [n for key in range(40) for n in emit(conn, str(key), 2)]
        delivered = "SELECT coalesce(sum(delivered), 0), sum(repeated) FROM samecommit.position"
        await until(lambda: conn.execute(delivered).fetchone() == (160, 0))
    copied = conn.execute("SELECT (attributes ->> 'lognumber')::int FROM copied.event ORDER BY 1").fetchall()
    assert [row[0] for row in copied] == emitted
    written = in_files(tmp_path)
    assert sorted(n for numbers in written for n in numbers) == emitted
    assert len(written) == 4 and all(written)


async def test_a_relay_that_stops_gives_its_place_to_the_next_at_once(dsn: str, conn: Conn) -> None:
    sinks = [Scripted(), Scripted()]
    numbers = emit(conn, "a", 2)
    for sink in sinks:
        app = App(dsn)
        app.stream("there", sink, start="start")
        async with relaying(app, 1) as recorder:
            more = emit(conn, "a")
            numbers += more
            await until(partial(ends_with, sink, more))
        assert [s.reason for s in recorder.all(RelayStopped)] == ["asked to stop"]
    assert sinks[0].numbers + sinks[1].numbers == numbers


async def test_pause_and_resume_reach_a_running_relay(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    sink = Scripted()
    app.stream("there", sink)
    async with relaying(app, 1) as recorder:
        conn.execute("SELECT samecommit.pause_destination('there')")
        await recorder.one(RelayStopped)
        numbers = emit(conn, "a")
        conn.execute("SELECT samecommit.resume_destination('there')")
        await until(lambda: sink.numbers == numbers)


@pytest.mark.session("the doorbell")
async def test_a_replay_reaches_a_running_relay_at_once(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    sink = Scripted()
    app.stream("there", sink)
    async with relaying(app, 1) as recorder:
        numbers = emit(conn, "a", 3)
        await until(partial(has, sink, numbers))
        await until(lambda: conn.execute("SELECT delivered FROM samecommit.position").fetchone() == (3,))
        began = time.monotonic()
        with app.outbox() as outbox:
            replay = outbox.replay("there", EventFilter(numbers=numbers[1:]))
        ended = await recorder.one(ReplayEnded)
        assert time.monotonic() - began < 1.5, "it slept until its next renewal"
        assert (ended.replay, ended.is_cancelled) == (replay["id"], False)
        assert [(it.number, it.replay) for it in sink.taken[3:]] == [(n, replay["id"]) for n in numbers[1:]]


@pytest.mark.session("connections of its own")
async def test_a_lost_connection_is_replaced(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    sink = Scripted()
    app.stream("there", sink)
    async with relaying(app, 1) as recorder:
        numbers = emit(conn, "a")
        await until(lambda: sink.numbers == numbers)
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'samecommit outbox%'"
            " AND pid <> pg_backend_pid()"
        )
        numbers += emit(conn, "a", 2)
        await until(lambda: set(sink.numbers) == set(numbers))
        await recorder.one(ServiceFailed)


@pytest.mark.session("connections of its own")
async def test_fifty_destinations_cost_about_as_many_blocks_as_one(dsn: str, conn: Conn) -> None:
    def blocks() -> int:
        conn.execute("SELECT pg_stat_force_next_flush()")
        row = conn.execute(
            "SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)"
            " FROM pg_statio_user_tables WHERE relname LIKE 'event%'"
        ).fetchone()
        assert row is not None
        return int(row[0])

    async def cost(count: int) -> int:
        app = App(dsn)
        sinks = [Scripted(keeps_key_order=True) for _ in range(count)]
        for number, sink in enumerate(sinks):
            app.stream(f"of-{count}-{number}", sink)
        async with relaying(app, count):
            before = blocks()
            with conn.transaction():
                numbers = emit(conn, "a", 2_000)
            for sink in sinks:
                await until(partial(has, sink, numbers), 60.0)
        await asyncio.sleep(0)  # the backends have ended and reported
        await until(
            lambda: (
                conn.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'samecommit outbox%'"
                ).fetchone()
                == (0,)
            )
        )
        return blocks() - before

    one, fifty = await cost(1), await cost(50)
    assert fifty <= 5 * one, f"{fifty} blocks for fifty destinations, {one} for one"


async def test_a_worker_relays_beside_its_jobs(dsn: str, conn: Conn) -> None:
    app = App(dsn, worker=WorkerConfig(poll_seconds=0.05))
    sink = Scripted()
    app.stream("there", sink)
    recorder = Recorder(app)
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await recorder.one(RelayStarted)
    numbers = emit(conn, "a")
    await until(lambda: sink.numbers == numbers)
    worker.stop()
    await running
    assert isinstance(sink.answer(sink.taken[0]), Delivered)


@pytest.mark.pg15
async def test_any_schema_name_will_do(empty_dsn: str) -> None:
    app = App(empty_dsn, schema='we"ird; Schema')
    app.migrate()
    sink = Scripted()
    app.stream("there", sink)
    async with relaying(app, 1):
        with psycopg.connect(empty_dsn) as caller:
            made = app.emit(caller, {}, type="thing.done", key="a")
        await until(lambda: sink.numbers == [made.number])
