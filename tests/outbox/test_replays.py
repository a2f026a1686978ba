"""Sending again what a destination has had: beside the stream, without moving its position, fenced as it is."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from tests.outbox.support import Placed, Scripted, Stage, emit
from tests.support.waiting import until

from samecommit.errors import ConfigError, UnknownDestination
from samecommit.event import Position, StoredEvent
from samecommit.outbox.destination import JobDestination, Matcher
from samecommit.outbox.expand import Expander
from samecommit.outbox.log import SharedLink
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Outcome, Rejected, Retry
from samecommit.outbox.sink import StoredPosition
from samecommit.outbox.told import RepeatPossible, ReplayEnded
from samecommit.storage.link import AsyncLink, Row
from samecommit.storage.operate import Until
from samecommit.storage.operate_outbox import EventFilter, OutboxOperator
from samecommit.storage.query import statement

Conn = psycopg.Connection[Any]


def position(conn: Conn) -> Any:
    return conn.execute("SELECT window_n, after FROM samecommit.position WHERE destination = 'there'").fetchone()


def ask(conn: Conn, chosen: EventFilter, **options: Any) -> int:
    return int(OutboxOperator(conn, "samecommit").replay("there", chosen, **options)["id"])


def seen(conn: Conn) -> dict[str, Any]:
    return OutboxOperator(conn, "samecommit").replays()[0]


async def caught_up(stage: Stage) -> None:
    """Let the relay deliver and write down that it has."""
    await stage.run()
    await stage.later(1.0)


async def replayed(stage: Stage, turns: int = 12) -> None:
    """Let the relay notice a replay and work on it, however long it wants to wait in between."""
    stage.relay.look_again()
    for _ in range(turns):
        await stage.later(1.0)


@pytest.mark.pg15
async def test_a_key_is_sent_again_in_its_order_and_marked_while_the_position_stays(dsn: str, conn: Conn) -> None:
    numbers = [emit(conn, key)[0] for key in "abaab"]
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        before, first = position(conn), {event.number: event for event in sink.taken}
        sink.taken.clear()
        replay = ask(conn, EventFilter(keys=["a"]))
        await replayed(stage)
        assert sink.numbers == [numbers[0], numbers[2], numbers[3]]
        assert position(conn) == before
        for again in sink.taken:
            assert (again.id, again.source, again.data) == (first[again.number].id, first[again.number].source, b"{}")
            assert (again.replay, again.position, again.attributes()["replay"]) == (replay, None, str(replay))
            assert again.dedupe_id == f"{again.id}:r{replay}", "or a destination that drops repeats would drop it"
        row = seen(conn)
        assert (row["state"], row["sent"], row["refused"], row["progress"]) == ("done", 3, 0, 1.0)
        ended = stage.recorder.all(ReplayEnded)
        assert [(it.replay, it.is_cancelled) for it in ended] == [(replay, False)]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (EventFilter(types=["lead.*"]), [1, 2]),
        (EventFilter(types=["lead.created", "thing.done"]), [1, 3]),
        (EventFilter(numbers=[2, 3, 99]), [2, 3]),
        (EventFilter(keys=["a"], types=["lead.*"]), [1]),
        (EventFilter(since=Until(seconds=7200)), [2, 3]),
        (EventFilter(until=Until(seconds=7200)), [1]),
        (EventFilter(since=Until(at=datetime(2000, 1, 1, tzinfo=UTC)), until=Until(seconds=1800)), [1, 2]),
    ],
    ids=["beginning of a type", "types", "numbers", "key and type", "since", "until", "between"],
)
async def test_what_was_chosen_is_sent_and_counted_before(
    dsn: str, conn: Conn, chosen: EventFilter, expected: list[int]
) -> None:
    conn.execute("SELECT samecommit.make_day('samecommit.event', (now() AT TIME ZONE 'UTC')::date - 1)")
    for number, type_ in enumerate(["lead.created", "lead.changed", "thing.done"]):
        emit(conn, "abc"[number], type_=type_)
        conn.execute(
            "UPDATE samecommit.event SET created_at = now() - make_interval(hours => %s) WHERE number = %s",
            [3 - number if number < 2 else 0, number + 1],
        )
    conn.execute("UPDATE samecommit.event SET created_at = now() - interval '1 h' WHERE number = 2")
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        sink.taken.clear()
        counted = OutboxOperator(conn, "samecommit").count_replay("there", chosen)
        assert (counted["events"], counted["is_cut"]) == (len(expected), False)
        assert [row["number"] for row in counted["first"]] == expected
        assert OutboxOperator(conn, "samecommit").replays() == [], "counting asks for nothing"
        ask(conn, chosen)
        await replayed(stage)
        assert sink.numbers == expected


async def test_what_the_destination_has_not_got_is_left_to_the_stream(dsn: str, conn: Conn) -> None:
    refused, after = emit(conn, "a"), emit(conn, "b")
    sink = Scripted(answer=lambda event: Rejected("odd") if event.number in refused else Delivered())
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        later = emit(conn, "b")
        counted = OutboxOperator(conn, "samecommit").count_replay("there", EventFilter(types=["*"]))
        assert counted["events"] == 1, "the first is put aside, the last comes by itself"
        ask(conn, EventFilter(types=["*"]))
        await replayed(stage)
        assert sorted(sink.numbers) == sorted([*after, *after, *later])


async def test_a_replay_keeps_to_its_rate(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, None, 10)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        sink.taken.clear()
        ask(conn, EventFilter(types=["*"]), per_second=2.0)
        stage.relay.look_again()
        await stage.run()
        counts = list[int]()
        for _ in range(6):
            await stage.later(1.0)
            counts.append(len(sink.taken))
        assert counts[-1] == 10 and all(now - before <= 2 for before, now in pairwise(counts))
        assert sink.numbers == numbers


async def test_new_events_do_not_wait_for_a_replay(dsn: str, conn: Conn) -> None:
    old = emit(conn, "a", 50)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        sink.taken.clear()
        ask(conn, EventFilter(keys=["a"]), per_second=1.0)
        await replayed(stage, turns=3)
        new = emit(conn, "a")
        await stage.later(1.0)
        assert new[0] in sink.numbers and len(sink.numbers) < len(old)


async def test_a_refused_event_is_counted_and_the_rest_goes_on(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 3)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        sink.taken.clear()
        sink.answer = lambda event: Rejected("gone") if event.number == numbers[1] else Delivered()
        ask(conn, EventFilter(keys=["a"]))
        await replayed(stage)
        assert sink.numbers == [numbers[0], numbers[2]]
        row = seen(conn)
        assert (row["state"], row["sent"], row["refused"], row["refusal"]) == (
            "done",
            2,
            1,
            f"event {numbers[1]}: gone",
        )


@pytest.mark.parametrize("outcome", [Retry("busy"), Doubt("no answer"), DestinationDown("no route")], ids=repr)
async def test_a_replay_waits_for_its_destination_and_says_why(dsn: str, conn: Conn, outcome: Outcome) -> None:
    numbers = emit(conn, "a", 3)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        sink.taken.clear()
        sink.answer = lambda _: outcome
        ask(conn, EventFilter(keys=["a"]))
        await replayed(stage, turns=2)
        row = seen(conn)
        assert (row["state"], row["sent"], row["trouble"]) == ("running", 0, outcome.reason)  # type: ignore[union-attr]
        assert bool(stage.recorder.all(RepeatPossible)) == isinstance(outcome, Doubt)
        sink.answer = lambda _: Delivered()
        await replayed(stage, turns=20)
        assert sink.numbers == numbers
        assert (seen(conn)["state"], seen(conn)["trouble"]) == ("done", None)


async def test_an_event_that_is_never_taken_ends_as_refused(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 2)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        sink.taken.clear()
        sink.answer = lambda event: Retry("busy", after=0.5) if event.number == numbers[0] else Delivered()
        ask(conn, EventFilter(keys=["a"]))
        await replayed(stage, turns=20)
        assert sink.numbers == numbers[1:]
        assert (seen(conn)["state"], seen(conn)["refused"]) == ("done", 1)


async def test_a_cancelled_replay_ends_where_it_is(dsn: str, conn: Conn) -> None:
    emit(conn, None, 20)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        sink.taken.clear()
        replay = ask(conn, EventFilter(types=["*"]), per_second=1.0)
        await replayed(stage, turns=4)
        operator = OutboxOperator(conn, "samecommit")
        assert operator.cancel_replay(replay)
        count = len(sink.taken)
        await replayed(stage)
        assert count <= len(sink.taken) <= count + 1, "what was on its way arrives"
        assert not operator.cancel_replay(replay)
        row = seen(conn)
        assert row["state"] == "cancelled" and row["cancelled_by"] == row["requested_by"]
        assert [it.is_cancelled for it in stage.recorder.all(ReplayEnded)] == [True]
        ask(conn, EventFilter(numbers=[1]))
        await replayed(stage)
        assert sink.numbers[-1] == 1, "the next replay has its turn"


async def test_a_relay_that_lost_its_position_writes_no_progress(dsn: str, conn: Conn) -> None:
    emit(conn, None, 6)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        ask(conn, EventFilter(types=["*"]), per_second=1.0)
        await replayed(stage, turns=2)
        sent = seen(conn)["sent"]
        conn.execute("UPDATE samecommit.position SET fence = fence + 1, lease_until_at = now() + interval '1 h'")
        sink.taken.clear()
        await stage.later(1.5)
        assert seen(conn)["sent"] == sent
        assert len(sink.taken) <= 1, "at most the batch during which it noticed"
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
        other = stage.another(holder=2)
        for _ in range(12):
            stage.clock.now += 1.0
            await stage.run(relay=other)
        assert (seen(conn)["state"], seen(conn)["sent"]) == ("done", 6)
        await other.stop()


async def test_a_destination_that_keeps_the_position_is_not_moved_by_a_replay(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 3)
    sink = Placed(idempotency=StoredPosition(), keeps_key_order=True)

    def store(event: StoredEvent) -> Outcome:
        sink.stored = max(sink.stored or Position(0, 0), event.position) if event.position else sink.stored
        return Delivered()

    sink.answer = store
    async with Stage(dsn, sink) as stage:
        await caught_up(stage)
        stored = sink.stored
        sink.taken.clear()
        ask(conn, EventFilter(keys=["a"]))
        await replayed(stage)
        assert (sink.numbers, sink.stored) == (numbers, stored)


class Crm:
    """An adapter that takes everything."""

    async def send(self, event: StoredEvent, delivery: Any) -> Outcome:
        return Delivered()


async def test_jobs_are_made_again_with_effects_of_their_own(dsn: str, conn: Conn) -> None:
    emit(conn, "a", 3)
    conn.execute("SELECT samecommit.create_queue('default')")
    async with Stage(dsn, Scripted()) as stage:
        await stage.link.fetch(
            "event/add_destination",
            name="crm", mode="jobs", shards=1, matches=["*"], sink="Crm", ordering="none", from_start=True, start_at=None,
        )  # fmt: skip
        destination = JobDestination(name="crm", adapter=Crm(), matches=Matcher("*"))
        expander = Expander(destination, stage.log, stage.link, stage.signals, holder=1, clock=stage.clock)
        await stage.tick()
        for _ in range(3):
            await expander.run_once()
        with OutboxOperator.connect(dsn, "samecommit") as operator:
            replay = operator.replay("crm", EventFilter(keys=["a"]))["id"]
        expander.look_again()
        for _ in range(4):
            await expander.run_once()
        jobs = conn.execute("SELECT payload -> 'event', effect_key FROM samecommit.job ORDER BY id").fetchall()
        assert [job[0]["replay"] for job in jobs] == [0, 0, 0, replay, replay, replay]
        assert len({key for _, key in jobs}) == 6
        assert jobs[3][1] == f"{jobs[0][0]['source']}:{jobs[0][0]['id']}:r{replay}:crm"
        assert seen(conn)["state"] == "done"
        await expander.stop()


class Twice(SharedLink):
    """Runs a replay's page in two sessions at once: as after a lost connection whose statement the server still works on."""

    def __init__(self, link: AsyncLink, conn: Conn) -> None:
        super().__init__(link)
        self._conn = conn

    async def fetch(self, label: str, **values: Any) -> list[Row]:
        if label != "replay/expand":
            return await super().fetch(label, **values)
        first = statement(label, self.link.schema)
        waiting = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        async with await psycopg.AsyncConnection.connect(self.link.dsn) as cut_off:
            await psycopg.AsyncRawCursor(cut_off).execute(first.text, first.bind(values))
            again = asyncio.create_task(super().fetch(label, **values))
            pid = cut_off.info.backend_pid
            await until(lambda: self._conn.execute(waiting, [pid]).fetchall(), what="the second statement to wait")
            await cut_off.commit()
        return await again


