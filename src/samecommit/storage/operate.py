"""What an operator asks and does, over one plain connection: lists that stay fast on large tables, and the contract's verbs.

Each method runs the statement of its name, in ``sql/operate`` where nothing else is said, and returns its rows as
dictionaries, whose keys are the statement's columns. Nothing here ever counts a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from samecommit.errors import ConfigError, UnknownJob
from samecommit.storage.asker import Asker, Row

_HIGHEST_ID = 2**63 - 1
_END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)
_FIRST_WALK, _WALK, _STEPS = 250, 20_000, 12
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """An end: a moment, or so many seconds from now on the database's clock; neither is no end."""

    at: datetime | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list; None is any. ``state`` also takes ``scheduled`` and ``retrying``, which are kinds of ``ready``."""

    queue: str | None = None
    kind: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some jobs, and from where to look on: None is the end. ``is_cut`` says that the look ended before the page was full."""

    jobs: list[Row] = field(default_factory=list[Row])
    next: str | None = None
    is_cut: bool = False


class Operator(Asker):
    """Runs an operator's statements about jobs, queues, workers and failures."""

    # Jobs

    def jobs(self, chosen: JobFilter, *, limit: int = 50, page: str | None = None) -> Page:
        """List jobs, the newest first; held and failed ones by when that happened.

        A look is bounded: where few jobs fit, it may end with a page that is not full, and `Page.next` goes on from there.

        Raises:
            ConfigError: ``page`` is none of those that `Page.next` gives.
        """
        if chosen.state == "running":
            return self._jobs_running(chosen, limit, _id_of(page))
        found: list[Row] = []
        for turn in range(_STEPS):
            walk = min(max(limit + 1, _FIRST_WALK * 4**turn), _WALK)
            step = self._step(chosen, limit - len(found), page, walk)
            found += step.jobs
            page = step.next
            if page is None or len(found) >= limit:
                return Page(jobs=found, next=page)
        return Page(jobs=found, next=page, is_cut=True)

    def _step(self, chosen: JobFilter, room: int, page: str | None, walk: int) -> Page:
        is_kept = chosen.state in ("held", "failed")
        before_at, before = _moment_of(page) if is_kept else (_END_OF_TIME, _id_of(page))
        rows = self.ask(
            "operate/jobs_kept" if is_kept else "operate/jobs",
            before_at=before_at,
            before=before,
            walk=walk,
            room=room,
            queue=chosen.queue,
            kind=chosen.kind,
            state=chosen.state,
        )
        jobs = [{name: row[name] for name in row if not name.startswith("floor")} for row in rows if row["id"]]
        last = jobs[-1] if len(jobs) >= room else {"id": rows[0]["floor"], "since_at": rows[0].get("floor_at")}
        return Page(jobs=jobs, next=_page(last["id"], last["since_at"] if is_kept else None))

    def _jobs_running(self, chosen: JobFilter, room: int, before: int) -> Page:
        jobs = self.ask("operate/jobs_running", before=before, queue=chosen.queue, kind=chosen.kind, room=room)
        return Page(jobs=jobs, next=str(jobs[-1]["id"]) if len(jobs) >= room else None)

    def job(self, job_id: int) -> Row:
        """Return everything that is known of one job, with its newest hundred ``attempts``.

        Raises:
            UnknownJob: there is none; says why that may be.
        """
        rows = self.ask("operate/job", id=job_id)
        if not rows:
            raise UnknownJob(self.why(job_id)[0]["sentence"])
        return {**rows[0], "attempts_made": self.ask("operate/attempts", id=job_id, room=_ATTEMPTS)}

    def why(self, job_id: int) -> list[Row]:
        """Return why a job is not running or what became of it: state, code, sentence, until_at; at least one row."""
        return self.ask("operate/why", id=job_id)

    def retry(self, job_id: int) -> str:
        """Run a failed job again, or one for later now; returns ``retried``, ``duplicate`` or the state it is in instead.

        Raises:
            UnknownJob: there is none.
        """
        return str(self.ask("operate/retry", id=job_id)[0]["outcome"])

    def cancel(self, job_id: int, reason: str | None = None) -> str:
        """End a job as cancelled; returns ``cancelled``, ``asked`` (it runs, its worker is told) or ``too late``.

        Raises:
            UnknownJob: there is none.
        """
        return str(self.ask("operate/cancel", id=job_id, reason=reason)[0]["outcome"])

    def hold(self, job_id: int, reason: str, *, data: str | None = None, until: Until | None = None) -> str:
        """Put a job aside for a person; returns ``held``, ``running``, ``duplicate`` or ``too late``.

        Args:
            job_id: the job.
            reason: for whoever decides.
            data: JSON to show them.
            until: when it fails if nobody has decided.

        Raises:
            UnknownJob: there is none.
        """
        return str(self.ask("operate/hold", id=job_id, reason=reason, data=data, **_end(until))[0]["outcome"])

    def release(self, job_id: int, decision: str | None = None) -> str:
        """Let a held job go on, with a decision (JSON) that its handler reads; returns ``released`` or its state instead.

        Raises:
            UnknownJob: there is none.
        """
        return str(self.ask("operate/release", id=job_id, decision=decision)[0]["outcome"])

    def replay(
        self,
        job_ids: Sequence[int],
        *,
        patch: str | None = None,
        queue: str | None = None,
        keep_effect_key: bool = False,
    ) -> list[Row]:
        """Make new jobs from old ones: ``id``, ``replay_of`` and whether it was ``created``, for each that was found.

        Args:
            job_ids: the old ones, live or ended.
            patch: a JSON object to merge over each payload.
            queue: another queue for the new ones.
            keep_effect_key: whether their effects count as those of the old ones.

        Raises:
            UnknownQueue: there is no such queue.
        """
        ids = list(job_ids)
        return self.ask("operate/replay", ids=ids, patch=patch, queue=queue, keep_effect_key=keep_effect_key)

    # The installation, queues, workers, failures

    def adopt(self, *, is_copy: bool = False) -> bool:
        """Make this database the installation's home, so that workers work here; False when it is already.

        Args:
            is_copy: the original lives on, so this one gets a name of its own and its effects other keys.
        """
        return bool(self.ask("operate/adopt", is_copy=is_copy)[0]["adopted"])

    def queues(self) -> list[Row]:
        """List the queues (``queue/list``); ``waiting`` stops counting at 10,001."""
        return self.ask("queue/list")

    def create_queue(self, name: str, *, retention: str | None = None, max_attempts: int | None = None) -> int:
        """Make a queue, or change what is given of one that is there (``queue/create``); returns its id."""
        row = self.ask("queue/create", name=name, retention=retention, max_attempts=max_attempts)[0]
        return int(row["create_queue"])

    def why_queue(self, name: str) -> list[Row]:
        """Return why nothing of a queue runs: state, code, sentence, until_at; at least one row."""
        return self.ask("operate/why_queue", queue=name)

    def pause(self, name: str, reason: str | None = None, *, until: Until | None = None) -> None:
        """Stop workers from claiming from a queue.

        Raises:
            UnknownQueue: there is no such queue.
        """
        self.ask("operate/pause", queue=name, reason=reason, **_end(until))

    def resume(self, name: str) -> None:
        """Let workers claim from a queue again.

        Raises:
            UnknownQueue: there is no such queue.
        """
        self.ask("operate/resume", queue=name)

    def workers(self) -> list[Row]:
        """List the workers that have not ended."""
        return self.ask("operate/workers")

    def failures(self, *, kind: str | None = None, limit: int = 50) -> list[Row]:
        """List what jobs failed of, most jobs first."""
        return self.ask("operate/failures", kind=kind, room=limit)


def _end(until: Until | None) -> Row:
    return {"until_at": until.at if until else None, "until_seconds": until.seconds if until else None}


def _page(job_id: int | None, moment: datetime | None) -> str | None:
    if job_id is None:
        return None
    return str(job_id) if moment is None else f"{moment.isoformat()}/{job_id}"


def _id_of(page: str | None) -> int:
    if page is None:
        return _HIGHEST_ID
    if not page.isdecimal():
        raise _no_page(page)
    return int(page)


def _moment_of(page: str | None) -> tuple[datetime, int]:
    if page is None:
        return _END_OF_TIME, _HIGHEST_ID
    moment, _, job_id = page.partition("/")
    try:
        return datetime.fromisoformat(moment), int(job_id)
    except ValueError:
        raise _no_page(page) from None


def _no_page(page: str) -> ConfigError:
    return ConfigError(f"page {page!r} is none that this list has given: start without one")
