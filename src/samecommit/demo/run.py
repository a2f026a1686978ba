"""The demo from end to end: ``samecommit demo``.

Read the file, start a Postgres of its own (or take ``dsn``), run the leads through Samecommit and, if asked, through
the common way, and print the audit. The exit status is 0 only if Samecommit's audit is clean.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from rich.console import Console
from rich.live import Live
from rich.status import Status

from samecommit import App
from samecommit.demo import screen
from samecommit.demo.audit import Audit, audit_table, discrepancy_table
from samecommit.demo.errors import LeadsFileError
from samecommit.demo.intake import SAMPLE, Intake, read_leads
from samecommit.demo.naive.importer import ORDERS
from samecommit.demo.naive.run import NaiveInput, NaiveProgress, NaiveResult, run_naive
from samecommit.demo.pipeline import Pipeline, PipelineInput, PipelineResult, Progress
from samecommit.demo.tasks import tasks
from samecommit.embedded import EmbeddedServer

HEADINGS = {"commit-first": "commit,\nthen publish", "publish-first": "publish,\nthen commit"}
HURRY = 3  # times as fast the common way runs: nobody waits for what gets lost, and the kill is half-way all the same
LINE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the command's options say.

    Args:
        leads: the CSV file.
        naive: also run the common way and show it side by side.
        keep: leave everything running until Ctrl-C.
        dsn: a database to use instead of an embedded one; the schemas ``samecommit``, ``lead_intake`` and, with
            ``naive``, ``naive_…`` are made in it.
        per_second: the pace at which leads arrive.
        workers: worker processes.
    """

    leads: Path = SAMPLE
    naive: bool = False
    keep: bool = False
    dsn: str | None = None
    per_second: float = 40.0
    workers: int = 2


def run(options: DemoOptions, console: Console | None = None) -> int:
    """Run the demo and return its exit status.

    Raises:
        LeadsFileError: the file cannot be read as a table of leads, or has none.
        ChildError: a process of the demo failed.
        DemoError: the database holds the leads of an earlier run.
        EmbeddedError: there is no database to run on.
    """
    console = console or Console()
    intake = read_leads(options.leads)
    console.print(screen.opening(intake, options.leads.name))
    if not intake.leads:
        raise LeadsFileError(
            f"no row of {options.leads.name} can be used: give a file with at least one e-mail address"
        )
    with ExitStack() as stack:
        stack.enter_context(_ended_in_order())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="samecommit-demo-")))
        dsn = options.dsn or _start_server(stack, console)
        App(dsn, tasks=[tasks]).migrate()
        given = _input(options, intake, dsn, folder)
        pipeline = Pipeline(given, stack)
        result = _run_live(pipeline, len(intake.leads), console)
        _show_work(pipeline, result, console)
        naive = _run_naive(given, console) if options.naive else {}
        _show_audits(result, naive, console)
        if options.keep:
            _keep(pipeline, result, console)
        else:
            console.print(screen.next_steps(naive=options.naive))
    return 0 if result.audit.is_clean else 1


@contextmanager
def _ended_in_order() -> Generator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, so that its files go too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_server(stack: ExitStack, console: Console) -> str:
    with console.status("starting a PostgreSQL of its own"):
        return stack.enter_context(EmbeddedServer()).dsn


def _input(options: DemoOptions, intake: Intake, dsn: str, folder: Path) -> PipelineInput:
    return PipelineInput(
        dsn=dsn,
        leads=options.leads,
        emails=frozenset(lead.email for lead in intake.leads),
        folder=folder,
        per_second=options.per_second,
        workers=options.workers,
    )


def _run_live(pipeline: Pipeline, expected: int, console: Console) -> PipelineResult:
    if not console.is_terminal:
        return pipeline.run(_Lines(console, expected))
    with Live(console=console, refresh_per_second=8) as live:

        def show(now: Progress) -> None:
            live.update(screen.progress(now.snapshot, expected=expected, notes=now.notes, seconds=now.seconds))

        return pipeline.run(show)


class _Lines:
    """Shows progress where nothing can be redrawn: each note once, and a line every few seconds."""

    def __init__(self, console: Console, expected: int) -> None:
        self._console, self._expected = console, expected
        self._notes = 0
        self._next_line = 0.0

    def __call__(self, now: Progress) -> None:
        for note in now.notes[self._notes :]:
            self._say(note)
        self._notes = len(now.notes)
        if now.seconds >= self._next_line:
            self._next_line = now.seconds + LINE_SECONDS
            line = screen.progress_line(now.snapshot, expected=self._expected, seconds=now.seconds)
            self._say(line)

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_work(pipeline: Pipeline, result: PipelineResult, console: Console) -> None:
    if result.held:
        console.print(screen.held_table(result.held, result.released))
    console.print(screen.calls_table(pipeline.watch.model_calls()))
    console.print(screen.attempts_table(pipeline.watch.attempts()))


def _run_naive(given: PipelineInput, console: Console) -> dict[str, NaiveResult]:
    """Run the same leads in both orders of the common way."""
    results: dict[str, NaiveResult] = {}
    for order in ORDERS:
        naive = NaiveInput(
            dsn=given.dsn,
            leads=given.leads,
            emails=given.emails,
            order=order,
            folder=given.folder,
            per_second=given.per_second * HURRY,
            workers=given.workers,
        )
        with console.status(order) as status:
            results[order] = run_naive(naive, watch=partial(_show_naive, status, order))
    return results


def _show_naive(status: Status, order: str, seen: NaiveProgress) -> None:
    killed = "; an importer and a worker were killed" if seen.is_killed else ""
    status.update(f"the common way, {order}: {seen.committed} committed, {seen.delivered} in the CRM{killed}")


def _show_audits(result: PipelineResult, naive: dict[str, NaiveResult], console: Console) -> None:
    audits: dict[str, Audit] = {"samecommit": result.audit, **{HEADINGS[way]: naive[way].audit for way in naive}}
    if naive:
        early = {"samecommit": result.early, **{HEADINGS[way]: naive[way].early for way in naive}}
        console.print(screen.comparison(audits, early))
    else:
        console.print(audit_table(audits))
    console.print(screen.verdict(result.audit, result.seconds))
    if not result.audit.is_clean:
        console.print(discrepancy_table(result.audit))


def _keep(pipeline: Pipeline, result: PipelineResult, console: Console) -> None:
    waiting = [lead.job_id for lead in result.held if lead.job_id not in result.released]
    shown = screen.left_running(pipeline.services.env, waiting[0] if waiting else None)
    console.print(shown, soft_wrap=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("ending")
