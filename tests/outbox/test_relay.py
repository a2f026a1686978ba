"""What a relay does with each outcome, and that nothing is lost, repeated without need or out of order by it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from tests.outbox.support import (
    Placed,
    Readable,
    Scripted,
    Stage,
    emit,
    last_window,
    make_due,
    parked,
    set_back,
)

from samecommit.event import StoredEvent
from samecommit.outbox.log import Log
from samecommit.outbox.outcomes import (
    Delivered,
    DestinationDown,
    Doubt,
    Duplicate,
    Lookup,
    Outcome,
    Rejected,
    Retry,
    Throttled,
    Unsure,
)
from samecommit.outbox.sink import DropsRepeats, ReadBack, StoredPosition, Target
from samecommit.outbox.told import DestinationRecovered, DestinationStopped, EventParked, RelayStopped, RepeatPossible
from samecommit.storage.operate_outbox import EventFilter, OutboxOperator

Conn = psycopg.Connection[Any]


def first_time(outcome: Outcome, *numbers: int) -> Any:
    """Answer so the first time for these events, and take them afterwards."""
    left = set(numbers)

    def answer(event: StoredEvent) -> Outcome:
        if event.number in left:
            left.discard(event.number)
            return outcome
        return Delivered()

    return answer


async def cut_off_in(method: str, stage: Stage, sink: Scripted) -> None:
    """Run a relay, a minute later, until a method of its sink has done its work, and cancel it there."""
    begun, whole = asyncio.Event(), getattr(sink, method)

    async def hang(given: Any) -> None:
        await whole(given)
        begun.set()
        await asyncio.Event().wait()

    setattr(sink, method, hang)
    turn = asyncio.create_task(stage.later(60.0))
    await begun.wait()
    turn.cancel()
    await asyncio.wait({turn})
    setattr(sink, method, whole)


def place(conn: Conn, destination: str = "there") -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = conn.execute(
        "SELECT window_n, after, delivered, repeated, state FROM samecommit.position WHERE destination = %s",
        [destination],
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.usefixtures("numbers_from_one")
async def test_events_arrive_in_order_and_the_position_follows(dsn: str, conn: Conn) -> None:
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        numbers = [n for key in ("a", "b", None) for n in emit(conn, key, 3)]
        await stage.run()
        await stage.later(1.0)
        assert sorted(sink.numbers) == numbers
        assert place(conn)[:3] == (1, 0, 9)
        more = emit(conn, "a")
        await stage.run()
        assert sink.numbers[-1:] == more


async def test_one_event_of_a_key_at_a_time_unless_the_sink_keeps_the_order(dsn: str, conn: Conn) -> None:
    emit(conn, "a", 3)
    emit(conn, "b", 1)
    strict, keeping = Scripted(), Scripted(keeps_key_order=True)
    async with Stage(dsn, strict) as stage:
        await stage.run()
    async with Stage(dsn, keeping, name="keeping") as stage:
        await stage.run()
    async with Stage(dsn, piped := Scripted(), name="piped", order="key_pipelined") as stage:
        await stage.run()
    async with Stage(dsn, single := Scripted(), name="single", order="global") as stage:
        await stage.run()
    assert [[e.key for e in batch] for batch in strict.batches] == [["a", "b"], ["a"], ["a"]]
    assert [len(batch) for batch in keeping.batches] == [4]
    assert [len(batch) for batch in piped.batches] == [4]
    assert [len(batch) for batch in single.batches] == [1, 1, 1, 1]


@pytest.mark.usefixtures("numbers_from_one")
async def test_events_of_other_types_are_passed_over(dsn: str, conn: Conn) -> None:
    sink = Scripted()
    emit(conn, "a", 2, "invoice.paid")
    wanted = emit(conn, "a", 1, "lead.created")
    async with Stage(dsn, sink, matches="lead.*") as stage:
        await stage.run()
        await stage.later(3.0)
        assert sink.numbers == wanted
        assert place(conn)[0] == 1


async def test_a_refused_event_waits_with_its_key_and_no_other(dsn: str, conn: Conn) -> None:
    a1, a2 = emit(conn, "a", 2)
    b1, b2 = emit(conn, "b", 2)
    sink = Scripted(first_time(Retry("busy"), a1))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        assert sink.numbers == [b1, b2]
        (a3,) = emit(conn, "a")
        await stage.run()
        await stage.later(1.0)
        assert parked(conn) == {a1: "due", a2: "waiting", a3: "waiting"}
        for _ in range(3):
            make_due(conn)
            await stage.later(5.0)
        assert sink.numbers == [b1, b2, a1, a2, a3]
        assert parked(conn) == {}
        assert sink.taken[2].attempt == 2
        (a4,) = emit(conn, "a")
        await stage.run()
        assert sink.numbers[-1] == a4


async def test_park_key_keeps_a_poisoned_key_for_a_person(dsn: str, conn: Conn) -> None:
    a1, a2 = emit(conn, "a", 2)
    (b1,) = emit(conn, "b")
    is_bad = True
    sink = Scripted(lambda e: Rejected("too large") if is_bad and e.number == a1 else Delivered())
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == [b1]
        assert parked(conn) == {a1: "dead", a2: "waiting"}
        await stage.later(1000.0)
        assert sink.numbers == [b1]
        is_bad = False
        assert conn.execute("SELECT samecommit.resolve('there', %s, 'resend')", [a1]).fetchone() == (True,)
        stage.relay.look_again()
        for _ in range(3):
            await stage.later(3.0)
        assert sink.numbers == [b1, a1, a2]


async def test_a_person_may_drop_the_poison_and_its_key_goes_on(dsn: str, conn: Conn) -> None:
    a1, a2 = emit(conn, "a", 2)
    sink = Scripted(lambda e: Rejected("bad") if e.number == a1 else Delivered())
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        conn.execute("SELECT samecommit.resolve('there', %s, 'dropped')", [a1])
        stage.relay.look_again()
        for _ in range(3):
            await stage.later(3.0)
        assert sink.numbers == [a2]
        assert parked(conn) == {}


async def test_skip_goes_on_with_the_key(dsn: str, conn: Conn) -> None:
    a1, a2 = emit(conn, "a", 2)
    sink = Scripted(lambda e: Rejected("bad") if e.number == a1 else Delivered())
    async with Stage(dsn, sink, poison="skip") as stage:
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == [a2]
        assert parked(conn) == {a1: "dead"}


async def test_halt_stops_the_destination_until_somebody_decides(dsn: str, conn: Conn) -> None:
    (a1,) = emit(conn, "a")
    (b1,) = emit(conn, "b")
    sink = Scripted(lambda e: Rejected("bad") if e.number == a1 else Delivered())
    async with Stage(dsn, sink, order="global") as stage:
        await stage.run()
        await stage.later(1.0)
        await stage.later(100.0)
        assert sink.numbers == []
        assert place(conn)[4] == "halted"
        conn.execute("SELECT samecommit.resolve('there', %s, 'delivered')", [a1])
        stage.relay.look_again()
        for _ in range(3):
            await stage.later(3.0)
        assert sink.numbers == [b1]


async def test_one_order_with_skip_waits_for_what_is_tried_again_and_not_for_the_dead(dsn: str, conn: Conn) -> None:
    a, b, c = emit(conn, None, 3)
    answers: dict[int, Outcome] = {a: Rejected("bad"), b: Retry("busy")}
    sink = Scripted(lambda e: answers.get(e.number, Delivered()))
    async with Stage(dsn, sink, order="global", poison="skip") as stage:
        await stage.run()
        await stage.later(1.0)
        assert (sink.numbers, parked(conn)) == ([], {a: "dead", b: "due"})
        del answers[b]
        make_due(conn)
        for _ in range(3):
            await stage.later(3.0)
        assert (sink.numbers, parked(conn)) == ([b, c], {a: "dead"})


async def test_a_verdict_that_comes_while_the_event_is_sent_again_counts(dsn: str, conn: Conn) -> None:
    (a,) = emit(conn, "a")
    sink = Scripted(lambda _: Retry("busy"))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)

        def decided(event: StoredEvent) -> Outcome:
            conn.execute("SELECT samecommit.resolve('there', %s, 'dropped')", [event.number])
            sink.answer = lambda _: Delivered()
            return Retry("busy")

        sink.answer = decided
        make_due(conn)
        await stage.later(5.0)
        assert len(sink.batches) == 2
        make_due(conn)
        await stage.later(5.0)
        assert (sink.numbers, parked(conn)) == ([], {}), f"{a} was dropped"


async def test_how_long_an_event_is_tried_counts_from_its_turn(dsn: str, conn: Conn) -> None:
    a1, a2 = emit(conn, "a", 2)
    sink = Scripted(lambda e: Rejected("bad") if e.number == a1 else Retry("busy"))
    async with Stage(dsn, sink, retry_for_seconds=60.0) as stage:
        await stage.run()
        await stage.later(1.0)
        assert parked(conn) == {a1: "dead", a2: "waiting"}
        conn.execute("UPDATE samecommit.parked SET first_at = first_at - interval '2 days'")
        conn.execute("SELECT samecommit.resolve('there', %s, 'dropped')", [a1])
        stage.relay.look_again()
        await stage.later(1.0)
        await stage.later(1.0)
        assert [e.number for batch in sink.batches for e in batch] == [a1, a2]
        assert parked(conn) == {a2: "due"}


async def test_what_is_due_behind_a_dead_one_of_its_key_is_not_asked_for_all_the_time(dsn: str, conn: Conn) -> None:
    a1, a2 = emit(conn, "a", 2)
    sink = Scripted(lambda e: Rejected("bad") if e.number == a1 else Retry("busy"))
    async with Stage(dsn, sink, order="key_pipelined") as stage:
        await stage.run()
        await stage.later(1.0)
        assert parked(conn) == {a1: "dead", a2: "due"}
        make_due(conn)
        stage.relay.look_again()
        await stage.later(1.0)
        assert await stage.later(5.0) > 0.1


async def test_an_event_that_is_refused_for_too_long_is_poison(dsn: str, conn: Conn) -> None:
    (a1,) = emit(conn, "a")
    async with Stage(dsn, Scripted(lambda _: Retry("busy")), retry_for_seconds=60.0) as stage:
        await stage.run()
        await stage.later(1.0)
        assert parked(conn) == {a1: "due"}
        conn.execute("UPDATE samecommit.parked SET first_at = first_at - interval '61 seconds'")
        make_due(conn)
        await stage.later(5.0)
        await stage.later(5.0)
        assert parked(conn) == {a1: "dead"}
        assert stage.recorder.all(EventParked)[-1].reason.startswith("not taken within 60 s")


@pytest.mark.parametrize("outcome", [DestinationDown("refused"), Throttled(after=3.0)])
async def test_a_destination_that_is_down_is_left_alone_then_probed_with_one_event(
    dsn: str, conn: Conn, outcome: Outcome
) -> None:
    numbers = [n for key in "abcdef" for n in emit(conn, key)]
    is_down = True
    sink = Scripted(lambda _: outcome if is_down else Delivered())
    async with Stage(dsn, sink) as stage:
        assert 0 < await stage.run() <= 60.0
        assert [len(batch) for batch in sink.batches] == [6]
        await stage.run()
        assert len(sink.batches) == 1, "it was not left alone"
        await stage.later(3.0)
        assert len(sink.batches[1]) == 1, "more than a probe"
        assert place(conn)[4] in ("down", "throttled")
        assert parked(conn) == {}
        is_down = False
        await stage.later(100.0)
        assert sink.numbers == numbers
        assert [len(batch) for batch in sink.batches[2:]] == [1, 5]
        assert len(stage.recorder.all(DestinationRecovered)) == 1
        pauses = [s.retry_seconds for s in stage.recorder.all(DestinationStopped)]
        assert len(pauses) == 2


async def test_what_was_delivered_before_a_stop_is_not_sent_again(dsn: str, conn: Conn) -> None:
    numbers = [n for key in "abc" for n in emit(conn, key)]
    sink = Scripted(first_time(DestinationDown("gone", after=1.0), numbers[1]))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(2.0)
        assert sorted(sink.numbers) == numbers
        assert len(sink.taken) == 3


async def test_a_crash_repeats_and_loses_nothing(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 3)
    sink = Scripted(keeps_key_order=True)
    async with Stage(dsn, sink) as stage:
        await stage.run(turns=3)  # take, send, and no move yet
        assert sink.numbers == numbers
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
        await stage.run(relay=stage.another(holder=2))
        assert sink.numbers == numbers * 2


async def test_a_relay_that_lost_its_lease_moves_nothing(dsn: str, conn: Conn) -> None:
    emit(conn, "a", 2)
    sink = Scripted(keeps_key_order=True)
    async with Stage(dsn, sink) as stage:
        await stage.run(turns=1)
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
        other = stage.another(holder=2)
        await other.run_once()
        before = place(conn)
        await stage.later(1.0)
        await stage.later(30.0)
        assert place(conn) == before
        assert stage.recorder.all(RelayStopped)[0].reason == "another relay holds the position"


async def test_a_relay_that_lives_through_a_failover_that_lost_commits_goes_on(dsn: str, conn: Conn) -> None:
    """What it remembers is further than the database: neither its place nor its pages are there any more."""
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        (first,) = emit(conn, "a")
        await stage.run()
        await stage.later(1.0)
        kept = last_window(conn)
        for _ in range(2):
            emit(conn, "a")
            await stage.run()
            await stage.later(1.0)
        lost = list(sink.taken)[1:]
        set_back(conn, kept, first)
        new = emit(conn, "b", 3)
        for _ in range(3):
            await stage.later(2.5)
        assert [event.number for event in sink.taken if event.key == "b"] == new
        assert sink.taken[1:3] == lost, "nothing that is lost was sent again"
        assert place(conn)[:2] == (last_window(conn), 0)


async def test_a_place_in_a_window_that_a_failover_lost_is_not_written(dsn: str, conn: Conn) -> None:
    """Behind the same window other events come, under the same numbers: they would be passed over."""
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        (first,) = emit(conn, "a")
        await stage.run()
        await stage.later(1.0)
        kept = last_window(conn)
        emit(conn, "a", 3)
        await stage.run(turns=1)
        assert sink.numbers == [first, first + 1], "one of three, and no move yet"
        set_back(conn, kept, first)
        new = emit(conn, "b", 3)
        for _ in range(3):
            await stage.later(2.5)
        assert [event.number for event in sink.taken if event.key == "b"] == new


@pytest.mark.parametrize("is_replay", [False, True])
async def test_a_relay_whose_lease_ended_while_it_connected_sends_nothing(
    dsn: str, conn: Conn, *, is_replay: bool
) -> None:
    emit(conn, "a", 2)
    sink = Scripted(
        lambda event: DestinationDown("gone", after=0.5) if bool(event.replay) == is_replay else Delivered()
    )
    async with Stage(dsn, sink) as stage:
        await stage.run()
        if is_replay:
            await stage.later(1.0)
            OutboxOperator(conn, "samecommit").replay("there", EventFilter(types=["*"]))
            stage.relay.look_again()
            await stage.run()
        assert isinstance(sink.answer(sink.batches[-1][0]), DestinationDown), "so that it connects anew"
        sink.batches.clear()

        async def connect(target: Target) -> None:
            stage.clock.now += stage.destination.lease_seconds
            conn.execute("UPDATE samecommit.position SET fence = fence + 1")

        sink.connect = connect  # type: ignore[method-assign]
        await stage.later(1.0)
        assert not sink.batches
        assert [it.reason for it in stage.recorder.all(RelayStopped)] == ["another relay holds the position"]


async def test_a_second_relay_waits_for_the_lease(dsn: str, conn: Conn) -> None:
    emit(conn, "a")
    async with Stage(dsn, Scripted()) as stage:
        await stage.run(turns=1)
        assert await stage.another(holder=2).run_once() > 0.5
        assert stage.relay._hold.is_held


async def test_a_paused_destination_is_let_go_and_taken_again(dsn: str, conn: Conn) -> None:
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await stage.run()
        assert conn.execute("SELECT samecommit.pause_destination('there', 'a migration')").fetchone() == (True,)
        (a1,) = emit(conn, "a")
        stage.relay.look_again()
        await stage.later(3.0)
        await stage.later(3.0)
        conn.execute("SELECT samecommit.resume_destination('there')")
        await stage.later(3.0)
        assert sink.numbers[-1] == a1
        assert stage.recorder.all(RelayStopped)[0].reason == "its destination is paused"


# ----------------------------------------------------------------------------------------------------------------- doubt


async def test_without_idempotency_a_doubtful_event_is_sent_again_and_told(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 2)
    sink = Scripted(first_time(Doubt("cut off"), numbers[0]))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == numbers
        assert sink.taken[0].attempt == 2
        assert [s.count for s in stage.recorder.all(RepeatPossible)] == [1]


async def test_whatever_a_sink_raises_is_doubt(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 2)
    raised: list[int] = []

    def answer(event: StoredEvent) -> Outcome:
        if not raised:
            raised.append(event.number)
            raise ConnectionResetError
        return Delivered()

    sink = Scripted(answer)
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == numbers
        assert sink.connects == 2


async def test_a_readable_destination_is_looked_at_once_it_has_settled(dsn: str, conn: Conn) -> None:
    a, b = emit(conn, None, 2)
    sink = Readable(lambda e: Doubt("cut off") if e.attempt == 1 else Delivered(), idempotency=ReadBack(5.0), there={a})
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(4.0)
        assert sink.looks == []
        await stage.later(2.0)
        assert sink.looks == [[a, b]]
        assert sink.numbers == [b]
        await stage.later(1.0)
        assert place(conn)[2:4] == (2, 1)
        assert not stage.recorder.all(RepeatPossible)


async def test_an_unsure_look_is_repeated_and_sends_nothing(dsn: str, conn: Conn) -> None:
    (a,) = emit(conn, None)
    is_unsure = True
    sink = Readable(first_time(Doubt("cut off"), a), idempotency=ReadBack(1.0))
    sink.says = lambda _: Unsure() if is_unsure else None
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(2.0)
        await stage.later(100.0)
        assert len(sink.looks) == 2
        assert sink.taken == []
        is_unsure = False
        await stage.later(100.0)
        assert sink.numbers == [a]


@pytest.mark.parametrize(("settle", "turns"), [(50.0, 1), (0.0, 12)], ids=["to be settled", "unsure again and again"])
async def test_a_relay_that_waits_for_an_answer_keeps_its_lease(
    dsn: str, conn: Conn, settle: float, turns: int
) -> None:
    (a,) = emit(conn, None)
    sink = Readable(first_time(Doubt("cut off"), a), idempotency=ReadBack(settle), says=lambda _: Unsure())
    async with Stage(dsn, sink, lease_seconds=30.0) as stage:
        await stage.run()
        assert max([await stage.later(0.5), *[await stage.later(60.0) for _ in range(turns - 1)]]) <= 10.0
        assert sink.taken == []


async def test_after_a_crash_a_readable_destination_is_looked_at_first(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 3)
    sink = Readable(idempotency=ReadBack(0.0), keeps_key_order=True)
    async with Stage(dsn, sink) as stage:
        await stage.run(turns=3)
        sink.there = set(sink.numbers)
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
        second = stage.another(holder=2)
        for _ in range(4):
            await stage.run(relay=second)
        assert sink.numbers == numbers, "it was sent again"
        assert sink.looks == [numbers]
        await second.stop()
        assert place(conn)[2:4] == (3, 3)


async def test_after_a_stop_that_cut_off_a_send_a_readable_destination_is_looked_at_first(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 3)
    sink = Readable(idempotency=ReadBack(0.0), keeps_key_order=True)
    async with Stage(dsn, sink) as stage:
        await cut_off_in("send", stage, sink)
        await stage.relay.stop()
        sink.there = set(sink.numbers)
        stage.relay = stage.another(holder=2)
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == numbers, "it was sent again"
        assert place(conn)[2:4] == (3, 3)


@pytest.mark.parametrize("settle", [0.0, 40.0])
async def test_after_a_crash_what_was_parked_and_due_is_looked_up_first(dsn: str, conn: Conn, settle: float) -> None:
    (a,) = emit(conn, "a")
    sink = Readable(first_time(Retry("busy"), a), idempotency=ReadBack(settle))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        assert parked(conn) == {a: "due"}
        make_due(conn)
        await cut_off_in("send", stage, sink)
        sink.there = set(sink.numbers)
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
        stage.relay = stage.another(holder=2)
        await stage.run()
        assert bool(sink.looks) is (settle == 0.0)
        make_due(conn)
        stage.relay.look_again()
        await stage.later(settle + 1.0)
        assert (sink.numbers, parked(conn)) == ([a], {}), "it was sent again"


async def test_a_destination_that_is_found_to_have_the_last_event_is_not_down_any_more(dsn: str, conn: Conn) -> None:
    (a,) = emit(conn, "a")
    sink = Readable(first_time(Doubt("no answer"), a), idempotency=ReadBack(0.0), there={a})
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(60.0)
        await stage.later(60.0)
        assert place(conn)[2:] == (1, 1, "running")
        assert len(stage.recorder.all(DestinationRecovered)) == 1
        OutboxOperator(conn, "samecommit").replay("there", EventFilter(numbers=[a]))
        stage.relay.look_again()
        await stage.later(1.0)
        await stage.later(1.0)
        assert sink.numbers == [a], "its replay waits for another event"


async def test_after_a_crash_one_wait_for_what_is_not_shown_yet_is_enough_for_all_pages(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, None, 6)
    sink = Readable(idempotency=ReadBack(50.0), keeps_key_order=True)
    async with Stage(dsn, sink, lease_seconds=30.0) as stage:
        stage.log = Log(stage.link, room=2)
        stage.relay = stage.another()
        await cut_off(stage, conn)
        sink.there = set(sink.numbers)
        assert sink.numbers == numbers[:2]
        await stage.later(1.0)
        assert sink.looks == [], "it waits until the destination would show them"
        await stage.later(51.0)
        assert sink.looks == [numbers[:2], numbers[2:4], numbers[4:]]
        assert sink.numbers == numbers


async def cut_off(stage: Stage, conn: Conn, *, turns: int = 2, ago: str = "0 s") -> None:
    """Let a relay send and end without a word, so long ago; the next one takes its place."""
    await stage.run(turns=turns)
    conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch', moved_at = moved_at - %s::interval", [ago])
    stage.relay = stage.another(holder=2)


async def test_after_a_crash_a_possible_repeat_is_told(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 2)
    async with Stage(dsn, Scripted(keeps_key_order=True)) as stage:
        await cut_off(stage, conn)
        await stage.later(1.0)
        assert [told.count for told in stage.recorder.all(RepeatPossible)] == [2]
        later = emit(conn, "a", 1)
        await stage.later(1.0)
        assert [told.count for told in stage.recorder.all(RepeatPossible)] == [2], "that one is new"
        assert isinstance(stage.destination.sink, Scripted)
        assert stage.destination.sink.numbers == [*numbers, *numbers, *later]


@pytest.mark.parametrize(
    ("emitted", "moved", "is_told"),
    [("0 s", "0 s", False), ("1 day", "10 s", False), ("10 s", "1 day", False), ("1 day", "1 day", True)],
    ids=["at once", "moved lately", "emitted lately", "long ago"],
)
async def test_after_a_crash_a_destination_that_drops_repeats_gets_none_that_it_has_forgotten(
    dsn: str, conn: Conn, emitted: str, moved: str, is_told: bool
) -> None:
    conn.execute("SELECT samecommit.make_day('samecommit.event'::regclass, current_date - 2)")
    (a,) = emit(conn, None)
    conn.execute("UPDATE samecommit.event SET created_at = created_at - %s::interval", [emitted])
    sink = Scripted(idempotency=DropsRepeats(120.0))
    async with Stage(dsn, sink) as stage:
        await cut_off(stage, conn, ago=moved)
        await stage.later(1.0)
        assert sink.numbers == [a, a]
        assert bool(stage.recorder.all(RepeatPossible)) is is_told


async def test_the_time_in_which_repeats_are_dropped_runs_from_the_first_send(dsn: str, conn: Conn) -> None:
    (a,) = emit(conn, None)
    sink = Scripted(lambda e: Doubt("cut off") if e.attempt < 4 else Delivered(), idempotency=DropsRepeats(120.0))
    async with Stage(dsn, sink) as stage:
        await stage.run(turns=2)
        for _ in range(3):
            await stage.later(70.0)
        assert sink.numbers == [a]
        assert stage.recorder.all(RepeatPossible)


async def test_a_doubtful_event_whose_key_is_blocked_meanwhile_is_looked_up_before_it_is_sent(
    dsn: str, conn: Conn
) -> None:
    a1, b1, a2 = *emit(conn, "a"), *emit(conn, "b"), *emit(conn, "a")
    answers: dict[int, Outcome] = {a1: Retry("busy", after=1.0)}
    sink = Readable(lambda e: answers.get(e.number, Delivered()), idempotency=ReadBack(0.0), keeps_key_order=True)
    sink.there = {a2}
    async with Stage(dsn, sink) as stage:
        conn.execute("UPDATE samecommit.position SET is_clean = false")
        conn.execute(
            "INSERT INTO samecommit.parked (destination, number, created_at, lane, key, blocks, state, due_at)"
            " SELECT 'there', number, created_at, lane, key, true, 'due', now() + interval '1 hour'"
            " FROM samecommit.event WHERE number = %s",
            [a1],
        )
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == [b1], "what waits stops nobody else"
        answers.clear()
        for _ in range(3):
            make_due(conn)
            stage.relay.look_again()
            await stage.later(5.0)
        assert parked(conn) == {}
        assert sink.numbers == [b1, a1], "what was there was sent again"


def park_in_doubt(conn: Conn, numbers: list[int]) -> None:
    """Let the position stand behind these events, whose last attempts are in doubt."""
    conn.execute(
        "INSERT INTO samecommit.parked (destination, number, created_at, lane, blocks, state, due_at, is_doubtful)"
        " SELECT 'there', number, created_at, lane, false, 'due', now(), true FROM samecommit.event WHERE number = ANY (%s)",
        [numbers],
    )


async def test_parked_doubts_are_looked_up_at_once_and_sent_by_whoever_holds_the_position_then(
    dsn: str, conn: Conn
) -> None:
    numbers = emit(conn, None, 20)
    sink = Readable(idempotency=ReadBack(0.0))
    async with Stage(dsn, sink, matches="nothing.*") as stage:
        await stage.run()
        park_in_doubt(conn, numbers)
        stage.relay.look_again()
        first, stage.relay = stage.relay, stage.another(holder=2)

        async def find_slowly(batch: Sequence[StoredEvent]) -> Sequence[Lookup]:
            found = await Readable.find_existing(sink, batch)
            if len(sink.looks) == 1:
                stage.clock.now += 31.0
                conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
                await stage.run()
            return found

        sink.find_existing = find_slowly  # type: ignore[method-assign]
        await stage.run(relay=first)
        assert sorted(sink.numbers) == numbers, "both relays sent them"
        assert sink.looks == [numbers, numbers]
        assert parked(conn) == {}
        await first.stop()


@pytest.mark.parametrize(("age", "is_told"), [(1.0, False), (200.0, True)])
async def test_a_repeat_is_told_once_the_destination_has_forgotten(
    dsn: str, conn: Conn, age: float, is_told: bool
) -> None:
    (a,) = emit(conn, None)
    sink = Scripted(first_time(Doubt("cut off"), a), idempotency=DropsRepeats(120.0))
    async with Stage(dsn, sink) as stage:
        await stage.run(turns=2)
        await stage.later(age)
        assert sink.numbers == [a]
        assert bool(stage.recorder.all(RepeatPossible)) is is_told


async def test_a_destination_that_keeps_the_position_gets_nothing_twice(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 4)
    sink = Placed(idempotency=StoredPosition(), keeps_key_order=True)

    def answer(event: StoredEvent) -> Outcome:
        if sink.stored is not None and event.position is not None and event.position <= sink.stored:
            return Duplicate()
        sink.stored = event.position
        return Doubt("cut off") if event.number == numbers[2] and event.attempt == 1 else Delivered()

    sink.answer = answer
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        await stage.later(1.0)
        assert [event.number for batch in sink.batches for event in batch] == [*numbers, numbers[3]]
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch', window_n = 0, after = 0")
        await stage.run(relay=stage.another(holder=2))
        assert len(sink.batches) == 2, "after a restart the destination was not asked where it stands"


async def test_the_sixth_doubt_asks_a_position_keeping_sink_too_before_it_puts_the_event_aside(
    dsn: str, conn: Conn
) -> None:
    a, b = emit(conn, None, 2)
    sink = Placed(idempotency=StoredPosition())

    def answer(event: StoredEvent) -> Outcome:
        if sink.stored is None and (event.number == b or event.attempt < 6):
            return Doubt("cut off before")
        sink.stored = event.position
        return Doubt("cut off after") if event.number == a else Delivered()

    sink.answer = answer
    async with Stage(dsn, sink, order="none") as stage:
        for _ in range(12):
            await stage.later(61.0)
        assert parked(conn) == {}
        assert [e.attempt for batch in sink.batches for e in batch if e.number == a] == [1, 2, 3, 4, 5, 6]
        assert sink.numbers == [b]
        assert place(conn)[2:4] == (2, 1)


async def test_what_a_position_keeping_sink_never_takes_is_put_aside_and_it_goes_on(dsn: str, conn: Conn) -> None:
    a, b = emit(conn, None, 2)
    sink = Placed(idempotency=StoredPosition())

    def answer(event: StoredEvent) -> Outcome:
        if event.number == a or len(sink.batches[-1]) > 1:
            return Doubt("cut off")
        sink.stored = event.position
        return Delivered()

    sink.answer = answer
    async with Stage(dsn, sink, order="none") as stage:
        for _ in range(12):
            await stage.later(61.0)
        assert parked(conn) == {a: "due"}
        assert sink.numbers == [b]


async def test_what_a_position_keeping_sink_does_not_take_is_parked_before_it_goes_on(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, None, 3)
    seen: list[dict[int, str]] = []
    sink = Placed(idempotency=StoredPosition())

    def answer(event: StoredEvent) -> Outcome:
        if event.number == numbers[0] and event.attempt == 1:
            return Retry("busy")
        seen.append(parked(conn))
        return Delivered()

    sink.answer = answer
    async with Stage(dsn, sink, order="none") as stage:
        await stage.run()
        assert seen[-1] == {numbers[0]: "due"}
        make_due(conn)
        await stage.later(5.0)
        assert sink.taken[-1].number == numbers[0]
        assert sink.taken[-1].position is None


async def test_a_page_that_came_while_the_relay_was_cut_off_is_not_passed_over(dsn: str, conn: Conn) -> None:
    numbers = emit(conn, "a", 3)
    sink = Placed(idempotency=StoredPosition(), keeps_key_order=True)
    async with Stage(dsn, sink) as stage:
        await cut_off_in("connect", stage, sink)
        await stage.relay.stop()
        stage.relay = stage.another(holder=2)
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == numbers


async def test_what_waits_behind_its_key_is_parked_before_a_position_keeping_sink_goes_on(dsn: str, conn: Conn) -> None:
    (a1,) = emit(conn, "a")
    sink = Placed(lambda _: Rejected("bad"), idempotency=StoredPosition(), keeps_key_order=True)
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        a2, b1 = *emit(conn, "a"), *emit(conn, "b")

        def take(event: StoredEvent) -> Outcome:
            sink.stored = event.position or sink.stored
            return Delivered()

        sink.answer = take
        await cut_off_in("send", stage, sink)
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
        stage.relay = stage.another(holder=2)
        await stage.run()
        await stage.later(1.0)
        assert sink.numbers == [b1]
        assert parked(conn) == {a1: "dead", a2: "waiting"}, "an event is lost"


async def test_an_event_that_breaks_the_connection_each_time_is_put_aside_alone(dsn: str, conn: Conn) -> None:
    numbers = [n for key in "abcd" for n in emit(conn, key)]
    sink = Scripted(lambda e: Doubt("reset by peer") if e.number == numbers[1] else Delivered())
    async with Stage(dsn, sink) as stage:
        for _ in range(12):
            await stage.later(61.0)
        assert sorted(sink.numbers) == [numbers[0], *numbers[2:]]
        assert parked(conn) == {numbers[1]: "due"}


async def test_after_a_crash_an_event_that_is_read_again_comes_before_those_of_its_key_that_wait(
    dsn: str, conn: Conn
) -> None:
    a1, a2, a3 = emit(conn, "a", 3)
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        conn.execute(
            "INSERT INTO samecommit.parked (destination, number, created_at, lane, key, blocks, state, due_at)"
            " SELECT 'there', number, created_at, lane, key, true,"
            "        CASE number WHEN %s THEN 'due' ELSE 'waiting' END, now() + interval '1 hour'"
            " FROM samecommit.event WHERE number = ANY (%s)",
            [a2, [a2, a3]],
        )
        await stage.run()
        await stage.later(1.0)
        assert parked(conn) == {a1: "due", a2: "due", a3: "waiting"}, "the first of its key waits for nobody"
        for _ in range(4):
            make_due(conn)
            stage.relay.look_again()
            await stage.later(5.0)
        assert sink.numbers == [a1, a2, a3]
        assert parked(conn) == {}