@pytest.mark.session("connections of its own")
async def test_jobs_are_made_once_though_the_statement_runs_twice(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 3)
    conn.execute("SELECT samecommit.create_queue('default')")
    async with Stage(dsn, Scripted()) as stage:
        link = Twice(stage.link.link, conn)
        values = {"name": "crm", "mode": "jobs", "shards": 1, "matches": ["*"], "from_start": True, "start_at": None}
        await link.fetch("event/add_destination", **values, sink="Crm", ordering="none")
        destination = JobDestination(name="crm", adapter=Crm(), matches=Matcher("*"))
        expander = Expander(destination, stage.log, link, stage.signals, holder=1, clock=stage.clock)
        await stage.tick()
        for _ in range(3):
            await expander.run_once()
        with OutboxOperator.connect(dsn, "samecommit") as operator:
            replay = operator.replay("crm", EventFilter(keys=["a"]), per_second=1.0)["id"]
        expander.look_again()
        for _ in range(12):
            stage.clock.now += 2.0
            await expander.run_once()
        made = (
            "SELECT (payload -> 'event' ->> 'number')::bigint FROM samecommit.job WHERE effect_key LIKE %s ORDER BY id"
        )
        assert [number for (number,) in conn.execute(made, [f"%:r{replay}:%"])] == numbers
        assert (seen(conn)["state"], seen(conn)["sent"]) == ("done", 3)
        await expander.stop()


