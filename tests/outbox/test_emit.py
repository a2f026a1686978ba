"""Emitting: with the caller's data or not at all, and nothing that could not be delivered."""

import dataclasses
import decimal
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
import sqlalchemy
from tests.outbox.support import Scripted, declared

from samecommit import App, Tasks
from samecommit.errors import (
    ConfigError,
    EnqueueError,
    EventRefused,
    NotInTransaction,
    PayloadError,
    TaskDefinitionError,
)

Conn = psycopg.Connection[Any]


class Lacking:
    """A class without attributes."""


def stored(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT type, key, subject, source, version, content_type, data, extensions FROM samecommit.event ORDER BY number"
    ).fetchall()


def test_an_event_exists_if_its_transaction_committed(dsn: str, conn: Conn) -> None:
    app, lead_created = declared(dsn)
    with psycopg.connect(dsn) as caller:
        app.emit(caller, lead_created(1, "Ann"))
        caller.rollback()
        made = app.emit(caller, lead_created(2, "Bob"), extensions={"traceparent": "00-1-2-01"})
        assert stored(conn) == []
    assert made.number > 0
    assert UUID(made.id).version == 4
    (row,) = stored(conn)
    assert row[:6] == ("lead.created", "2", "Bob", "/shop", 1, "application/json")
    assert msgspec.json.decode(row[6]) == {"id": 2, "name": "Bob"}
    assert row[7] == {"traceparent": "00-1-2-01"}


async def test_the_same_verb_is_awaited_on_an_asynchronous_connection(dsn: str, conn: Conn) -> None:
    app, lead_created = declared(dsn)
    async with await psycopg.AsyncConnection.connect(dsn) as caller:
        await app.emit(caller, lead_created(1, "Ann"))
    assert len(stored(conn)) == 1


def test_a_session_carries_events_too(dsn: str, conn: Conn) -> None:
    app, lead_created = declared(dsn)
    engine = sqlalchemy.create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as caller:
        app.emit(caller, lead_created(1, "A 'quoted' name with a : and a %"))
    engine.dispose()
    assert msgspec.json.decode(stored(conn)[0][6])["name"] == "A 'quoted' name with a : and a %"


