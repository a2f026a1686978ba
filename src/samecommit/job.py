"""What a job is to its handler and to its caller."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

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
