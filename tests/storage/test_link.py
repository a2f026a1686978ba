"""A worker's connection: its settings whatever the database's defaults are, its errors, and how it heals."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from tests.support.jobs import Jobs

from samecommit.storage.link import AsyncLink, LinkBusy, LinkDown, bigints
from samecommit.storage.session import (
    ALIVE_SETTINGS,
    PLAN_SETTINGS,
    SAFETY_SETTINGS,
    as_startup_options,
    session_settings,
)

pytestmark = [pytest.mark.pg15, pytest.mark.session("settings from the connect on")]


@asynccontextmanager
async def linked(dsn: str, **options: Any) -> AsyncIterator[AsyncLink]:
    link = AsyncLink(dsn, "samecommit", "test", **options)
    try:
        yield link
    finally:
        await link.close()


async def show(link: AsyncLink, name: str) -> str:
    conn = await link.connection()
    row = await (await conn.execute("SELECT current_setting(%s)", [name])).fetchone()
    assert row is not None
    return str(row[0])


SHOWN = {"30s": "30s", "60s": "1min", "UTC": "UTC"}


@pytest.mark.parametrize("durable", [True, False])
async def test_a_session_has_its_settings_whatever_the_database_and_the_role_say(  # B6
    dsn: str, conn: psycopg.Connection[Any], durable: bool
) -> None:
    hostile = {
        "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "on",
        "search_path": "nowhere",
        "TimeZone": "Asia/Kathmandu",
        "statement_timeout": "1ms",
        "enable_indexscan": "off",
        "plan_cache_mode": "force_custom_plan",
    }
    for name, value in hostile.items():
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET {name} = '{value}'".encode())
    try:
        async with linked(dsn, durable=durable) as link:
            settings = session_settings(durable=durable)
            for name, value in settings.items() - ALIVE_SETTINGS.items():  # those show 0 on a socket
                assert await show(link, name) == SHOWN.get(value, value), name
            assert await show(link, "synchronous_commit") == ("on" if durable else "off")
            assert await show(link, "application_name") == "samecommit test"
    finally:
        conn.execute("SET default_transaction_read_only = off")
        conn.execute("SET statement_timeout = 0")


def test_plans_are_pinned_and_waits_are_bounded() -> None:
    assert all(value in ("off", "force_generic_plan") for value in PLAN_SETTINGS.values())
    assert {"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} <= set(SAFETY_SETTINGS)


def test_startup_options_survive_blanks_and_backslashes(dsn: str) -> None:
    settings = {"search_path": '"a b", "c\\d"', "samecommit.x": "\\ \\\\ y", "lock_timeout": "2s"}
    with psycopg.connect(dsn, options=as_startup_options(settings)) as conn:
        for name, value in settings.items():
            assert conn.execute("SELECT current_setting(%s)", [name]).fetchone() == (value,)


async def test_a_link_that_was_cut_says_so_once_and_heals(dsn: str, jobs: Jobs) -> None:
    async with linked(dsn) as link:
        assert not link.is_open
        assert await link.fetch("worker/ping") == [(1,)]
        pid = (await link.connection()).info.backend_pid
        assert link.backend is not None and link.backend[0] == pid
        jobs.all("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(LinkDown, match="worker/ping"):
            await link.fetch("worker/ping")
        assert await link.fetch("worker/ping") == [(1,)]
        assert link.connects == 2
        assert link.backend[0] != pid


async def test_a_lock_that_is_not_had_in_time_changes_nothing_and_keeps_the_connection(dsn: str, jobs: Jobs) -> None:
    jobs.all("INSERT INTO $.chore (name) VALUES ('x')")
    async with linked(dsn, settings={"lock_timeout": "50ms"}) as link:
        with psycopg.connect(dsn) as other:
            other.execute("LOCK TABLE samecommit.chore")
            with pytest.raises(LinkBusy):
                await link.fetch("chore/take", names=["x"], lease_id=1, hold_seconds=[1.0])
        assert (await link.fetch("chore/take", names=["x"], lease_id=1, hold_seconds=[1.0]))[0][:2] == ("x", True)
        assert link.connects == 1


async def test_a_server_that_became_read_only_is_left(dsn: str, conn: psycopg.Connection[Any]) -> None:  # B21
    async with linked(dsn, settings={"default_transaction_read_only": "on"}) as link:
        with pytest.raises(LinkDown, match="read-only"):
            await link.fetch("chore/add", names=["x"])
        assert not link.is_open


@pytest.mark.parametrize("host", ["/nowhere", "127.0.0.1 port=1"])
async def test_a_server_that_cannot_be_reached_is_down(host: str) -> None:
    async with linked(f"host={host} dbname=x") as link:
        with pytest.raises(LinkDown, match="cannot connect"):
            await link.fetch("worker/ping")


async def test_a_statement_that_is_wrong_is_the_driver_s_error_and_keeps_the_connection(dsn: str) -> None:
    async with linked(dsn) as link:
        with pytest.raises(psycopg.DataError):
            await link.fetch("queue/create", name="\0", retention=None, max_attempts=None)
        assert await link.fetch("worker/ping") == [(1,)]
        assert link.connects == 1


def test_numbers_become_an_array_literal() -> None:
    assert bigints([]) == "{}"
    assert bigints([1, -2, 2**63 - 1]) == "{1,-2,9223372036854775807}"