def test_events_without_a_class_are_json_or_bytes(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    with psycopg.connect(dsn) as caller:
        app.emit(caller, {"total": decimal.Decimal("1.10")}, type="order.paid", key="7")
        app.emit(caller, b"\x00\xff", type="scan.made", content_type="image/tiff")
        app.emit(caller, "text\u00e9".encode(), type="note.made")
        app.emit(caller, b'{"n": 1.10}', type="form.sent", content_type="application/json")
    paid, scan, note, form = stored(conn)
    assert (form[5], form[6]) == ("application/json", b'{"n": 1.10}'), "byte for byte"
    assert paid[1] == "7"
    assert (scan[5], scan[6], scan[1]) == ("image/tiff", b"\x00\xff", None)
    assert note[6].decode() == "texté"


def test_a_connection_that_commits_by_itself_is_refused(dsn: str, conn: Conn) -> None:
    app, lead_created = declared(dsn)
    with pytest.raises(NotInTransaction, match=r"'lead.created' was emitted outside a transaction"):
        app.emit(conn, lead_created(1, "Ann"))
    app.emit(conn, lead_created(1, "Ann"), own_transaction=True)
    assert len(stored(conn)) == 1


@pytest.mark.parametrize(
    ("event", "options", "complaint"),
    [
        ({}, {"type": "a b"}, "event type 'a b'"),
        ({}, {"type": ""}, "event type ''"),
        ({}, {"type": "t", "key": ""}, "event key ''"),
        ({}, {"type": "t", "key": "a\0b"}, "event key"),
        ({}, {"type": "t", "key": "\ud800"}, "event key"),
        ({}, {"type": "t", "key": "k" * 201}, "event key"),
        ({}, {"type": "t", "subject": "a\nb"}, "event subject"),
        ({}, {"type": "t", "event_id": ""}, "event id"),
        ({}, {"type": "t", "extensions": {"Trace": "x"}}, "extension 'Trace'"),
        ({}, {"type": "t", "extensions": {"id": "x"}}, "extension 'id'"),
        ({}, {"type": "t", "extensions": {"a": "x\0"}}, "extension 'a'"),
        ({"a": "x\0y"}, {"type": "t"}, r"\$\.a"),
        ({"a": float("nan")}, {"type": "t"}, r"\$\.a"),
        ({"a": "x" * 1_100_000}, {"type": "t"}, "bytes"),
        (b"x" * 1_100_000, {"type": "t"}, "store it elsewhere"),
        (
            b"{'a': 1}",
            {"type": "t", "content_type": "application/json"},
            r"content_type 'application/json', .* are no JSON",
        ),
        (b"\xff", {"type": "t", "content_type": "application/json; charset=utf-8"}, "are no JSON"),
        (b"", {"type": "t", "content_type": "application/vnd.lead+json"}, "its 0 bytes"),
        (b"x", {"type": "t", "content_type": "text/plain\r\nx: y"}, "event content_type"),
        (object(), {"type": "t"}, "cannot be stored"),
        (object(), {}, "is not declared as an event"),
    ],
)
def test_a_poison_event_is_refused_before_any_sql(
    dsn: str, conn: Conn, event: Any, options: dict[str, Any], complaint: str
) -> None:
    app = App(dsn)
    with psycopg.connect(dsn) as caller:
        with pytest.raises(PayloadError, match=complaint):
            app.emit(caller, event, **options)
        assert caller.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        app.emit(caller, {}, type="fine")
    assert len(stored(conn)) == 1


def test_what_one_destination_could_never_take_is_refused_with_its_name(dsn: str) -> None:
    app = App(dsn)
    app.stream("small", Scripted(size_limit=10), matches="lead.*")
    with psycopg.connect(dsn) as caller:
        with pytest.raises(EventRefused, match=r"destination 'small' could never take event 'lead.created'.*10 bytes"):
            app.emit(caller, {"text": "long enough"}, type="lead.created")
        app.emit(caller, {"text": "long enough"}, type="order.paid")
        app.emit(caller, {}, type="lead.created")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"type": ""}, "event type '' cannot be used"),
        ({"type": None}, "event type NULL cannot be used"),
        ({"type": "t" * 201}, "event type 'ttt"),
        ({"type": "a b"}, "event type 'a b' cannot be used"),
        ({"key": ""}, "event key '' cannot be used"),
        ({"key": "a\tb"}, "event key"),
        ({"key": "k" * 201}, "event key 'kkk"),
        ({"data": '"' + "x" * 1_100_000 + '"'}, "event data of 1100002 bytes cannot be stored"),
        ({"data": None}, "event data"),
        ({"id": ""}, "event id '' cannot be used"),
        ({"source": "s" * 1001}, "event source 'sss"),
        ({"subject": "a\nb"}, "event subject"),
        ({"extensions": "[]"}, r"event extensions '\[\]'"),
        ({"extensions": '{"Trace": "x"}'}, 'event extensions \'{"Trace"'),
        ({"extensions": '{"' + "a" * 21 + '": "x"}'}, "event extensions"),
        ({"extensions": '{"id": "x"}'}, "event extensions"),
        ({"extensions": '{"traceparent": 7}'}, "event extensions"),
        ({"extensions": '{"a": ""}'}, "event extensions"),
        ({"extensions": '{"a": "b\\nc"}'}, "event extensions"),
    ],
)
def test_the_function_refuses_the_same_in_sql(conn: Conn, arguments: dict[str, Any], complaint: str) -> None:
    values = {"type": "t", "data": "{}", "key": None, "id": None, "source": None, "subject": None, "extensions": None}
    with pytest.raises(psycopg.Error, match=complaint) as raised:
        conn.execute(
            "SELECT samecommit.emit(%(type)s, %(data)s::jsonb, %(key)s, %(id)s, %(source)s, %(subject)s, 1, %(extensions)s::jsonb)",
            {**values, **arguments},
        )
    assert raised.value.sqlstate == "SC004"
    assert stored(conn) == []


def test_what_is_as_long_as_it_may_be_is_stored_from_sql(conn: Conn) -> None:
    texts = {"type": "t" * 200, "key": "é" * 200, "id": "i" * 1000, "source": "s" * 1000, "subject": "ü" * 1000}
    extensions = msgspec.json.encode({"a" * 20: "é" * 1000, "0": " "}).decode()
    conn.execute(
        "SELECT samecommit.emit(%(type)s, '7', %(key)s, %(id)s, %(source)s, %(subject)s, 2, %(extensions)s::jsonb)",
        {**texts, "extensions": extensions},
    )
    assert stored(conn) == [
        (
            texts["type"],
            texts["key"],
            texts["subject"],
            texts["source"],
            2,
            "application/json",
            b"7",
            {"a" * 20: "é" * 1000, "0": " "},
        )
    ]


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        ("application/json", b"{'a': 1}"),
        (" Application/JSON ; charset=utf-8", b"\xff"),
        ("application/vnd.lead+json", b""),
        ("application/vnd.lead+json;v=1", b'{"a": 1} x'),
    ],
)
def test_bytes_that_are_said_to_be_json_and_are_not_are_refused_in_sql(
    conn: Conn, content_type: str, data: bytes
) -> None:
    with pytest.raises(
        psycopg.Error, match=f"event 't' has content_type .*its {len(data)} bytes are no JSON"
    ) as raised:
        conn.execute("SELECT samecommit.emit_bytes('t', %s, content_type => %s)", [data, content_type])
    assert raised.value.sqlstate == "SC004"


