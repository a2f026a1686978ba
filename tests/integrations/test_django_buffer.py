"""Events of a Django transaction are stored in one statement with its commit, and forgotten with what is rolled back."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import django
import psycopg
import pytest
from tests.doors.kinds import django_setting

from samecommit import App
from samecommit.errors import NotInTransaction, PayloadError, SchemaMissing

Conn = psycopg.Connection[Any]


class Undo(Exception):
    """Rolls a block back."""


@pytest.fixture
def django_conn(dsn: str) -> Iterator[Any]:
    """Django's connection to the test's database."""
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": django_setting(dsn)}, USE_TZ=True)
        django.setup()
    from django.db import connections

    connections.settings["default"] = connections.configure_settings({"default": django_setting(dsn)})["default"]
    connections["default"].close()
    del connections["default"]
    yield connections["default"]
    connections["default"].close()


@pytest.fixture
def events(dsn: str, django_conn: Any) -> Any:
    from samecommit.integrations.django.buffer import EventBuffer

    return EventBuffer(App(dsn))


@pytest.fixture
def atomic(django_conn: Any) -> Any:
    from django.db import transaction

    return transaction.atomic


def names(conn: Conn) -> list[str]:
    return [row[0] for row in conn.execute("SELECT type FROM samecommit.event ORDER BY number").fetchall()]


@pytest.mark.pg15
def test_events_are_stored_in_one_statement_before_the_commit(
    events: Any, atomic: Any, django_conn: Any, conn: Conn
) -> None:
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(django_conn) as queries, atomic():
        events.emit({"n": 1}, type="one", key="k")
        events.emit(b"\x00\xff", type="two")
        with atomic():
            events.emit({}, type="three")
        assert names(conn) == []
    assert names(conn) == ["one", "two", "three"]
    assert sum("store_event" in query["sql"] for query in queries) == 1
    with atomic():
        pass
    with atomic():
        events.emit({}, type="four")
    assert names(conn) == ["one", "two", "three", "four"]


def test_a_rollback_takes_its_events_with_it(events: Any, atomic: Any, conn: Conn) -> None:
    with suppress(Undo), atomic():
        events.emit({}, type="undone")
        raise Undo
    with atomic():
        events.emit({}, type="before")
        with suppress(Undo), atomic():
            events.emit({}, type="undone-in-a-savepoint")
            with atomic():
                events.emit({}, type="undone-with-the-one-around-it")
            raise Undo
        with atomic():
            events.emit({}, type="in-a-savepoint")
        events.emit({}, type="after")
    assert names(conn) == ["before", "in-a-savepoint", "after"]


def test_a_rollback_to_a_savepoint_made_by_hand_takes_its_events_with_it(
    events: Any, atomic: Any, django_conn: Any, conn: Conn
) -> None:
    from django.db import transaction

    with atomic():
        events.emit({}, type="a")
        first = transaction.savepoint()
        events.emit({}, type="b")
        second = transaction.savepoint()
        events.emit({}, type="c")
        transaction.savepoint_rollback(second)
        assert len(django_conn.run_on_commit) == 2, "b is behind the first only"
        events.emit({}, type="d")
        transaction.savepoint_rollback(first)
        events.emit({}, type="e")
    assert names(conn) == ["a", "e"]
    with atomic():
        before_all = transaction.savepoint()
        events.emit({}, type="f")
        transaction.savepoint_rollback(before_all)
        events.emit({}, type="g")
    assert names(conn) == ["a", "e", "g"]


def test_a_savepoint_made_before_the_first_event_of_a_connection_takes_it_along(
    events: Any, atomic: Any, conn: Conn
) -> None:
    from django.db import transaction

    with atomic():
        before_all = transaction.savepoint()
        events.emit({}, type="a")
        transaction.savepoint_rollback(before_all)
        events.emit({}, type="b")
    assert names(conn) == ["b"]


def test_if_events_cannot_be_stored_nothing_commits(events: Any, atomic: Any, django_conn: Any, conn: Conn) -> None:
    conn.execute("CREATE TABLE shop_order (id int)")
    conn.execute("ALTER SCHEMA samecommit RENAME TO elsewhere")
    block = atomic()
    block.__enter__()
    with django_conn.cursor() as cursor:
        cursor.execute("INSERT INTO shop_order VALUES (1)")
    events.emit({}, type="lost")
    with pytest.raises(SchemaMissing):
        block.__exit__(None, None, None)
    assert conn.execute("SELECT count(*) FROM shop_order").fetchone() == (0,)
    conn.execute("ALTER SCHEMA elsewhere RENAME TO samecommit")
    with atomic():
        events.emit({}, type="later")
    assert names(conn) == ["later"], "the connection goes on"


def test_outside_of_atomic_and_wrong_events_are_refused_at_once(events: Any, atomic: Any, conn: Conn) -> None:
    with pytest.raises(NotInTransaction, match="outside of atomic"):
        events.emit({}, type="alone")
    with atomic(), pytest.raises(PayloadError, match="event type 'a b'"):
        events.emit({}, type="a b")
    assert names(conn) == []


def test_a_test_without_commits_may_run_what_was_kept(events: Any, atomic: Any, django_conn: Any, conn: Conn) -> None:
    from django.test import TestCase

    with suppress(Undo), atomic():
        with TestCase.captureOnCommitCallbacks(execute=True):
            events.emit({}, type="seen")
        with django_conn.cursor() as cursor:
            cursor.execute("SELECT type FROM samecommit.event")
            assert cursor.fetchall() == [("seen",)]
        raise Undo
    assert names(conn) == []
