"""``samecommit jobs``: lists jobs, shows one, says why it stands still, and acts on some."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from samecommit.cli.failure import Exit
from samecommit.cli.options import Manner, common, database, operator
from samecommit.cli.show import details, pretty, table, when
from samecommit.cli.values import Id, Ids, Json, Moment, flat
from samecommit.storage.operate import JobFilter, Operator, Page, Until

STATES = ("ready", "scheduled", "retrying", "running", "held", "failed", "done", "cancelled")
COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "id": lambda job: str(job["id"]),
    "state": lambda job: job["state"],
    "kind": lambda job: job["kind"],
    "queue": lambda job: job["queue"],
    "attempts": lambda job: f"{job['attempts']}/{job['max_attempts']}",
    "enqueued": lambda job: when(job["created_at"]),
    "moment": lambda job: _moment(job),
    "note": lambda job: job["note"] or "",
}
FIELDS = (
    "id", "kind", "queue", "shown_as", "priority", "created_at", "run_at", "claimed_at", "leased_until", "finished_at",
    "expires_at", "attempts", "max_attempts", "crashes", "claims", "tags", "parent_id", "replay_of", "effect_key",
    "blocked_by", "hold_reason", "hold_data", "hold_until_at", "decision", "meta", "result",
)  # fmt: skip


class JobsGroup(click.Group):
    """``samecommit jobs 42`` is ``samecommit jobs show 42``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names."""
        return super().resolve_command(ctx, ["show", *args] if args[0].isdecimal() else args)


@click.group(cls=JobsGroup, invoke_without_command=True)
@click.option("--queue", metavar="NAME", help="Of this queue only.")
@click.option("--kind", metavar="NAME", help="Of this task only.")
@click.option("--state", type=click.Choice(STATES), help="In this state only.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@click.option("--page", metavar="PAGE", help="Go on from where the last list ended, as it says.")
@click.option("--ids", "only_ids", is_flag=True, help="Print the ids alone, as other commands take them.")
@database
@common
def jobs(
    manner: Manner, queue: str | None, kind: str | None, state: str | None, limit: int, page: str | None,
    dsn: str | None, schema: str, *, only_ids: bool,
) -> None:  # fmt: skip
    """List jobs, the newest first, or act on some.

    Held and failed jobs are listed by when that happened. A look through a large table is bounded: where few jobs fit,
    it may end before the list is full, and says how to go on.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    with operator(dsn, schema) as asked:
        found = asked.jobs(JobFilter(queue=queue, kind=kind, state=state), limit=limit, page=page)
    if only_ids and not manner.json:
        sys.stdout.writelines(f"{job['id']}\n" for job in found.jobs)
        return
    manner.say(found.jobs, *_listed(found), next=found.next, is_cut=found.is_cut)


def _listed(found: Page) -> list[Any]:
    lines: list[Any] = [table(found.jobs, COLUMNS)] if found.jobs else ["no jobs" + (" so far" if found.is_cut else "")]
    if found.is_cut:
        lines.append(f"looked at the newest only; older ones: --page {found.next}")
    elif found.next is not None:
        lines.append(f"more: --page {found.next}")
    return lines


def _moment(job: Mapping[str, Any]) -> str:
    """Say the moment that matters in a job's state."""
    match job["state"]:
        case "done" | "failed" | "cancelled" | "held":
            return f"{job['state']} {when(job['since_at'])}"
        case "running":
            return f"started {when(job['since_at'])}"
        case _:
            return f"due {when(job['run_at'])}"


@jobs.command()
@click.argument("job_id", metavar="ID", type=Id())
@database
@common
def show(manner: Manner, job_id: int, dsn: str | None, schema: str) -> None:
    """Show one job with its payload, its attempts and why it is where it is."""
    with operator(dsn, schema) as asked:
        job, reasons = asked.job(job_id), asked.why(job_id)
    lines: list[Any] = [details(job, FIELDS), *(f"why: {reason['sentence']}" for reason in reasons)]
    lines.append(f"payload: {pretty(job['payload'])}")
    if job["attempts_made"]:
        lines.append(table(job["attempts_made"], ATTEMPT_COLUMNS))
    if job["last_error"]:
        lines.append(f"last error: {job['last_error']}")
    manner.say({**job, "why": reasons}, *lines)


ATTEMPT_COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "attempt": lambda row: str(row["number"]),
    "outcome": lambda row: row["outcome"] or "running",
    "began": lambda row: when(row["claimed_at"]),
    "ended": lambda row: when(row["ended_at"]),
    "recorded": lambda row: pretty(row["record"]) if row["record"] else "",
    "error": lambda row: (row["error"] or "").strip().split("\n")[0],
}


