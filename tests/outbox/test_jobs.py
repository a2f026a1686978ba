"""Job destinations: each event becomes its jobs exactly once, and a doubtful send is never repeated without a look."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import psycopg
import pytest
from tests.outbox.support import emit, last_window, set_back
from tests.support.recorder import Recorder
from tests.support.waiting import until

from samecommit import App, WorkerConfig
from samecommit.errors import LeaseLost
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import Delivery
from samecommit.outbox.carried import carried, carry, effect_key
from samecommit.outbox.deliver import Deliverer
from samecommit.outbox.destination import JobDestination, Matcher
from samecommit.outbox.expand import Expander
from samecommit.outbox.log import Log, Place, SharedLink
from samecommit.outbox.outcomes import (
    Delivered,
    Doubt,
    Duplicate,
    Found,
    Lookup,
    NotFound,
    Outcome,
    Rejected,
    Retry,
    Throttled,
    Unsure,
)
from samecommit.outbox.told import RepeatPossible
from samecommit.signals import Signals
from samecommit.storage.link import AsyncLink, LinkDown, Row
from samecommit.storage.operate_outbox import OutboxOperator, Verdict

Conn = psycopg.Connection[Any]


@dataclass
class Crm:
    """A system without idempotency that makes a record for each send."""

    answers: list[Outcome | Exception] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    makes: Callable[[Outcome | Exception], bool] = lambda _: True

    async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:
        self.deliveries.append(delivery)
        answer = self.answers.pop(0) if self.answers else Delivered("new")
        if isinstance(answer, Delivered | Doubt | Exception) and self.makes(answer):
            self.records.append(delivery.marker)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Searchable(Crm):
    """A system that can be searched by the marker; what it says first can be set."""

    settle_seconds: float = 0.0
    says: list[Lookup] = field(default_factory=list)
    looks: int = 0

    async def find_existing(self, event: StoredEvent, delivery: Delivery) -> Lookup:
        self.looks += 1
        if self.says:
            return self.says.pop(0)
        return Found(delivery.marker) if delivery.marker in self.records else NotFound()


class Deaf(SharedLink):
    """Loses the next answer to one statement, which was carried out."""

    deaf_to: str | None = None

    async def fetch(self, label: str, **values: Any) -> list[Row]:
        rows = await super().fetch(label, **values)
        if label == self.deaf_to:
            self.deaf_to = None
            raise LinkDown("the connection was reset")
        return rows


@asynccontextmanager
async def working(dsn: str, adapter: Any, **options: Any) -> AsyncIterator[tuple[App, Recorder]]:
    """Run a worker with one job destination."""
    app = App(dsn, worker=WorkerConfig(poll_seconds=0.02))
    app.destination("crm", start="start", **options)(adapter)
    recorder = Recorder(app)
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await worker.started()
    try:
        yield app, recorder
    finally:
        worker.stop()
        await running


def jobs(conn: Conn) -> list[tuple[str, Any]]:
    return conn.execute("SELECT state, result FROM samecommit.jobs WHERE kind = 'deliver:crm' ORDER BY id").fetchall()


async def ended(conn: Conn, *states: str) -> list[tuple[str, Any]]:
    """Wait until the jobs are in these states."""
    return await until(lambda: jobs(conn) if [j[0] for j in jobs(conn)] == list(states) else [], what=f"{states}")


def claims(conn: Conn) -> int:
    row = conn.execute("SELECT coalesce(max(claims), 0) FROM samecommit.job").fetchone()
    assert row is not None
    return int(row[0])


def retry_now(conn: Conn) -> bool:
    """Cut every back-off short; False, to stand in a condition.

    It skips what is locked: behind a pooler the one who holds the lock may be this very loop, in the midst of a transaction.
    """
    conn.execute(
        "UPDATE samecommit.job SET run_at = clock_timestamp() WHERE id IN"
        " (SELECT id FROM samecommit.job WHERE claim_id IS NULL AND state = 'ready' FOR UPDATE SKIP LOCKED)"
    )
    return False


async def ended_soon(conn: Conn, *states: str) -> list[tuple[str, Any]]:
    """As `ended`, with every back-off cut short."""

    def look() -> list[tuple[str, Any]]:
        retry_now(conn)
        found = jobs(conn)
        return found if [job[0] for job in found] == list(states) else []

    return await until(look, what=f"{states}")


@pytest.mark.pg15
async def test_an_event_becomes_a_job_that_delivers_it(dsn: str, conn: Conn) -> None:
    crm = Crm()
    async with working(dsn, crm):
        emit(conn, "7", 2)
        assert await ended(conn, "done", "done") == [("done", {"ref": "new"})] * 2
    assert len(set(crm.records)) == 2
    assert crm.deliveries[0].attempt == 1
    assert crm.deliveries[0].destination == "crm"


async def test_expansion_is_exactly_once_though_it_is_cut_off(dsn: str, conn: Conn) -> None:
    @dataclass
    class Endpoints(Crm):
        async def targets(self, event: StoredEvent) -> Sequence[str]:
            return ("one", "two", "three")

    emit(conn, "a", 200)
    destination = JobDestination(name="crm", adapter=Endpoints(), matches=Matcher("*"))
    link = SharedLink(AsyncLink(dsn, "samecommit", "test"))
    log = Log(link, room=64)
    values = {"name": "crm", "mode": "jobs", "shards": 1, "matches": ["*"], "from_start": True, "start_at": None}
    await link.fetch("event/add_destination", **values, sink=None, ordering=None)
    log.newest_n = (await link.fetch("event/make_window"))[0][0]
    first = Expander(destination, log, link, Signals(), holder=1)
    await first.run_once()
    await first.run_once()
    conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
    second = Expander(destination, log, link, Signals(), holder=2)
    await second.run_once()
    await first.run_once()  # still believes that it holds the position
    for _ in range(6):
        await second.run_once()
    await link.link.close()
    counts = conn.execute(
        "SELECT payload -> 'event' ->> 'number', count(*), count(DISTINCT payload ->> 'target'), count(DISTINCT effect_key)"
        " FROM samecommit.jobs GROUP BY 1"
    ).fetchall()
    assert len(counts) == 200
    assert {row[1:] for row in counts} == {(3, 3, 3)}


async def test_expansion_is_exactly_once_though_its_answer_is_lost(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 200)
    destination = JobDestination(name="crm", adapter=Crm(), matches=Matcher("*"))
    link = Deaf(AsyncLink(dsn, "samecommit", "test"))
    log = Log(link, room=64)
    values = {"name": "crm", "mode": "jobs", "shards": 1, "matches": ["*"], "from_start": True, "start_at": None}
    await link.fetch("event/add_destination", **values, sink=None, ordering=None)
    log.newest_n = (await link.fetch("event/make_window"))[0][0]
    expander = Expander(destination, log, link, Signals(), holder=1)
    await expander.run_once()
    link.deaf_to = "event/expand"
    with pytest.raises(LinkDown):
        await expander.run_once()
    for _ in range(8):
        await expander.run_once()
    await link.link.close()
    made = "SELECT (payload -> 'event' ->> 'number')::bigint FROM samecommit.jobs ORDER BY 1"
    assert [number for (number,) in conn.execute(made)] == numbers


async def test_many_jobs_are_made_some_at_a_time_each_with_the_position_behind_them(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 9)

    class Many(Crm):
        async def targets(self, event: StoredEvent) -> Sequence[str]:
            return [f"target{n}" for n in range(300)]

    class Counting(SharedLink):
        async def fetch(self, label: str, **values: Any) -> list[Row]:
            rows = await super().fetch(label, **values)
            if label.endswith("/expand"):
                made.append((len(values["payloads"]), values["after"]))
            return rows

    made: list[tuple[int, int]] = []
    link = Counting(AsyncLink(dsn, "samecommit", "test"))
    log = Log(link)
    values = {"name": "crm", "mode": "jobs", "shards": 1, "matches": ["*"], "from_start": True, "start_at": None}
    await link.fetch("event/add_destination", **values, sink=None, ordering=None)
    log.newest_n = (await link.fetch("event/make_window"))[0][0]
    expander = Expander(JobDestination(name="crm", adapter=Many()), log, link, Signals(), holder=1)
    await expander.run_once()
    await expander.run_once()
    assert made == [(1200, numbers[3]), (1200, numbers[7]), (300, 0)]
    conn.execute("SELECT samecommit.replay_events('crm', ARRAY[1, 2, 3, 4, 5, 6])")
    expander.look_again()
    made.clear()
    for _ in range(4):
        await expander.run_once()
    assert [it for it in made if it[0]] == [(1200, numbers[3]), (600, numbers[5])]
    query = (
        "SELECT count(*), count(DISTINCT (payload ->> 'target', payload -> 'event' ->> 'number')) FROM samecommit.jobs"
    )
    assert conn.execute(query).fetchone() == (4500, 2700)
    await link.link.close()


@pytest.mark.parametrize("read", ["read", "expanded"])
async def test_an_expander_that_lives_through_a_failover_that_lost_commits_goes_on(
    read: str, dsn: str, conn: Conn
) -> None:
    destination = JobDestination(name="crm", adapter=Crm(), matches=Matcher("*"))
    link = SharedLink(AsyncLink(dsn, "samecommit", "test"))
    log = Log(link)
    values = {"name": "crm", "mode": "jobs", "shards": 1, "matches": ["*"], "from_start": True, "start_at": None}
    await link.fetch("event/add_destination", **values, sink=None, ordering=None)
    expander = Expander(destination, log, link, Signals(), holder=1)

    async def run() -> None:
        log.newest_n = (await link.fetch("event/make_window"))[0][0]
        for _ in range(4):
            await expander.run_once()

    (first,) = emit(conn, "a")
    await run()
    kept = last_window(conn)
    emit(conn, "a")
    if read == "expanded":
        await run()
    else:
        await link.fetch("event/make_window")
        await log.page(Place(kept, 0))
    set_back(conn, kept, first)
    conn.execute("DELETE FROM samecommit.job WHERE id > (SELECT min(id) FROM samecommit.job)")
    new = emit(conn, "b", 3)
    await run()
    await link.link.close()
    made = "SELECT (payload -> 'event' ->> 'number')::bigint FROM samecommit.jobs ORDER BY 1"
    assert [number for (number,) in conn.execute(made)] == [first, *new]


async def test_a_rejected_event_fails_at_once_and_a_refused_one_is_tried_again(dsn: str, conn: Conn) -> None:
    crm = Crm([Rejected("no such field"), Retry("busy", after=0.01), Throttled(after=0.01), Duplicate("old")])
    async with working(dsn, crm):
        emit(conn, "a")
        await ended(conn, "failed")
        emit(conn, "b")
        assert (await ended_soon(conn, "failed", "done"))[1][1] == {"ref": "old"}
    assert [d.attempt for d in crm.deliveries] == [1, 1, 2, 3]


@pytest.mark.parametrize("answer", [Doubt("cut off"), ConnectionResetError("cut off")])
async def test_a_doubtful_send_is_looked_up_and_not_repeated(dsn: str, conn: Conn, answer: Outcome | Exception) -> None:
    crm = Searchable([answer])
    async with working(dsn, crm) as (_, recorder):
        emit(conn, "a")
        (job,) = await ended_soon(conn, "done")
        assert not recorder.all(RepeatPossible)
    assert job[1] == {"ref": crm.records[0], "found": True}
    assert len(crm.deliveries) == len(crm.records) == 1


async def test_a_doubtful_send_that_did_not_arrive_is_sent_again(dsn: str, conn: Conn) -> None:
    crm = Searchable([Doubt("cut off")], makes=lambda answer: not isinstance(answer, Doubt))
    async with working(dsn, crm):
        emit(conn, "a")
        await ended_soon(conn, "done")
    assert crm.looks == 1
    assert len(crm.records) == 1
    assert [d.attempt for d in crm.deliveries] == [1, 2]
    assert crm.deliveries[0].marker == crm.deliveries[1].marker


async def test_not_found_is_not_believed_before_the_settle_time(dsn: str, conn: Conn) -> None:
    crm = Searchable([Doubt("cut off")], settle_seconds=3600.0)
    async with working(dsn, crm):
        emit(conn, "a")
        await until(lambda: crm.deliveries)
        await until(lambda: retry_now(conn) or claims(conn) > 3)
        assert crm.looks == 0
        conn.execute("UPDATE samecommit.delivery SET last_at = last_at - interval '1 hour'")
        await ended_soon(conn, "done")
    assert crm.looks == 1
    assert len(crm.records) == 1


async def test_an_unsure_look_is_repeated_until_a_person_decides(dsn: str, conn: Conn) -> None:
    crm = Searchable([Doubt("cut off")], says=[Unsure("index is down"), Unsure("index is down")])
    async with working(dsn, crm, doubt_for_seconds=1000.0):
        emit(conn, "a")
        await until(lambda: retry_now(conn) or crm.looks >= 1)
        conn.execute("UPDATE samecommit.delivery SET first_at = first_at - interval '1 hour'")
        await ended_soon(conn, "held")
        assert len(crm.deliveries) == 1


@pytest.mark.parametrize(
    ("verdict", "state", "sends"), [("resend", "done", 2), ("delivered", "done", 1), ("dropped", "cancelled", 1)]
)
async def test_without_a_look_a_person_decides(dsn: str, conn: Conn, verdict: str, state: str, sends: int) -> None:
    crm = Crm([Doubt("cut off")])
    async with working(dsn, crm):
        emit(conn, "a")
        await ended(conn, "held")
        conn.execute(
            """SELECT samecommit.release(id, jsonb_build_object('verdict', %s::text)) FROM samecommit.job""", [verdict]
        )
        await ended_soon(conn, state)
    assert len(crm.deliveries) == sends


@pytest.mark.parametrize(("verdict", "state"), [("dropped", "cancelled"), ("delivered", "done")])
async def test_a_verdict_counts_for_a_delivery_that_is_in_no_doubt(
    dsn: str, conn: Conn, verdict: Verdict, state: str
) -> None:
    crm = Crm([Retry("busy", after=3600.0)])
    async with working(dsn, crm):
        emit(conn, "a")
        held = "SELECT samecommit.hold(id, 'look first') FROM samecommit.job WHERE attempts = 1 AND claim_id IS NULL"
        await until(lambda: conn.execute(held).fetchone(), what="held")
        (job_id,) = conn.execute("SELECT id FROM samecommit.job").fetchone() or (0,)
        OutboxOperator(conn, "samecommit").resolve("crm", job_id, verdict)
        await ended(conn, state)
    assert len(crm.deliveries) == 1


async def test_a_decision_counts_for_one_send(dsn: str, conn: Conn) -> None:
    crm = Crm([Doubt("cut off"), Doubt("cut off again")])
    async with working(dsn, crm):
        emit(conn, "a")
        for _ in range(2):
            await ended_soon(conn, "held")
            conn.execute("""SELECT samecommit.release(id, '{"verdict": "resend"}') FROM samecommit.job""")
        await ended_soon(conn, "done")
    assert len(crm.deliveries) == 3


@pytest.mark.parametrize("decision", [None, '{"verdict": "yes"}'])
async def test_a_release_without_a_verdict_holds_again_and_says_what_decides(
    dsn: str, conn: Conn, decision: str | None
) -> None:
    crm = Crm([Doubt("cut off")])
    async with working(dsn, crm):
        emit(conn, "a")
        await ended(conn, "held")
        conn.execute("SELECT samecommit.release(id, %s::jsonb) FROM samecommit.job", [decision])
        await until(
            lambda: claims(conn) == 2 and [state for state, _ in jobs(conn)] == ["held"], what="the second hold"
        )
    row = conn.execute("SELECT id, hold_reason, hold_data FROM samecommit.jobs").fetchone()
    assert row is not None and f"samecommit outbox resolve crm {row[0]}" in row[1]
    assert "released without" in row[2]["last_error"]
    assert len(crm.deliveries) == 1


async def test_a_destination_may_say_that_repeats_do_no_harm(dsn: str, conn: Conn) -> None:
    crm = Crm([Doubt("cut off")])
    async with working(dsn, crm, on_doubt="resend") as (_, recorder):
        emit(conn, "a")
        await ended_soon(conn, "done")
        assert len(recorder.all(RepeatPossible)) == 1
    assert len(crm.deliveries) == 2


async def test_a_run_that_was_cut_off_in_its_send_leaves_a_doubt(dsn: str, conn: Conn) -> None:
    """The worker dies after the record was made and before it heard of it: the next one looks."""
    crm = Searchable()
    arrived = asyncio.Event()
    send = crm.send

    async def hang(event: StoredEvent, delivery: Delivery) -> Outcome:
        outcome = await send(event, delivery)
        if len(crm.deliveries) == 1:
            arrived.set()
            await asyncio.Event().wait()
        return outcome

    crm.send = hang  # type: ignore[method-assign]
    app = App(dsn, worker=WorkerConfig(poll_seconds=0.02, grace_seconds=0.05))
    app.destination("crm", start="start")(crm)
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    emit(conn, "a")
    await arrived.wait()
    worker.stop(now=True)
    await running
    async with working(dsn, crm):
        assert (await ended_soon(conn, "done"))[0][1]["found"] is True
    assert len(crm.deliveries) == 1


async def test_a_run_that_lost_its_job_sends_nothing(dsn: str, conn: Conn) -> None:
    crm = Crm()
    destination = JobDestination(name="crm", adapter=crm)
    link = SharedLink(AsyncLink(dsn, "samecommit", "test"))
    row = conn.execute("SELECT id FROM samecommit.enqueue('deliver:crm')").fetchone()
    assert row is not None
    conn.execute(
        "UPDATE samecommit.job SET claim_id = 77, claims = 4, claimed_at = now()"
    )  # somebody else's claim by now
    ctx: Any = SimpleNamespace(job=SimpleNamespace(id=row[0], claims=3, decision=None), effect_key="k")
    (number,) = emit(conn, "a")
    event = StoredEvent(id="e", source="s", type="t", data=b"{}", time=datetime.now(UTC), number=number)
    document = msgspec.json.decode(carry(event, ""))["event"]
    with pytest.raises(LeaseLost, match="nothing was sent"):
        await Deliverer(destination, link, Signals()).deliver(ctx, document, "")
    await link.link.close()
    assert crm.deliveries == []


def test_deliveries_of_two_sources_have_keys_of_their_own_though_their_events_have_one_id() -> None:
    def key(source: str, event_id: str) -> str:
        event = StoredEvent(id=event_id, source=source, type="x", data=b"", time=datetime.now(UTC), number=1)
        return effect_key(event, "crm", "")

    assert key("/shop", "order-1") != key("/stock", "order-1")
    assert key("/shop", "order-1") == key("/shop", "order-1")
    assert key("/shop", given := str(uuid.uuid4())) == f"/shop:{given}:crm" != key("/stock", given)
    assert key("urn:shop", "stock:1") != key("urn:shop:stock", "1")


@pytest.mark.parametrize("data", [b'{"a": 1.10}', "naïve".encode(), b"\x00\xff", b"a\x00b"])
def test_a_job_carries_an_event_byte_for_byte(data: bytes, conn: Conn) -> None:
    event = StoredEvent(
        id="e",
        source="/s",
        type="t",
        key="k",
        data=data,
        time=datetime.now(UTC),
        number=5,
        lane=3,
        extensions={"traceparent": "x"},
    )
    stored = conn.execute("SELECT %s::jsonb::text", [carry(event, "there")]).fetchone()
    assert stored is not None
    document = msgspec.json.decode(stored[0])
    assert carried(document["event"]) == event
    assert document["target"] == "there"
