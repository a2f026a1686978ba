"""What type checkers must accept on every driver's and framework's connections; read, never run."""

from typing import assert_type

import asyncpg
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm
import sqlmodel
import sqlmodel.ext.asyncio.session

from samecommit import App, Enqueued, EnqueuedMany

app = App()


@app.task()
def add(a: int, b: int) -> int:
    return a + b


def plain(
    connection: sqlalchemy.Connection,
    session: sqlalchemy.orm.Session,
    scoped: sqlalchemy.orm.scoped_session[sqlalchemy.orm.Session],
    model: sqlmodel.Session,
) -> None:
    assert_type(add.enqueue(connection, 1, 2), Enqueued[int])
    assert_type(add.enqueue(session, 1, 2), Enqueued[int])
    assert_type(add.enqueue(scoped, 1, 2), Enqueued[int])
    assert_type(add.enqueue(model, 1, 2), Enqueued[int])
    assert_type(app.enqueue_many(session, [add.job(1, 2)]), EnqueuedMany[int])


async def awaited(
    connection: sqlalchemy.ext.asyncio.AsyncConnection,
    session: sqlalchemy.ext.asyncio.AsyncSession,
    scoped: sqlalchemy.ext.asyncio.async_scoped_session[sqlalchemy.ext.asyncio.AsyncSession],
    model: sqlmodel.ext.asyncio.session.AsyncSession,
) -> None:
    assert_type(await add.enqueue(connection, 1, 2), Enqueued[int])
    assert_type(await add.enqueue(session, 1, 2), Enqueued[int])
    assert_type(await add.enqueue(scoped, 1, 2), Enqueued[int])
    assert_type(await add.enqueue(model, 1, 2), Enqueued[int])
    assert_type(await app.enqueue_many(session, [add.job(1, 2)]), EnqueuedMany[int])


async def on_asyncpg(connection: asyncpg.Connection) -> None:
    await add.enqueue(connection, 1, 2)
    async with asyncpg.create_pool() as pool, pool.acquire() as proxy:
        await add.enqueue(proxy, 1, 2)
        await app.enqueue_many(proxy, [add.job(1, 2)])
