"""What the demo shows while it runs and when it is over: values in, rich renderables out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samecommit.demo import tasks
from samecommit.demo.audit import LIVE_STATES, Audit, audit_table, make_table
from samecommit.demo.intake import Intake
from samecommit.demo.watching import DELIVERY, FOUND, Attempts, HeldLead, ModelCalls, Snapshot

STEPS = ("enrich", "classify", DELIVERY)
ENDINGS: Mapping[str, tuple[str, ...]] = {
    "done": ("done",),
    "held for a person": ("held",),
    "failed for good": ("failed",),
    "an error or a doubt: tried again later": ("retry", "error", "timed out", "snoozed"),
    "429: told to wait, no attempt spent": ("rate limited",),
    "lease lost: the worker was killed": ("lost", "crashed"),
}
PLAN = (
    "Each lead is stored together with its first job, in one transaction. Worker processes take it through three jobs: "
    "enrich, classify (a model's service that answers 429 in bursts), and a delivery that the outbox makes of an event (to a "
    "CRM that is slow, fails, and sometimes creates the record and drops the connection). Half-way an importer and a worker "
    "are killed with SIGKILL."
)


def opening(intake: Intake, name: str) -> RenderableType:
    """Say what was read and what is going to happen."""
    return Group(intake_table(intake, name), Padding(Text(PLAN), (0 if intake.rejected else 1, 0, 1, 0)))


def progress(snapshot: Snapshot, *, expected: int, notes: Sequence[str] = (), seconds: float = 0.0) -> RenderableType:
    """Show one bar for the leads that arrived and one for each step, and what has happened so far."""
    bars = Table.grid(padding=(0, 2))
    bars.add_row("arrived", _bar(snapshot.arrived, expected), f"{snapshot.arrived} of {expected} leads")
    for kind in STEPS:
        done = snapshot.count("done", kind=kind)
        bars.add_row(kind, _bar(done, expected), _waiting(snapshot, kind, done))
    held, failed = snapshot.count("held"), snapshot.count("failed")
    last = f"{seconds:3.0f} s  {snapshot.delivered} in the CRM, {held} held for a person, {failed} failed"
    return Group(bars, Text(last), *(Text(note, style="yellow") for note in notes))


def progress_line(snapshot: Snapshot, *, expected: int, seconds: float) -> str:
    """Say the same in one line, for where nothing can be redrawn."""
    done = ", ".join(f"{kind} {snapshot.count('done', kind=kind)}" for kind in STEPS)
    return f"{seconds:3.0f} s  arrived {snapshot.arrived} of {expected}; done: {done}"


def _bar(done: int, expected: int) -> ProgressBar:
    return ProgressBar(total=max(1, expected), completed=min(done, expected), width=30)


def _waiting(snapshot: Snapshot, kind: str, done: int) -> str:
    live, running = snapshot.count(*LIVE_STATES, kind=kind), snapshot.count("running", kind=kind)
    return f"{done} done, {running} running, {live - running} waiting"


def intake_table(intake: Intake, name: str, *, limit: int = 5) -> RenderableType:
    """Show what was read, which rows were refused, and the first of each group."""
    heading = Text(f"{name}: {intake.report(limit=0).splitlines()[0]}", style="bold")  # a title would wrap to the table
    table = make_table()
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("refused because", no_wrap=True)
    table.add_column("for example")
    for why, count in list(intake.rejections.items())[:limit]:
        first = next(rejected for rejected in intake.rejected if rejected.why == why)
        table.add_row(str(count), why, _one_line(f"row {first.row}: {first.reason}"))
    return Group(heading, table) if intake.rejected else heading


def _one_line(text: str) -> Text:
    """Cut what does not fit; the column it is in must be free to shrink."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def held_table(held: Sequence[HeldLead], released: Iterable[int], *, limit: int = 7) -> Table:
    """List what waits for a person, and which of it the demo decided."""
    decided = set(released)
    table = make_table(f"Held for a person: {len(held)}. The demo released {len(decided)} with a decision.")
    table.add_column("job", justify="right", no_wrap=True)
    table.add_column("reason", no_wrap=True)
    table.add_column("released", no_wrap=True)
    table.add_column("message")
    for lead in held[:limit]:
        message = _one_line(str(lead.data.get("message", "")))
        table.add_row(str(lead.job_id), Text(lead.reason), "yes" if lead.job_id in decided else "", message)
    if len(held) > limit:
        table.add_row("…", f"and {len(held) - limit} more", "", "")
    return table


