"""What happened in a run, written by whoever did it: one file for each process, one JSON object for each line.

A line has ``op`` (enqueue, start, end, lease, lost, refused, fault ...), ``at`` (seconds since the epoch) and what belongs
to it. An enqueue is written twice: ``invoke`` before, then ``ok``, ``fail`` (it certainly did not happen) or ``unknown``
(the answer was lost). A file is written without a buffer, so that a killed process leaves all that it had said.

The other side of a run is what the database wrote itself, see `tests.support.history_audit`.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

Line: TypeAlias = dict[str, Any]
_decode = msgspec.json.Decoder(dict[str, Any]).decode  # it makes each name once, where json makes millions of them


class History:
    """The writer of one process.

    Args:
        path: its file.
        clock: seconds since the epoch; not the process's own where that is wrong on purpose.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, op: str, **values: Any) -> None:
        """Add a line; it is in the file when this returns."""
        os.write(self._file, (json.dumps({"op": op, "at": self._clock(), **values}) + "\n").encode())

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a file; a last line that was cut by a kill is left out."""
    if path.exists():
        with path.open("rb") as file:
            for text in file:
                try:
                    yield _decode(text)
                except ValueError:
                    continue


@dataclass(frozen=True)
class Run:
    """All that is known of a run. Every list is in the order of its time."""

    clients: list[Line] = field(default_factory=list[Line])
    handlers: list[Line] = field(default_factory=list[Line])
    faults: list[Line] = field(default_factory=list[Line])
    audit: list[Line] = field(default_factory=list[Line])
    tables: list[Line] = field(default_factory=list[Line])
    ledger: list[Line] = field(default_factory=list[Line])
    resources: dict[str, int] = field(default_factory=dict[str, int])
    log: list[str] = field(default_factory=list[str])

    @classmethod
    def load(cls, folder: Path) -> Run:
        """Read a run's folder."""
        resources: dict[str, int] = {}
        for line in read(folder / "resources.jsonl"):
            resources.update({name: value for name, value in line.items() if name not in {"op", "at"}})
        log = folder / "postgres.log"
        return cls(
            clients=_gather(folder.glob("client-*.jsonl")),
            handlers=_gather(folder.glob("worker-*.jsonl")),
            faults=_gather(folder.glob("faults*.jsonl")),
            audit=sorted(read(folder / "audit.jsonl"), key=lambda line: int(line["n"])),
            tables=list(read(folder / "tables.jsonl")),
            ledger=list(read(folder / "ledger.jsonl")),
            resources=resources,
            log=log.read_text(errors="replace").splitlines() if log.exists() else [],
        )

    @cached_property
    def lives(self) -> dict[int, list[Line]]:
        """What the database wrote of each job, in order."""
        lives: dict[int, list[Line]] = defaultdict(list)
        for line in self.audit:
            if line["what"] in {"job", "history"}:
                lives[line["job_id"]].append(line)
        return dict(lives)

    @cached_property
    def ends(self) -> list[Line]:
        """Every move of a job into the history."""
        return [line for line in self.audit if line["what"] == "history" and line["op"] == "insert"]

    @cached_property
    def claims(self) -> list[Line]:
        """Every move of a job into a worker's hands."""
        return [line for line in self.audit if is_claim(line)]

    @cached_property
    def lease_of(self) -> dict[int, int]:
        """Which lease made a claim."""
        return {line["new_claim"]: line["lease_id"] for line in self.audit if line["what"] == "claim"}

    @cached_property
    def handler_lines(self) -> dict[tuple[int, int], list[Line]]:
        """What the handlers said of each (job, claim)."""
        said: dict[tuple[int, int], list[Line]] = defaultdict(list)
        for line in self.handlers:
            if "claim" in line:
                said[line["job"], line["claim"]].append(line)
        return dict(said)

    def faults_of(self, *kinds: str) -> list[Line]:
        """Return the faults of these kinds."""
        return [fault for fault in self.faults if fault["kind"] in kinds]


def is_claim(line: Line) -> bool:
    """Whether a change gave a free job to a claim."""
    return bool(line["what"] == "job" and line["op"] == "update" and line["new_claim"] not in (None, line["old_claim"]))


def is_release(line: Line) -> bool:
    """Whether a change took a job out of its claim: settled, given back, reaped or ended."""
    return bool(line["what"] == "job" and line["old_claim"] is not None and line["new_claim"] is None)


def _gather(paths: Iterable[Path]) -> list[Line]:
    lines = [{"file": path.stem, **line} for path in paths for line in read(path)]
    return sorted(lines, key=lambda line: float(line["at"]))
