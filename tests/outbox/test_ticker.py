"""The ticker: a window that takes too long for a statement is made all the same."""

from typing import Any

import psycopg
import pytest

from samecommit.outbox.log import Log, SharedLink
from samecommit.outbox.ticker import Ticker
from samecommit.storage.link import AsyncLink, LinkBusy


async def test_a_window_that_is_cut_off_is_made_on_the_patient_link(
    dsn: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = AsyncLink(dsn, "samecommit", "read")
    patient = AsyncLink(dsn, "samecommit", "tick", settings={"statement_timeout": "10min"})
    log = Log(SharedLink(link))

    async def cut_off(_label: str, **_values: Any) -> Any:
        raise LinkBusy("canceling statement due to statement timeout")

    monkeypatch.setattr(link, "fetch", cut_off)
    made: list[int] = []
    ticker = Ticker(
        SharedLink(link),
        patient,
        log,
        on_window=lambda: made.append(log.newest_n),
        set_idle=lambda _: None,
        is_heard=lambda: False,
    )
    conn.execute("SELECT samecommit.emit('t')")
    await ticker.run_once()
    assert [(n,) for n in made] == conn.execute("SELECT n FROM samecommit.event_window WHERE n > 0").fetchall()
    assert made
    await link.close()
