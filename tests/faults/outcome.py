"""What a storm came to: every check's verdict, each kind's counts, how long recovery took; for people and as JSON."""

from __future__ import annotations

import json
import os
import re
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.fates_of_workers import DOOMED
from tests.faults.storm import CANARY, Plan, commit
from tests.support.history import Line, Run
from tests.support.history_checks import Verdict, all_faults, innocent_holds, judge
from tests.support.history_health import (
    canaries,
    first_claims_after,
    judge_health,
    reap_delays,
    restarts_elsewhere,
    unknown_claims,
)

PLANNED = frozenset({"08006", "57014", "25006", "53300", "55P03", "22P05", "22P02", "54001", "25P02", "25P03"})
"""What the kinds ask for: connections that a killed process left or that were reset, cancelled statements, a read-only and a
full server, the strangers' own lock timeout, values that are no JSON, transactions that ended with their connection."""
_LAWFUL_EXITS = {0, -9, -15, -2, 1, -11, 9, DOOMED}
"""Stopped, killed, a signal before it was ready or at its very end, found no server at its start, segfault, `os._exit`, fault point."""
_MEANT_TO_BE_HELD = ("crash_", "vanish_", "poison_")
_AT_ONCE = 0.1
"""Seconds in which a process that goes on after a stop has noticed what it slept through."""
_ENOUGH = 3
"""A kind that came so often must have been seen; in a run of so many faults for each kind, each must have come."""
_PRODUCER = re.compile(r"client-p[0-9]+")
_CAMPAIGN_SLACK = 2.0
"""What overlapping faults may add to the reaper's time: its owner may be paused, its connection cut, the table locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run."""

    plan: Plan
    verdicts: list[Verdict]
    kinds: dict[str, dict[str, int]]
    recovery: dict[str, dict[str, float]]
    slowest: dict[str, float]

    @property
    def faults(self) -> list[str]:
        """What was wrong; the run is good when nothing was."""
        return all_faults(self.verdicts)

    def zeros(self) -> dict[str, int]:
        """What must be zero, counted."""
        checks = {verdict.check: verdict for verdict in self.verdicts}
        return {
            "lost": int(checks["C1"].counts["lost"]),
            "unexpected": int(checks["C1"].counts["unexpected"]),
            "phantom": int(checks["C1"].counts["phantom"]),
            "ended twice": len(checks["C2"].faults),
            "stale accepted": len(checks["C3"].faults),
            "living lease robbed": len(checks["C4"].faults),
            "attempts wrong": len(checks["C5"].faults),
            "two jobs for a key": len(checks["C6"].faults),
            "early start": len(checks["C12"].faults),
            "leaks": len(checks["C13"].faults),
            "ledger off": len(checks["C14"].faults),
            "secret in log": len(checks["C15"].faults),
        }

    def json(self) -> str:
        """Give all of it, for the page and for comparisons."""
        return json.dumps(
            {
                "commit": commit(),
                "seed": self.plan.seed,
                "plan": {name: getattr(self.plan, name) for name in ("jobs", "seconds", "workers", "lease", "heartbeat", "reap")},
                "cores": os.cpu_count(),
                "jobs": int(self.verdicts[0].counts["ended"]),
                "faults": sum(kind["injected"] for kind in self.kinds.values()),
                "zeros": self.zeros(),
                "checks": {verdict.check: dict(verdict.counts) for verdict in self.verdicts},
                "kinds": self.kinds,
                "recovery": self.recovery,
                "slowest": self.slowest,
                "wrong": self.faults,
            },
            indent=1,
        )  # fmt: skip

    def text(self) -> str:
        """Give what people want to see first."""
        injected = sum(kind["injected"] for kind in self.kinds.values())
        lines = [f"seed {self.plan.seed}, commit {commit()[:12]}, {injected} faults of {len(self.kinds)} kinds"]
        lines += [f"{v.check:>8} {'ok' if v.is_good else 'BAD'} {json.dumps(v.counts)}" for v in self.verdicts]
        lines += [
            f"{name:>36} injected {kind['injected']:4} seen {kind['seen']:6}" for name, kind in self.kinds.items()
        ]
        lines += [f"{name}: {json.dumps(values)}" for name, values in self.recovery.items()]
        lines += [f"slowest back at the rate: {json.dumps(self.slowest)}"]
        return "\n".join([*lines, *self.faults])


