"""order="key" for job destinations: the next delivery of a key begins when the one before it has ended or was put aside."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from tests.outbox.support import emit
from tests.outbox.test_jobs import retry_now, working
from tests.support.waiting import until

from samecommit import App
from samecommit.errors import ConfigError
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import Delivery
from samecommit.outbox.outcomes import Delivered, Doubt, Outcome, Rejected, Retry

Conn = psycopg.Connection[Any]


@dataclass
class Slow:
    """Takes its time, notes what it took in which order, and whether two of a key were ever under way at once."""

    answers: dict[int, list[Outcome]] = field(default_factory=dict)
    taken: dict[str | None, list[int]] = field(default_factory=dict)
    under_way: Counter[str | None] = field(default_factory=Counter)
    most: int = 0

    async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:
        self.under_way[event.key] += 1
        self.most = max(self.most, *(count for key, count in self.under_way.items() if key is not None), 0)
        await asyncio.sleep(0)
        self.under_way[event.key] -= 1
        answers = self.answers.get(event.number)
        answer = answers.pop(0) if answers else Delivered()
        if isinstance(answer, Delivered):
            self.taken.setdefault(event.key, []).append(event.number)
        return answer


def states(conn: Conn) -> Counter[str]:
    rows = conn.execute("SELECT state FROM samecommit.jobs WHERE kind = 'deliver:crm'").fetchall()
    return Counter(row[0] for row in rows)


async def all_in(conn: Conn, **wanted: int) -> None:
    """Wait, with every pause cut short, until so many jobs are in each state."""
    await until(lambda: retry_now(conn) or states(conn) == Counter(wanted), 60, f"{wanted}")


@pytest.mark.pg15
async def test_deliveries_of_a_key_keep_the_order_of_their_events(dsn: str, conn: Conn) -> None:
    numbers = {key: emit(conn, key, 6) for key in ("a", "b")}
    free = [number for _ in range(4) for number in emit(conn, None)]
    crm = Slow()
    crm.answers[numbers["a"][1]] = [Retry("busy", after=0.01), Doubt("cut off")]
    async with working(dsn, crm, order="key", on_doubt="resend"):
        await all_in(conn, done=16)
    assert crm.taken["a"] == numbers["a"]
    assert crm.taken["b"] == numbers["b"]
    assert sorted(crm.taken[None]) == free
    assert crm.most == 1


async def test_a_delivery_that_ends_wakes_the_next_of_its_key(
    dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is not woken sleeps for an hour here."""
    monkeypatch.setattr("samecommit.outbox.deliver._TURN_SECONDS", 3600.0)
    numbers = emit(conn, "a", 4)
    asleep = "SELECT count(*) FROM samecommit.job WHERE pos IS NULL AND claim_id IS NULL AND run_at > now() + interval '50 s'"

    class Waiting(Slow):
        async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:
            if event.number == numbers[0]:
                await until(lambda: conn.execute(asleep).fetchone() == (3,))
            return await super().send(event, delivery)

    crm = Waiting()
    async with working(dsn, crm, order="key"):
        await until(lambda: states(conn)["done"] == 4)
    assert crm.taken["a"] == numbers


async def test_one_that_failed_or_is_held_lets_the_next_go(dsn: str, conn: Conn) -> None:
    a, b, c = emit(conn, "a", 3)
    crm = Slow({a: [Rejected("no such field")], b: [Doubt("cut off")]})
    async with working(dsn, crm, order="key"):
        await all_in(conn, failed=1, held=1, done=1)
        assert crm.taken["a"] == [c]
        reason = "SELECT last_error FROM samecommit.jobs WHERE state = 'failed'"
        assert conn.execute(reason).fetchone() == ("no such field",)


async def test_turns_are_forgotten_with_their_jobs(dsn: str, conn: Conn) -> None:
    emit(conn, "a", 3)
    emit(conn, None, 2)
    turns = "SELECT count(*) FROM samecommit.delivery_turn"
    async with working(dsn, Slow(), order="key"):
        await all_in(conn, done=5)
        assert conn.execute(turns).fetchone() == (3,)
    async with working(dsn, Slow(), order="key"):  # the keeper's first turn
        await until(lambda: conn.execute(turns).fetchone() == (0,))


def test_another_order_is_refused(dsn: str) -> None:
    options: dict[str, Any] = {"order": "global"}
    with pytest.raises(ConfigError, match="destination 'crm' has order='global', but its events become jobs"):
        App(dsn).destination("crm", **options)(Slow)
