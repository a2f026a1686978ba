"""Judges of a run, second part: how long things took, and what is left when all has ended. Pure functions, no database."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.support.history import Line, Run, is_claim, is_release
from tests.support.history_checks import REAPER, Verdict

PLANNED_SQLSTATES = frozenset({"00000", "57P01", "57P02", "57P03"})
"""What a server says when it is stopped and started; a run adds what its own faults ask for."""


def quartiles(values: Iterable[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the worst."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "median": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)], 3),
        "worst": round(ordered[-1], 3),
    }


def liveness(run: Run, *, lease: float, reap: float, idle: float = 10.0) -> Verdict:
    """C11: what a dead worker had is taken from it in time, no due job waits beside idle workers, and all of it drains.

    Times in which the server was down (faults with ``until``) do not count.
    """
    faults = [f"nothing was claimed for {gap:.1f} s though jobs were due" for gap in _idle_gaps(run) if gap > idle]
    left = [line for line in run.tables if line["place"] == "job" and line["state"] == "ready"]
    faults += [f"{line['key']} is still waiting ({line['blocked_by'] or 'in line or later'})" for line in left[:20]]
    waits = reap_delays(run)
    faults += [
        f"jobs of a killed worker were taken from it after {wait:.1f} s" for wait in waits if wait > lease + reap + 1
    ]
    return Verdict("C11", faults, {"left": len(left), "dead leases": len(waits), **_named("reaped", waits)})


def _named(name: str, values: Iterable[float]) -> dict[str, float]:
    return {f"{name} {part}": value for part, value in quartiles(values).items()}


def _downtime(run: Run, start: float, end: float) -> float:
    downs = [(float(fault["at"]), float(fault["until"])) for fault in run.faults if fault.get("is_down")]
    return sum(max(0.0, min(end, until) - max(start, since)) for since, until in downs)


def _idle_gaps(run: Run) -> list[float]:
    gaps: list[float] = []
    due, since = 0, 0.0
    in_line: dict[int, bool] = {}
    for line in run.audit:
        if line["what"] != "job":
            continue
        was = in_line.get(line["job_id"], False)
        now = line["op"] != "delete" and bool(line["in_line"]) and line["new_claim"] is None
        in_line[line["job_id"]] = now
        if due and is_claim(line):
            gap = line["at"] - since
            gaps.append(gap - _downtime(run, since, line["at"]) if gap > 1 else gap)
        if is_claim(line) or not due:
            since = line["at"]
        due += now - was
    return gaps


def reap_delays(run: Run) -> list[float]:
    """From each SIGKILL of a worker to the moment when the last of its jobs was taken from it."""
    leases = {line["file"]: line["lease"] for line in run.handlers if line["op"] == "lease"}
    taken: dict[int | None, list[float]] = defaultdict(list)
    for line in run.audit:
        if line["what"] == "job" and line["app"] == REAPER and is_release(line):
            taken[run.lease_of.get(line["old_claim"])].append(float(line["at"]))
    waits: list[float] = []
    for fault in run.faults_of("kill"):
        at = float(fault["at"])
        last = max((moment for moment in taken.get(leases.get(fault["file"]), []) if moment > at), default=None)
        if last is not None:
            waits.append(last - at - _downtime(run, at, last))
    return waits


def restarts_elsewhere(run: Run) -> list[float]:
    """From each SIGKILL to the first start, by another worker, of a job that ran in the killed one."""
    starts: dict[int, list[Line]] = defaultdict(list)
    ended: dict[int, float] = {}
    began: dict[str, list[Line]] = defaultdict(list)
    for line in run.handlers:
        if line["op"] == "start":
            starts[line["job"]].append(line)
            began[line["file"]].append(line)
        elif line["op"] in {"end", "error"}:
            ended.setdefault(line["job"], line["at"])
    waits: list[float] = []
    for fault in run.faults_of("kill"):
        at = fault["at"]
        had = {line["job"] for line in began[fault["file"]] if not ended.get(line["job"], at) < at}
        later = [
            line["at"] - at for job in had for line in starts[job] if line["at"] > at and line["file"] != fault["file"]
        ]
        waits += [min(later)] if later else []
    return waits


def first_claims_after(run: Run, *kinds: str) -> list[float]:
    """From the end of each fault of these kinds to the next claim."""
    times = sorted(float(line["at"]) for line in run.claims)
    return [
        times[place] - fault["until"]
        for fault in run.faults_of(*kinds)
        if (place := bisect_left(times, fault["until"])) < len(times)
    ]


def timing(run: Run) -> Verdict:
    """C12: no job starts before it is due, by the database's clock."""
    due: dict[int, float] = {}
    early: list[str] = []
    late: list[float] = []
    for line in run.audit:
        if line["what"] != "job":
            continue
        if is_claim(line):
            wait = line["at"] - due.get(line["job_id"], line["run_at"])
            late.append(wait)
            if wait < 0:
                early.append(f"job {line['job_id']} started {-wait:.3f} s early")
        due[line["job_id"]] = line["run_at"]
    return Verdict("C12", early, {"starts": len(late), **_named("late", late)})


def resources(run: Run) -> Verdict:
    """C13: when the workers have stopped, nothing of them is left: no connection, lock, transaction, lease or claim."""
    return Verdict(
        "C13", [f"{count} {name} left" for name, count in run.resources.items() if count], dict(run.resources)
    )


def ledger(run: Run) -> Verdict:
    """C14: at every moment, what was stored is what is there."""
    faults = [
        f"{line['inserted'] - line['brought_back']} jobs were stored and {line['jobs'] + line['history']} are there"
        for line in run.ledger
        if line["inserted"] - line["brought_back"] != line["jobs"] + line["history"]
    ]
    return Verdict("C14", faults, {"samples": len(run.ledger)})


def canaries(texts: Iterable[str], secrets: Sequence[str]) -> Verdict:
    """C15: no secret is in any of these texts (logs, errors, process titles)."""
    lines = [line for text in texts for line in text.splitlines()]
    faults = [f"{secret!r} is in {line[:80]!r}" for line in lines for secret in secrets if secret in line]
    return Verdict("C15", faults, {"lines": len(lines), "secrets": len(secrets)})


_SQLSTATE = re.compile(r" ([0-9A-Z]{5}) (?:ERROR|FATAL|PANIC):")


def stray_writes(run: Run, planned: frozenset[str] = frozenset()) -> Verdict:
    """C17: the server's log has no error of a class that the run did not ask for.

    The log's prefix must end with ``%e`` and a space. Claims commit asynchronously on purpose; nothing else does.
    """
    seen = Counter(found[1] for line in run.log if (found := _SQLSTATE.search(line)))
    faults = [f"SQLSTATE {code} {n} times" for code, n in seen.items() if code not in PLANNED_SQLSTATES | planned]
    return Verdict("C17", faults, {f"SQLSTATE {code}": n for code, n in seen.items()})


def judge_health(run: Run, *, lease: float, reap: float, planned: frozenset[str] = frozenset()) -> list[Verdict]:
    """C11 to C14 and C17."""
    return [liveness(run, lease=lease, reap=reap), timing(run), resources(run), ledger(run), stray_writes(run, planned)]


def unknown_claims(run: Run) -> list[Line]:
    """Starts under claims that the database does not know: lawful only after it crashed, since claims commit late."""
    known = {line["new_claim"] for line in run.audit if is_claim(line)}
    return [line for line in run.handlers if line["op"] == "start" and line["claim"] not in known]
