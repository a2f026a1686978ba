"""Judges of a run: pure functions from what was written down to what was wrong with it. No database.

C1 to C6 judge what happened to jobs, `tests.support.history_health` judges the time it took and what is left. Each
returns a `Verdict`; its counts say how much there was to judge, so that a check of nothing is seen.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.history import Line, Run, is_claim, is_release

REAPER = "samecommit chores"
BACKOFF_CAP = 1.0
"""The longest backoff of the workers in these runs, seconds."""
LONGEST_WAIT = 5.0
"""After an end of the handler's own that met somebody's lock, seconds: longer than any backoff here."""
_SAME_MOMENT = 0.005
_AWAKE = 1.0
"""How long a process that was stopped takes to say what it was about to, once it goes on, seconds."""
RIVALS = "unique_"
"""How keys begin that rivals enqueue as unique keys, and may enqueue again."""
FINAL = {"done", "cancelled", "failed"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check found."""

    check: str
    faults: list[str] = field(default_factory=list[str])
    counts: Mapping[str, int | float] = field(default_factory=dict[str, int | float])

    @property
    def is_good(self) -> bool:
        """Whether nothing was wrong."""
        return not self.faults


def total_queue(run: Run) -> Verdict:
    """C1: nothing that was acknowledged is lost, nothing ran that was never asked for or certainly did not happen.

    A job has ended when the database says so *and* a handler said before that its work was done, or when it was ended as
    cancelled or failed. One that waits visibly (held, failed, ready) is not lost.
    """
    told = _by_type(run)
    waiting = {line["key"] for line in run.tables if line["place"] == "job"}
    ended = {line["key"] for line in run.ends if line["state"] != "done" or _was_worked(run, line)}
    started = {line["key"] for line in run.handlers if line["op"] == "start"}
    lost = told["ok"] - ended - waiting
    faults = [f"lost: {place}" for place in split(lost, told["ok"])]
    faults += [f"unexpected: {key} ran and was never enqueued" for key in sorted(started - told["invoke"])]
    faults += [f"phantom: {key} ran though its enqueue failed" for key in sorted(started & told["fail"])]
    counts = {name: len(keys) for name, keys in told.items()} | {
        "started": len(started),
        "ended": len(ended),
        "lost": len(lost),
        "waiting": len(waiting),
        "unexpected": len(started - told["invoke"]),
        "phantom": len(started & told["fail"]),
        "recovered": len(started & told["unknown"]),
        "starts": sum(line["op"] == "start" for line in run.handlers),
    }
    return Verdict("C1", faults, counts)


def _by_type(run: Run) -> dict[str, set[str]]:
    told: dict[str, set[str]] = {name: set() for name in ("invoke", "ok", "fail", "unknown")}
    for line in run.clients:
        if line["op"] == "enqueue":
            told[line["type"]].update(line["keys"])
    return told


def _was_worked(run: Run, end: Line) -> bool:
    lines = run.handler_lines.get((end["job_id"], end["new_claim"]), [])
    return any(line["op"] == "end" and line["at"] <= end["at"] + _SAME_MOMENT for line in lines)


def split(lost: set[str], kept: set[str]) -> list[str]:
    """Say of each lost key whether it was in the first tenth of what its producer wrote, the last, or the middle."""
    of: dict[str, list[int]] = defaultdict(list)
    for key in kept:
        of[key.rpartition("-")[0]].append(int(key.rpartition("-")[2]))
    places: list[str] = []
    for key in sorted(lost):
        producer, _, number = key.rpartition("-")
        rank = sorted(of[producer]).index(int(number)) / max(len(of[producer]) - 1, 1)
        places.append(f"{key} ({'prefix' if rank < 0.1 else 'tail' if rank > 0.9 else 'middle'})")
    return places


def ends_once(run: Run) -> Verdict:
    """C2: a job moves into the history once, in one transaction with its row's end; only `retry` brings it back."""
    faults: list[str] = []
    for job_id, life in run.lives.items():
        live = False
        for line in life:
            match line["what"], line["op"]:
                case "job", "insert":
                    live = True
                case "job", "delete":
                    live = False
                case "history", "insert":
                    if live or not _pair(life, line, "job", "delete"):
                        faults.append(f"job {job_id} ended in transaction {line['xid']} though its row was not taken")
                case "history", "delete":
                    if not _pair(life, line, "job", "insert"):
                        faults.append(f"job {job_id} left the history in transaction {line['xid']} and did not return")
                case _:
                    pass
    twice = Counter(line["id"] for line in run.tables)
    faults += [f"job {job_id} has {count} rows" for job_id, count in twice.items() if count > 1]
    return Verdict("C2", faults, {"ends": len(run.ends), "ended twice": sum(count > 1 for count in twice.values())})


