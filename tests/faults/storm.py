"""The torture: a shifting mix of faults hurts workers, connections, the server and the jobs while they work; then all is judged.

``python -m tests.faults.storm --seed 7`` runs a minute of it, ``--size full`` half an hour with half a million jobs,
``--size release`` twelve hours' slice. The seed repeats the same draws: which kinds come when, and whom they hit.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from tests.faults import fates_of_jobs, fates_of_links, fates_of_servers, fates_of_workers
from tests.faults.arena import ROLE, Arena, arena
from tests.faults.crew import Crew, Member, crew
from tests.faults.fates import FATES, Mix, Steps
from tests.faults.nursery import ROOT
from tests.faults.producer import Producer
from tests.faults.proxy import Proxy, proxy
from tests.support import history_audit
from tests.support.history import History, Line, Run

assert all((fates_of_jobs, fates_of_links, fates_of_servers, fates_of_workers))  # each adds its kinds
MEDDLE = """UPDATE samecommit.job SET tags = ARRAY[%s] WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM samecommit.job WHERE claim_id IS NOT NULL ORDER BY random() LIMIT 20 FOR UPDATE SKIP LOCKED))"""
_PATIENCE = "&options=-c%20lock_timeout%3D300ms%20-c%20statement_timeout%3D20s"
"""Who plays fate must not wait for a lock that it holds itself."""
CANARY = "canary-of-the-password"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a storm is made of. Times are seconds.

    Args:
        faults: the kinds, see `tests.faults.fates`.
        longest: of the ordinary handlers.
        longs: share of jobs that take twenty times as long.
        calm: without faults at the beginning, to know the undisturbed rate.
        every: between two faults.
        period: how long one set of kinds lasts, from and to.
        size: kinds in a set, from and to.
        quiet: whether one period in four has no faults.
        drain_seconds: until what is left counts as left.
        stop_seconds: beyond the grace, until a worker that was told to stop counts as one that never does.
        look: between two samples of the ledger.
    """

    seed: int
    jobs: int = 20_000
    seconds: float = 60.0
    workers: int = 4
    concurrency: int = 100
    longest: float = 2.0
    longs: float = 0.0
    groups: tuple[int, ...] = (1, 1, 5, 20)
    calm: float = 0.0
    every: float = 2.0
    period: tuple[float, float] = (20.0, 40.0)
    size: tuple[int, int] = (5, 9)
    quiet: bool = False
    lease: float = 3.0
    heartbeat: float = 1.0
    reap: float = 1.0
    grace: float = 5.0
    kinds: tuple[str, ...] = ("nap",)
    faults: tuple[str, ...] = ("kill", "stop", "crash")
    drain_seconds: float = 240.0
    stop_seconds: float = 10.0
    look: float = 1.0
    meddles: bool = True
    broken: str | None = None

    @property
    def is_campaign(self) -> bool:
        """Whether it has every kind."""
        return set(self.faults) == set(FATES)


def campaign(seed: int, **changes: Any) -> Plan:
    """Return the plan of a run with every kind of fault."""
    plan = Plan(
        seed=seed, workers=5, concurrency=60, longest=0.2, groups=(1, 5, 20, 50), calm=20.0, every=1.05, quiet=True,
        lease=2.5, heartbeat=0.8, reap=0.8, grace=1.0, longs=0.01, kinds=("nap", "nap", "nap", "effect", "doze", "stumble"),
        faults=tuple(FATES), look=20.0,
    )  # fmt: skip
    return replace(plan, **changes)


SIZES: dict[str, dict[str, Any]] = {
    "short": {
        "jobs": 20_000,
        "seconds": 100.0,
        "calm": 10.0,
        "every": 0.7,
        "period": (7.0, 9.0),
        "size": (8, 9),
        "look": 5.0,
    },
    "full": {"jobs": 510_000, "seconds": 1_550.0},
    "release": {"jobs": 5_100_000, "seconds": 17_500.0},
}


