"""Every connection kind on every driver, each opened, begun and ended as an application would."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import django
import psycopg
import psycopg2
import sqlalchemy
import sqlalchemy.ext.asyncio as sa_async
import sqlalchemy.orm
import sqlmodel
import sqlmodel.ext.asyncio.session

os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # the suite runs plain connections in a loop, too


@dataclass(kw_only=True)
class Held:
    """A connection, and what its application does with it; what is asynchronous returns an awaitable.

    `nested` begins a savepoint and returns what rolls back to it.
    """

    conn: Any
    begin: Callable[[], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    execute: Callable[[str], Any]
    nested: Callable[[], Any]


Opener = Callable[..., AbstractAsyncContextManager[Held]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A row of the table in the documentation."""

    library: str
    cls: str
    driver: str
    open: Opener
    is_async: bool = False
    copies: bool = False

    @property
    def id(self) -> str:
        return f"{self.library} {self.cls} {self.driver}".replace(" ", "-")


def nothing() -> None: ...


def url_of(dsn: str, driver: str) -> str:
    """The address as SQLAlchemy writes it; pg8000 wants the socket itself."""
    found = psycopg.conninfo.conninfo_to_dict(dsn)
    host, port = found["host"], found.get("port", 5432)
    if is_pooled(dsn):
        return f"postgresql+{driver}://{found['user']}@{host}:{port}/{found['dbname']}"
    query = f"unix_sock={host}/.s.PGSQL.{port}" if driver == "pg8000" else f"host={host}&port={port}"
    return f"postgresql+{driver}://{found['user']}@/{found['dbname']}?{query}"


def is_pooled(dsn: str) -> bool:
    """Whether it leads to a pooler: the servers of the tests listen on sockets only."""
    return not str(psycopg.conninfo.conninfo_to_dict(dsn)["host"]).startswith("/")


def _uncached(dsn: str) -> dict[str, Any]:
    """Return what asyncpg is told behind a pooler."""
    return {"statement_cache_size": 0} if is_pooled(dsn) else {}


# ------------------------------------------------------------------------------------------------------------- drivers


@asynccontextmanager
async def psycopg_plain(dsn: str, *, autocommit: bool = False, isolation: str | None = None) -> AsyncIterator[Held]:
    with psycopg.connect(dsn, autocommit=autocommit) as conn:
        conn.isolation_level = None if isolation is None else psycopg.IsolationLevel[isolation.replace(" ", "_")]

        def nested() -> Callable[[], Any]:
            block = conn.transaction(force_rollback=True)
            block.__enter__()
            return lambda: block.__exit__(None, None, None)

        def execute(text: str) -> Any:
            cursor = conn.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

        yield Held(conn=conn, begin=nothing, commit=conn.commit, rollback=conn.rollback, execute=execute, nested=nested)


@asynccontextmanager
async def psycopg_async(dsn: str, *, autocommit: bool = False, isolation: str | None = None) -> AsyncIterator[Held]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as conn:
        await conn.set_isolation_level(
            None if isolation is None else psycopg.IsolationLevel[isolation.replace(" ", "_")]
        )

        async def nested() -> Callable[[], Any]:
            block = conn.transaction(force_rollback=True)
            await block.__aenter__()
            return lambda: block.__aexit__(None, None, None)

        async def execute(text: str) -> Any:
            cursor = await conn.execute(text.encode())
            return await cursor.fetchall() if cursor.description else []

        yield Held(conn=conn, begin=nothing, commit=conn.commit, rollback=conn.rollback, execute=execute, nested=nested)


@asynccontextmanager
async def psycopg2_plain(dsn: str, *, autocommit: bool = False, isolation: str | None = None) -> AsyncIterator[Held]:
    conn = psycopg2.connect(dsn)
    conn.set_session(autocommit=autocommit, isolation_level=isolation)

    def execute(text: str) -> Any:
        with conn.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else []

    def nested() -> Callable[[], Any]:
        execute("SAVEPOINT theirs")
        return lambda: execute("ROLLBACK TO SAVEPOINT theirs")

    try:
        yield Held(conn=conn, begin=nothing, commit=conn.commit, rollback=conn.rollback, execute=execute, nested=nested)
    finally:
        conn.close()


