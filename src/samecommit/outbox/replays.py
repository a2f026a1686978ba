"""Sends again what a person asked for: a walk of the log by number, beside the position and by whoever holds it.

::

    due     the oldest open replay of the position
    read    a stretch of the log: what was asked for, the position has behind it and is not put aside
    send    a batch, outside of the stream's order; the order of keys is kept as in the stream
    move    how far the walk is, fenced by the position

Events keep their ids and say which replay they belong to, so that a receiver with an inbox drops them as repeats, and a
destination that drops repeats by itself does not. Progress is written after each batch, so a crash repeats one batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from samecommit.clock import Monotonic
from samecommit.event import StoredEvent
from samecommit.outbox.batch import next_batch, through_first_failure
from samecommit.outbox.courier import Courier
from samecommit.outbox.destination import StreamDestination
from samecommit.outbox.hold import Hold
from samecommit.outbox.log import SharedLink, stored_event
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Duplicate, Outcome, Rejected, Retry, Throttled
from samecommit.outbox.parking import backoff
from samecommit.outbox.told import RepeatPossible, ReplayEnded
from samecommit.signals import Signals

_WALK, _ROOM, _MAX_BYTES = 20_000, 500, 4_194_304
_LONGEST_PAUSE_SECONDS, _MOST_TRIES = 60.0, 8


class Replay(NamedTuple):
    """An open replay: its id, the number up to which it is done, the last one, and how fast it may go."""

    id: int
    after: int
    to_number: int
    per_second: float | None


class Walk:
    """Reads the replays of one position.

    Args:
        link: where to read.
        destination: its name.
        shard: which part of its keys.
    """

    def __init__(self, link: SharedLink, destination: str, shard: int) -> None:
        self._link, self._destination, self._shard = link, destination, shard

    async def due(self) -> Replay | None:
        """Return the oldest open replay."""
        rows = await self._link.fetch("replay/due", destination=self._destination, shard=self._shard)
        return Replay(*rows[0]) if rows else None

    async def read(self, asked: Replay, after: int, room: int = _ROOM) -> tuple[list[StoredEvent], int]:
        """Return the events of the next stretch behind a number, and the number up to which that is all."""
        upto = min(after + _WALK, asked.to_number)
        rows = await self._link.fetch(
            "replay/read", replay=asked.id, shard=self._shard, after=after, upto=upto, room=room, max_bytes=_MAX_BYTES
        )
        events = [replace(stored_event(row, None), replay=asked.id) for row in rows]
        is_cut = len(events) >= room or sum(len(event.data) for event in events) >= _MAX_BYTES
        return events, events[-1].number if is_cut else upto


class Replaying:
    """Carries out the replays of one position of a stream.

    Args:
        destination: what is configured.
        shard: which part of its keys.
        hold: the position.
        courier: how to send.
        link: where to read.
        signals: where it tells what happens.
        renew: makes the lease last for one more call of the sink.
    """

    def __init__(
        self,
        destination: StreamDestination,
        shard: int,
        hold: Hold,
        courier: Courier,
        link: SharedLink,
        signals: Signals,
        clock: Monotonic,
        *,
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        self._destination, self._shard, self._hold, self._courier = destination, shard, hold, courier
        self._walk, self._signals, self._clock = Walk(link, destination.name, shard), signals, clock
        self._renew = renew
        self.forget()

    def __repr__(self) -> str:
        return f"<Replaying {self._destination.name}/{self._shard} {self._asked}>"

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do, or to find out that it is cancelled."""
        return self._hold.has_replay or self._asked is not None

    def forget(self) -> None:
        """Drop what was read: the position is lost, or the replay has ended."""
        self._asked: Replay | None = None
        self._pending: Sequence[StoredEvent] = ()
        self._end = self._tries = self._sent = self._refused = 0
        self._trouble: str | None = None
        self._refusal: str | None = None
        self._due = 0.0

    async def run_once(self) -> float:
        """Send the next batch of the oldest open replay; seconds until the next turn.

        Raises:
            PositionLost: the fence is not ours any more; nothing was written.
        """
        if (rest := self._due - self._clock()) > 0 and self._hold.has_replay:
            return rest
        asked = await self._walk.due()
        if self._asked is not None and (asked is None or asked.id != self._asked.id):
            self._ended(self._asked, is_open=False)
        if asked is None:
            self._hold.has_replay = False
            return float("inf")
        if self._asked is None:
            self._asked, self._end = asked, asked.after
        if not self._pending:
            self._pending, self._end = await self._walk.read(asked, self._end)
        if self._pending:
            await self._send(asked)
        await self._move(asked)
        return max(self._due - self._clock(), 0.0)

    def _ended(self, asked: Replay, *, is_open: bool) -> None:
        tell_ended(self._signals, self._destination.name, self._shard, asked, is_open=is_open)
        self.forget()

    async def _send(self, asked: Replay) -> None:
        rate = None if asked.per_second is None else asked.per_second / self._destination.shards
        most = len(self._pending) if rate is None else max(int(rate), 1)
        traits = self._destination.sink.traits
        batch = next_batch(self._pending, self._destination, traits, 1 if self._tries else most)
        outcomes = await self._courier.send([replace(event, attempt=self._tries + 1) for event in batch], self._renew)
        if self._courier.has_position:
            outcomes = through_first_failure(outcomes)
        done = {event.number for event, it in zip(batch, outcomes, strict=False) if self._is_done(event, it)}
        self._pending = [event for event in self._pending if event.number not in done]
        pause = self._stop(outcomes)
        self._due = self._clock() + max(pause, len(done) / rate if rate else 0.0)

    def _is_done(self, event: StoredEvent, outcome: Outcome) -> bool:
        match outcome:
            case Delivered() | Duplicate():
                self._sent += 1
            case Rejected(reason=reason):
                self._refuse(event, reason)
            case Retry(reason=reason) | Doubt(reason=reason) if self._tries >= _MOST_TRIES:
                self._refuse(event, reason)
            case Retry() | Doubt() | Throttled() | DestinationDown():
                return False
        return True

    def _refuse(self, event: StoredEvent, reason: str) -> None:
        self._refused += 1
        self._refusal = f"event {event.number}: {reason}"

    def _stop(self, outcomes: Sequence[Outcome]) -> float:
        """Return the pause after a batch, by its first event that was not taken; 0 without one."""
        stopping = (it for it in outcomes if isinstance(it, Retry | Doubt | Throttled | DestinationDown))
        first = next(stopping, None)
        if first is None or (self._tries >= _MOST_TRIES and isinstance(first, Retry | Doubt)):
            self._tries, self._trouble = 0, None
            return 0.0
        self._tries, self._trouble = self._tries + 1, first.reason
        if isinstance(first, Doubt):
            reason = f"a replay does not know whether they arrived: {first.reason}"
            self._signals.emit(RepeatPossible(destination=self._destination.name, count=1, reason=reason))
            return backoff(self._tries, 0.25, _LONGEST_PAUSE_SECONDS)
        return backoff(self._tries, 0.25, _LONGEST_PAUSE_SECONDS) if first.after is None else first.after

    async def _move(self, asked: Replay) -> None:
        after = self._pending[0].number - 1 if self._pending else self._end
        is_done = not self._pending and after >= asked.to_number
        (is_open,) = await self._hold.write(
            "replay/move",
            replay=asked.id,
            after=after,
            sent=self._sent,
            refused=self._refused,
            trouble=self._trouble,
            refusal=self._refusal,
            is_done=is_done,
        )
        self._sent = self._refused = 0
        self._refusal = None
        if is_done or not is_open:
            self._ended(asked, is_open=is_open)


def tell_ended(signals: Signals, destination: str, shard: int, asked: Replay, *, is_open: bool) -> None:
    """Tell that a replay is over: through, or no longer open because somebody cancelled it."""
    signals.emit(ReplayEnded(destination=destination, shard=shard, replay=asked.id, is_cancelled=not is_open))