class Storm:
    """One run, and what the fates may use of it."""

    def __init__(
        self, plan: Plan, ground: Arena, dsn: str, folder: Path, workers: Crew, line: tuple[Proxy, str]
    ) -> None:
        self.plan, self.arena, self.folder, self.crew, self.plain_dsn = plan, ground, folder, workers, dsn
        self.dsn = dsn + _PATIENCE
        self.proxy, self._proxied = line
        self.rng = random.Random(plan.seed)
        self.database = dsn.partition("?")[0].rpartition("/")[2]
        self._faults, self._ledger = History(folder / "faults.jsonl"), History(folder / "ledger.jsonl")
        self._mix = Mix(self.rng, plan.faults, plan.period, plan.size, quiet=plan.quiet)
        self._going: list[tuple[float, int, str, Line, Steps]] = []
        self._numbers = itertools.count()
        self._log_start = ground.log.stat().st_size
        self._lively: psycopg.Connection[Any] | None = None
        self._admin: psycopg.Connection[Any] | None = None
        self._exits: set[str] = set()
        self._next_look = self._next_meddle = self._next_bar = 0.0
        self.injected = 0

    # ------------------------------------------------------------------------------------------ what fates may use

    def ask(self, statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement as superuser in the run's database; no rows while the server is away."""
        try:
            if self._admin is None or self._admin.closed:
                address = self.arena.server.dsn_for(self.database) + _PATIENCE
                self._admin = psycopg.connect(address, autocommit=True, connect_timeout=5, prepare_threshold=None)
            cursor = self._admin.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            _close(self._admin)  # a lock or a cancel may have failed the statement alone
            self._admin = None
            return []

    def start(self, faults: str = "") -> Member:
        """Start a worker, every other one through the proxy.

        One that was paused finds out late, so that its completer writes what is to be refused.
        """
        late = "before worker/beat=sleep:0.3"
        address = self._proxied if self.rng.random() < 0.5 else self.plain_dsn
        return self.crew.start(faults=f"{late},{faults}" if faults else late, dsn=address)

    def complain(self, text: str) -> None:
        """Say what no fate may lead to; it fails the run."""
        self._faults.write("complaint", kind="complaint", text=text)

    # --------------------------------------------------------------------------------------------------- its course

    def run(self) -> None:
        """Let it rage, then let it drain."""
        plan = self.plan
        for _ in range(plan.workers):
            self.start()
        maker = Producer
        if plan.broken:
            maker = getattr(importlib.import_module(f"tests.faults.broken.{plan.broken}"), "Producer", Producer)
        producers = [
            maker(
                address, self.folder, f"p{n}", count=plan.jobs // 2, seconds=plan.seconds * 0.95 - 5,
                longest=plan.longest, seed=plan.seed, kinds=plan.kinds, groups=plan.groups,
                longs=plan.longs,
            )
            for n, address in enumerate((self.plain_dsn, self._proxied))
        ]  # fmt: skip
        for member in self.crew.members:
            member.wait_until("lease")
        for producer in producers:
            producer.start()
        self._rage(producers)

    def _rage(self, producers: list[Producer]) -> None:
        plan, began = self.plan, time.monotonic()
        next_fault = plan.calm or plan.every
        while (now := time.monotonic() - began) < plan.seconds + plan.drain_seconds:
            self._replace_the_dead()
            self._go_on(now)
            if next_fault <= now < plan.seconds:
                next_fault = max(next_fault + plan.every, now)
                self._hurt(now)
            self._watch(now, sum(producer.made for producer in producers))
            is_fed = not any(producer.is_alive() for producer in producers)
            if now > plan.seconds and is_fed and not self._going and self._is_drained():
                break
            time.sleep(0.02)
        for _, _, _, _, steps in self._going:
            steps.close()
        for at, until in self._mix.quiet:
            self._faults.write("quiet", kind="quiet", at=time.time() - now + at, until=time.time() - now + until)

    def _hurt(self, now: float) -> None:
        name = self._mix.draw(now)
        if name is None:
            return
        chosen = FATES[name]
        if chosen.alone and any(FATES[other].alone == chosen.alone for _, _, other, _, _ in self._going):
            return
        line: Line = {"at": time.time()}
        steps = chosen.play(self, line)
        self._step(now, name, line, steps, is_first=True)

    def _go_on(self, now: float) -> None:
        while self._going and self._going[0][0] <= now:
            _, _, name, line, steps = heapq.heappop(self._going)
            self._step(now, name, line, steps)

    def _step(self, now: float, name: str, line: Line, steps: Steps, *, is_first: bool = False) -> None:
        """Let a fate go on until it next waits; write it down when it is over."""
        try:
            heapq.heappush(self._going, (now + next(steps), next(self._numbers), name, line, steps))
            if is_first:
                self.injected += 1
                self._mix.played(name)
        except StopIteration as over:
            if not is_first:
                self._faults.write("fault", kind=name, **{"until": time.time(), **line, "seen": over.value})

    def _replace_the_dead(self) -> None:
        """Start others for those that ended by themselves, as a supervisor does."""
        living = self.crew.living
        if len(living) >= self.plan.workers:
            return
        for member in self.crew.members[-200:]:
            if not member.is_alive and member.name not in self._exits:
                self._exits.add(member.name)
                self._faults.write("exit", kind="exit", file=member.name, status=member.process.returncode)
        for _ in range(self.plan.workers - len(living)):
            self.start()

    def _watch(self, now: float, made: int) -> None:
        """Sample the ledger, disturb some running rows, show how far it is."""
        if now >= self._next_meddle and self.plan.meddles:
            self._next_meddle = now + 1.0
            self._meddle()
        if now >= self._next_look:
            self._next_look = now + self.plan.look
            try:
                self._ledger.write("ledger", **history_audit.sample(self.dsn))
            except psycopg.Error:
                pass
        if now >= self._next_bar:
            self._next_bar = now + (0.5 if sys.stderr.isatty() else 60.0)
            bar(
                now / self.plan.seconds,
                f"{made:,} jobs, {self.injected} faults, {len(self.crew.members)} workers so far",
            )

    def _meddle(self) -> None:
        try:
            if self._lively is None or self._lively.closed:
                self._lively = psycopg.connect(self.dsn, autocommit=True, connect_timeout=5, application_name="meddler")
            self._lively.execute(MEDDLE, [f"at {time.time()}"])
        except psycopg.Error:
            _close(self._lively)
            self._lively = None

    def _is_drained(self) -> bool:
        return self.ask("SELECT count(*) FROM samecommit.job WHERE state = 'ready'") == [(0,)]

    def close(self) -> None:
        """Stop the workers and write down what is there."""
        for member in self.crew.living:
            if member.is_paused:
                member.resume()
        time.sleep(0.1)
        history_audit.wait_for_the_dead(self.dsn, len(self.crew.living), self.plan.lease + self.plan.reap + 2)
        patience = self.plan.grace + self.plan.stop_seconds
        try:
            self.crew.stop(patience)
        except subprocess.TimeoutExpired:
            self.complain(f"{self.crew.living} did not stop within {patience:g} s")
        for conn in (self._lively, self._admin):
            if conn is not None:
                conn.close()
        history_audit.dump(self.dsn, self.folder, self.arena.log, self._log_start)


def _close(conn: psycopg.Connection[Any] | None) -> None:
    if conn is not None:
        conn.close()


def bar(share: float, text: str) -> None:
    """Show how far something is, on standard error."""
    full = round(min(share, 1.0) * 30)
    start, end = ("\r", "\x1b[K") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}[{'#' * full:.<30}] {min(share, 1.0):4.0%} {text}{end}", end="", file=sys.stderr, flush=True)