def _asyncpg(conn: Any, isolation: str | None, *, autocommit: bool) -> Held:
    open_blocks: list[Any] = []

    async def begin() -> None:
        if not autocommit:
            level = None if isolation is None else isolation.lower().replace(" ", "_")
            open_blocks.append(conn.transaction(isolation=level))
            await open_blocks[-1].start()

    async def nested() -> Callable[[], Any]:
        block = conn.transaction()
        await block.start()
        return block.rollback  # type: ignore[no-any-return]

    return Held(
        conn=conn,
        begin=begin,
        commit=lambda: open_blocks.pop().commit(),
        rollback=lambda: open_blocks.pop().rollback(),
        execute=conn.fetch,
        nested=nested,
    )


@asynccontextmanager
async def asyncpg_connection(
    dsn: str, *, autocommit: bool = False, isolation: str | None = None
) -> AsyncIterator[Held]:
    conn = await asyncpg.connect(dsn, **_uncached(dsn))
    try:
        yield _asyncpg(conn, isolation, autocommit=autocommit)
    finally:
        await conn.close()


@asynccontextmanager
async def asyncpg_pool(dsn: str, *, autocommit: bool = False, isolation: str | None = None) -> AsyncIterator[Held]:
    options = _uncached(dsn)
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1, **options) as pool, pool.acquire() as conn:
        yield _asyncpg(conn, isolation, autocommit=autocommit)


# ---------------------------------------------------------------------------------------------------------- SQLAlchemy


def _plain(conn: Any) -> Held:
    """A connection or session that begins by itself."""

    def execute(text: str) -> Any:
        result = conn.connection().execute(sqlalchemy.text(text)) if hasattr(conn, "flush") else conn.execute(
            sqlalchemy.text(text)
        )  # fmt: skip
        return result.fetchall() if result.returns_rows else []

    return Held(
        conn=conn,
        begin=nothing,
        commit=conn.commit,
        rollback=conn.rollback,
        execute=execute,
        nested=lambda: conn.begin_nested().rollback,
    )


def _awaited(conn: Any) -> Held:
    async def execute(text: str) -> Any:
        connection = await conn.connection() if hasattr(conn, "flush") else conn
        result = await connection.execute(sqlalchemy.text(text))
        return result.fetchall() if result.returns_rows else []

    async def nested() -> Callable[[], Any]:
        return (await conn.begin_nested()).rollback  # type: ignore[no-any-return]

    return Held(conn=conn, begin=nothing, commit=conn.commit, rollback=conn.rollback, execute=execute, nested=nested)


def _level(isolation: str | None, *, autocommit: bool) -> dict[str, Any]:
    level = "AUTOCOMMIT" if autocommit else isolation
    return {"poolclass": sqlalchemy.NullPool, **({} if level is None else {"isolation_level": level})}


def sqlalchemy_plain(driver: str, made_by: Callable[[Any], Any]) -> Opener:
    @asynccontextmanager
    async def opener(dsn: str, *, autocommit: bool = False, isolation: str | None = None) -> AsyncIterator[Held]:
        engine = sqlalchemy.create_engine(url_of(dsn, driver), **_level(isolation, autocommit=autocommit))
        conn = made_by(engine)
        try:
            yield _plain(conn)
        finally:
            conn.close()
            engine.dispose()

    return opener


def sqlalchemy_async(driver: str, made_by: Callable[[Any], Any]) -> Opener:
    @asynccontextmanager
    async def opener(dsn: str, *, autocommit: bool = False, isolation: str | None = None) -> AsyncIterator[Held]:
        engine = sa_async.create_async_engine(
            url_of(dsn, driver),
            connect_args=_uncached(dsn) if driver == "asyncpg" else {},
            **_level(isolation, autocommit=autocommit),
        )
        conn = made_by(engine)
        if isinstance(conn, sa_async.AsyncConnection):
            await conn.start()
        try:
            yield _awaited(conn)
        finally:
            await conn.close()
            await engine.dispose()

    return opener


def async_scoped(engine: Any) -> Any:
    return sa_async.async_scoped_session(sa_async.async_sessionmaker(engine), scopefunc=lambda: 1)


# -------------------------------------------------------------------------------------------------------------- Django


def django_setting(dsn: str) -> dict[str, Any]:
    found = psycopg.conninfo.conninfo_to_dict(dsn)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": found["dbname"],
        "USER": found["user"],
        "HOST": found["host"],
        "PORT": str(found.get("port", 5432)),
    }