def calls_table(calls: Iterable[ModelCalls]) -> Table:
    """Show what the attempts recorded: model, prompt version, outcome, tokens."""
    table = make_table("Model calls, as the attempts recorded them")
    for heading in ("model", "prompt", "outcome"):
        table.add_column(heading)
    table.add_column("calls", justify="right")
    table.add_column("tokens", justify="right")
    for call in calls:
        table.add_row(call.model, call.prompt_version, call.outcome, str(call.calls), str(call.tokens))
    return table


def attempts_table(attempts: Sequence[Attempts]) -> Table:
    """Show how all attempts ended, and how often looking saved the CRM from a second record."""
    table = make_table("Every attempt, by how it ended")
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


def comparison(audits: Mapping[str, Audit], early: Mapping[str, int]) -> RenderableType:
    """Lay the audits side by side, with what was taken up before its commit, and say where the losses come from."""
    return Group(
        audit_table(audits, extra={"too early": early}),
        Text("lost        in the killed worker's hands, committed but never published, or taken up too early"),
        Text("duplicates  sent again after a dropped connection, without looking first"),
        Text("too early   published before its transaction committed: the worker found no row"),
        "",
    )


def verdict(result: Audit, seconds: float) -> RenderableType:
    """Say the sum, and what it means."""
    if result.is_clean:
        text = f"Every accepted lead is accounted for after {seconds:.0f} s: lost 0, duplicates 0."
        return Group(Text(result.equation), Text(text, style="bold green"))
    return Group(Text(result.equation), Text("The two sides do not agree.", style="bold red"))


def next_steps(*, naive: bool) -> RenderableType:
    """Point to what comes next."""
    commands = {
        "samecommit demo --naive": "the same leads the common way, side by side",
        "samecommit demo --keep": "leave it running, look into the tables, kill a worker",
        "samecommit demo --leads FILE": "your own leads",
        _near(Path(tasks.__file__)): "the three steps, in one short file",
    }
    if naive:
        del commands["samecommit demo --naive"]
    steps = Table.grid(padding=(0, 2))
    for command, what in commands.items():
        steps.add_row(Text(f"  {command}"), what)
    return Group(Text("\nNext", style="bold"), steps)


def _near(path: Path) -> str:
    """Name a file from here where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def left_running(env: Mapping[str, str], held: int | None) -> RenderableType:
    """Say where everything is, and what to do with it, as lines to paste into another terminal.

    Args:
        env: what a worker needs in its environment.
        held: a job that waits for a person.
    """
    commands = {
        "samecommit jobs --state held": "who waits for a person",
        f"samecommit jobs show {held}": "one of them, with its attempts",
        f'samecommit jobs release {held} --decision \'{{"label": "hot"}}\'': "decide; a worker delivers it",
        "samecommit jobs --state failed": "what failed, and why",
        "samecommit worker samecommit.demo.app:create_app": "one worker more",
    }
    if held is None:
        commands = {command: what for command, what in commands.items() if str(held) not in command}
    lines = Table.grid(padding=(0, 2))
    for command, what in commands.items():
        lines.add_row(Text(f"  {command}"), Text(f"# {what}"))
    return Group(
        Text("\nLeft running until Ctrl-C. In another terminal:", style="bold"),
        *(Text(f"  export {name}='{value}'") for name, value in env.items()),
        lines,
    )