def rage(plan: Plan, ground: Arena, folder: Path) -> Run:
    """Run a storm and load what it left."""
    folder.joinpath("plan.json").write_text(json.dumps({**asdict(plan), "commit": commit()}))
    with ground.fresh() as bare:
        dsn = bare.replace(f"//{ROLE}@", f"//{ROLE}:{CANARY}@")
        with proxy(dsn) as line, crew(dsn, folder, config_of(plan), plan.broken) as workers:
            storm = Storm(plan, ground, dsn, folder, workers, line)
            storm.run()
            storm.close()
    return Run.load(folder)


def config_of(plan: Plan) -> dict[str, Any]:
    """The workers' settings."""
    return {
        "concurrency": plan.concurrency,
        "lease_seconds": plan.lease,
        "heartbeat_seconds": plan.heartbeat,
        "reap_seconds": plan.reap,
        "grace_seconds": plan.grace,
    }


def commit() -> str:
    """Which code this is."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    """Run one storm from the command line."""
    from tests.faults.outcome import judged  # it needs this module

    options = argparse.ArgumentParser(prog="python -m tests.faults.storm", description=__doc__)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options.add_argument("--size", choices=SIZES, default="short", help="how many jobs over how long; short by default")
    options.add_argument("--jobs", type=int, help="instead of the size's")
    options.add_argument("--seconds", type=float, help="instead of the size's")
    options.add_argument("--faults", help="these kinds only, separated by commas; all by default")
    options.add_argument(
        "--folder", type=Path, help="for the histories; a new one under the temporary directory by default"
    )
    options.add_argument("--result", type=Path, help="write the result there, as JSON")
    options.add_argument("--broken", help="a module of tests/faults/broken to break the workers with")
    given = options.parse_args()
    changes = {
        **SIZES[given.size],
        **{name: value for name in ("jobs", "seconds", "broken") if (value := getattr(given, name))},
    }
    if given.faults:
        changes["faults"] = tuple(given.faults.split(","))
    plan = campaign(given.seed, **changes)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="storm-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {plan.seed}, commit {commit()[:12]}, histories in {folder}")
    with arena() as ground:
        run = rage(plan, ground, folder)
    result = judged(run, plan, folder)
    print(result.text())
    if given.result:
        given.result.write_text(result.json())
    raise SystemExit(bool(result.faults))


if __name__ == "__main__":
    main()