def _pair(life: list[Line], line: Line, what: str, op: str) -> bool:
    return [(x["what"], x["op"]) for x in life if x["xid"] == line["xid"]].count((what, op)) == 1


def fencing(run: Run) -> Verdict:
    """C3: each claim of a job has at most one accepted end, and a `done` follows the work of that very claim.

    Every write that was refused was told to its worker: ``refused`` counts them, and must not be 0 after pauses.
    """
    ended: Counter[tuple[int, int]] = Counter()
    faults: list[str] = []
    for job_id, life in run.lives.items():
        for line in life:
            if is_release(line):
                ended[job_id, line["old_claim"]] += 1
            if _is_done(line) and not _was_worked(run, line):
                faults.append(
                    f"job {job_id} ended as done under claim {line['new_claim']}, which had not done its work"
                )
    faults += [f"claim {claim} of job {job} ended {count} times" for (job, claim), count in ended.items() if count > 1]
    worked = [key for key, lines in run.handler_lines.items() if any(line["op"] == "end" for line in lines)]
    accepted = {(job, line["old_claim"]) for job, life in run.lives.items() for line in life if is_release(line)}
    counts = {"refused": refused(run), "accepted": len(ended), "worked in vain": len(set(worked) - accepted)}
    return Verdict("C3", faults, counts)


def _is_done(line: Line) -> bool:
    return (line["what"], line["op"], line["state"]) == ("history", "insert", "done")


def refused(run: Run) -> int:
    """How many ends the workers were told that they may not write."""
    last: dict[str, int] = {}
    for line in run.handlers:
        if line["op"] == "refused":
            last[line["file"]] = line["total"]
    return sum(last.values())


def leases_exclude(run: Run) -> Verdict:
    """C4: a job is in one claim at a time, and only a dead lease is taken away.

    Two handlers of one job may overlap in time only when the first one's lease had ended. ``overlaps`` counts those.
    """
    faults: list[str] = []
    known = _LeaseTimes(run)
    for job_id, life in run.lives.items():
        for line in life:
            if is_claim(line) and line["old_claim"] is not None:
                faults.append(f"job {job_id} was claimed by {line['new_claim']} while {line['old_claim']} had it")
            if is_release(line) and line["app"] == REAPER and line["op"] == "update":
                lease = run.lease_of.get(line["old_claim"])
                if lease is not None and known.is_alive(lease, line["at"]):
                    faults.append(f"job {job_id} was taken from lease {lease}, which was alive")
    faults += [f"lease {lease} was ended while it was alive" for lease in known.ended_early]
    overlaps, unlawful = _overlaps(run)
    return Verdict("C4", faults + unlawful, {"claims": len(run.claims), "overlaps": overlaps, "leases": known.count})


class _LeaseTimes:
    """When each lease was good until, as the database had it at any moment."""

    def __init__(self, run: Run) -> None:
        self._changes: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.ended_early: list[int] = []
        for line in run.audit:
            if line["what"] == "lease":
                is_end = line["op"] == "delete"
                if is_end and line["app"] == REAPER and line["expires_at"] > line["at"]:
                    self.ended_early.append(line["lease_id"])
                self._changes[line["lease_id"]].append((line["at"], line["at"] if is_end else line["expires_at"]))

    @property
    def count(self) -> int:
        return len(self._changes)

    def is_alive(self, lease: int, at: float) -> bool:
        good_until = 0.0
        for changed, expires in self._changes.get(lease, []):
            if changed > at:
                break
            good_until = expires
        return good_until > at + _SAME_MOMENT


def _overlaps(run: Run) -> tuple[int, list[str]]:
    """Count handlers of one job that ran at once; lawful when the one that began first had lost its claim by then.

    One more may be: a process that is stopped between its last look at the lease and a handler's first word begins it when it
    goes on, though others have the job by now. Its end is refused. So that one must have lost its claim, and must
    have been woken just before.
    """
    runs: dict[int, list[_Span]] = defaultdict(list)
    for (job, claim), lines in run.handler_lines.items():
        begun = [line for line in lines if line["op"] == "start"]
        if begun:
            ended = [line["at"] for line in lines if line["op"] in {"end", "error"}]
            at = begun[0]["at"]
            runs[job].append(_Span(at, ended[-1] if ended else at, claim, begun[0].get("file", "")))
    released = {
        (job, line["old_claim"]): line["at"] for job, life in run.lives.items() for line in life if is_release(line)
    }
    woken = _woken(run)
    count, unlawful = 0, []
    for job, spans in runs.items():
        spans.sort()
        for n, second in enumerate(spans):
            for first in spans[:n]:
                if first.end <= second.start + _SAME_MOMENT:
                    continue
                count += 1
                is_taken = released.get((job, first.claim), math.inf) <= second.start + _SAME_MOMENT
                is_late = released.get((job, second.claim), math.inf) <= second.start and any(
                    0 <= second.start - at <= _AWAKE for at in woken[second.file]
                )
                if first.claim in run.lease_of and not is_taken and not is_late:
                    unlawful.append(
                        f"job {job} ran under claims {first.claim} and {second.claim} at once, and the first was still good"
                    )
    return count, unlawful


