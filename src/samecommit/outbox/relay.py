"""Carries events from the log to one destination, for one shard of its keys.

::

    take    the position, when its lease is free
    fill    a page of the log: what this destination wants; keys that are blocked wait (parked)
    send    a batch; each event's outcome decides
    move    the position, with what was put aside, every 500 events or 200 ms, fenced

An event is done when it is delivered or parked. The position stands before the first one that is not done; what was
delivered behind it is remembered, so a pause repeats nothing, and a crash repeats at most what was sent since the last move.

DestinationDown and Throttled stop the destination, with a growing pause and one event as a probe. After a doubt the sink's
declared idempotency decides what happens before anything is sent again (`_clarify`).
"""

from __future__ import annotations

from collections.abc import Sequence

from samecommit.clock import Monotonic, monotonic
from samecommit.event import StoredEvent
from samecommit.outbox.batch import next_batch, passes, through_first_failure
from samecommit.outbox.courier import Courier
from samecommit.outbox.destination import StreamDestination
from samecommit.outbox.doubts import Doubts
from samecommit.outbox.hold import Hold, PositionLost
from samecommit.outbox.log import Log, Page, Place, SharedLink, WindowGone, stored_event
from samecommit.outbox.outcomes import (
    Delivered,
    DestinationDown,
    Doubt,
    Duplicate,
    Found,
    NotFound,
    Outcome,
    Rejected,
    Retry,
    Throttled,
    Unsure,
)
from samecommit.outbox.parking import Due, Parking, backoff
from samecommit.outbox.replays import Replaying
from samecommit.outbox.sink import Target
from samecommit.outbox.told import (
    DestinationRecovered,
    DestinationStopped,
    EventParked,
    EventsDelivered,
    RelayStarted,
    RelayStopped,
)
from samecommit.signals import Signals

_MOVE_EVENTS, _MOVE_SECONDS, _PROGRESS_SECONDS = 500, 0.2, 2.0
_TAKE_SECONDS, _IDLE_SECONDS, _HALTED_SECONDS = 2.0, 2.0, 1.0
_LONGEST_STOP_SECONDS = 60.0
_PARKED_ROOM = 200
_UNMOVED_BATCHES = 5  # what is sent behind the first event that is not done: a wave looks four batches ahead


