"""A message takes effect once, whatever comes twice, at once, or while the inbox is emptied."""

import dataclasses
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import psycopg
import pytest

from samecommit import App
from samecommit.errors import NotInTransaction, PayloadError
from samecommit.event import StoredEvent
from samecommit.outbox.inbox import Inbox, Message
from samecommit.outbox.sinks.headers import percent_all

Conn = psycopg.Connection[Any]
BILLING = Inbox("billing")
MESSAGE = Message(source="/shop", id="e1", key="7", number=5)


class Undo(Exception):
    """Rolls a block back."""


def take(conn: Conn, message: Message = MESSAGE, inbox: Inbox = BILLING) -> bool:
    with conn.transaction():
        return inbox.once(conn, message)


def empty(conn: Conn, keep: str = "0 s") -> bool:
    row = conn.execute("SELECT samecommit.empty_inbox(%s::interval)", [keep]).fetchone()
    assert row is not None
    return bool(row[0])


@pytest.mark.pg15
def test_a_message_is_taken_once_by_each_consumer(conn: Conn) -> None:
    assert take(conn)
    assert not take(conn)
    assert take(conn, inbox=Inbox("stock"))
    assert take(conn, dataclasses.replace(MESSAGE, source="/other"))
    assert take(conn, dataclasses.replace(MESSAGE, id="e2"))


def test_a_deliberate_replay_is_a_message_of_its_own(conn: Conn) -> None:
    assert take(conn)
    assert take(conn, dataclasses.replace(MESSAGE, replay=1))
    assert not take(conn, dataclasses.replace(MESSAGE, replay=1))


def test_parts_that_run_together_are_still_apart(conn: Conn) -> None:
    assert take(conn, Message(source="a", id="bc"))
    assert take(conn, Message(source="ab", id="c"))
    assert take(conn, Message(source="a", id="b\x1fc"))


def test_a_message_may_have_a_very_long_id(conn: Conn) -> None:
    long = Message(source="/" + "ü" * 5000, id="x" * 50_000)
    assert take(conn, long)
    assert not take(conn, long)


def test_effects_that_roll_back_give_the_message_back(conn: Conn) -> None:
    with suppress(Undo), conn.transaction():
        assert BILLING.once(conn, MESSAGE)
        raise Undo
    assert take(conn)


def together(dsn: str, count: int, act: Callable[[Conn], bool]) -> list[bool]:
    """Do the same on several connections at once."""
    start, results = threading.Barrier(count), list[bool]()

    def run() -> None:
        with psycopg.connect(dsn, autocommit=True) as mine:
            start.wait(10)
            results.append(act(mine))

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_of_many_at_once_one_takes_it(dsn: str) -> None:
    assert sorted(together(dsn, 12, take)) == [False] * 11 + [True]


def test_whoever_meets_an_open_transaction_waits_for_its_end(dsn: str, conn: Conn) -> None:
    results: list[bool] = []

    def second() -> None:
        with psycopg.connect(dsn, autocommit=True) as other:
            results.append(take(other))

    thread = threading.Thread(target=second)
    with suppress(Undo), conn.transaction():
        assert BILLING.once(conn, MESSAGE)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), "it did not wait"
        raise Undo
    thread.join(10)
    assert results == [True]


# ---------------------------------------------------------------------------------------------------------------- emptying


def test_a_message_is_remembered_over_one_emptying_and_forgotten_after_two(conn: Conn) -> None:
    assert take(conn)
    assert empty(conn)
    assert not take(conn)
    assert empty(conn)
    assert empty(conn)
    assert take(conn)


def test_the_two_tables_are_emptied_in_turn(conn: Conn) -> None:
    names: list[str] = []
    for _ in range(4):
        before = dict(conn.execute("SELECT name, value::text FROM samecommit.setting").fetchall())
        assert empty(conn)
        after = dict(conn.execute("SELECT name, value::text FROM samecommit.setting").fetchall())
        names += [name for name in after if after[name] != before[name]]
    assert names in (
        ["inbox_a_emptied", "inbox_b_emptied"] * 2,
        ["inbox_b_emptied", "inbox_a_emptied"] * 2,
    )


def test_nothing_is_emptied_before_its_time(conn: Conn) -> None:
    assert not empty(conn, "1 hour")
    assert empty(conn, "0 s")
    assert not empty(conn, "1 hour")