class _Span(NamedTuple):
    start: float
    end: float
    claim: int
    file: str


def _woken(run: Run) -> dict[str, list[float]]:
    """When each process that had been stopped went on."""
    woken: dict[str, list[float]] = defaultdict(list)
    for fault in run.faults:
        for name in fault.get("stopped", ()):
            woken[name].append(fault["woken"])
    return woken


def attempts(run: Run) -> Verdict:
    """C5: attempts grow by one for an error and for a lost lease, by none for what is given back, and keep below the most.

    After an error a job waits for as long as the workers' backoff allows.
    """
    faults: list[str] = []
    spent: Counter[str] = Counter()
    for job_id, life in run.lives.items():
        before = 0
        for line in life:
            if line["attempts"] is None:
                continue
            grown = line["attempts"] - before
            if line["op"] == "insert":
                before = line["attempts"]
                continue
            before = line["attempts"]
            if grown and is_release(line) and line["op"] == "update":
                spent["lost" if line["app"] == REAPER else "settled"] += 1
                if line["app"] != REAPER and line["run_at"] > line["at"] + LONGEST_WAIT + _SAME_MOMENT:
                    faults.append(f"job {job_id} waits for {line['run_at'] - line['at']:.1f} s after an error")
            if grown not in (0, 1) and not (grown < 0 and not line["app"].startswith("samecommit ")):
                faults.append(
                    f"job {job_id} went from {line['attempts'] - grown} to {line['attempts']} attempts at once"
                )
            if grown and not is_release(line) and line["app"].startswith("samecommit "):
                faults.append(f"job {job_id} spent an attempt without one that ended")
            if line["attempts"] > line["most"]:
                faults.append(f"job {job_id} has {line['attempts']} attempts of {line['most']}")
    return Verdict("C5", faults, dict(spent))


def identical(run: Run) -> Verdict:
    """C6: every acknowledgement of a key names the same job, and a key has one job, however often it was asked for.

    A unique key is free again when its job has ended: what counts there is that no two of its jobs lived at once.
    """
    named: dict[str, set[int]] = defaultdict(set)
    for line in run.clients:
        if line["op"] == "enqueue" and line["type"] == "ok":
            for key, job_id in zip(line["keys"], line["ids"], strict=True):
                named[key].add(job_id)
    made: dict[str, set[int]] = defaultdict(set)
    for line in run.audit:
        if line["what"] == "job" and line["op"] == "insert" and line["key"] is not None:
            made[line["key"]].add(line["job_id"])
    for key, ids in [*named.items()]:
        if key.startswith(RIVALS) and not _lived_at_once(run, ids | made[key]):
            del named[key], made[key]
    faults = [f"{key} was acknowledged as jobs {sorted(ids)}" for key, ids in named.items() if len(ids) > 1]
    faults += [f"{key} was stored as jobs {sorted(ids)}" for key, ids in made.items() if len(ids) > 1]
    faults += [f"{key} was acknowledged as {ids} and is {made[key]}" for key, ids in named.items() if ids != made[key]]
    return Verdict("C6", faults, {"keys": len(named)})


def _lived_at_once(run: Run, ids: set[int]) -> bool:
    lives = sorted((run.lives[job_id][0]["at"], run.lives[job_id]) for job_id in ids if job_id in run.lives)
    ends = [next((line["at"] for line in life if line["op"] == "delete"), float("inf")) for _, life in lives]
    return any(end > begin for end, (begin, _) in zip(ends, lives[1:], strict=False))


def innocent_holds(run: Run) -> list[str]:
    """Jobs that are held though nothing they did asked for it: in these runs, every held one."""
    return [f"{line['key']}: {line['hold_reason']}" for line in run.tables if line["state"] == "held"]


def judge(run: Run) -> list[Verdict]:
    """C1 to C6."""
    return [check(run) for check in (total_queue, ends_once, fencing, leases_exclude, attempts, identical)]


def all_faults(verdicts: Iterable[Verdict]) -> list[str]:
    """What was wrong, each with the name of its check; the first twenty of each."""
    return [f"{verdict.check} {fault}" for verdict in verdicts for fault in verdict.faults[:20]]
