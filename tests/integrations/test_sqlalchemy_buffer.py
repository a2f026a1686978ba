"""Events of a SQLAlchemy session are stored in one statement with its commit, and forgotten with what is rolled back."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
from sqlalchemy import event as hooks
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from samecommit import App
from samecommit.errors import NotInTransaction, PayloadError, SchemaMissing
from samecommit.integrations.sqlalchemy import EventBuffer

Conn = psycopg.Connection[Any]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)


class Undo(Exception):
    """Rolls a block back."""


@pytest.fixture
def events(dsn: str) -> EventBuffer:
    return EventBuffer(App(dsn))


@pytest.fixture
def engine(dsn: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    Base.metadata.create_all(made)
    yield made
    made.dispose()


@contextmanager
def emits_of(engine: sqlalchemy.Engine) -> Iterator[list[str]]:
    """The statements that store events, as they run."""
    seen: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "store_event" in statement:
            seen.append(statement)

    hooks.listen(engine, "before_cursor_execute", note)
    yield seen
    hooks.remove(engine, "before_cursor_execute", note)


def names(conn: Conn) -> list[str]:
    return [row[0] for row in conn.execute("SELECT type FROM samecommit.event ORDER BY number").fetchall()]


@pytest.mark.pg15
def test_events_of_a_session_are_stored_in_one_statement_before_its_commit(
    engine: sqlalchemy.Engine, events: EventBuffer, conn: Conn
) -> None:
    with emits_of(engine) as seen, Session(engine) as session:
        session.add(Order(id=1, email="ada@example.com"))
        for name in ("one", "two", "three"):
            events.emit(session, {"n": 1.5, "text": "naïve"}, type=name, key="k")
        events.emit(session, b"\x00\xff", type="bytes", extensions={"tenant": "7"})
        assert names(conn) == []
        assert seen == []
        session.commit()
        assert names(conn) == ["one", "two", "three", "bytes"]
        assert len(seen) == 1
        session.commit()
        assert len(names(conn)) == 4, "a further commit stores nothing again"
    rows = conn.execute("SELECT data, content_type, key, extensions FROM samecommit.event ORDER BY number").fetchall()
    assert rows[0] == ('{"n":1.5,"text":"naïve"}'.encode(), "application/json", "k", None)
    assert rows[3] == (b"\x00\xff", "application/octet-stream", None, {"tenant": "7"})


def test_a_rollback_forgets_and_the_next_transaction_begins_anew(
    engine: sqlalchemy.Engine, events: EventBuffer, conn: Conn
) -> None:
    with Session(engine) as session:
        events.emit(session, {}, type="forgotten")
        session.rollback()
        events.emit(session, {}, type="kept")
        session.commit()
        events.emit(session, {}, type="closed")
    assert names(conn) == ["kept"]


def test_a_savepoint_that_is_rolled_back_takes_its_events_with_it(
    engine: sqlalchemy.Engine, events: EventBuffer, conn: Conn
) -> None:
    with Session(engine) as session, session.begin():
        events.emit(session, {}, type="outer-before")
        with suppress(Undo), session.begin_nested():
            events.emit(session, {}, type="undone")
            with session.begin_nested():
                events.emit(session, {}, type="undone-with-the-one-around-it")
            raise Undo
        with session.begin_nested():
            events.emit(session, {}, type="released")
            with suppress(Undo), session.begin_nested():
                events.emit(session, {}, type="undone-inside")
                raise Undo
        events.emit(session, {}, type="outer-after")
    assert names(conn) == ["outer-before", "released", "outer-after"]


def test_a_savepoint_that_is_open_when_all_commits_keeps_its_events(
    engine: sqlalchemy.Engine, events: EventBuffer, conn: Conn
) -> None:
    with Session(engine) as session, session.begin() as root:
        events.emit(session, {}, type="outer")
        session.begin_nested()
        events.emit(session, {}, type="inner")
        root.commit()
    assert names(conn) == ["outer", "inner"]


def test_a_failed_flush_in_a_savepoint_loses_only_what_was_in_it(
    engine: sqlalchemy.Engine, events: EventBuffer, conn: Conn
) -> None:
    with Session(engine) as session, session.begin():
        session.add(Order(id=1, email="ada@example.com"))
        events.emit(session, {}, type="first")
        with suppress(sqlalchemy.exc.IntegrityError), session.begin_nested():
            events.emit(session, {}, type="twice")
            session.add(Order(id=2, email="ada@example.com"))
        events.emit(session, {}, type="last")
    assert names(conn) == ["first", "last"]
    assert conn.execute("SELECT count(*) FROM shop_order").fetchone() == (1,)


def test_what_hooks_emit_while_the_session_commits_is_stored(
    engine: sqlalchemy.Engine, events: EventBuffer, conn: Conn
) -> None:
    with Session(engine) as session:
        events.emit(session, {}, type="first")
        hooks.listen(session, "before_flush", lambda s, *_: events.emit(s, {}, type="in-flush"))
        hooks.listen(session, "before_commit", lambda s: events.emit(s, {}, type="behind"))
        session.add(Order(id=1, email="ada@example.com"))
        session.commit()
    assert names(conn) == ["first", "in-flush", "behind"]


def test_a_wrong_event_is_refused_where_it_is_emitted(engine: sqlalchemy.Engine, events: EventBuffer) -> None:
    with Session(engine) as session, pytest.raises(PayloadError, match="event type 'a b'"):
        events.emit(session, {}, type="a b")


def test_if_events_cannot_be_stored_nothing_commits(engine: sqlalchemy.Engine, events: EventBuffer, conn: Conn) -> None:
    with Session(engine) as session:
        session.add(Order(id=1, email="ada@example.com"))
        events.emit(session, {}, type="lost")
        conn.execute("ALTER SCHEMA samecommit RENAME TO elsewhere")
        with pytest.raises(SchemaMissing):
            session.commit()
    assert conn.execute("SELECT count(*) FROM shop_order").fetchone() == (0,)
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        events.emit(session, {}, type="alone")
        with pytest.raises(NotInTransaction, match="'alone'"):
            session.commit()


def test_a_scoped_session_and_two_buffers(engine: sqlalchemy.Engine, dsn: str, conn: Conn) -> None:
    one, two = EventBuffer(App(dsn, source="/one")), EventBuffer(App(dsn, source="/two"))
    scoped = scoped_session(sessionmaker(engine))
    one.emit(scoped, {}, type="a")
    two.emit(scoped, {}, type="b")
    scoped.commit()
    scoped.remove()
    sources = conn.execute("SELECT source FROM samecommit.event ORDER BY type").fetchall()
    assert sources == [("/one",), ("/two",)]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_an_asynchronous_session_is_given_events_without_awaiting(
    dsn: str, events: EventBuffer, conn: Conn, driver: str
) -> None:
    info = psycopg.conninfo.conninfo_to_dict(dsn)
    query = {"host": str(info["host"]), "port": str(info.get("port", 5432))}
    url = sqlalchemy.URL.create(f"postgresql+{driver}", str(info["user"]), database=str(info["dbname"]), query=query)
    engine = sqlalchemy.ext.asyncio.create_async_engine(url)
    async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session:
        events.emit(session, {}, type="one")
        with suppress(Undo):
            async with session.begin_nested():
                events.emit(session, {}, type="undone")
                raise Undo
        events.emit(session, b"\x00", type="two")
        await session.commit()
        events.emit(session, {}, type="rolled-back")
        await session.rollback()
    await engine.dispose()
    assert names(conn) == ["one", "two"]