def django_plain(pick: Callable[[Any], Any]) -> Opener:
    @asynccontextmanager
    async def opener(dsn: str, *, autocommit: bool = False, isolation: str | None = None) -> AsyncIterator[Held]:
        from django.conf import settings

        if not settings.configured:
            settings.configure(DATABASES={"default": django_setting(dsn)}, USE_TZ=True)
            django.setup()
        from django.db import connections, transaction

        setting = django_setting(dsn)
        if isolation is not None:
            setting["OPTIONS"] = {"isolation_level": psycopg.IsolationLevel[isolation.replace(" ", "_")]}
        connections.settings["default"] = connections.configure_settings({"default": setting})["default"]
        connections["default"].close()
        del connections["default"]
        blocks: list[Any] = []

        def begin() -> None:
            if not autocommit:
                blocks.append(transaction.atomic())
                blocks[-1].__enter__()

        def rollback() -> None:
            transaction.set_rollback(True)
            blocks.pop().__exit__(None, None, None)

        def execute(text: str) -> Any:
            with connections["default"].cursor() as cursor:
                cursor.execute(text)
                return cursor.fetchall() if cursor.description else []

        def nested() -> Callable[[], Any]:
            blocks.append(transaction.atomic())
            blocks[-1].__enter__()
            return rollback

        try:
            yield Held(
                conn=pick(connections),
                begin=begin,
                commit=lambda: blocks.pop().__exit__(None, None, None),
                rollback=rollback,
                execute=execute,
                nested=nested,
            )
        finally:
            connections["default"].close()

    return opener


def _proxy(_connections: Any) -> Any:
    from django.db import connection

    return connection


# --------------------------------------------------------------------------------------------------------------- table

KINDS = [
    Kind(library="psycopg", cls="Connection", driver="psycopg", open=psycopg_plain, copies=True),
    Kind(library="psycopg", cls="AsyncConnection", driver="psycopg", open=psycopg_async, is_async=True, copies=True),
    Kind(library="psycopg2", cls="connection", driver="psycopg2", open=psycopg2_plain),
    Kind(library="asyncpg", cls="Connection", driver="asyncpg", open=asyncpg_connection, is_async=True),
    Kind(library="asyncpg", cls="PoolConnectionProxy", driver="asyncpg", open=asyncpg_pool, is_async=True),
    *(
        Kind(library=library, cls=cls, driver=driver, open=sqlalchemy_plain(driver, made), copies=driver == "psycopg")
        for library, cls, made in (
            ("SQLAlchemy", "Connection", lambda engine: engine.connect()),
            ("SQLAlchemy", "Session", sqlalchemy.orm.Session),
            ("SQLAlchemy", "scoped_session", lambda e: sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(e))),
            ("SQLModel", "Session", sqlmodel.Session),
        )
        for driver in ("psycopg", "psycopg2", "pg8000")
    ),
    *(
        Kind(
            library=library,
            cls=cls,
            driver=driver,
            open=sqlalchemy_async(driver, made),
            is_async=True,
            copies=driver == "psycopg",
        )
        for library, cls, made in (
            ("SQLAlchemy", "AsyncConnection", lambda engine: engine.connect()),
            ("SQLAlchemy", "AsyncSession", sa_async.AsyncSession),
            ("SQLAlchemy", "async_scoped_session", async_scoped),
            ("SQLModel", "AsyncSession", sqlmodel.ext.asyncio.session.AsyncSession),
        )
        for driver in ("psycopg", "asyncpg")
    ),
    Kind(library="Django", cls="connection", driver="psycopg", open=django_plain(_proxy), copies=True),
    Kind(
        library="Django",
        cls='connections["…"]',
        driver="psycopg",
        open=django_plain(lambda connections: connections["default"]),
        copies=True,
    ),
]


def table() -> str:
    """The table of the documentation."""
    rows = [(k.library, f"`{k.cls}`", k.driver, "`await`" if k.is_async else "", _bulk(k)) for k in KINDS]
    rows.append(("Django", "`connection`", "psycopg2", "", "function"))
    lines = ["| library | connection | driver | | `enqueue_many` by |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)]) + "\n"


def _bulk(kind: Kind) -> str:
    return "COPY" if kind.copies else "function"
