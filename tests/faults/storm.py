"""The torture: workers are killed and paused past their lease while they work, the server crashes once; then all is judged.

``python -m tests.faults.storm --seed 7`` runs it once; the seed repeats the same faults at the same moments of a run.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.faults.arena import Arena, arena
from tests.faults.crew import ROOT, Crew, Member, crew
from tests.faults.producer import Producer
from tests.support import history_audit
from tests.support.history import History, Run
from tests.support.history_checks import Verdict, all_faults, innocent_holds, judge
from tests.support.history_health import first_claims_after as first_claims
from tests.support.history_health import judge_health, restarts_elsewhere, unknown_claims

MEDDLE = """UPDATE samecommit.job SET tags = ARRAY[%s] WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM samecommit.job WHERE claim_id IS NOT NULL ORDER BY random() LIMIT 20 FOR UPDATE SKIP LOCKED))"""

PLANNED = frozenset({"08006", "57014"})
"""Connections that a killed worker did not close, and statements that a stopping one gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a storm is made of. Times are seconds."""

    seed: int
    jobs: int = 20_000
    seconds: float = 60.0
    workers: int = 4
    concurrency: int = 100
    longest: float = 2.0
    every: float = 2.0
    crash_at: float | None = 0.5
    lease: float = 3.0
    heartbeat: float = 1.0
    reap: float = 1.0
    kinds: tuple[str, ...] = ("nap",)
    faults: tuple[str, ...] = ("kill", "stop")
    drain_seconds: float = 240.0
    meddles: bool = True
    broken: str | None = None


class Storm:
    """One run."""

    def __init__(self, plan: Plan, ground: Arena, dsn: str, folder: Path, workers: Crew) -> None:
        self.plan, self._arena, self._dsn, self._folder, self._crew = plan, ground, dsn, folder, workers
        self._rng = random.Random(plan.seed)
        self._faults, self._ledger = History(folder / "faults.jsonl"), History(folder / "ledger.jsonl")
        self._resume_at: dict[str, float] = {}
        self._kinds: list[str] = []
        self._log_start = ground.log.stat().st_size
        self._lively: psycopg.Connection[Any] | None = None

    def run(self) -> None:
        """Let it rage, then let it drain."""
        plan = self.plan
        for _ in range(plan.workers):
            self._start()
        producers = [
            Producer(
                self._dsn, self._folder, f"p{n}", count=plan.jobs // 2, seconds=plan.seconds * 0.7,
                longest=plan.longest, seed=plan.seed, kinds=plan.kinds,
            )
            for n in range(2)
        ]  # fmt: skip
        for member in self._crew.members:
            member.wait_until("lease")
        for producer in producers:
            producer.start()
        self._rage(producers)

    def _start(self) -> Member:
        """Start a worker. One that was paused finds out late, so that its completer writes what is to be refused."""
        return self._crew.start(faults="before worker/beat=sleep:0.3")

    def _rage(self, producers: list[Producer]) -> None:
        plan, began = self.plan, time.monotonic()
        next_fault, next_look = plan.every, 0.0
        crash_at = None if plan.crash_at is None else plan.crash_at * plan.seconds
        while (now := time.monotonic() - began) < plan.seconds + plan.drain_seconds:
            self._look_after()
            if now >= next_fault and now < plan.seconds:
                next_fault += plan.every
                self._hurt()
            if crash_at is not None and now >= crash_at:
                crash_at = None
                self._crash()
            if now >= next_look:
                next_look = now + 1.0
                if self._look() and now > plan.seconds and not any(p.is_alive() for p in producers):
                    return
            time.sleep(0.02)

    def _hurt(self) -> None:
        if not self._kinds:
            self._kinds = self._rng.sample(self.plan.faults, len(self.plan.faults))
        kind = self._kinds.pop()
        able = self._crew.alive
        if len(able) < 2:
            return
        victim = self._rng.choice(able)
        if kind == "kill":
            self._fault("kill", file=victim.name)
            victim.kill()
        else:
            seconds = self.plan.lease + 0.5 + self._rng.random() * 2
            self._pause(victim, seconds)

    def _pause(self, victim: Member, seconds: float) -> None:
        self._fault("stop", file=victim.name, until=time.time() + seconds)
        victim.pause()
        self._resume_at[victim.name] = time.monotonic() + seconds

    def _look_after(self) -> None:
        """Let those go on whose pause is over, and replace those that ended by themselves, as a supervisor does."""
        for member in self._crew.members:
            if member.is_paused and time.monotonic() >= self._resume_at[member.name]:
                member.resume()
        while sum(member.is_alive for member in self._crew.members) < self.plan.workers:
            self._fault("start", file=self._start().name)

    def _crash(self) -> None:
        since = time.time()
        self._arena.server.restart("immediate")
        up = self._arena.wait_until_up()
        self._faults.write("fault", kind="crash", is_down=True, at=since, until=up)

    def _fault(self, kind: str, **values: Any) -> None:
        self._faults.write("fault", kind=kind, **values)

    def _look(self) -> bool:
        """Sample the ledger, disturb some running rows; whether all is done."""
        try:
            if self._lively is None or self._lively.closed:
                self._lively = psycopg.connect(
                    self._dsn, autocommit=True, connect_timeout=5, application_name="meddler"
                )
            counts = history_audit.sample(self._dsn)
            self._ledger.write("ledger", **counts)
            if self.plan.meddles:
                self._lively.execute(MEDDLE, [f"at {time.time()}"])
        except psycopg.OperationalError:
            self._lively = None
            return False
        return counts["ready"] == 0

    def close(self) -> None:
        """Stop the workers and write down what is there."""
        for member in self._crew.members:
            if member.is_alive and member.is_paused:
                member.resume()
        living = sum(member.is_alive for member in self._crew.members)
        history_audit.wait_for_the_dead(self._dsn, living, self.plan.lease + self.plan.reap + 2)
        self._crew.stop()
        if self._lively is not None:
            self._lively.close()
        history_audit.dump(self._dsn, self._folder, self._arena.log, self._log_start)


def rage(plan: Plan, ground: Arena, folder: Path) -> Run:
    """Run a storm and load what it left."""
    folder.joinpath("plan.json").write_text(json.dumps({**asdict(plan), "commit": commit()}))
    with ground.fresh() as dsn, crew(dsn, folder, config_of(plan), plan.broken) as workers:
        storm = Storm(plan, ground, dsn, folder, workers)
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
    }


def commit() -> str:
    """Which code this is."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def verdicts(run: Run, plan: Plan) -> list[Verdict]:
    """All checks of a storm, and that it was one: faults happened, stale writes were refused, claims were lost."""
    found = [*judge(run), *judge_health(run, lease=plan.lease, reap=plan.reap, planned=PLANNED)]
    kinds = Counter(fault["kind"] for fault in run.faults)
    hollow = [f"no {kind} happened" for kind in plan.faults if not kinds[kind]]
    if "stop" in plan.faults and not found[2].counts["refused"]:
        hollow.append("no stale write was refused")
    if unknown_claims(run) and not kinds["crash"]:
        hollow.append("a handler ran under a claim that the database does not know, and it never crashed")
    holds = [f"innocent: {held}" for held in innocent_holds(run)]
    return [*found, Verdict("hollow", hollow, dict(kinds)), Verdict("holds", holds, {"held": len(holds)})]


def report(run: Run, plan: Plan, found: list[Verdict]) -> str:
    """What happened, for people."""
    lines = [f"seed {plan.seed} commit {commit()[:12]}"]
    lines += [f"{v.check:>6} {'ok' if v.is_good else 'BAD'} {json.dumps(v.counts)}" for v in found]
    elsewhere, back = sorted(restarts_elsewhere(run)), first_claims(run, "crash")
    if elsewhere:
        lines.append(f"a killed worker's job started elsewhere after {elsewhere[len(elsewhere) // 2]:.2f} s (median)")
    lines += [f"first claim {wait:.2f} s after the server was back" for wait in back]
    return "\n".join([*lines, *all_faults(found)])


def main() -> None:
    """Run one storm from the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--folder", type=Path)
    options.add_argument("--broken")
    given = options.parse_args()
    plan = Plan(seed=given.seed, jobs=given.jobs, seconds=given.seconds, broken=given.broken)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="storm-"))
    folder.mkdir(parents=True, exist_ok=True)
    with arena() as ground:
        run = rage(plan, ground, folder)
    found = verdicts(run, plan)
    print(report(run, plan, found), folder, sep="\n")
    raise SystemExit(bool(all_faults(found)))


if __name__ == "__main__":
    main()
