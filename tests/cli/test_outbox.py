"""What an operator sees and decides about the outbox, on a real database; relays are played by rows where none has to run."""

import asyncio
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.conftest import Samecommit
from tests.outbox.support import Readable, Scripted, Stage, emit, make_due
from tests.support.waiting import until

from samecommit import App
from samecommit.outbox.outcomes import DestinationDown, Rejected, Retry, Unsure
from samecommit.outbox.sink import ReadBack
from samecommit.outbox.sinks.table import Table

Conn = psycopg.Connection[Any]


def codes(samecommit: Samecommit, *arguments: object) -> list[str]:
    told = samecommit("outbox", "why", *arguments, "--json")
    return [reason["code"] for reason in told.answer["data"]]


def only(samecommit: Samecommit) -> dict[str, Any]:
    (row,) = samecommit("outbox", "status", "--json").answer["data"]
    return dict(row)


def refuses(*numbers: int) -> Any:
    return lambda event: Rejected("too odd") if event.number in numbers else Scripted().answer(event)


async def test_status_counts_what_waits_and_says_for_how_long(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    assert "no destination" in on_database("outbox", "status").out
    async with Stage(dsn, Scripted()) as stage:
        emit(conn, "a", 3)
        row = only(on_database)
        assert (row["state"], row["waiting"], row["is_estimate"]) == ("no relay", 3, False), "no window has them yet"
        await stage.tick()
        assert only(on_database)["waiting"] == 3
        await stage.run()
        await stage.later(1.0)
        row = only(on_database)
        assert (row["state"], row["waiting"], row["waiting_seconds"], row["delivered"]) == ("running", 0, 0, 3)
        assert f"relay: pid {os.getpid()} on " in on_database("outbox", "why", "there").out
        conn.execute("UPDATE samecommit.position SET lease_until_at = 'epoch'")
        assert f"the last one was {row['relay']}, heard of at 2" in on_database("outbox", "why", "there").out
        conn.execute("UPDATE samecommit.position SET lease_until_at = now() + interval '30 s'")
        emit(conn, "a", 2)
        conn.execute("UPDATE samecommit.event SET created_at = created_at - interval '5 min' WHERE number = 4")
        row = only(on_database)
        assert row["waiting"] == 2 and 300 <= row["waiting_seconds"] < 360
        assert " 5 min" in on_database("outbox", "status").out


async def test_a_long_backlog_is_estimated_from_numbers(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    async with Stage(dsn, Scripted()):
        conn.execute("SELECT setval('samecommit.event_seq', 5000000)")
        numbers = emit(conn, "a")
        conn.execute("SELECT samecommit.make_window()")
        conn.execute(
            "INSERT INTO samecommit.event_window (n, snapshot, events, first) SELECT n, pg_current_snapshot(), 2500, %s "
            "FROM generate_series(2, 2000) AS n",
            numbers,
        )
        conn.execute("SELECT setval('samecommit.event_seq', 10000000)")
        row = only(on_database)
        assert (row["waiting"], row["is_estimate"]) == (5_000_000, True)
        assert "~5000000" in on_database("outbox", "status").out


async def test_a_status_for_alerts_ends_with_one_when_something_is_late(
    on_database: Samecommit, dsn: str, conn: Conn
) -> None:
    async with Stage(dsn, Scripted()) as stage:
        assert on_database("outbox", "status", "--max-seconds", 60).status == 1, "there is no relay"
        await stage.run()
        assert on_database("outbox", "status", "--max-seconds", 60).status == 0
        emit(conn, "a")
        conn.execute("UPDATE samecommit.event SET created_at = created_at - interval '61 s'")
        told = on_database("outbox", "status", "--max-seconds", 60)
        assert told.status == 1 and "late, halted or without a relay: there" in told.out
        conn.execute("SELECT samecommit.pause_destination('there')")
        assert on_database("outbox", "status", "--max-seconds", 60).status == 1, "a pause does not hide an old event"
        assert on_database("outbox", "status", "--max-seconds", 600).status == 0


async def test_a_destination_that_is_down_says_until_when(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    (number,) = emit(conn, "a")
    sink = Scripted(answer=lambda _: DestinationDown("no route", after=90))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        row = only(on_database)
        assert (row["state"], row["last_error"]) == ("down", "no route") and row["resume_at"]
        assert "down until" in on_database("outbox", "status").out
        assert codes(on_database, "there") == ["down", "behind"]
        assert codes(on_database, "there", number) == ["in_line", "down"]
        assert "no route; next try at" in on_database("outbox", "why", "there").out


async def test_a_halted_destination_names_the_event(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    first, second = emit(conn, "a", 2)
    async with Stage(dsn, Scripted(answer=refuses(first)), order="global") as stage:
        await stage.run()
        await stage.later(1.0)
        assert codes(on_database, "there")[:2] == ["halted", "waits_for_person"]
        assert f"halted on event {first}: too odd" in on_database("outbox", "why", "there").out
        assert codes(on_database, "there", first) == ["parked_dead"]
        assert codes(on_database, "there", second)[:2] == ["in_line", "halted"]
        assert on_database("outbox", "status", "--max-seconds", 600).status == 1


async def test_parked_events_are_listed_explained_and_resolved(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    first, second, third = emit(conn, "a"), emit(conn, "a"), emit(conn, "b")
    sink = Scripted(answer=refuses(*first))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        assert codes(on_database, "there", *second) == ["parked_waiting"]
        assert f"waits behind event {first[0]} of its key 'a'" in on_database("outbox", "why", "there", *second).out
        assert codes(on_database, "there", *third) == ["delivered"]
        listed = on_database("outbox", "parked", "there", "--json").data
        assert [(row["number"], row["state"]) for row in listed] == [(first[0], "dead"), (second[0], "waiting")]
        assert on_database("outbox", "parked", "--state", "dead", "--ids").out == f"{first[0]}\n"
        assert "too odd" in on_database("outbox", "parked").out
        told = on_database("outbox", "resolve", "there", first[0], second[0], "--drop", "--json")
        assert told.status == 3 and (told.answer["done"], told.answer["refused"]) == (1, 1)
        assert (
            on_database("outbox", "resolve", "there", 999, "--drop").out
            == "999: nothing there waits for a person under this number: samecommit outbox parked and doubts list what does\n"
        )
        stage.relay.look_again()
        await stage.later(1.0)
        await stage.later(1.0)
        assert sink.numbers == [*third, *second]
        assert on_database("outbox", "parked").out == "nothing is put aside\n"


async def test_an_event_that_is_tried_again_says_when(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    (number,) = emit(conn, "a")
    async with Stage(dsn, Scripted(answer=lambda _: Retry("busy", after=30))) as stage:
        await stage.run()
        await stage.later(1.0)
        assert codes(on_database, "there", number) == ["parked_due"]
        assert "refused 1 times, tried again at" in on_database("outbox", "why", "there", number).out


async def test_doubts_of_streams_wait_for_a_person(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    assert on_database("outbox", "doubts").out == "nothing is in doubt\n"
    (number,) = emit(conn, "a")
    sink = Readable(answer=lambda _: Retry("try"), idempotency=ReadBack(), says=lambda _: Unsure("search is down"))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        conn.execute("UPDATE samecommit.parked SET is_doubtful = true, first_at = first_at - interval '2 days'")
        make_due(conn)
        stage.relay.look_again()
        await stage.later(1.0)
        (row,) = on_database("outbox", "doubts", "there", "--json").data
        assert (row["destination"], row["id"], row["what"], row["key"]) == ("there", number, "event", "a")
        assert only(on_database)["doubtful"] == 1
        assert codes(on_database, "there", number) == ["parked_decision"]
        assert on_database("outbox", "resolve", "there", number, "--delivered").status == 0
        assert on_database("outbox", "doubts").out == "nothing is in doubt\n"


def test_what_cannot_be_decided_says_where_to_look(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    App(dsn).migrate()
    conn.execute("SELECT samecommit.add_destination('crm', 'jobs', 1, '{*}')")
    told = on_database("outbox", "parked", "crm")
    assert told.status == 0 and "samecommit jobs --kind deliver:crm" in told.out
    assert on_database("outbox", "doubts", "crm").out == "nothing is in doubt\n"
    row = conn.execute("SELECT id FROM samecommit.enqueue('deliver:crm', max_attempts => 1)").fetchone()
    assert row is not None
    conn.execute(
        "UPDATE samecommit.job SET state = 'failed', pos = NULL, since_at = now(), last_error = 'no' WHERE id = %s", row
    )
    told = on_database("outbox", "resolve", "crm", row[0], "--send-again")
    assert told.status == 3 and f"it is failed: samecommit jobs retry {row[0]}" in told.out


def test_a_held_delivery_of_a_destination_that_was_removed_is_decided(on_database: Samecommit, conn: Conn) -> None:
    row = conn.execute("SELECT id FROM samecommit.enqueue('deliver:crm')").fetchone()
    assert row is not None
    conn.execute("SELECT samecommit.hold(%s, 'in doubt')", row)
    assert on_database("outbox", "resolve", "crm", row[0], "--drop").out == f"{row[0]}: resolved\n"
    assert on_database("outbox", "resolve", "gone", row[0], "--drop").status == 3


def test_a_decision_has_to_be_said(on_database: Samecommit) -> None:
    told = on_database("outbox", "resolve", "there", 1)
    assert told.status == 2 and "--delivered, --send-again or --drop" in told.err


async def test_a_pause_is_seen_and_ends(on_database: Samecommit, dsn: str, conn: Conn) -> None:
    (number,) = emit(conn, "a")
    async with Stage(dsn, Scripted()):
        assert on_database("outbox", "pause", "there", "--reason", "moving house").status == 0
        assert only(on_database)["state"] == "paused"
        assert "moving house" in on_database("outbox", "status").out
        assert codes(on_database, "there", number)[:2] == ["in_line", "paused"]
        assert on_database("outbox", "resume", "there").status == 0
        assert only(on_database)["state"] == "no relay"
        assert "or a worker; there was none yet" in on_database("outbox", "why", "there").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("pause", "gone"),
        ("resume", "gone"),
        ("remove", "gone"),
        ("why", "gone"),
        ("why", "gone", 1),
        ("resolve", "gone", 1, "--drop"),
        ("parked", "gone"),
        ("parked", "gone", "--ids"),
        ("doubts", "gone"),
    ],
    ids=lambda arguments: "-".join(str(part) for part in arguments),
)
def test_an_unknown_destination_is_refused(on_database: Samecommit, arguments: tuple[object, ...]) -> None:
    told = on_database("outbox", *arguments)
    assert told.status == 3 and "gone" in told.out + told.err


async def test_an_event_that_is_not_there_names_the_open_transactions(
    on_database: Samecommit, dsn: str, conn: Conn
) -> None:
    async with Stage(dsn, Scripted()):
        with psycopg.connect(dsn, application_name="slow import") as writer:
            row = writer.execute("SELECT number FROM samecommit.emit('thing.done', '{}', 'a')").fetchone()
            assert row is not None
            told = on_database("outbox", "why", "there", row[0])
            assert told.status == 3
            assert "its transaction is still open" in told.out and "slow import" in told.out
            backend = writer.execute("SELECT pg_backend_pid()").fetchone()  # a pooler tells a number of its own
            assert backend is not None and str(backend[0]) in told.out
            writer.rollback()
        assert codes(on_database, "there", row[0]) == ["not_in_log"]
        assert codes(on_database, "there", row[0] + 1) == ["not_in_log"]
        assert "no event has had the number" in on_database("outbox", "why", "there", row[0] + 1).out


async def test_events_are_found_by_id_and_told_when_they_are_not_meant(
    on_database: Samecommit, dsn: str, conn: Conn
) -> None:
    conn.execute("SELECT samecommit.emit('thing.done', '{}', 'a', 'first-of-all')")
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{lead.*}')")
    assert codes(on_database, "there", "first-of-all") == ["not_matched"]
    conn.execute("SELECT samecommit.emit('lead.created', '{}', 'a', 'second')")
    assert codes(on_database, "there", "second")[0] == "no_window"
    conn.execute("SELECT samecommit.add_destination('late', 'stream', 1, '{*}')")
    assert codes(on_database, "late", "second") == ["before_beginning"]
    told = on_database("outbox", "why", "there", "third")
    assert told.status == 3 and "'third'" in told.err and "nothing has been dropped yet" in told.err


def test_a_destination_is_forgotten(on_database: Samecommit, conn: Conn) -> None:
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    assert on_database("outbox", "remove", "there").status == 0
    assert on_database("outbox", "status", "--json").data == []


OUTLETS = """
from samecommit import App
from samecommit.outbox.sinks.stdout import Stdout

app = App()
app.stream("there", Stdout())
"""


@pytest.fixture
def outlets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module with an application that has one destination."""
    name = f"outlets_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(OUTLETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize(("beginning", "waiting"), [("now", 0), ("start", 2), ("1h", 1)])
def test_a_new_destination_begins_where_it_is_told(
    on_database: Samecommit, conn: Conn, outlets: str, beginning: str, waiting: int
) -> None:
    emit(conn, "a")
    conn.execute("SELECT samecommit.make_window()")
    conn.execute("UPDATE samecommit.event_window SET made_at = made_at - interval '2 h'")
    emit(conn, "a")
    assert on_database("outbox", "add", "there", "--app", outlets, "--from", beginning).status == 0
    row = only(on_database)
    assert (row["waiting"], row["sink"], row["ordering"]) == (waiting, "Stdout", "key")


def test_a_destination_that_is_there_is_not_moved(on_database: Samecommit, outlets: str) -> None:
    assert on_database("outbox", "add", "there", "--app", outlets, "--from", "now").status == 0
    told = on_database("outbox", "add", "there", "--app", outlets, "--from", "start")
    assert told.status == 3 and "is not moved" in told.err
    told = on_database("outbox", "add", "nowhere", "--app", outlets, "--from", "start")
    assert told.status == 3 and "it has 'there'" in told.err
    assert on_database("outbox", "add", "there", "--app", outlets, "--from", "soon").status == 2


async def test_held_deliveries_are_doubts_and_are_released_with_a_verdict(on_database: Samecommit, conn: Conn) -> None:
    conn.execute("SELECT samecommit.add_destination('crm', 'jobs', 1, '{*}')")
    conn.execute("SELECT samecommit.create_queue('default')")
    for _ in range(2):
        row = conn.execute('SELECT id FROM samecommit.enqueue(\'deliver:crm\', \'{"event": {"key": "a"}}\')').fetchone()
        assert row is not None
        conn.execute("SELECT samecommit.hold(%s, 'look')", row)
        conn.execute("INSERT INTO samecommit.delivery (job_id, destination, target) VALUES (%s, 'crm', 'one')", row)
    listed = on_database("outbox", "doubts", "--json").data
    assert [(it["what"], it["destination"], it["key"], it["target"]) for it in listed] == [
        ("job", "crm", "a", "one")
    ] * 2
    row = only(on_database)
    assert (row["parked"], row["dead"], row["doubtful"]) == (2, 0, 2)
    assert codes(on_database, "crm")[:2] == ["no_relay", "jobs_wait"]
    first, second = [it["id"] for it in listed]
    assert on_database("outbox", "resolve", "crm", first, "--delivered", "--reference", "R-7").status == 0
    told = on_database("outbox", "resolve", "crm", first, second, "--send-again", "--json")
    assert [it["outcome"] for it in told.answer["data"]] == ["ready", "resolved"]
    decided = conn.execute("SELECT decision FROM samecommit.jobs ORDER BY id").fetchall()
    assert decided == [({"verdict": "delivered", "ref": "R-7"},), ({"verdict": "resend", "ref": None},)]


async def test_a_replay_is_counted_asked_for_listed_and_cancelled(
    on_database: Samecommit, dsn: str, conn: Conn
) -> None:
    assert on_database("outbox", "replays").out == "no replay was asked for\n"
    emit(conn, "a", 7)
    conn.execute("SELECT samecommit.emit('thing.done', '{}', 'b', 'by-its-id')")
    async with Stage(dsn, Scripted()) as stage:
        await stage.run()
        await stage.later(1.0)
        told = on_database("outbox", "replay", "there", "--key", "a", "--dry-run")
        assert told.status == 0 and "7 events would be sent again" in told.out and "thing.done" in told.out
        assert len(on_database("outbox", "replay", "there", "--key", "a", "--dry-run", "--json").data["first"]) == 5
        found = on_database("outbox", "replay", "there", "--id", "by-its-id", "--id", 1, "--dry-run", "--json").data
        assert [row["number"] for row in found["first"]] == [1, 8]
        assert on_database("outbox", "replays").out == "no replay was asked for\n", "a dry run asks for nothing"
        told = on_database(
            "outbox", "replay", "there", "--key", "a", "--since", "2h", "--rate", "5", "--note", "why not"
        )
        assert told.status == 0 and "replay" in told.out
        (row,) = on_database("outbox", "replays", "--json").data
        assert (row["state"], row["keys"], row["per_second"], row["note"]) == ("waiting", ["a"], 5.0, "why not")
        assert only(on_database)["replays"] == 1
        assert "keys a; since" in on_database("outbox", "replays").out
        assert "replaying" in codes(on_database, "there")
        assert on_database("outbox", "replays", "--cancel", row["id"]).status == 0
        assert on_database("outbox", "replays", "--cancel", row["id"]).status == 3
        assert on_database("outbox", "replays", "--json").data[0]["state"] == "cancelled"


def test_a_replay_says_which_part_is_gone(on_database: Samecommit, conn: Conn) -> None:
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    assert "gone" not in on_database("outbox", "replay", "there", "--since", "20d").out
    conn.execute("UPDATE samecommit.event_window SET made_at = made_at - interval '30 d' WHERE n = 0")
    told = on_database("outbox", "replay", "there", "--since", "20d")
    assert told.status == 0 and "a part is gone: the log begins at" in told.out
    assert on_database("outbox", "replay", "there", "--since", "20d", "--json").answer["gone"]
    assert "gone" not in on_database("outbox", "replay", "there", "--since", "1h").out
    told = on_database("outbox", "replay", "there", "--id", "of-old")
    assert told.status == 3 and "what was emitted before that is gone" in told.err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("gone", "--key", "a"), 3),
        (("there",), 2),
        (("there", "--key", "a", "--rate", 0), 2),
        (("there", "--until", "30d"), 2),
        (("there", "--id", "999"), 3),
    ],
    ids=["unknown", "everything", "no rate", "all gone", "no such number"],
)
def test_a_replay_that_makes_no_sense_is_refused(
    on_database: Samecommit, conn: Conn, arguments: tuple[object, ...], status: int
) -> None:
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    conn.execute("UPDATE samecommit.event_window SET made_at = made_at - interval '90 d' WHERE n = 0")
    assert on_database("outbox", "replay", *arguments).status == status
    assert on_database("outbox", "replays", "--json").data == []


COPIES = """
from samecommit import App
from samecommit.outbox.sinks.table import Table

app = App()
app.stream("copy", Table({dsn!r}), start="start")
"""


@pytest.fixture
def copies(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module with an application whose destination is a table."""
    name = f"copies_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(COPIES.format(dsn=dsn))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


async def relayed(dsn: str, conn: Conn, count: int) -> None:
    """Run the relay until the table has so many rows and nothing is open."""
    app = App(dsn)
    app.stream("copy", Table(dsn), start="start")
    outbox = app.relay()
    running = asyncio.create_task(outbox.run())
    open_ = "SELECT count(*) FROM samecommit.replay_position WHERE ended_at IS NULL"
    rows = "SELECT count(*) FROM copied.event"
    await until(lambda: conn.execute("SELECT to_regclass('copied.event')").fetchone() != (None,))
    await until(lambda: (conn.execute(rows).fetchone(), conn.execute(open_).fetchone()) == ((count,), (0,)))
    outbox.stop()
    await running


def test_what_a_destination_lost_is_found_and_sent_again(
    on_database: Samecommit, dsn: str, conn: Conn, copies: str
) -> None:
    emit(conn, "a", 5)
    asyncio.run(relayed(dsn, conn, 5))
    ask = ("outbox", "reconcile", "copy", "--app", copies, "--since", "1h")
    assert on_database(*ask, "--json").data == {"checked": 5, "missing": [], "unsure": [], "reason": "", "replay": None}
    conn.execute("DELETE FROM copied.event WHERE attributes ->> 'lognumber' IN ('2', '4')")
    told = on_database(*ask)
    assert told.status == 1 and "5 events looked for, 2 missing" in told.out
    told = on_database(*ask, "--replay-missing", "--json")
    assert told.status == 1 and [row["number"] for row in told.answer["data"]["missing"]] == [2, 4]
    asyncio.run(relayed(dsn, conn, 5))
    assert on_database(*ask).status == 0
    again = conn.execute(
        "SELECT attributes ->> 'lognumber', replay FROM copied.event WHERE replay > 0 ORDER BY 1"
    ).fetchall()
    assert again == [("2", told.answer["data"]["replay"]), ("4", told.answer["data"]["replay"])]


def test_a_relay_at_work_is_not_disturbed(on_database: Samecommit, conn: Conn, copies: str) -> None:
    conn.execute("SELECT samecommit.add_destination('copy', 'stream', 1, '{*}')")
    conn.execute(
        "UPDATE samecommit.position SET lease_until_at = now() + interval '1 h', holder_name = 'pid 1 on there'"
    )
    told = on_database("outbox", "reconcile", "copy", "--app", copies, "--since", "1h")
    assert told.status == 3 and "pid 1 on there" in told.err and "pause copy first" in told.err
    told = on_database("outbox", "reconcile", "other", "--app", copies, "--since", "1h")
    assert told.status == 3 and "it has 'copy'" in told.err