class Relay:
    """Works on one position; `run_once` is one turn.

    Args:
        destination: what is configured.
        shard: which part of its keys.
        log: where events come from.
        link: where the position is written.
        holder: this process, a random number.
        installation: part of the name under which sinks keep positions.
    """

    def __init__(
        self,
        destination: StreamDestination,
        shard: int,
        log: Log,
        link: SharedLink,
        signals: Signals,
        *,
        holder: int,
        installation: str,
        clock: Monotonic = monotonic,
    ) -> None:
        self._destination, self._shard, self._log, self._link = destination, shard, log, link
        self._signals, self._clock = signals, clock
        self._whose = {"destination": destination.name, "shards": destination.shards, "shard": shard}
        self._traits = destination.sink.traits
        target = Target(installation=installation, destination=destination.name, shard=shard)
        self._courier = Courier(destination.sink_of(shard), target, destination.send_seconds)
        self._hold = Hold(link, destination.name, shard, holder, destination.lease_seconds, clock)
        self._doubts = Doubts(self._courier, self._traits, destination, signals, clock)
        self._parking = Parking(destination)
        self._replaying = Replaying(
            destination, shard, self._hold, self._courier, link, signals, clock, renew=self._renew_to_send
        )
        self._reset()

    def __repr__(self) -> str:
        return f"<Relay {self._destination.name}/{self._shard} {self._hold} {len(self._pending)} pending>"

    def _reset(self) -> None:
        self._page: Page | None = None
        self._pending: Sequence[StoredEvent] = ()
        self._delivered = self._repeated = 0
        self._is_ragged = False
        self._ref: str | None = None
        self._trouble: str | None = None
        self._state = "running"
        self._stops, self._resume = 0, 0.0
        self._moved = self._clock()
        self._parked_due: float | None = None
        self._parking.forget()
        self._doubts.forget()
        self._replaying.forget()

    @property
    def name(self) -> str:
        """Whose relay this is."""
        return self._destination.name

    async def run_once(self) -> float:
        """Take the position, or carry on with it; the delay until the next turn."""
        try:
            if not self._hold.is_held:
                return await self._take()
            if not self._hold.lasts(0.0) or self._hold.is_old:
                await self._move()
            if self._hold.is_paused:
                await self._move()
                return await self._let_go("its destination is paused")
            if (rest := self._resume - self._clock()) > 0:
                return min(rest, self._destination.lease_seconds / 3)
            delay = await self._turn()
            if self._replaying.is_busy and self._may_replay:
                delay = min(delay, await self._replaying.run_once())
        except PositionLost:
            return await self._lost("another relay holds the position")
        except WindowGone as gone:
            self._hold.lose(gone)
            return await self._lost("the database was set back")
        return 0.0 if self._hold.is_paused else delay

    async def _lost(self, reason: str) -> float:
        await self._courier.close()
        self._log.forget()
        self._reset()
        self._tell_stop(reason)
        return _TAKE_SECONDS

    def look_again(self) -> None:
        """Read parked events and the pause at the next turn: somebody has changed them."""
        self._parked_due = self._clock()
        self._moved = float("-inf")

    async def stop(self) -> None:
        """Write what was delivered and let go of the position."""
        if self._hold.is_held:
            try:
                await self._move()
                await self._let_go("asked to stop")
            except PositionLost:
                self._tell_stop("another relay holds the position")
        await self._courier.close()

    async def _take(self) -> float:
        taken = await self._hold.take()
        if taken is None:
            return min(_TAKE_SECONDS, self._destination.lease_seconds / 3)
        self._reset()
        await self._load_parked()
        if not taken.is_clean:
            self._doubts.suspect(_MOVE_EVENTS + _UNMOVED_BATCHES * self._traits.batch, taken)
        self._signals.emit(RelayStarted(destination=self._destination.name, shard=self._shard, is_clean=taken.is_clean))
        return 0.0

    async def _let_go(self, reason: str) -> float:
        is_sure = not (self._doubts.numbers or self._doubts.suspects or self._is_ragged or self._courier.is_cut_off)
        await self._hold.give_up(is_clean=is_sure)
        await self._courier.close()
        self._reset()
        self._tell_stop(reason)
        return _TAKE_SECONDS

    def _tell_stop(self, reason: str) -> None:
        self._signals.emit(RelayStopped(destination=self._destination.name, shard=self._shard, reason=reason))

    async def _turn(self) -> float:
        if self._parked_due is not None and self._parked_due <= self._clock():
            await self._send_parked()
        if self._resume > self._clock():
            return 0.0
        if self._parking.is_halted:
            await self._move_if_due()
            self._parked_due = self._clock() + _HALTED_SECONDS
            return _HALTED_SECONDS
        if not self._pending and not await self._fill():
            return min(await self._move_if_due(), self._idle_seconds())
        if self._doubts.numbers and (delay := await self._clarify()) > 0:
            return min(delay, self._destination.lease_seconds / 3)  # the lease is renewed in the meantime
        await self._send()
        await self._move_if_due()
        return 0.0

    @property
    def _may_replay(self) -> bool:
        return not (self._hold.is_paused or self._parking.is_halted or self._stops or self._doubts.numbers)

    def _idle_seconds(self) -> float:
        if self._parked_due is None:
            return _IDLE_SECONDS
        return min(max(self._parked_due - self._clock(), 0.001), _IDLE_SECONDS)

    async def _fill(self) -> bool:
        """Read the next page and keep what this destination wants; False at the end of the log."""
        page = await self._log.page(self._place())
        if not page.windows:
            self._doubts.suspects = 0
            return False
        wants, shards, shard = self._destination.matches, self._destination.shards, self._shard
        mine = [e for e in page.events if wants(e.type) and (shards == 1 or e.lane % shards == shard)]
        pending = await self._doubts.page_came(mine)
        self._page, self._pending = page, pending  # both at once: a page whose events are unknown would count as done
        self._step_aside()
        self._log.expect(page.end)
        return True

    def _step_aside(self) -> None:
        """Park the events of blocked keys: they wait behind the one that blocks."""
        if self._parking.blocked_keys and self._pending:
            going: list[StoredEvent] = []
            for event in self._pending:
                if self._parking.holds_up(event):
                    self._parking.wait(event, is_doubtful=event.number in self._doubts.numbers)
                else:
                    going.append(event)
            self._pending = going

    def _place(self) -> Place:
        if self._page is None:
            return self._hold.place
        return self._page.place_before(self._pending[0]) if self._pending else self._page.end

    async def _clarify(self) -> float:
        """Find out about doubtful events; the delay until one may know, or 0 when the rest can be sent."""
        delay, arrived = await self._doubts.clarify(self._pending)
        if arrived:
            self._repeated += len(arrived)
            self._delivered += len(arrived)
            self._pending = [event for event in self._pending if event.number not in arrived]
            if not self._pending:
                self._after([Duplicate()])  # nothing is left to probe it with
        if worn_out := self._doubts.worn_out(self._pending):
            await self._put_aside(worn_out)
        return delay

    async def _put_aside(self, worn_out: Sequence[StoredEvent]) -> None:
        """Park events that came back in doubt again and again, and are not there."""
        reason = self._trouble or "its answer was lost each time"
        for event in worn_out:
            self._tell_parked(event, self._parking.put_aside(event, reason, after=None), reason)
        gone = {event.number for event in worn_out}
        self._pending = [event for event in self._pending if event.number not in gone]
        self._step_aside()
        await self._move()

    async def _send(self) -> None:
        if not self._pending:
            return
        if self._courier.has_position and self._parking.is_dirty:
            await self._move()  # what is parked must be written before the sink's position passes it
        most = 1 if self._stops or self._doubts.isolates(self._pending[0]) else self._traits.batch
        batch = next_batch(self._pending, self._destination, self._traits, most)
        batch = [self._doubts.with_attempt(event) for event in batch] if self._doubts.tries else batch
        outcomes = await self._courier.send(batch, self._renew_to_send)
        if self._courier.has_position:
            outcomes = through_first_failure(outcomes)
        done = {event.number for event, outcome in zip(batch, outcomes, strict=False) if self._settle(event, outcome)}
        self._pending = [event for event in self._pending if event.number not in done] if done else self._pending
        self._is_ragged = bool(self._pending) and (self._is_ragged or passes(batch, done, self._pending[0]))
        self._step_aside()
        self._after(outcomes)

    def _settle(self, event: StoredEvent, outcome: Outcome) -> bool:
        """Act on one outcome; True when the stream is done with the event."""
        match outcome:
            case Delivered() | Duplicate():
                self._delivered += 1
                self._repeated += isinstance(outcome, Duplicate)
                self._ref = outcome.ref or self._ref
            case Rejected():
                self._tell_parked(event, self._parking.bury(event, outcome.reason), outcome.reason)
            case Retry():
                state = self._parking.put_aside(event, outcome.reason, after=outcome.after)
                self._tell_parked(event, state, outcome.reason)
            case Doubt():
                self._doubts.add(event)
                return False
            case Throttled() | DestinationDown():
                return False
        return True

    def _tell_parked(self, event: StoredEvent, state: str, reason: str) -> None:
        self._signals.emit(
            EventParked(
                destination=self._destination.name, number=event.number, key=event.key, state=state, reason=reason
            )
        )
        if state == "due":
            self._parked_due = min(self._parked_due or float("inf"), self._clock() + 1.0)

    def _after(self, outcomes: Sequence[Outcome]) -> None:
        """Stop the destination, or let it go on, by what a batch has shown of it."""
        bad = next((o for o in outcomes if isinstance(o, Throttled | DestinationDown)), None)
        doubt = next((o for o in outcomes if isinstance(o, Doubt)), None)
        if bad is not None:
            self._stop_sending("throttled" if isinstance(bad, Throttled) else "down", bad.reason, bad.after)
        elif doubt is not None:
            self._stop_sending("down", doubt.reason, 0.0 if not self._stops else None)
        elif self._stops and outcomes:
            self._stops, self._state, self._trouble = 0, "running", None
            self._moved = float("-inf")
            self._signals.emit(DestinationRecovered(destination=self._destination.name, shard=self._shard))

    def _stop_sending(self, state: str, reason: str, after: float | None) -> None:
        self._stops += 1
        pause = backoff(self._stops, 0.25, _LONGEST_STOP_SECONDS) if after is None else after
        self._resume = self._clock() + pause
        self._state, self._trouble = state, reason
        self._moved = float("-inf")
        self._signals.emit(
            DestinationStopped(
                destination=self._destination.name, shard=self._shard, state=state, reason=reason, retry_seconds=pause
            )
        )

    def _seconds_to_move(self) -> float:
        """How long the position may stand where it is written: deliveries are written soon, mere progress seldom."""
        if self._moved == float("-inf") or self._delivered >= _MOVE_EVENTS:
            return 0.0
        if self._delivered or self._parking.is_dirty:
            return max(_MOVE_SECONDS - (self._clock() - self._moved), 0.0)
        if self._place() != self._hold.place:
            return max(_PROGRESS_SECONDS - (self._clock() - self._moved), 0.0)
        return _IDLE_SECONDS

    async def _move_if_due(self) -> float:
        if (seconds := self._seconds_to_move()) > 0:
            return seconds
        await self._move()
        return _IDLE_SECONDS

    async def _move(self) -> None:
        delivered, repeated, has_parked = self._delivered, self._repeated, self._parking.is_dirty
        await self._hold.move(
            self._place(),
            self._page.windows[-1] if self._page else self._hold.place.window_n,
            delivered=delivered,
            repeated=repeated,
            state="halted" if self._parking.is_halted else self._state,
            trouble=self._trouble,
            stopped_seconds=self._resume - self._clock() if self._state != "running" else None,
            ref=self._ref,
            **self._parking.columns(),
        )
        self._delivered = self._repeated = 0
        self._moved = self._clock()
        self._parking.forget()
        if has_parked:
            await self._load_parked()
        if delivered:
            self._signals.emit(
                EventsDelivered(
                    destination=self._destination.name, shard=self._shard, count=delivered, repeated=repeated
                )
            )

    async def _renew_to_send(self) -> None:
        """Renew the lease where it might end before one more call of the sink does: another relay would send the same."""
        if not self._hold.lasts(self._destination.send_seconds):
            await self._move()

    async def _load_parked(self) -> None:
        seconds = self._parking.load(await self._link.fetch("event/parked", **self._whose))
        self._parked_due = None if seconds is None else self._clock() + seconds

    async def _send_parked(self) -> None:
        """Send parked events whose turn it is, outside the order of the stream."""
        await self._move()
        room = min(_PARKED_ROOM, self._traits.batch)
        rows = await self._link.fetch("event/parked_due", **self._whose, room=room, sent_until=self._doubts.sent_until)
        due = [Due(stored_event(row, None, row[13] + 1), row[12], row[14], row[16]) for row in rows]
        ages = {one.event.number: one.age_seconds for one in due}
        if doubtful := [one.event for one in due if one.is_doubtful]:
            await self._renew_to_send()
        found = await self._doubts.look_at(doubtful, ages)
        batch: list[StoredEvent] = []
        for event, state, _, age in due:
            match found.get(event.number):
                case Found():
                    self._delivered, self._repeated = self._delivered + 1, self._repeated + 1
                    self._parking.done(event)
                case Unsure(reason=reason):
                    self._put_back(event, reason, age, is_doubtful=True)
                case NotFound() | None:
                    self._parking.done(event) if state == "settled" else batch.append(event)
        if batch:
            await self._resend(batch, ages)
        if self._parking.is_dirty:
            await self._move()
        else:
            await self._load_parked()

    def _put_back(
        self,
        event: StoredEvent,
        reason: str,
        age_seconds: float,
        *,
        after: float | None = None,
        is_doubtful: bool = False,
    ) -> None:
        if is_doubtful:
            after = max(self._doubts.settle_seconds, backoff(event.attempt))
            if age_seconds > self._destination.retry_for_seconds:
                self._tell_parked(event, self._parking.bury(event, reason, "decision"), reason)
                return
        state = self._parking.put_aside(event, reason, after=after, is_doubtful=is_doubtful, age_seconds=age_seconds)
        if state != "due":
            self._tell_parked(event, state, self._parking.changes[-1].error or reason)

    async def _resend(self, batch: list[StoredEvent], ages: dict[int, float]) -> None:
        outcomes = await self._courier.send(batch, self._renew_to_send)
        for event, outcome in zip(batch, outcomes, strict=True):
            match outcome:
                case Delivered() | Duplicate():
                    self._delivered += 1
                    self._repeated += isinstance(outcome, Duplicate)
                    self._parking.done(event)
                case Retry():
                    self._put_back(event, outcome.reason, ages[event.number], after=outcome.after)
                case Doubt():
                    self._put_back(event, outcome.reason, ages[event.number], is_doubtful=True)
                case Rejected():
                    self._tell_parked(event, self._parking.bury(event, outcome.reason), outcome.reason)
                case Throttled() | DestinationDown():
                    pass
        self._after([o for o in outcomes if not isinstance(o, Doubt)])
