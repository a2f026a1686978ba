"""Runs one delivery of a job destination: never sends again what may have arrived, without looking first.

::

    nothing known ──────────────> intend ─> send ─> delivered            done
                                                    rejected             failed
    last send certainly not taken ─┘                retry, down          later, the intent marked as not taken
                                                    doubt, or cut off    the intent stays: in doubt
    in doubt ─> look, once settled ─> found                              done
                                      not found ─> intend, send
                                      unsure                             look again; after a while a person decides

The intent is committed before the call, so a worker that dies in it leaves a doubt and not a repeat. A person's decision
comes with the release of the held job: ``{"verdict": "resend" | "delivered" | "dropped"}``.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, NamedTuple

from samecommit import outcome as job
from samecommit.context import AsyncContext
from samecommit.definition import TaskDefinition
from samecommit.errors import LeaseLost
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import Delivery, FindsExisting
from samecommit.outbox.carried import carried, marker
from samecommit.outbox.courier import describe
from samecommit.outbox.destination import JobDestination
from samecommit.outbox.log import SharedLink
from samecommit.outbox.outcomes import (
    Delivered,
    DestinationDown,
    Doubt,
    Duplicate,
    Found,
    Lookup,
    NotFound,
    Outcome,
    Rejected,
    Retry,
    Throttled,
    Unsure,
)
from samecommit.outbox.told import RepeatPossible
from samecommit.payload import PayloadCodec
from samecommit.signals import Signals

_COOL_SECONDS = 15.0
_TURN_SECONDS, _LONGEST_TURN_SECONDS, _NEXT_SECONDS = 1.0, 60.0, 0.05
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 1.0, 60.0


class Known(NamedTuple):
    """What earlier attempts have left."""

    attempts: int
    first_at: datetime
    last_at: datetime
    since_last: float
    since_first: float
    is_doubtful: bool
    is_decided: bool


class Deliverer:
    """The handler of one job destination.

    Args:
        destination: what is configured.
        link: where intents are written.
        signals: where it tells what happens.
    """

    def __init__(self, destination: JobDestination, link: SharedLink, signals: Signals) -> None:
        self._destination, self._link, self._signals = destination, link, signals

    def __repr__(self) -> str:
        return f"<Deliverer {self._destination.name}>"

    @property
    def task(self) -> TaskDefinition:
        """The task that runs this destination's jobs."""
        it = self._destination
        return TaskDefinition(
            name=it.kind,
            fn=self.deliver,
            is_async=True,
            context="async",
            codec=PayloadCodec.for_function(_signature, skip_first=True, name=it.kind),
            result_codec=None,
            queue=it.queue,
            priority=0,
            max_attempts=it.max_attempts,
            timeout_seconds=it.timeout_seconds,
            backoff=None,
            permanent=(),
            aliases=(),
            version=1,
        )

    async def deliver(self, ctx: AsyncContext, event: dict[str, Any], target: str) -> Any:
        """Deliver the event of one job, or find out whether that has been done; when its key is kept in order, in its turn."""
        stored = carried(event)
        if self._destination.order == "none" or stored.key is None:
            return await self._deliver(ctx, stored, target)
        turn = {"destination": self._destination.name, "target": target, "key": stored.key, "job_id": ctx.job.id}
        count, first = (await self._link.fetch("event/ahead", **turn))[0]
        if count:
            return job.Snooze(
                min(count * _TURN_SECONDS, _LONGEST_TURN_SECONDS), f"waits for job {first}, earlier of its key"
            )
        ending = await self._deliver(ctx, stored, target)
        if isinstance(ending, job.Done | job.Fail | job.Hold | job.Cancel):
            await self._link.fetch("event/wake_next", **turn, after_seconds=_NEXT_SECONDS)
        return ending

    async def _deliver(self, ctx: AsyncContext, stored: StoredEvent, target: str) -> Any:
        verdict = verdict_of(ctx.job.decision)
        if verdict == "delivered":
            return job.Done({"ref": _reference_of(ctx.job.decision), "decided": True})
        if verdict == "dropped":
            return job.Cancel("a person decided to drop it")
        rows = await self._link.fetch("event/delivery", job_id=ctx.job.id)
        known = Known(*rows[0]) if rows else None
        if known is not None and known.is_doubtful:
            is_asked_for = verdict == "resend" and not known.is_decided  # each decision counts for one send
            ending = None if is_asked_for else await self._looked_up(ctx, stored, target, known)
            if ending is not None:
                return ending
        return await self._send(ctx, stored, target, known)

    async def _send(self, ctx: AsyncContext, event: StoredEvent, target: str, known: Known | None) -> Any:
        begun = await self._link.fetch(
            "event/begin_delivery",
            job_id=ctx.job.id,
            claims=ctx.job.claims,
            destination=self._destination.name,
            target=target,
            is_decided=ctx.job.decision is not None,
        )
        if not begun:
            raise LeaseLost(f"job {ctx.job.id} belongs to another run now; nothing was sent")
        delivery = self._delivery(ctx, target, known, attempts=begun[0][0])
        try:
            outcome = await self._destination.adapter.send(event, delivery)
        except asyncio.CancelledError:
            raise  # whether it arrived is unknown; the intent stays
        except Exception as error:  # noqa: BLE001 - an adapter may raise anything
            outcome = Doubt(describe(error))
        return await self._ended(ctx, outcome)

    def _delivery(self, ctx: AsyncContext, target: str, known: Known | None, attempts: int) -> Delivery:
        return Delivery(
            destination=self._destination.name,
            target=target,
            marker=marker(ctx.effect_key),
            attempt=attempts,
            first_at=known.first_at if known else datetime.now(UTC),
            last_at=known.last_at if known else None,
        )

    async def _ended(self, ctx: AsyncContext, outcome: Outcome) -> Any:
        if outcome.detail:
            ctx.record(**outcome.detail)
        match outcome:
            case Delivered(ref=ref) | Duplicate(ref=ref):
                return job.Done({"ref": ref})
            case Rejected(reason=reason):
                await self._settle(ctx, reason)
                return job.Fail(reason)
            case Retry(reason=reason, after=after):
                await self._settle(ctx, reason)
                return job.Retry(after, reason)
            case Throttled(reason=reason, after=after) | DestinationDown(reason=reason, after=after):
                await self._settle(ctx, reason)
                return job.RateLimited(_COOL_SECONDS if after is None else after, reason)
            case Doubt(reason=reason):
                return await self._doubted(ctx, reason)

    async def _settle(
        self, ctx: AsyncContext, reason: str, *, is_doubtful: bool = False, is_decided: bool | None = None
    ) -> None:
        await self._link.fetch(
            "event/settle_delivery",
            job_id=ctx.job.id,
            claims=ctx.job.claims,
            is_doubtful=is_doubtful,
            is_decided=is_decided,
            error=reason,
        )

    async def _doubted(self, ctx: AsyncContext, reason: str) -> Any:
        can_look = isinstance(self._destination.adapter, FindsExisting)
        if ctx.job.is_last_attempt or not (can_look or self._destination.on_doubt == "resend"):
            return await self._for_a_person(ctx, reason)
        await self._settle(ctx, reason, is_doubtful=True)
        return job.Retry(self._destination.settle_seconds if can_look else None, reason)

    async def _for_a_person(self, ctx: AsyncContext, reason: str) -> job.Hold:
        await self._settle(ctx, reason, is_doubtful=True, is_decided=False)
        return job.Hold(
            "sent, and nobody knows whether it arrived: look into the destination, then decide by "
            f"samecommit outbox resolve {self._destination.name} {ctx.job.id}",
            {"last_error": reason, "verdicts": ["resend", "delivered", "dropped"]},
        )

    async def _looked_up(self, ctx: AsyncContext, event: StoredEvent, target: str, known: Known) -> Any:
        """Return how a run in doubt ends, or None when the event may be sent."""
        adapter = self._destination.adapter
        if not isinstance(adapter, FindsExisting):
            if self._destination.on_doubt == "hold":
                has_word = ctx.job.decision is not None and not known.is_decided
                cut_off = "the run that sent it was cut off, or it was released without a verdict"
                reason = "released without one of the verdicts" if has_word else cut_off
                return await self._for_a_person(ctx, reason)
            self._signals.emit(
                RepeatPossible(destination=self._destination.name, count=1, reason="sent again in doubt")
            )
            return None
        if (rest := self._destination.settle_seconds - known.since_last) > 0:
            return job.Snooze(rest, "waits until the destination would show it")
        found = await self._look(adapter, event, self._delivery(ctx, target, known, known.attempts))
        match found:
            case Found(ref=ref):
                return job.Done({"ref": ref, "found": True})
            case NotFound():
                return None
            case Unsure(reason=reason) if known.since_first > self._destination.doubt_for_seconds:
                return await self._for_a_person(ctx, reason)
            case Unsure(reason=reason):
                pause = min(max(known.since_last / 2, _FIRST_LOOK_SECONDS), _LONGEST_LOOK_SECONDS)
                return job.Snooze(pause, reason)  # the longer it has been unsure, the more seldom

    async def _look(self, adapter: FindsExisting, event: StoredEvent, delivery: Delivery) -> Lookup:
        try:
            return await adapter.find_existing(event, delivery)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - an adapter may raise anything
            return Unsure(describe(error))


def verdict_of(decision: Any) -> str | None:
    """Return what a person decided about a doubtful delivery, None when that says nothing of it."""
    match decision:
        case {"verdict": str(verdict)}:
            return verdict
        case _:
            return None


def _reference_of(decision: Any) -> str | None:
    match decision:
        case {"ref": str(reference)}:
            return reference
        case _:
            return None


async def _signature(ctx: AsyncContext, event: dict[str, Any], target: str) -> Any:
    """Give the payload of every delivery job."""
