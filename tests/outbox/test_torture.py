"""The torture of B29: writers whose numbers, transaction ids and commits come in different orders, relays that die.

Each event carries its key and a sequence number that was counted under the lock of the key's row, so what must arrive is
known: 1 to the row's last number, for each key. A rolled back transaction gives its number to another one with another id.
"""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

RELAY = Path(__file__).with_name("torture_relay.py")
KEYS = [f"key {n}" for n in range(40)]
BEGIN_EARLY = "SELECT pg_current_xact_id()"
COUNT = "UPDATE account SET seq = seq + 1 WHERE key = %s RETURNING seq"
EMIT = "SELECT id FROM samecommit.emit('account.changed', to_jsonb(ARRAY[%s, %s::text]), %s)"


class Undo(Exception):
    """Rolls a block back."""


@dataclass
class Writers:
    """Twelve threads that change accounts and tell of it, in every awkward way that READ COMMITTED allows."""

    dsn: str
    transactions: int
    errors: list[BaseException] = field(default_factory=list)

    def run(self, count: int = 12) -> None:
        threads = [threading.Thread(target=self._guarded, args=(seed,)) for seed in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.errors

    def _guarded(self, seed: int) -> None:
        try:
            with psycopg.connect(self.dsn, autocommit=True) as conn:
                chance = random.Random(seed)
                for _ in range(self.transactions):
                    with suppress(Undo), conn.transaction():
                        self._transaction(conn, chance)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self.errors.append(error)

    def _transaction(self, conn: psycopg.Connection[Any], chance: random.Random) -> None:
        if chance.random() < 0.5:
            conn.execute(BEGIN_EARLY)
            time.sleep(chance.random() * 0.004)
        for key in sorted(chance.sample(KEYS, chance.randint(1, 3))):
            with suppress(Undo), conn.transaction():  # a savepoint
                change(conn, key)
                if chance.random() < 0.1:
                    raise Undo
            time.sleep(chance.random() * 0.001)
        if chance.random() < 0.1:
            raise Undo


def change(conn: psycopg.Connection[Any], key: str) -> None:
    """Count the key up and tell of it, in that order: the emit stands under the row's lock."""
    row = conn.execute(COUNT, [key]).fetchone()
    assert row is not None
    event = conn.execute(EMIT, [key, row[0], key]).fetchone()
    assert event is not None
    conn.execute("INSERT INTO written VALUES (%s, %s, %s)", [event[0], key, row[0]])


@contextmanager
def open_for_long(dsn: str) -> Iterator[None]:
    """Hold a transaction that has emitted, and one in another database, for as long as the writers write."""
    other = psycopg.conninfo.make_conninfo(dsn, dbname="postgres")
    with psycopg.connect(dsn) as conn, psycopg.connect(other) as elsewhere:
        elsewhere.execute(BEGIN_EARLY)
        change(conn, "long")
        yield
        change(conn, "long")


@dataclass
class Relays:
    """Relay processes that are killed and started anew until `calm`."""

    dsn: str
    directory: Path
    kill_every: int
    trouble: float
    kills: int = 0
    _seed: int = 0
    _living: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._living = [self._one(), self._one()]
        self._killer = threading.Thread(target=self._kill)
        self._killer.start()

    def _one(self) -> subprocess.Popen[bytes]:
        self._seed += 1
        command = [sys.executable, str(RELAY), self.dsn, str(self.directory), str(self._seed), str(self.trouble)]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def _kill(self) -> None:
        """Kill the older relay once something has been delivered since the last time, or after a while without."""
        chance = random.Random(1)
        while not self._ended.is_set():
            before, enough = self._delivered(), chance.randint(1, self.kill_every)
            patience = time.monotonic() + 5.0
            while self._delivered() - before < enough and time.monotonic() < patience:
                if self._ended.wait(0.02):
                    return
            victim = self._living.pop(0)
            assert victim.poll() is None, "a relay died by itself"
            victim.kill()
            victim.communicate()
            self.kills += 1
            self._living.append(self._one())

    def _delivered(self) -> int:
        """Count what has been delivered, roughly."""
        files = (self.directory / "plain", self.directory / "flaky")
        return sum(path.stat().st_size for path in files if path.exists()) // 50

    def wait_for_a_kill(self) -> None:
        """Wait until one was killed: on a busy machine the writers may have ended before the relays have begun."""
        while not self.kills and self._killer.is_alive():
            time.sleep(0.02)

    def calm(self) -> None:
        """Kill nobody any more."""
        self._ended.set()
        self._killer.join()

    def stop(self) -> None:
        """End them properly."""
        self.calm()
        for process in self._living:
            assert process.stdout is not None
            process.stdout.readline()  # the last one may not have begun to listen
            process.terminate()
        for process in self._living:
            process.communicate(timeout=30)
            assert process.returncode == 0


@dataclass
class Arrived:
    """What one destination has: (id, key, sequence number) in the order of arrival."""

    events: list[tuple[str, str, int]]

    @property
    def ids(self) -> set[str]:
        return {event[0] for event in self.events}

    def first_orders(self) -> dict[str, list[int]]:
        """Return each key's numbers in the order in which they first arrived."""
        orders: dict[str, dict[int, None]] = {}
        for _, key, seq in self.events:
            orders.setdefault(key, {}).setdefault(seq, None)
        return {key: list(order) for key, order in orders.items()}


def from_file(path: Path) -> Arrived:
    lines = path.read_text().splitlines() if path.exists() else []
    parts = [(line.split(" ", 1)[0], *line.split(" ", 1)[1].rsplit(" ", 1)) for line in lines]
    return Arrived([(id_, key, int(seq)) for id_, key, seq in parts])


def from_table(conn: psycopg.Connection[Any]) -> Arrived:
    if conn.execute("SELECT to_regclass('copied.event') IS NULL").fetchone() == (True,):
        return Arrived([])
    rows = conn.execute("SELECT id, convert_from(data, 'UTF8')::jsonb FROM copied.event ORDER BY arrival").fetchall()
    return Arrived([(id_, key, int(seq)) for id_, (key, seq) in rows])


def wait_for_all(arrived: Callable[[], Arrived], wanted: set[str], seconds: float) -> Arrived:
    until = time.monotonic() + seconds
    while not (found := arrived()).ids >= wanted:
        assert time.monotonic() < until, f"{len(wanted - found.ids)} of {len(wanted)} events are missing"
        time.sleep(0.1)
    return found


def torture(
    dsn: str,
    directory: Path,
    *,
    transactions: int,
    patience_seconds: float,
    kill_every: int = 400,
    trouble: float = 0.02,
) -> Relays:
    """Write, kill, wait, and compare what every destination has with what was committed.

    ``kill_every`` is the most deliveries between two kills, ``trouble`` how often the worst destination fails.
    """
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE account (key text PRIMARY KEY, seq bigint NOT NULL DEFAULT 0)")
        conn.execute("CREATE TABLE written (id text PRIMARY KEY, key text NOT NULL, seq bigint NOT NULL)")
        conn.execute("INSERT INTO account SELECT unnest(%s::text[])", [[*KEYS, "long"]])
        relays = Relays(dsn, directory, kill_every, trouble)
        relays.start()
        try:
            with open_for_long(dsn):
                Writers(dsn, transactions).run()
            relays.wait_for_a_kill()
            relays.calm()
            last: dict[str, int] = dict(conn.execute("SELECT key, seq FROM account WHERE seq > 0").fetchall())
            written = {row[0] for row in conn.execute("SELECT id FROM written").fetchall()}
            assert len(written) == sum(last.values())
            sources = {
                "table": lambda: from_table(conn),
                "plain": lambda: from_file(directory / "plain"),
                "flaky": lambda: from_file(directory / "flaky"),
            }
            for name, source in sources.items():
                arrived = wait_for_all(source, written, patience_seconds)
                assert arrived.ids == written, f"{name}: phantoms {arrived.ids - written}"
                wrong = {k: o for k, o in arrived.first_orders().items() if o != list(range(1, last[k] + 1))}
                assert not wrong, f"{name}: out of order: {wrong}"
            in_table = from_table(conn)
            assert len(in_table.events) == len(written), "a destination that keeps the position has seen a repeat"
        finally:
            relays.stop()
    return relays


@pytest.mark.pg15
def test_b29_everything_that_was_committed_arrives_in_order_and_nothing_else_does(dsn: str, tmp_path: Path) -> None:
    relays = torture(dsn, tmp_path, transactions=60, patience_seconds=30)
    assert relays.kills >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_b29_two_hundred_thousand_events(dsn: str, tmp_path: Path) -> None:
    relays = torture(dsn, tmp_path, transactions=10_500, patience_seconds=900, kill_every=20_000, trouble=0.002)
    assert relays.kills >= 10