def judged(run: Run, plan: Plan, folder: Path) -> Outcome:
    """Make all checks of a storm, and those that it was one."""
    kinds = _kinds(run, plan)
    rate, returns = back_at_rate(run, plan)
    recovery = _recovery(run, rate, returns)
    slack = _CAMPAIGN_SLACK if plan.is_campaign else 0.0
    found = [*judge(run), *judge_health(run, lease=plan.lease, reap=plan.reap + slack, planned=PLANNED)]
    holds = [f"innocent: {held}" for held in innocent_holds(run) if not held.startswith(_MEANT_TO_BE_HELD)]
    found += [
        canaries(_texts(folder), [CANARY]),
        Verdict("exits", *_exits(run)),
        Verdict("complaints", [line["text"] for line in run.faults_of("complaint")]),
        Verdict("hollow", _hollow(run, plan, kinds, found)),
        Verdict("recovery", _slow(recovery) if plan.is_campaign and _is_many(kinds) else []),
        Verdict("holds", holds, {"held": len(holds)}),
    ]
    return Outcome(plan=plan, verdicts=found, kinds=kinds, recovery=recovery, slowest=_slowest(returns))


def _kinds(run: Run, plan: Plan) -> dict[str, dict[str, int]]:
    injected, seen = Counter[str](), Counter[str]()
    for line in run.faults:
        if line["op"] == "fault":
            injected[line["kind"]] += 1
            seen[line["kind"]] += int(line["seen"])
    return {kind: {"injected": injected[kind], "seen": seen[kind]} for kind in plan.faults}


def _is_many(kinds: dict[str, dict[str, int]]) -> bool:
    """Whether there were so many faults that averages mean something."""
    return sum(n["injected"] for n in kinds.values()) >= _ENOUGH * len(kinds)


def _hollow(run: Run, plan: Plan, kinds: dict[str, dict[str, int]], found: list[Verdict]) -> list[str]:
    """Name what did not happen, though the run is for it."""
    checks = {verdict.check: verdict.counts for verdict in found}
    many = _is_many(kinds)
    hollow = [f"{kind} was never seen: {n}" for kind, n in kinds.items() if n["injected"] >= _ENOUGH and not n["seen"]]
    if many:
        hollow += [f"{kind} never came" for kind, n in kinds.items() if not n["injected"]]
    if "stop" in plan.faults and many and not checks["C3"]["refused"]:
        hollow.append("no stale write was refused")
    if plan.is_campaign and many:
        unknown = {key for line in run.clients if line["type"] == "unknown" for key in line["keys"]}
        started = {line["key"] for line in run.handlers if line["op"] == "start"}
        counts = {
            "unknown commits that had happened": len(unknown & started),
            "unknown commits that had not": len(unknown - started),
            "runs lost with their lease": checks["C5"].get("lost", 0),
            "overlaps after a lost lease": checks["C4"]["overlaps"],
            "quiet periods": len(run.faults_of("quiet")),
        }
        hollow += [f"no {what}" for what, count in counts.items() if not count]
    crashes = {"crash", "killed backend", "frozen backend"}
    if unknown_claims(run) and not any(kinds.get(kind, {}).get("injected") for kind in crashes):
        hollow.append("a handler ran under a claim that the database does not know, and it never crashed")
    return hollow


def _texts(folder: Path) -> Iterable[str]:
    """What was said to people: errors of the workers, their signals, the server's log."""
    for path in (*folder.glob("worker-*.err"), *folder.glob("worker-*.jsonl"), folder / "postgres.log"):
        if path.exists():
            yield path.read_text(errors="replace")


def _exits(run: Run) -> tuple[list[str], dict[str, int]]:
    statuses = Counter(int(line["status"]) for line in run.faults_of("exit"))
    bad = [f"{count} workers ended with {status}" for status, count in statuses.items() if status not in _LAWFUL_EXITS]
    return bad, {str(status): count for status, count in sorted(statuses.items())}


# ------------------------------------------------------------------------------------------------------------- recovery


def spread(values: Iterable[float]) -> dict[str, float]:
    """Give how many there are, the middle one, the one that 95 % do not exceed, and the worst."""
    ordered = sorted(values)
    if not ordered:
        return {"n": 0}
    return {
        "n": len(ordered),
        "median": round(statistics.median(ordered), 3),
        "p95": round(ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)], 3),
        "worst": round(ordered[-1], 3),
    }


