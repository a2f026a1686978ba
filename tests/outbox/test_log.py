"""The log: nothing is skipped whatever the order of numbers, transaction ids and commits; kept as long as it is needed."""

import asyncio
import time
from itertools import pairwise
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest
from tests.outbox.support import Scripted, Stage, emit
from tests.support.engine import run
from tests.support.waiting import until

from samecommit.event import Position
from samecommit.outbox.keeper import Keeper
from samecommit.outbox.log import Log, Place, SharedLink, WindowGone
from samecommit.storage.link import AsyncLink

Conn = psycopg.Connection[Any]
BEGIN_EARLY = "SELECT pg_current_xact_id()"


def windows(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT n, events, first FROM samecommit.event_window ORDER BY n").fetchall()


async def read_all(log: Log, place: Place) -> list[Position]:
    found: list[Position] = []
    while (page := await log.page(place)).windows:
        found += [event.position for event in page.events if event.position is not None]
        place = page.end
    return found


@pytest.mark.pg15
async def test_b29a_an_event_that_commits_late_is_not_passed_over(dsn: str, conn: Conn) -> None:
    sink = Scripted()
    with psycopg.connect(dsn) as slow:
        async with Stage(dsn, sink) as stage:
            first = emit(slow, "slow")
            second = emit(conn, "fast")
            await stage.run()
            assert sink.numbers == second
            third = emit(conn, "fast")
            await stage.run()
            slow.commit()
            await stage.run()
            assert sink.numbers == second + third + first


@pytest.mark.pg15
async def test_b29b_within_a_key_the_order_is_that_of_the_commits_not_of_the_transaction_ids(
    dsn: str, conn: Conn
) -> None:
    sink = Scripted()
    with psycopg.connect(dsn) as early:
        async with Stage(dsn, sink) as stage:
            early.execute(BEGIN_EARLY)
            first = emit(conn, "a")
            second = emit(early, "a")
            early.commit()
            await stage.run()
            assert sink.numbers == first + second


async def test_b29c_what_is_rolled_back_is_never_there(dsn: str, conn: Conn) -> None:
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        with psycopg.connect(dsn) as undone:
            emit(undone, "a")
            undone.rollback()
        await stage.run()
        with conn.transaction():
            kept = emit(conn, "a")
            with conn.transaction():
                emit(conn, "a")
                raise psycopg.Rollback
        await stage.run()  # type: ignore[unreachable]  # Rollback ends its block quietly
        assert sink.numbers == kept


async def test_b29e_an_open_transaction_holds_up_only_its_own_events(dsn: str, conn: Conn, server: Any) -> None:
    sink = Scripted()
    elsewhere = psycopg.conninfo.make_conninfo(dsn, dbname="postgres")
    with psycopg.connect(dsn) as open_here, psycopg.connect(elsewhere) as open_there:
        emit(open_here, "open")
        open_there.execute(BEGIN_EARLY)
        async with Stage(dsn, sink) as stage:
            for _ in range(3):
                expected = emit(conn, "a")
                await stage.run()
                assert sink.numbers[-1:] == expected


@pytest.mark.usefixtures("numbers_from_one")
async def test_a_window_is_made_when_there_is_something_for_it_and_only_then(conn: Conn) -> None:
    assert run(conn, "event/make_window") == [(0,)]
    numbers = emit(conn, "a", 3)
    assert run(conn, "event/make_window") == [(1,)] or windows(conn)[-1][0] == 1
    run(conn, "event/make_window")
    assert windows(conn) == [(0, 0, 0), (1, 3, numbers[0])]


@pytest.mark.usefixtures("numbers_from_one")
async def test_events_have_the_same_places_whoever_reads_and_however_large_the_pages(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as slow:
        emit(slow, "slow", 3)
        for _ in range(4):
            emit(conn, "a", 5)
            run(conn, "event/make_window")
        slow.commit()
    run(conn, "event/make_window")
    link = AsyncLink(dsn, "samecommit", "test")
    seen = [await read_all(Log(SharedLink(link), room=room), Place(0, 0)) for room in (1000, 7, 2, 1)]
    small = await read_all(Log(SharedLink(link), max_bytes=1), Place(0, 0))
    await link.close()
    assert len(seen[0]) == 23
    assert seen[0] == sorted(seen[0])
    assert [p.window for p in seen[0][-3:]] == [5, 5, 5], "the late ones are in the window in which they appeared"
    assert all(other == seen[0] for other in [*seen[1:], small])


@pytest.mark.parametrize("walk", [1, 4, 100_000])
async def test_a_window_s_pages_pass_nothing_behind_it_and_few_numbers_at_once(
    dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch, walk: int
) -> None:
    monkeypatch.setattr("samecommit.outbox.log._WALK", walk)
    with psycopg.connect(dsn) as slow:
        emit(slow, "slow")
        emit(conn, "a", 6)
        run(conn, "event/make_window")
        slow.commit()
    emit(conn, "a", 6)
    run(conn, "event/make_window")
    lasts = dict(conn.execute("SELECT n, last FROM samecommit.event_window").fetchall())
    asked: list[tuple[int, int, int]] = []

    class Watched(SharedLink):
        async def fetch(self, label: str, **values: Any) -> list[Any]:
            if label == "event/read_large":
                asked.append((values["n"], values["after"], values["upto"]))
            return await super().fetch(label, **values)

    link = AsyncLink(dsn, "samecommit", "test")
    seen = await read_all(Log(Watched(link), room=3), Place(0, 0))
    await link.close()
    assert len(seen) == 13
    assert len(set(map(repr, seen))) == 13
    assert asked and all(after < upto <= lasts[n] and upto - after <= walk for n, after, upto in asked)


async def test_a_page_is_read_once_for_all_that_stand_there(dsn: str, conn: Conn) -> None:
    emit(conn, "a", 3)
    run(conn, "event/make_window")
    link = AsyncLink(dsn, "samecommit", "test")
    log = Log(SharedLink(link))
    pages = [await log.page(Place(0, 0)) for _ in range(50)]
    assert all(page is pages[0] for page in pages)
    await link.close()


async def test_a_log_that_was_set_back_ends_where_it_ends(dsn: str) -> None:
    link = AsyncLink(dsn, "samecommit", "test")
    log = Log(SharedLink(link))
    log.newest_n = 7  # as a failover leaves it that lost this window
    assert not (await log.page(Place(0, 0))).windows
    await link.close()


async def test_a_place_that_the_database_itself_has_at_a_window_that_is_gone_is_told(dsn: str, conn: Conn) -> None:
    async with Stage(dsn, Scripted()) as stage:
        conn.execute("UPDATE samecommit.position SET window_n = 7")
        await stage.relay.run_once()
        for _ in range(2):
            with pytest.raises(WindowGone, match="window 7 is gone, though a position stands at it"):
                await stage.relay.run_once()


@pytest.mark.usefixtures("numbers_from_one")
async def test_thinned_windows_lead_a_new_destination_through_the_whole_log(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT samecommit.add_destination('late', 'stream', 1, '{*}')")
    numbers: list[int] = []
    for _ in range(3):
        numbers += emit(conn, "a")
        run(conn, "event/make_window")
    for n in (3, 2, 1):  # as if a thousand had been made
        conn.execute("UPDATE samecommit.event_window SET n = n + 997 WHERE n = %s", [n])
    run(conn, "event/thin_windows")
    assert [w[0] for w in windows(conn)] == [0, 998, 999, 1000], "a destination still stands before them"
    conn.execute("UPDATE samecommit.position SET window_n = 1000")
    run(conn, "event/thin_windows")
    assert windows(conn) == [(0, 0, 0), (1000, 3, numbers[0])]
    sink = Scripted()
    async with Stage(dsn, sink) as stage:
        await stage.run()
        assert sink.numbers == numbers


@pytest.mark.pg15
async def test_a_day_is_dropped_once_it_is_old_and_every_destination_has_it(dsn: str, conn: Conn) -> None:
    day = "(now() AT TIME ZONE 'UTC')::date - 10"
    conn.execute(f"SELECT samecommit.make_day('samecommit.event', {day})")
    sink = Scripted()

    def days() -> int:
        row = conn.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'samecommit.event'::regclass").fetchone()
        assert row is not None
        return int(row[0])

    async with Stage(dsn, sink) as stage:
        old = emit(conn, "a")
        conn.execute("UPDATE samecommit.event SET created_at = created_at - interval '10 days'")
        keeper = Keeper(AsyncLink(dsn, "samecommit", "keep"), 3)
        before = days()
        await stage.tick()
        await keeper.drop_old_days()
        assert days() == before, "a destination still needs it"
        await stage.run()
        await stage.later(3.0)
        await keeper.drop_old_days()
        assert sink.numbers == old
        assert days() == before - 1
        conn.execute(f"SELECT samecommit.make_day('samecommit.event', {day})")
        (name,) = conn.execute(f"SELECT 'event_' || to_char({day}, 'YYYYMMDD')").fetchone() or ("",)
        await keeper._link.define("chore/mark_day", child=name)
        detach = "chore/detach_day_pooled" if keeper._link.is_pooled else "chore/detach_day"
        await keeper._link.define(detach, parent="event", child=name)  # and there it was cut off
        await keeper.drop_old_days()
        assert conn.execute("SELECT to_regclass('samecommit.' || %s)", [name]).fetchone() == (None,)
        await keeper._link.close()


async def test_a_day_with_a_parked_event_stays(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT samecommit.make_day('samecommit.event', (now() AT TIME ZONE 'UTC')::date - 10)")
    emit(conn, "a")
    conn.execute("UPDATE samecommit.event SET created_at = created_at - interval '10 days'")
    run(conn, "event/make_window")
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    assert len(run(conn, "event/old_days", keep=3)) == 1
    conn.execute(
        "INSERT INTO samecommit.parked (destination, number, created_at, lane, key, blocks, state)"
        " SELECT 'there', number, created_at, lane, key, true, 'dead' FROM samecommit.event"
    )
    assert run(conn, "event/old_days", keep=3) == []


@pytest.mark.usefixtures("numbers_from_one")
@pytest.mark.pg15
async def test_a_log_from_another_cluster_goes_on_where_each_destination_was(dsn: str, conn: Conn) -> None:
    """Restored into a cluster whose transaction ids are far behind: new events would fall into windows that are done."""
    sink, other = Scripted(), Scripted()
    async with Stage(dsn, sink, name="behind") as behind, Stage(dsn, other, name="ahead") as ahead:
        numbers = emit(conn, "a", 2)
        await ahead.run()
        await ahead.later(1.0)
        numbers += emit(conn, "a", 4)
        await ahead.run()
        await ahead.later(1.0)
        await ahead.relay.stop()
        conn.execute(
            "UPDATE samecommit.position SET window_n = 1, after = %s WHERE destination = 'behind'", [numbers[3]]
        )
        numbers += emit(conn, "a", 1)  # in no window yet
        shift = 1_000_000_000
        conn.execute("UPDATE samecommit.event SET xid = (xid::text::bigint + %s)::text::xid8", [shift])
        conn.execute(
            "UPDATE samecommit.event_window SET snapshot = format('%%s:%%s:', pg_snapshot_xmin(snapshot)::text::bigint + %s,"
            " pg_snapshot_xmax(snapshot)::text::bigint + %s)::pg_snapshot WHERE n > 0",
            [shift, shift],
        )
        conn.execute("""UPDATE samecommit.setting SET value = '"another"' WHERE name = 'outbox_system'""")
        numbers += emit(conn, "a", 1)  # written before anybody noticed
        before = other.numbers
        assert run(conn, "event/rebase") == [(True,)]
        assert run(conn, "event/rebase") == [(False,)]
        numbers += emit(conn, "a", 2)
        for stage in (behind, ahead):
            stage.log = Log(stage.link)
            stage.relay = stage.another()
            await stage.run(turns=60)
            await stage.later(1.0)
        assert sink.numbers == numbers[4:]
        assert other.numbers == numbers
        assert len(before) == 6
        last = max(event.position for event in other.taken if event.position is not None)
        assert last.window > 3, "a destination that keeps the position would take new events for old ones"


@pytest.mark.pg15
def test_on_another_timeline_windows_go_on_above_what_a_destination_may_have(conn: Conn) -> None:
    """Restored to an earlier moment, a log would give numbers again that destinations have stored."""
    numbers = []
    for timeline in (None, 0):
        if timeline is not None:
            change = "UPDATE samecommit.setting SET value = value || jsonb_build_object('timeline', %s::int) WHERE name = 'outbox_line'"
            conn.execute(change, [timeline])
        for _ in range(2):
            began = int(time.time() * 1000)
            emit(conn, "a")
            numbers.append(run(conn, "event/make_window")[0][0])
            assert run(conn, "event/make_window") == [(numbers[-1],)], "nothing has become visible since"
            if len(numbers) % 2:
                assert numbers[-1] >= began
    assert [later - earlier for earlier, later in pairwise(numbers)] == [1, ANY, 1]
    assert numbers == sorted(set(numbers))


def test_a_timeline_that_was_read_late_changes_nothing(conn: Conn) -> None:
    later = """UPDATE samecommit.setting SET value = value || '{"timeline": 1000000}' WHERE name = 'outbox_line' RETURNING value"""
    before = conn.execute(later).fetchone()
    emit(conn, "a")
    run(conn, "event/make_window")
    assert conn.execute("SELECT value FROM samecommit.setting WHERE name = 'outbox_line'").fetchone() == before


async def test_a_destination_starts_now_at_the_start_or_at_a_moment(dsn: str, conn: Conn) -> None:
    (first,) = emit(conn, "a")
    run(conn, "event/make_window")
    (moment,) = conn.execute("SELECT clock_timestamp()").fetchone() or (None,)
    (second,) = emit(conn, "a")
    starts = {"now": (False, None), "start": (True, None), "then": (False, moment)}
    for name, (from_start, start_at) in starts.items():
        values: dict[str, Any] = {"name": name, "mode": "stream", "shards": 1, "matches": ["*"]}
        run(conn, "event/add_destination", **values, sink=None, ordering=None, from_start=from_start, start_at=start_at)
    (third,) = emit(conn, "a")
    got: dict[str, list[int]] = {}
    for name in starts:
        sink = Scripted()
        async with Stage(dsn, sink, name=name) as stage:
            await stage.run()
        got[name] = sink.numbers
    assert got == {"now": [third], "start": [first, second, third], "then": [second, third]}


@pytest.mark.usefixtures("numbers_from_one")
async def test_positions_move_while_a_new_destination_counts_what_is_there(dsn: str, conn: Conn) -> None:
    """The window that it begins behind may take minutes to make; here another transaction is in its way."""
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    emit(conn, "a")
    waiting = "SELECT FROM pg_stat_activity WHERE application_name ~ 'test' AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
    values: dict[str, Any] = {"name": "new", "mode": "stream", "shards": 1, "matches": ["*"]}
    link = AsyncLink(dsn, "samecommit", "test")
    with psycopg.connect(dsn) as other:
        other.execute("INSERT INTO samecommit.event_window (n, snapshot) VALUES (1, pg_current_snapshot())")
        adding = asyncio.create_task(
            link.fetch("event/add_destination", **values, sink=None, ordering=None, from_start=False, start_at=None)
        )
        await until(lambda: conn.execute(waiting).fetchall(), what="the new destination's window to wait")
        with conn.transaction():
            conn.execute("SET LOCAL lock_timeout = '200ms'")
            conn.execute("UPDATE samecommit.position SET delivered = delivered + 1 WHERE destination = 'there'")
        other.rollback()
    assert await adding == [(True,)]
    await link.close()


@pytest.mark.usefixtures("numbers_from_one")
@pytest.mark.parametrize("cleaning", ["event/thin_windows", "event/drop_old_windows"])
def test_the_window_that_a_destination_begins_behind_is_not_taken_away_meanwhile(
    cleaning: str, dsn: str, conn: Conn
) -> None:
    for _ in range(2):
        emit(conn, "a")
        run(conn, "event/make_window")
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    conn.execute("UPDATE samecommit.event_window SET made_at = now() - interval '30 days'")
    keep: dict[str, Any] = {"keep": 3} if cleaning == "event/drop_old_windows" else {}
    with psycopg.connect(dsn) as other:
        other.execute("SELECT samecommit.add_destination('late', 'stream', 1, '{*}', 1)")
        with conn.transaction(force_rollback=True):
            conn.execute("SET LOCAL lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                run(conn, cleaning, **keep)
    run(conn, cleaning, **keep)
    standing = "SELECT FROM samecommit.position AS p JOIN samecommit.event_window AS w ON w.n = p.window_n"
    assert len(conn.execute(standing).fetchall()) == 2


def test_a_destination_cannot_change_its_shards(conn: Conn) -> None:
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 2, '{*}')")
    with pytest.raises(psycopg.Error, match="exists with another mode or number of shards"):
        conn.execute("SELECT samecommit.add_destination('there', 'stream', 3, '{*}')")
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 2, '{lead.*}')")
    assert conn.execute("SELECT samecommit.remove_destination('there')").fetchone() == (True,)
    assert conn.execute("SELECT count(*) FROM samecommit.position").fetchone() == (0,)