def test_an_inbox_in_use_is_emptied_later(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as using:
        assert BILLING.once(using, MESSAGE)
        assert not empty(conn)
        using.commit()
    assert empty(conn)


def test_a_message_that_is_being_taken_while_the_inbox_is_emptied_is_still_taken_once(dsn: str) -> None:
    # one emptying in each round: a message is remembered over one
    for number in range(40):
        message = Message(source="/shop", id=f"m{number}")
        turns = iter((empty, take, take, take))

        def act(conn: Conn, turns: Any = turns, message: Message = message) -> bool:
            turn = next(turns)
            return turn(conn, message) if turn is take else turn(conn) and False

        results = together(dsn, 4, act)
        assert (len(results), sum(results)) == (4, 1), f"round {number}: {results}"


def test_taking_leaves_nothing_to_vacuum(conn: Conn) -> None:
    for number in range(50):
        take(conn, dataclasses.replace(MESSAGE, id=str(number)))
    empty(conn)
    assert conn.execute(
        "SELECT (SELECT count(*) FROM samecommit.inbox_a), (SELECT count(*) FROM samecommit.inbox_b)"
    ).fetchone() in (
        (0, 50),
        (50, 0),
    )


# ------------------------------------------------------------------------------------------------------------------ latest


def latest(conn: Conn, number: int | None, key: str | None = "7") -> bool:
    with conn.transaction():
        return BILLING.latest(conn, dataclasses.replace(MESSAGE, number=number, key=key))


@pytest.mark.pg15
def test_only_what_is_newer_is_applied(conn: Conn) -> None:
    assert [latest(conn, number) for number in (5, 3, 5, 9, 8)] == [True, False, False, True, False]
    assert latest(conn, 1, key="8")


def test_what_cannot_be_compared_is_refused(conn: Conn) -> None:
    for number, key in ((None, "7"), (1, None)):
        with pytest.raises(PayloadError, match="use once"):
            latest(conn, number, key)


# ----------------------------------------------------------------------------------------------------------------- enqueue


def test_a_message_becomes_one_job(dsn: str, conn: Conn) -> None:
    app = App(dsn)

    @app.task()
    def make_invoice(order_id: int) -> None: ...

    with conn.transaction():
        first = BILLING.enqueue(conn, MESSAGE, make_invoice.job(order_id=7))
    with conn.transaction():
        assert BILLING.enqueue(conn, MESSAGE, make_invoice.job(order_id=7)) is None
    assert first is not None
    assert conn.execute("SELECT id, kind FROM samecommit.jobs").fetchall() == [(first.id, "make_invoice")]


async def test_it_works_on_an_asynchronous_connection(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        assert await BILLING.once(conn, MESSAGE)
        assert await BILLING.latest(conn, MESSAGE)
        assert not await BILLING.latest(conn, MESSAGE)
        await conn.commit()
        assert not await BILLING.once(conn, MESSAGE)


def test_outside_a_transaction_it_refuses(conn: Conn) -> None:
    for ask in (BILLING.once, BILLING.latest):
        with pytest.raises(NotInTransaction, match="before it has had its effects"):
            ask(conn, MESSAGE)
    assert take(conn), "it was noted all the same"


# ---------------------------------------------------------------------------------------------------------------- messages


def stored() -> StoredEvent:
    from datetime import UTC, datetime

    return StoredEvent(
        id="e1", source="/shop", type="x", data=b"{}", key="7", time=datetime.now(UTC), number=5, replay=2
    )


@pytest.mark.parametrize("prefix", ["", "ce_", "ce-", "cloudEvents_", "cloudEvents:"])
def test_a_message_is_read_from_the_attributes_of_every_transport(prefix: str) -> None:
    attributes: dict[str, Any] = {f"{prefix}{name}": value for name, value in stored().attributes().items()}
    assert Message.of(attributes) == dataclasses.replace(MESSAGE, replay=2)
    as_bytes = {name: value.encode() for name, value in attributes.items()}
    assert Message.of({**as_bytes, "content-type": b"x", "other": 7}) == dataclasses.replace(MESSAGE, replay=2)


def test_headers_that_were_encoded_are_decoded() -> None:
    event = msgspec.structs.replace(stored(), id="é 100%", source="/my shop", key='a "b" %20')
    expected = Message(source="/my shop", id="é 100%", key='a "b" %20', number=5, replay=2)
    headers = percent_all(event.attributes(), "ce-")
    assert headers["ce-id"] == "%C3%A9%20100%25"
    assert Message.of(headers) == expected
    assert Message.of({name.title(): value.encode() for name, value in headers.items()}) == expected
    assert Message.of({f"ce_{name}": value for name, value in event.attributes().items()}) == expected


def test_a_message_is_read_from_json() -> None:
    assert Message.of_json(stored().structured()) == dataclasses.replace(MESSAGE, replay=2)
    for document in (b"", b"[]", b"\xff", b"{}"):
        with pytest.raises(PayloadError):
            Message.of_json(document)


def test_an_attribute_that_is_null_counts_as_missing() -> None:
    # in the JSON format an attribute that is not set may be a null
    message = Message.of_json(b'{"id": "e1", "source": "/s", "partitionkey": null, "lognumber": null, "replay": null}')
    assert message == Message(source="/s", id="e1")
    for document in (b'{"id": null, "source": "/s"}', b'{"id": "e1", "source": null}'):
        with pytest.raises(PayloadError, match="no attribute"):
            Message.of_json(document)


def test_an_attribute_with_its_prefix_counts_before_a_plain_one_of_that_name() -> None:
    given = {"ID": "request 7", "ce-id": "e1", "source": "here", "ce-source": "/s", "id": "request 8"}
    assert Message.of(given) == Message(source="/s", id="e1")


def test_numbers_that_are_none_count_as_missing() -> None:
    message = Message.of({"id": "e1", "source": "/s", "lognumber": "-1", "replay": "x"})
    assert message == Message(source="/s", id="e1")
