"""What the demo shows while it runs and when it is over: values in, rich renderables out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samecommit.demo import tasks
from samecommit.demo.audit import LIVE_STATES, Audit
from samecommit.demo.intake import Intake
from samecommit.demo.tasks import FOUND
from samecommit.demo.watching import Attempts, HeldLead, ModelCalls, Snapshot

STEPS = ("enrich", "classify", "deliver")
ENDINGS: Mapping[str, tuple[str, ...]] = {
    "done": ("done",),
    "held for a person": ("held",),
    "failed for good": ("failed",),
    "error or doubt: tried again later": ("retry", "error", "timed out"),
    "429: told to wait, no attempt spent": ("rate limited",),
    "lease lost: its worker was killed": ("lost", "crashed"),
}


def progress(snapshot: Snapshot, *, expected: int, notes: Sequence[str] = (), seconds: float = 0.0) -> RenderableType:
    """Show one bar for the leads that arrived and one for each step, and what has happened so far."""
    bars = Table.grid(padding=(0, 2))
    bars.add_row("arrived", _bar(snapshot.arrived, expected), f"{snapshot.arrived} of {expected} leads")
    for kind in STEPS:
        done = snapshot.count("done", kind=kind)
        bars.add_row(kind, _bar(done, expected), _waiting(snapshot, kind, done))
    held, failed = snapshot.count("held"), snapshot.count("failed")
    last = f"{seconds:3.0f} s  {snapshot.delivered} in the CRM   {held} held for a person   {failed} failed"
    return Group(bars, Text(last), *(Text(note, style="yellow") for note in notes))


def progress_line(snapshot: Snapshot, *, expected: int, seconds: float) -> str:
    """Say the same in one line, for where nothing can be redrawn."""
    steps = ", ".join(f"{snapshot.count('done', kind=kind)} {kind}" for kind in STEPS)
    return f"{seconds:3.0f} s  {snapshot.arrived} of {expected} leads arrived; done: {steps}"


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


def attempts_table(attempts: Sequence[Attempts]) -> Table:
    """Show how all attempts ended, and how often looking first saved the CRM from a second record."""
    table = Table(title="every attempt, by how it ended", title_justify="left")
    table.add_column()
    for kind in STEPS:
        table.add_column(kind, justify="right")
    for label, outcomes in ENDINGS.items():
        table.add_row(label, *(_count(attempts, kind, outcomes) for kind in STEPS))
    if other := {one.outcome for one in attempts}.difference(*ENDINGS.values()):
        table.add_row(", ".join(sorted(other)), *(_count(attempts, kind, other) for kind in STEPS))
    table.add_section()
    found = sum(one.count for one in attempts if one.note == FOUND)
    table.add_row("found in the CRM, not created again", "", "", str(found))
    return table


def _count(attempts: Iterable[Attempts], kind: str, outcomes: Collection[str]) -> str:
    return str(sum(one.count for one in attempts if one.kind == kind and one.outcome in outcomes))


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


def verdict(result: Audit, seconds: float) -> RenderableType:
    """Say the sum, and what it means."""
    lines = [Text(result.equation)]
    if result.is_clean:
        text = f"Every accepted lead is accounted for after {seconds:.0f} s: lost 0, duplicates 0."
        lines.append(Text(text, style="bold green"))
    else:
        lines.append(Text("The two sides do not agree.", style="bold red"))
    return Group(*lines)


def next_steps(*, naive: bool) -> RenderableType:
    """Point to what comes next."""
    steps = Table.grid(padding=(0, 2))
    if not naive:
        steps.add_row("samecommit demo --naive", "the same leads the common way, side by side")
    steps.add_row("samecommit demo --keep", "leave it running, look into the tables, kill something yourself")
    steps.add_row("samecommit demo --leads FILE.csv", "your own leads")
    steps.add_row(Text(str(Path(tasks.__file__))), "the three steps, in one short file")
    return Group(Text("\nNext:", style="bold"), steps)


def left_running(env: Mapping[str, str]) -> RenderableType:
    """Say where everything is, as lines to paste into another terminal."""
    exports = [f"export {name}='{value}'" for name, value in env.items()]
    commands = [
        "samecommit jobs --state held                      # who waits for a person",
        "samecommit jobs --state failed                    # what failed, and why",
        "samecommit worker samecommit.demo.app:create_app  # one worker more",
        "psql \"$SAMECOMMIT_DSN\" -c 'TABLE samecommit.failure_groups'",
    ]
    return Group(
        Text("\nLeft running until Ctrl-C. In another terminal:", style="bold"),
        *(Text(line) for line in (*exports, "", *commands)),
    )
