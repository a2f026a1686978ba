"""What type checkers must accept; read by mypy and pyright, never run. With every driver installed, or with psycopg alone."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import psycopg

from samecommit import App, AsyncContext, Context, Enqueued, EnqueuedMany, NewJob, Task, Tasks

app = App()
tasks = Tasks()


@app.task(queue="leads", max_attempts=8, timeout=30)
async def enrich(ctx: AsyncContext, lead_id: int, *, again: bool = False) -> str:
    return ctx.effect_key


@app.task()
def tidy(ctx: Context, lead_id: int) -> dict[str, int]:
    return {"lead": lead_id}


@tasks.task(name="add")
def add(a: int, b: int) -> int:
    return a + b


@tasks.task(permanent=(ValueError,), aliases=["old"])
async def conn_is_no_reserved_name(conn: str, task: str) -> None: ...


def declared() -> None:
    found: Task[..., Any] = enrich
    assert_type(add(1, 2), Any)
    assert_type(found.definition.name, str)


def on_psycopg(conn: psycopg.Connection[Any]) -> None:
    assert_type(enrich.enqueue(conn, 1), Enqueued[str])
    assert_type(enrich.enqueue(conn, lead_id=1, again=True), Enqueued[str])
    assert_type(tidy.enqueue(conn, lead_id=1), Enqueued[dict[str, int]])
    assert_type(add.enqueue(conn, 1, b=2), Enqueued[int])
    conn_is_no_reserved_name.enqueue(conn, conn="x", task="y")
    later = datetime.now(UTC) + timedelta(days=1)
    assert_type(add.using(run_at=later, priority=5, tags=["x"], unique="k").enqueue(conn, 1, 2), Enqueued[int])
    assert_type(add.job(1, 2), NewJob[int])
    assert_type(app.enqueue_many(conn, [add.job(n, 1) for n in range(3)]), EnqueuedMany[int])
    assert_type(app.enqueue_many(conn, generated(), progress=print)[0], Enqueued[int])
    app.enqueue_many(conn, [add.job(1, 2), add.using(unique="k").job(3, 4)], own_transaction=True)
    rows: psycopg.Connection[tuple[int, str]] = conn
    add.enqueue(rows, 1, 2)


def generated() -> Iterator[NewJob[int]]:
    yield add.job(1, 2)


async def generated_later() -> AsyncIterator[NewJob[int]]:
    yield add.job(1, 2)


async def on_async_psycopg(conn: psycopg.AsyncConnection[Any]) -> None:
    assert_type(await enrich.enqueue(conn, lead_id=1), Enqueued[str])
    assert_type(await app.enqueue_many(conn, [add.job(1, 2)]), EnqueuedMany[int])
    assert_type(await app.enqueue_many(conn, generated_later()), EnqueuedMany[int])


async def alone(enqueued: Enqueued[str]) -> None:
    assert_type(app.enqueue(add.job(1, 2)), Enqueued[int])
    assert_type(await app.enqueue_async(add.job(1, 2)), Enqueued[int])
    assert_type(app.result(enqueued), str)
    assert_type(app.result(enqueued, timeout=3), str)
    assert_type(app.result(12), Any)
    assert_type(await app.result_async(enqueued), str)


async def handles(ctx: AsyncContext, plain: Context, conn: psycopg.AsyncConnection[Any]) -> None:
    async with ctx.transaction() as own:
        await enrich.enqueue(own, lead_id=1)
    await ctx.finish(conn, {"done": 1})
    plain.finish(object(), 1)
