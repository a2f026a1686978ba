"""What the demo shows while it runs and when it is over: values in, rich renderables out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samecommit.demo.audit import LIVE_STATES
from samecommit.demo.intake import Intake
from samecommit.demo.watching import HeldLead, ModelCalls, Snapshot

STEPS = ("enrich", "classify", "deliver")


def progress(snapshot: Snapshot, *, expected: int, notes: Sequence[str] = (), seconds: float = 0.0) -> RenderableType:
    """Show one bar for the leads that arrived and one for each step, and what has happened so far."""
    bars = Table.grid(padding=(0, 2))
    bars.add_row("arrived", _bar(snapshot.arrived, expected), f"{snapshot.arrived} of {expected} leads")
    for kind in STEPS:
        done = snapshot.count("done", kind=kind)
        bars.add_row(kind, _bar(done, expected), _waiting(snapshot, kind, done))
    held, failed = snapshot.count("held"), snapshot.count("failed")
    last = f"{seconds:4.0f} s   {snapshot.delivered} in the CRM   {held} held for a person   {failed} failed"
    return Group(bars, Text(last), *(Text(f"  • {note}", style="yellow") for note in notes))


def _bar(done: int, expected: int) -> ProgressBar:
    return ProgressBar(total=max(1, expected), completed=min(done, expected), width=40)


def _waiting(snapshot: Snapshot, kind: str, done: int) -> str:
    live, running = snapshot.count(*LIVE_STATES, kind=kind), snapshot.count("running", kind=kind)
    return f"{done} done, {running} running, {live - running} waiting"


def intake_table(intake: Intake, name: str, *, limit: int = 5) -> RenderableType:
    """Show what was read, which rows were refused, and the first of each group."""
    table = Table(title=f"{name}: {intake.report(limit=0).splitlines()[0]}", title_justify="left")
    for heading in ("rows", "refused because", "for example"):
        table.add_column(heading)
    for why, count in list(intake.rejections.items())[:limit]:
        first = next(rejected for rejected in intake.rejected if rejected.why == why)
        table.add_row(str(count), why, Text(f"row {first.row}: {first.reason}"))
    return table


def held_table(held: Sequence[HeldLead], released: Iterable[int], *, limit: int = 8) -> Table:
    """List what waits for a person, and which of it the demo decided."""
    decided = set(released)
    table = Table(title=f"held for a person: {len(held)}", title_justify="left")
    for heading in ("job", "reason", "message", "released"):
        table.add_column(heading)
    for lead in held[:limit]:
        message = Text(str(lead.data.get("message", ""))[:60])
        table.add_row(str(lead.job_id), Text(lead.reason), message, "yes" if lead.job_id in decided else "")
    return table


def calls_table(calls: Iterable[ModelCalls]) -> Table:
    """Show what the attempts recorded: model, prompt version, outcome, tokens."""
    table = Table(title="model calls, as the attempts recorded them", title_justify="left")
    for heading in ("model", "prompt", "outcome"):
        table.add_column(heading)
    table.add_column("calls", justify="right")
    table.add_column("tokens", justify="right")
    for call in calls:
        table.add_row(call.model, call.prompt_version, call.outcome, str(call.calls), str(call.tokens))
    return table