@jobs.command()
@click.argument("job_id", metavar="ID", type=Id())
@database
@common
def why(manner: Manner, job_id: int, dsn: str | None, schema: str) -> int:
    """Say why a job is not running, or what became of it."""
    with operator(dsn, schema) as asked:
        reasons = asked.why(job_id)
    manner.say(reasons, f"job {job_id} is {reasons[0]['state']}", *(f"  {reason['sentence']}" for reason in reasons))
    return Exit.REFUSED if reasons[0]["code"] == "not_found" else Exit.OK


def _act(manner: Manner, ids: list[int], act: Callable[[int], str], *, good: tuple[str, ...]) -> int:
    """Do something to each job and say what came of it; refused if it could not be done to one of them."""
    from samecommit.errors import UnknownJob

    outcomes: list[dict[str, Any]] = []
    for job_id in ids:
        try:
            outcomes.append({"id": job_id, "outcome": act(job_id)})
        except UnknownJob:
            outcomes.append({"id": job_id, "outcome": "not found"})
    is_done = [row["outcome"] in good for row in outcomes]
    refusal = f"not {good[0]}, it is "
    lines = [
        f"job {row['id']}: {'' if done else refusal}{row['outcome']}"
        for row, done in zip(outcomes, is_done, strict=True)
    ]
    manner.say(outcomes, *lines, done=sum(is_done), refused=len(is_done) - sum(is_done))
    return Exit.OK if all(is_done) else Exit.REFUSED


def _ids(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("ids", metavar="ID...", type=Ids(), nargs=-1, required=True)(command)


@jobs.command()
@_ids
@database
@common
def retry(manner: Manner, ids: tuple[tuple[int, ...], ...], dsn: str | None, schema: str) -> int:
    """Run failed jobs again, or scheduled ones now."""
    with operator(dsn, schema) as asked:
        return _act(manner, flat(ids), asked.retry, good=("retried",))


@jobs.command()
@_ids
@click.option("--reason", metavar="TEXT", help="Kept with the job.")
@database
@common
def cancel(manner: Manner, ids: tuple[tuple[int, ...], ...], reason: str | None, dsn: str | None, schema: str) -> int:
    """Cancel jobs; one that runs is asked to stop."""
    with operator(dsn, schema) as asked:
        return _act(manner, flat(ids), lambda job_id: asked.cancel(job_id, reason), good=("cancelled", "asked"))


@jobs.command()
@_ids
@click.option("--reason", metavar="TEXT", required=True, help="For whoever decides.")
@click.option("--data", type=Json(), help="What to show them.")
@click.option("--until", type=Moment(), help="When it fails if nobody decides: 2h, 1d or a time.")
@database
@common
def hold(
    manner: Manner, ids: tuple[tuple[int, ...], ...], reason: str, data: str | None, until: Until | None,
    dsn: str | None, schema: str,
) -> int:  # fmt: skip
    """Put waiting or failed jobs aside for a person."""
    with operator(dsn, schema) as asked:
        return _act(
            manner, flat(ids), lambda job_id: asked.hold(job_id, reason, data=data, until=until), good=("held",)
        )


@jobs.command()
@_ids
@click.option("--decision", type=Json(), help="What was decided; the handler reads it as ctx.job.decision.")
@database
@common
def release(
    manner: Manner, ids: tuple[tuple[int, ...], ...], decision: str | None, dsn: str | None, schema: str
) -> int:
    """Let held jobs go on."""
    with operator(dsn, schema) as asked:
        return _act(manner, flat(ids), lambda job_id: asked.release(job_id, decision), good=("released",))


@jobs.command()
@_ids
@click.option("--patch", type=Json(dict), help="An object to merge over each payload.")
@click.option("--queue", metavar="NAME", help="Another queue for the new jobs.")
@click.option("--keep-effect-key", is_flag=True, help="Their effects are those of the old ones.")
@database
@common
def replay(
    manner: Manner, ids: tuple[tuple[int, ...], ...], patch: str | None, queue: str | None, dsn: str | None,
    schema: str, *, keep_effect_key: bool,
) -> int:  # fmt: skip
    """Make new jobs from old ones; the old ones stay as they are."""
    wanted = flat(ids)
    with operator(dsn, schema) as asked:
        made = _replayed(asked, wanted, patch=patch, queue=queue, keep_effect_key=keep_effect_key)
    lost = [job_id for job_id in wanted if job_id not in {row["replay_of"] for row in made}]
    lines = [
        f"job {row['replay_of']}: {'replayed as' if row['created'] else 'its unique key is held by'} job {row['id']}"
        for row in made
    ]
    lines += [f"job {job_id}: not replayed, it is not found" for job_id in lost]
    manner.say(made, *lines, not_found=lost)
    return Exit.OK if not lost and all(row["created"] for row in made) else Exit.REFUSED


def _replayed(asked: Operator, ids: list[int], **options: Any) -> list[dict[str, Any]]:
    rows = {row["replay_of"]: row for row in asked.replay(ids, **options)}
    return [rows[job_id] for job_id in ids if job_id in rows]