def _recovery(run: Run, rate: float, returns: list[tuple[float, str]]) -> dict[str, dict[str, float]]:
    figures = {
        "jobs taken from a killed worker": spread(reap_delays(run)),
        "a killed worker's job started elsewhere": spread(restarts_elsewhere(run)),
        "first claim after the server was back": spread(
            first_claims_after(run, "crash", "fast restart", "killed backend")
        ),
        "back at 80 % of the undisturbed rate": spread(seconds for seconds, _ in returns)
        | {"undisturbed jobs per second": round(rate, 1)},
        "stopped after a signal": spread(line["seconds"] for line in run.faults if "seconds" in line),
    }
    for link in ("claim", "finish", "heartbeat", "listen"):
        noticed = [_noticed_after(run, line) for line in run.faults_of(f"silent {link}")]
        figures[f"silent {link} noticed"] = spread(noticed)
    return figures


def _noticed_after(run: Run, line: Line) -> float:
    """Give how long a connection was silent until it was gone, less the time for which its process was stopped.

    Whose connection it was is not written down: a stop counts when the end came at once when it was over, by the process or,
    its lease having run out meanwhile, by whoever ended its sessions.
    """
    stops = [
        float(stop["woken"]) - max(float(stop["at"]), float(line["at"]))
        for stop in run.faults
        if "woken" in stop and 0 <= float(line["until"]) - float(stop["woken"]) < _AT_ONCE
    ]
    return float(line["noticed"]) - max(stops, default=0.0)


def back_at_rate(run: Run, plan: Plan, window: float = 5.0) -> tuple[float, list[tuple[float, str]]]:
    """From the end of each fault to the end of the first window in which at least 80 % of the undisturbed rate was done.

    The undisturbed rate is that of the calm beginning. Faults that no whole window follows before the first producer has
    said its last do not count: there was less to do from then on. What fates enqueue is no part of the rate.

    Returns:
        The rate in jobs a second; and the seconds and the kind of each fault.
    """
    ends = [float(line["at"]) for line in run.ends]
    oks: dict[str, list[float]] = defaultdict(list)
    for line in run.clients:
        if line["op"] == "enqueue" and line["type"] == "ok" and _PRODUCER.fullmatch(line["file"]):
            oks[line["file"]].append(float(line["at"]))
    faults = [line for line in run.faults if line["op"] == "fault"]
    if not ends or not oks or not faults or plan.calm < 10:
        return 0.0, []
    fed_from, fed_to = min(times[0] for times in oks.values()), min(times[-1] for times in oks.values())
    calm_from, calm_to = fed_from + 3.0, fed_from + plan.calm - 1.0
    rate = (bisect_left(ends, calm_to) - bisect_left(ends, calm_from)) / (calm_to - calm_from)
    returns: list[tuple[float, str]] = []
    for line in faults:
        at = float(line["until"])
        while at + window <= fed_to:
            if bisect_left(ends, at + window) - bisect_left(ends, at) >= 0.8 * rate * window:
                returns.append((at + window - float(line["until"]), line["kind"]))
                break
            at += 0.5
        else:
            if float(line["until"]) + 60 + window <= fed_to:
                returns.append((fed_to - float(line["until"]), line["kind"]))
    return rate, returns


def _slowest(returns: list[tuple[float, str]]) -> dict[str, float]:
    """Give the five kinds of fault after which it took longest until the rate was back, with the longest time of each."""
    longest: dict[str, float] = {}
    for seconds, kind in returns:
        longest[kind] = round(max(seconds, longest.get(kind, 0.0)), 1)
    return dict(sorted(longest.items(), key=lambda item: -item[1])[:5])


_TARGETS = {
    "jobs taken from a killed worker": ("median", 5.0),
    "first claim after the server was back": ("median", 2.0),
    "back at 80 % of the undisturbed rate": ("worst", 60.0),
    "silent claim noticed": ("median", 15.0),
    "silent finish noticed": ("median", 15.0),
    "silent heartbeat noticed": ("median", 15.0),
    "silent listen noticed": ("median", 15.0),
}


def _slow(recovery: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"{name}: {part} {recovery[name].get(part)} s, should be at most {most} s"
        for name, (part, most) in _TARGETS.items()
        if recovery[name].get(part, 0.0) > most
    ]
