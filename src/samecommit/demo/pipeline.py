"""Run the leads through Samecommit, kill an importer and a worker half-way, release a few held ones, and audit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from samecommit.demo.app import FOLLOW
from samecommit.demo.audit import Audit, audit
from samecommit.demo.child import Child
from samecommit.demo.crew import Crew
from samecommit.demo.services import start_services
from samecommit.demo.tasks import TABLE
from samecommit.demo.watching import HeldLead, Snapshot, Watch

LOOK_SECONDS = 0.2
RELEASED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInput:
    """What a run works on: ``accepted`` leads of the file, arriving at a pace."""

    dsn: str
    leads: Path
    accepted: int
    folder: Path
    per_second: float = 0.0
    workers: int = 2
    concurrency: int = 24
    timeout_seconds: float = 120.0
    model_args: Sequence[object] = ()
    crm_args: Sequence[object] = ()


@dataclass(slots=True, kw_only=True)
class Progress:
    """What the screen shows: the newest numbers, and what has happened so far."""

    snapshot: Snapshot
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The audit, and what was held before the demo released some of it."""

    audit: Audit
    held: tuple[HeldLead, ...]
    released: tuple[int, ...]


Watcher = Callable[[Progress], None]


class Pipeline:
    """One run; its processes and services live as long as ``stack``.

    The engine's tables have to be there.
    """

    def __init__(self, given: PipelineInput, stack: ExitStack) -> None:
        self._given = given
        self._conn: psycopg.Connection[Any] = stack.enter_context(psycopg.connect(given.dsn, autocommit=True))
        self._conn.execute(TABLE.create)
        self.watch = Watch(self._conn, TABLE)
        self.services = start_services(
            stack,
            dsn=given.dsn,
            crm_file=given.folder / "crm.sqlite",
            model_args=given.model_args,
            crm_args=given.crm_args,
        )
        self._crew = Crew(
            stack, start_worker=self._start_worker, start_importer=self._start_importer, workers=given.workers
        )

    def run(self, watcher: Watcher = lambda _: None) -> PipelineResult:
        """Work from the first lead to the audit; what is not done at the deadline the audit calls unfinished.

        Raises:
            ChildError: a process failed.
        """
        deadline = time.monotonic() + self._given.timeout_seconds
        progress = Progress(snapshot=self.watch.snapshot())
        self._look_until_quiet(progress, watcher, deadline)
        held = self.watch.held()
        undecided = [lead for lead in held if "label" in lead.data]  # not those that killed their workers
        released = self._release(undecided[:RELEASED])
        progress.notes.append(f"{len(held)} leads are held for a person; the demo decided {len(released)} of them")
        self._look_until_quiet(progress, watcher, deadline)
        contacts = list(self.services.crm.contacts())
        result = audit(self.watch.lead_rows(), self.watch.job_rows(), contacts)
        return PipelineResult(audit=result, held=tuple(held), released=released)

    def _look_until_quiet(self, progress: Progress, watcher: Watcher, deadline: float) -> None:
        while time.monotonic() < deadline:
            importing = self._crew.is_importing  # asked before counting, so that the count is the last one
            progress.snapshot = self.watch.snapshot()
            if not self._crew.is_killed and progress.snapshot.arrived * 2 >= self._given.accepted:
                progress.notes.append(f"killed an importer and a worker with SIGKILL: {self._crew.kill()}")
                importing = True
            self._crew.check()
            watcher(progress)
            if not importing and progress.snapshot.is_quiet:
                return
            time.sleep(LOOK_SECONDS)

    def _release(self, held: Sequence[HeldLead]) -> tuple[int, ...]:
        """Decide for a person: take the label that the model thought of."""
        for lead in held:
            self.watch.release(lead.job_id, {"label": lead.data["label"], "by": "demo"})
        return tuple(lead.job_id for lead in held)

    def _start_worker(self) -> Child:
        options = ("--concurrency", self._given.concurrency)
        return self._start("samecommit", "worker", "samecommit.demo.app:create_app", *options)

    def _start_importer(self) -> Child:
        pace = ("--per-second", self._given.per_second)
        return self._start("samecommit.demo.importer", self._given.leads, *pace)

    def _start(self, module: str, *args: object) -> Child:
        return Child(module, *args, env={**self.services.env, FOLLOW: "1"}, announces=False)
