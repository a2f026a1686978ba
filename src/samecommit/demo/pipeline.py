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
from samecommit.demo.tasks import GONE, TABLE
from samecommit.demo.watching import HeldLead, Snapshot, Stranded, Watch
from samecommit.errors import DemoError

LOOK_SECONDS = 0.2
RELEASED = 5
WORTH_KILLING = 8  # jobs in its hands: with fewer there is little to recover


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInput:
    """What a run works on.

    Args:
        dsn: the database, with the engine's tables in it.
        leads: the file.
        emails: the address of each of its accepted rows.
        folder: where the CRM keeps its file.
        per_second: the pace at which leads arrive; 0 is all at once.
        workers: worker processes.
        app: the application they run, as ``samecommit worker`` takes it.
        patience_seconds: how long nothing may move before the run is given up and audited as it is.
        model_args, crm_args: options of the two services.
    """

    dsn: str
    leads: Path
    emails: frozenset[str]
    folder: Path
    per_second: float = 0.0
    workers: int = 2
    app: str = "samecommit.demo.app:create_app"
    patience_seconds: float = 90.0
    model_args: Sequence[object] = ()
    crm_args: Sequence[object] = ()


@dataclass(slots=True, kw_only=True)
class Progress:
    """What the screen shows: the newest numbers, and what has happened so far, with the second of the run."""

    snapshot: Snapshot
    notes: list[str] = field(default_factory=list[str])
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long the run has been going."""
        return time.monotonic() - self.started

    def note(self, text: str) -> None:
        """Tell something that happened just now."""
        self.notes.append(f"{self.seconds:3.0f} s  {text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The audit, and what was held before the demo released some of it."""

    audit: Audit
    held: tuple[HeldLead, ...]
    released: tuple[int, ...]
    seconds: float

    @property
    def early(self) -> int:
        """How many jobs ran without their lead in the database."""
        return sum(finding.detail == GONE for finding in self.audit.findings)


Watcher = Callable[[Progress], None]


class Pipeline:
    """One run; its processes and services live as long as ``stack``.

    Raises:
        DemoError: the database holds the leads of an earlier run.
        ChildError: a process did not start.
    """

    def __init__(self, given: PipelineInput, stack: ExitStack) -> None:
        self._given = given
        self._conn: psycopg.Connection[Any] = stack.enter_context(
            psycopg.connect(given.dsn, autocommit=True, prepare_threshold=None)
        )
        self._conn.execute(TABLE.create)
        self.watch = Watch(self._conn, TABLE)
        if self.watch.snapshot().arrived:
            raise DemoError(f"the schema {TABLE.schema!r} holds the leads of an earlier run: give an empty database")
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
        self._stranded: Stranded | None = None

    def run(self, watcher: Watcher = lambda _: None) -> PipelineResult:
        """Work from the first lead to the audit; what stopped moving before its end the audit calls unfinished.

        Raises:
            ChildError: a process failed.
        """
        progress = Progress(snapshot=self.watch.snapshot())
        is_quiet = self._look_until_quiet(progress, watcher)
        if not self._crew.is_killed:
            progress.note("everything was done before there was anything to kill")
        held = self.watch.held()
        undecided = [lead for lead in held if "label" in lead.data]  # not those that killed their workers
        released = self._release(undecided[:RELEASED])
        if held:
            progress.note(f"{len(held)} leads wait for a person; the demo decides {len(released)} of them")
        if is_quiet:
            self._look_until_quiet(progress, watcher)
        contacts = list(self.services.crm.contacts())
        result = audit(self._given.emails, self.watch.lead_rows(), self.watch.job_rows(), contacts)
        return PipelineResult(audit=result, held=tuple(held), released=released, seconds=progress.seconds)

    def _look_until_quiet(self, progress: Progress, watcher: Watcher) -> bool:
        """Look on until nothing is left to do; False when nothing has moved for too long."""
        moved, patience = time.monotonic(), self._given.patience_seconds
        while time.monotonic() - moved < patience:
            is_importing = self._crew.is_importing  # asked before counting, so that the count is the last one
            before, progress.snapshot = progress.snapshot, self.watch.snapshot()
            if progress.snapshot.finished != before.finished:
                moved = time.monotonic()
            self._crew.check()
            if not self._crew.is_killed:
                is_importing = self._kill_half_way(progress) or is_importing
            elif self._stranded is not None:
                self._tell_recovery(self._stranded, progress)
            watcher(progress)
            if not is_importing and progress.snapshot.is_quiet:
                return True
            time.sleep(LOOK_SECONDS)
        progress.note(f"nothing has moved for {patience:g} s: giving up")
        watcher(progress)
        return False

    def _kill_half_way(self, progress: Progress) -> bool:
        """Kill the importer and the busiest worker once half of the leads are there, and say whether it happened."""
        share = progress.snapshot.arrived / max(1, len(self._given.emails))
        if share < 0.5:
            return False
        victim, jobs = self.watch.busiest(self._crew.worker_pids)
        if jobs < (WORTH_KILLING if share < 0.9 else 1):  # a small file may never bring that many
            return False
        self._crew.kill(victim)
        stranded = self.watch.stranded(victim)
        progress.note(f"killed the importer, and a worker with {stranded.jobs} jobs in its hands; both restarted")
        self._stranded = stranded if stranded.jobs else None
        return True

    def _tell_recovery(self, stranded: Stranded, progress: Progress) -> None:
        if not self.watch.still_stranded(stranded):
            progress.note(f"the lease of the killed worker ran out: its {stranded.jobs} jobs are with the others now")
            self._stranded = None

    def _release(self, held: Sequence[HeldLead]) -> tuple[int, ...]:
        """Decide for a person: take the label that the model thought of."""
        for lead in held:
            self.watch.release(lead.job_id, {"label": lead.data["label"], "by": "demo"})
        return tuple(lead.job_id for lead in held)

    def _start_worker(self) -> Child:
        return self._start("samecommit", "worker", self._given.app)

    def _start_importer(self) -> Child:
        return self._start("samecommit.demo.importer", self._given.leads, "--per-second", self._given.per_second)

    def _start(self, module: str, *args: object) -> Child:
        return Child(module, *args, env={**self.services.env, FOLLOW: "1"}, announces=False)