async def test_a_request_that_makes_no_sense_is_refused(dsn: str, conn: Conn) -> None:
    operator = OutboxOperator(conn, "samecommit")
    with pytest.raises(UnknownDestination, match="there is no destination 'there'"):
        operator.replay("there", EventFilter(keys=["a"]))
    async with Stage(dsn, Scripted()):
        with pytest.raises(ConfigError, match="a replay of everything"):
            operator.replay("there", EventFilter())
        conn.execute("UPDATE samecommit.event_window SET made_at = made_at - interval '1 year' WHERE n = 0")
        with pytest.raises(ConfigError, match="all of it is gone"):
            operator.replay("there", EventFilter(until=Until(at=datetime.now(UTC) - timedelta(days=400))))
        assert operator.replays() == []
        ask(conn, EventFilter(keys=["a"]))
        assert (seen(conn)["from_number"], seen(conn)["to_number"]) == (0, 0), "an empty log is walked at once"


async def test_shards_share_a_replay(dsn: str, conn: Conn) -> None:
    numbers = [n for key in range(20) for n in emit(conn, str(key))]
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 4, '{*}', 0)")
    conn.execute("SELECT samecommit.make_window()")
    conn.execute("UPDATE samecommit.position SET window_n = (SELECT max(n) FROM samecommit.event_window)")
    replay = ask(conn, EventFilter(types=["*"]))
    query = "SELECT number FROM samecommit.replay_numbers(%s, %s, 0, 1000) ORDER BY number"
    parts = [[row[0] for row in conn.execute(query, [replay, shard]).fetchall()] for shard in (0, 1, 2, 3, None)]
    assert sorted(n for part in parts[:4] for n in part) == parts[4] == numbers
    assert all(parts[:4])


def test_old_replays_are_forgotten(conn: Conn) -> None:
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    old, new, running = [ask(conn, EventFilter(keys=["a"])) for _ in range(3)]
    for replay, days in ((old, 31), (new, 29)):
        conn.execute("SELECT samecommit.cancel_replay(%s)", [replay])
        conn.execute(
            "UPDATE samecommit.replay_position SET ended_at = now() - make_interval(days => %s) WHERE replay = %s",
            [days, replay],
        )
    OutboxOperator(conn, "samecommit").ask("replay/forget", keep=30)
    assert [row["id"] for row in OutboxOperator(conn, "samecommit").replays()] == [running, new]
