"""What a job is to its handler and to its caller."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

import msgspec

R = TypeVar("R")


class Job(msgspec.Struct, frozen=True, array_like=True):
    """A claimed job, in the column order of ``claim/claim.sql``. Times are the database's, in UTC."""

    id: int
    pos: int | None
    queue_id: int
    priority: int
    kind: str
    claims: int
    attempts: int
    max_attempts: int
    claimed_at: datetime
    created_at: datetime
    run_at: datetime
    crashes: int
    payload_version: int
    parent_id: int | None
    replay_of: int | None
    effect_key: str | None
    expires_at: datetime | None
    tags: list[str] | None
    decision_json: str | None
    meta_json: str | None
    payload_json: str | None

    @property
    def decision(self) -> Any:
        """What the person who released the job decided, None when nobody did."""
        return None if self.decision_json is None else msgspec.json.decode(self.decision_json)

    @property
    def meta(self) -> Any:
        """What travels beside the payload: trace context, actor."""
        return None if self.meta_json is None else msgspec.json.decode(self.meta_json)

    @property
    def is_last_attempt(self) -> bool:
        """Whether an error now would fail the job."""
        return self.attempts + 1 >= self.max_attempts


@dataclass(frozen=True, slots=True)
class Enqueued(Generic[R]):
    """What an enqueue returns.

    Args:
        id: the job's.
        created: whether it is new; False means that this job was there and holds the unique key.
        replaced: whether that job has taken the new arguments and time (``on_conflict="replace"`` found it waiting).
    """

    id: int
    created: bool = True
    replaced: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class JobOptions:
    """What all jobs of one ``task.using(...)`` share, made once.

    Args:
        values: the parameters of ``job/enqueue`` that are not as the contract has them by default, without the payload:
            texts, numbers and lists of texts, which every driver sends alike.
        own_transaction: a connection that commits by itself will do.
        rejects_duplicate: a job that is there already is an error.
    """

    values: dict[str, Any]
    own_transaction: bool = False
    rejects_duplicate: bool = False

    @property
    def kind(self) -> str:
        """The task's name."""
        return str(self.values["kind"])

    @property
    def queue(self) -> str:
        """Where the jobs wait."""
        return str(self.values.get("queue", "default"))


class NewJob(Generic[R]):
    """A job to be: its arguments checked and encoded. Made by ``task.job(...)``, stored by ``app.enqueue_many(...)``."""

    __slots__ = ("options", "payload")

    def __init__(self, options: JobOptions, payload: str) -> None:
        self.options, self.payload = options, payload

    def __repr__(self) -> str:
        return f"<NewJob {self.options.kind} {self.payload}>"


class EnqueuedMany(Sequence[Enqueued[R]]):
    """What `enqueue_many` returns: what became of each job, in the order given. It takes 8 bytes for a job."""

    __slots__ = ("_ids", "_replaced")

    def __init__(self) -> None:
        self._ids = array("q")  # of a job that was there before: negative
        self._replaced: set[int] = set()

    def __repr__(self) -> str:
        return f"<EnqueuedMany {len(self):,} jobs, {self.created:,} of them new>"

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> Enqueued[R]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Enqueued[R]]: ...
    def __getitem__(self, index: int | slice) -> Enqueued[R] | list[Enqueued[R]]:
        places = range(len(self._ids))[index]
        return self._at(places) if isinstance(places, int) else [self._at(place) for place in places]

    def __iter__(self) -> Iterator[Enqueued[R]]:
        return map(self._at, range(len(self._ids)))

    def _at(self, place: int) -> Enqueued[R]:
        job_id = self._ids[place]
        return Enqueued(abs(job_id), job_id > 0, place in self._replaced)

    @property
    def ids(self) -> list[int]:
        """The jobs' ids, in the order given."""
        return [abs(job_id) for job_id in self._ids]

    @property
    def created(self) -> int:
        """How many are new; the others were there and hold their unique key."""
        return sum(job_id > 0 for job_id in self._ids)

    def add_new(self, ids: Sequence[int]) -> None:
        """Take the next jobs, all new."""
        self._ids.extend(ids)

    def add(self, job_id: int, created: bool, replaced: bool) -> None:
        """Take the next job, in the columns of the contract's ``enqueue``."""
        if replaced:
            self._replaced.add(len(self._ids))
        self._ids.append(job_id if created else -job_id)