def test_bytes_go_as_they_are_from_sql(conn: Conn) -> None:
    for content_type, data in (
        ("application/json", b' {"n": 1.10}\n'),
        ("application/jsonlines", b"{}\n{}"),
        ("text/plain; note=a+json", b"x"),
        ("image/tiff", b"\x00\xff"),
    ):
        conn.execute("SELECT samecommit.emit_bytes('t', %s, content_type => %s)", [data, content_type])
        assert stored(conn)[-1][5:7] == (content_type, data)


def test_an_error_of_the_database_is_ours(dsn: str) -> None:
    app, lead_created = declared(dsn)
    with psycopg.connect(dsn) as caller:
        caller.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(EnqueueError):
            app.emit(caller, lead_created(1, "Ann"))


def test_a_trigger_may_emit(dsn: str, conn: Conn) -> None:
    conn.execute("CREATE TABLE lead (id int)")
    conn.execute(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM samecommit.emit('lead.created', to_jsonb(NEW), NEW.id::text); RETURN NEW; END $$"
    )
    conn.execute("CREATE TRIGGER tells AFTER INSERT ON lead FOR EACH ROW EXECUTE FUNCTION tell()")
    conn.execute("INSERT INTO lead VALUES (7)")
    assert [row[:2] for row in stored(conn)] == [("lead.created", "7")]


def test_a_prepared_transaction_may_emit_with_the_doorbell_off(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as sleeper, psycopg.connect(dsn) as caller:
        sleeper.execute("SELECT pg_advisory_lock(hashoid('samecommit.queue'::regclass), 64)")
        caller.execute("SET LOCAL samecommit.doorbell = off")
        caller.execute("SELECT samecommit.emit('t')")
        caller.commit()
    assert len(stored(conn)) == 1


def test_any_record_class_can_be_an_event(dsn: str, conn: Conn) -> None:
    app = App(dsn)

    @app.event(type="struct.made", key="id", version=3)
    class Made(msgspec.Struct):
        id: UUID

    with psycopg.connect(dsn) as caller:
        app.emit(caller, Made(UUID(int=5)))
    assert stored(conn)[0][1:5] == (str(UUID(int=5)), None, "samecommit", 3)


def test_a_key_is_text_a_whole_number_or_a_uuid(dsn: str) -> None:
    app = App(dsn)

    @app.event(type="odd", key="value")
    @dataclasses.dataclass
    class Odd:
        value: float

    with psycopg.connect(dsn) as caller, pytest.raises(PayloadError, match=r"value is 1.5, which is no key"):
        app.emit(caller, Odd(1.5))


def test_declarations_are_checked(dsn: str) -> None:
    app, lead_created = declared(dsn)
    with pytest.raises(TaskDefinitionError, match="twice"):
        app.event(type="other")(lead_created)
    with pytest.raises(TaskDefinitionError, match="no attribute 'missing'"):
        app.event(type="other", key="missing")(Lacking)
    app.stream("there", Scripted())
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: app.stream("there", Scripted()), "two destinations are named 'there'"),
        (lambda: app.stream("A b", Scripted()), "destination 'A b' cannot be used"),
        (lambda: app.stream("x", Scripted(), matches=()), "gets nothing"),
        (lambda: app.stream("x", Scripted(), matches="a*b"), "matches no event type"),
        (lambda: app.stream("x", Scripted(), order="none", poison="park_key"), "keeps no order of keys"),
        (lambda: app.stream("x", Scripted, order="global", shards=2), "one order needs one"),
        (lambda: app.stream("x", Scripted(), shards=2), "each shard needs its own"),
        (lambda: app.stream("x", Scripted(), send_seconds=20.0), "at most half of its lease"),
        (lambda: app.destination("x")(object()), "has no method send"),
        (App(dsn).relay, "has no destinations"),
    ]
    for call, complaint in refused:
        with pytest.raises(ConfigError, match=complaint):
            call()


def test_a_registry_brings_its_events_and_destinations(dsn: str, conn: Conn) -> None:
    billing = Tasks()

    @billing.event(type="invoice.paid", key="id")
    @dataclasses.dataclass
    class InvoicePaid:
        id: int

    billing.stream("ledger", Scripted(size_limit=1_000), matches="invoice.*")
    app = App(dsn, tasks=[billing], source="/billing")
    with psycopg.connect(dsn) as caller:
        billing.emit(caller, InvoicePaid(1))
        app.emit(caller, InvoicePaid(2))
    assert [(row[1], row[3]) for row in stored(conn)] == [("1", "/billing"), ("2", "/billing")]
    assert "ledger" in repr(app.relay())
