"""A CRM that creates and then hangs up, whose search lags, and workers that are killed: nothing twice, nothing lost.

The CRM is a process of its own that takes no idempotency key: asked twice, it makes two contacts. It drops some connections
after it has created, answers some requests with 500 without having done anything, and a search finds a contact only a while
after it was made. All that is known of an attempt whose worker was killed is that it was about to send.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from samecommit.demo.child import Child
from samecommit.demo.crm_client import CrmClient

WORKER = Path(__file__).with_name("torture_crm.py")
EMIT = """
    SELECT count(*) FROM generate_series(%s::int, %s::int) AS n
    CROSS JOIN LATERAL samecommit.emit('lead.created', jsonb_build_object('email', format('a%%s@b.example', n)), n::text)"""
STATES = "SELECT state, count(*) FROM samecommit.jobs WHERE kind = 'deliver:crm' GROUP BY state"
HELD = "SELECT payload #>> '{event,key}' FROM samecommit.jobs WHERE kind = 'deliver:crm' AND state = 'held'"
TOLD = """
    SELECT sum((result ->> 'found' = 'true')::int), sum(claims), sum(attempts), count(*)
    FROM samecommit.jobs WHERE kind = 'deliver:crm'"""


@dataclass(frozen=True, kw_only=True)
class Torture:
    """How bad it is.

    Args:
        creates: how many events.
        dropped: the share of creations after which the connection is dropped.
        lag_seconds: how long a search does not see what was created.
        settle_seconds: the destination's: above the client's time limit (2 s) and the lag, unless nothing is that slow.
        kill_every: the most creations between two kills.
        patience_seconds: for the whole of it.
    """

    creates: int
    dropped: float
    lag_seconds: float
    settle_seconds: float
    lease_seconds: float
    kill_every: int
    patience_seconds: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What came of it; ``decisions`` were left to a person."""

    creates: int
    contacts: int
    duplicates: int
    lost: int
    decisions: int
    failed: int
    dropped: int
    errors: int
    found: int
    kills: int
    claims: int
    seconds: float


@dataclass
class Workers:
    """Two worker processes, of which the older one is killed after every few creations."""

    command: list[str]
    crm: CrmClient
    kill_every: int
    kills: int = 0
    _living: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Kill and start anew while the block lasts; at its end they stop in order."""
        self._living = [self._one(), self._one()]
        killer = threading.Thread(target=self._kill)
        killer.start()
        try:
            yield
        finally:
            self.calm()
            killer.join()
            for process in self._living:
                process.terminate()
            for process in self._living:
                process.wait(60)

    def calm(self) -> None:
        """Kill nobody any more."""
        self._ended.set()

    def _one(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(WORKER), *self.command])

    def _kill(self) -> None:
        chance = random.Random(1)
        while True:
            before, enough = self.crm.stats()["contacts"], chance.randint(self.kill_every // 4, self.kill_every)
            while self.crm.stats()["contacts"] - before < enough:
                if self._ended.wait(0.05):
                    return
            victim = self._living.pop(0)
            assert victim.poll() is None, "a worker died by itself"
            victim.kill()
            victim.wait()
            self.kills += 1
            self._living.append(self._one())


def torture(dsn: str, directory: Path, it: Torture) -> Figures:
    """Emit while workers are killed, wait until every delivery has ended, and count on both sides."""
    began = time.monotonic()
    options = (
        "--dropped",
        it.dropped,
        "--error",
        0.02,
        "--index-lag-seconds",
        it.lag_seconds,
        "--latency-seconds",
        0.01,
    )
    with (
        Child("samecommit.demo.crm_stub", directory / "crm.sqlite", *options) as stub,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        crm = CrmClient(base_url=stub.url, timeout_seconds=60.0)
        workers = Workers([dsn, stub.url, str(it.settle_seconds), str(it.lease_seconds)], crm, it.kill_every)
        with workers.running():
            for start in range(1, it.creates + 1, 100):
                conn.execute(EMIT, [start, min(start + 99, it.creates)])
            wait_until_ended(conn, it.creates, began + it.patience_seconds)
        return count(conn, crm, it.creates, workers.kills, time.monotonic() - began)


def wait_until_ended(conn: psycopg.Connection[Any], creates: int, until: float) -> None:
    """Wait until there is a delivery for each event, and none that still has to be done."""
    while True:
        states: dict[str, int] = dict(conn.execute(STATES).fetchall())
        if sum(states.values()) == creates and not states.keys() & {"ready", "running"}:
            return
        assert time.monotonic() < until, states
        time.sleep(0.2)


def count(conn: psycopg.Connection[Any], crm: CrmClient, creates: int, kills: int, seconds: float) -> Figures:
    """Compare what the CRM has with what was emitted."""
    contacts = Counter(contact.email for contact in crm.contacts())
    wanted = {f"a{n}@b.example" for n in range(1, creates + 1)}
    held = {f"a{key}@b.example" for (key,) in conn.execute(HELD).fetchall()}
    states: dict[str, int] = dict(conn.execute(STATES).fetchall())
    told = conn.execute(TOLD).fetchone()
    assert told is not None
    stats = crm.stats()
    assert contacts.keys() <= wanted
    return Figures(
        creates=creates,
        contacts=contacts.total(),
        duplicates=contacts.total() - len(contacts),
        lost=len(wanted - contacts.keys() - held),
        decisions=len(held),
        failed=states.get("failed", 0) + states.get("cancelled", 0),
        dropped=stats["dropped"],
        errors=stats["500"],
        found=told[0] or 0,
        claims=told[1],
        kills=kills,
        seconds=round(seconds, 1),
    )


def check(figures: Figures) -> None:
    print(figures)  # for whoever asks with -s
    assert (figures.duplicates, figures.lost, figures.failed) == (0, 0, 0), figures
    assert figures.kills >= 1
    assert figures.dropped >= 1
    assert figures.found >= figures.dropped - figures.decisions, "what was dropped was found again, not created again"


@pytest.mark.timeout(120)
def test_nothing_is_created_twice_or_lost_though_workers_are_killed(dsn: str, tmp_path: Path) -> None:
    small = Torture(
        creates=80,
        dropped=0.2,
        lag_seconds=0.1,
        settle_seconds=0.5,
        lease_seconds=1.0,
        kill_every=40,
        patience_seconds=100,
    )
    check(torture(dsn, tmp_path, small))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_creations_with_a_search_that_lags(dsn: str, tmp_path: Path) -> None:
    large = Torture(
        creates=int(os.environ.get("SAMECOMMIT_TEST_CREATES", "10000")),
        dropped=0.05,
        lag_seconds=2.0,
        settle_seconds=5.0,
        lease_seconds=4.0,
        kill_every=500,
        patience_seconds=3500,
    )
    figures = torture(dsn, tmp_path, large)
    check(figures)
    assert figures.decisions <= figures.creates // 1000
