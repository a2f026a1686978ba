"""Claims jobs for as long as there is room: one turn is one look at the line.

A turn: refresh what is known of the world when it is old (queues open, kinds that cool down, suspects), ask the executor
for room, claim, move the marks, hand over, and sample the horizon for the next look back. `pace` says how long to sleep then; a
bell, a new lane or a freed slot ends that.
"""

from __future__ import annotations

import json
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from operator import itemgetter

from samecommit.clock import Monotonic, monotonic
from samecommit.config import WorkerConfig
from samecommit.runtime.doorbell import Doorbell
from samecommit.signals import JobsClaimed, Signals
from samecommit.storage.link import AsyncLink, Row, bigints
from samecommit.worker.bookmark import Bookmarks, Lane, Mode
from samecommit.worker.executor import Executor
from samecommit.worker.pace import Pace

_VIEW_SECONDS = 1.0
_LOOK_BACK_SECONDS = 0.025
_SAMPLE_SECONDS = 0.01
_DEAR_SECONDS = 0.003
_FORWARD_CLAIMS = 8  # of so many the quickest says what any claim takes: one alone may have met a stall
_PRECISE_SECONDS = 0.05
_OLD_SECONDS = 0.5  # a transaction that was there before the last two such times has been open for long
_FULL_LOOK_SECONDS = 45.0
_QUICK_FULL_LOOK_SECONDS = 2.0
_DOUBT_SECONDS = 60.0  # by then the server has noticed that the connection is gone (`session.ALIVE_SETTINGS`)
_SUSPECT_PATIENCE_SECONDS = 30.0
_SUSPECT_PAUSE = 3.0  # times what a turn with suspects took: they get a quarter of the time beside other work
_PLACE = itemgetter(2, 3, 1)  # queue_id, priority, pos
_CREATED_AT, _PAYLOAD = 9, 20  # columns of claim/claim.sql


class Claimer:
    """Fills the executor.

    Args:
        link: a connection of its own, whose commits may be asynchronous.
        lease: gives the current lease, None while there is none.
        claimed: told (claim id, number of jobs) of every claim.
        known: gives the ids of the claims with jobs that have not ended.
    """

    def __init__(
        self,
        config: WorkerConfig,
        link: AsyncLink,
        bell: Doorbell,
        executor: Executor,
        signals: Signals,
        *,
        kinds: tuple[str, ...],
        lease: Callable[[], int | None],
        claimed: Callable[[int, int], None],
        known: Callable[[], list[int]],
        sleep: Callable[[float], Awaitable[None]],
        clock: Monotonic = monotonic,
    ) -> None:
        self._config, self._link, self._bell = config, link, bell
        self._executor, self._signals, self._clock = executor, signals, clock
        self._all_kinds, self._kinds = kinds, list(kinds)
        self._lease, self._claimed, self._known, self._sleep = lease, claimed, known, sleep
        self._marks = Bookmarks()
        self._cooling_until: dict[str, float] = {}
        self._queue_ids: tuple[int, ...] = ()
        self._viewed = self._looked_back = self._looked_deep = self._aged = -1e9
        self._old_xid = self._soon_old_xid = self._xmax = 0
        self._look_back_seconds = self._deep_seconds = _LOOK_BACK_SECONDS
        self._full_look_at = clock() + _QUICK_FULL_LOOK_SECONDS * random.random()
        self._is_caught_up, self._has_more_behind = True, False
        self._sampled = self._precise_at = -1e9
        self._look_seconds = 0.0
        self._forward_seconds: deque[float] = deque(maxlen=_FORWARD_CLAIMS)
        self._has_new_lanes = False
        self._pace = Pace(bell, config.poll_seconds, clock)
        self._in_doubt_until = self._gave_back = -1e9
        self._suspects: int | None = None
        self._suspect_since: float | None = None
        self._suspects_at = -1e9
        self.is_stopping = False
        self.claims = 0

    def __repr__(self) -> str:
        return f"<Claimer queues={list(self._queue_ids)} {'caught up' if self._is_caught_up else 'behind'} claims={self.claims}>"

    def forget_view(self) -> None:
        """Look at the queues again on the next turn."""
        self._viewed = -1e9

    def cool(self, kind: str, seconds: float) -> None:
        """Stop claiming a kind at once: its dependency has just refused. The other workers hear of it through the database."""
        self._cooling_until[kind] = max(self._clock() + seconds, self._cooling_until.get(kind, 0.0))
        self._kinds = [known for known in self._kinds if known != kind]
        self._viewed = min(self._viewed, self._clock() - _VIEW_SECONDS + seconds)

    def reset(self) -> None:
        """Begin anew after a lost lease."""
        self._marks.reset()
        self.forget_view()

    async def run_once(self) -> float:
        """Look once; return how long to sleep."""
        lease_id = self._lease()
        if lease_id is None or self.is_stopping:
            return 0.1
        if self._clock() - self._viewed > _VIEW_SECONDS:
            await self._view()
        if self._clock() < self._in_doubt_until:
            await self._give_back(lease_id)
        if self._suspects is not None and self._has_time_for_suspects:
            return await self._take_suspects(lease_id, self._suspects)
        if not self._queue_ids:
            return _VIEW_SECONDS
        if (wait := self._pace.rest()) > 0:
            return wait
        room = self._executor.room()
        if room <= 0:
            self._pace.full()
            return _VIEW_SECONDS
        count = await self._claim(lease_id, room)
        if not count and self._has_new_lanes:
            self._has_new_lanes = False
            return 0.0
        return self._pace.after(count, room)

    async def _view(self) -> None:
        queues = None if self._config.queues is None else list(self._config.queues)
        now = self._clock()
        self._cooling_until = {kind: until for kind, until in self._cooling_until.items() if until > now}
        kinds = [kind for kind in self._all_kinds if kind not in self._cooling_until]
        row = (await self._link.fetch("worker/view", queues=queues, kinds=kinds))[0]
        self._queue_ids = tuple(sorted(int(key) for key in json.loads(row[0])))
        has_new_queues = self._marks.watch(self._queue_ids)
        self._bell.watch(self._queue_ids)
        cooling = {kind: until - now for kind, until in self._cooling_until.items()} | json.loads(row[1])
        kinds = [kind for kind in self._all_kinds if kind not in cooling]
        if kinds != self._kinds:
            if set(kinds) - set(self._kinds):
                self._marks.reset()
            self._kinds = kinds
        self._viewed = self._clock()
        if cooling:
            self._viewed -= max(0.0, _VIEW_SECONDS - min(cooling.values()))
        self._suspects = row[2]
        if self._suspects is None:
            self._suspect_since = None
        while has_new_queues:  # each look finds the best priority of each gap between known ones
            has_new_queues = await self._look(is_wanted=True)

    async def _give_back(self, lease_id: int) -> None:
        """Give back what was claimed without this worker hearing of it; a claim that failed may still arrive for a while."""
        if self._clock() - self._gave_back >= _VIEW_SECONDS:
            self._gave_back = self._clock()
            await self._link.fetch("claim/give_back", lease_id=lease_id, known=self._known())

    @contextmanager
    def _doubting(self) -> Generator[None]:
        """Remember when a claim fails: whether it took effect is unknown."""
        try:
            yield
        except BaseException:
            self._in_doubt_until = self._clock() + _DOUBT_SECONDS
            raise

    def _mode(self) -> Mode:
        now = self._clock()
        if now >= self._full_look_at:
            return "full"
        if now - self._looked_deep >= self._deep_seconds and self._marks.is_split:
            return "deep"
        is_due = now - self._looked_back >= self._look_back_seconds
        if is_due or self._is_caught_up or self._has_more_behind:
            return "look-back"
        return "forward"

    async def _claim(self, lease_id: int, room: int) -> int:
        lanes, mode, began = self._marks.next_order(), self._mode(), self._clock()
        rows: list[Row] = []
        is_complete, seconds = True, 0.0
        if lanes and self._kinds:
            claim_id, walk = secrets.randbits(63), self._marks.walk(lanes, mode)
            with self._doubting():
                rows = await self._link.fetch(
                    "claim/claim",
                    claim_id=claim_id,
                    lease_id=lease_id,
                    queue_ids=bigints(queue_id for queue_id, _, _, _ in walk),
                    priorities=bigints(priority for _, priority, _, _ in walk),
                    starts=bigints(start for _, _, start, _ in walk),
                    sures=bigints(sure for _, _, _, sure in walk),
                    kinds=self._kinds,
                    room=room,
                )
            seconds = self._clock() - began
            if self._lease() != lease_id:
                return 0  # what a dead lease was answered says nothing of the line, and its jobs are the reaper's
            if rows:
                self._executor.note_claim(seconds)
            is_complete = self._marks.claimed(lanes, [_PLACE(row) for row in rows], room=room, mode=mode)
            await self._hand_over(lease_id, claim_id, rows, lanes)
        self._is_caught_up = len(rows) < room
        if mode == "forward":
            self._forward_seconds.append(seconds)
        else:
            self._looked(mode, seconds, is_complete=is_complete)
            await self._look(is_wanted=not rows and self._pace.is_idle)
        return len(rows)

    def _looked(self, mode: Mode, took: float, *, is_complete: bool) -> None:
        self._looked_back = self._clock()
        # what it took more than any claim does, to a far database, too
        seconds = max(0.0, took - min(self._forward_seconds, default=0.0))
        # what was behind the bookmark filled the room: the next slots are for the rest of it
        self._has_more_behind = not is_complete and seconds < max(_DEAR_SECONDS, took / 2)
        if mode == "full":
            # what somebody's lock let it pass over is behind the marks, so it comes soon where it is quick; under a pinned
            # horizon it walks over all that was claimed since: not once more than needed, at most a hundredth of the time
            soon = min(max(_QUICK_FULL_LOOK_SECONDS, 200 * seconds), _FULL_LOOK_SECONDS)
            pause = max(soon * (0.75 + random.random() / 2), 100 * seconds) if is_complete else 10 * seconds
            self._full_look_at = self._looked_back + pause
        elif mode == "deep":
            # a long writing transaction keeps the low mark back and makes these dear: spend at most a tenth on them
            self._looked_deep, self._deep_seconds = self._looked_back, max(_LOOK_BACK_SECONDS, 10 * seconds)
        else:
            self._look_seconds = seconds
            # not each claim where all of them take long: beside fifteen other workers on two cores
            self._look_back_seconds = max(_LOOK_BACK_SECONDS, 10 * seconds, 3 * took)

    async def _look(self, *, is_wanted: bool) -> bool:
        """Sample the horizon and find new lanes: after the claim, for the next one, so that no job waits for it."""
        if not is_wanted and self._clock() - self._sampled < _SAMPLE_SECONDS:
            return False
        self._sampled = self._clock()
        queue_ids, aboves, belows = (bigints(column) for column in self._marks.gaps())
        is_precise = self._look_seconds > _DEAR_SECONDS and self._clock() - self._precise_at > _PRECISE_SECONDS
        if is_precise:
            self._precise_at = self._clock()
        if self._sampled - self._aged >= _OLD_SECONDS:
            self._aged, self._old_xid, self._soon_old_xid = self._sampled, self._soon_old_xid, self._xmax
        places = {"queue_ids": queue_ids, "aboves": aboves, "belows": belows}
        rows = await self._link.fetch("claim/horizon", **places, is_precise=is_precise, old_xid=self._old_xid)
        xmin, young_xmin, self._xmax, last_pos, found = rows[0]
        self._marks.sample(xmin, young_xmin, self._xmax, last_pos)
        has_found = self._marks.add((lane >> 16, (lane & 0xFFFF) - 0x8000) for lane in found)
        self._has_new_lanes = self._has_new_lanes or has_found
        return has_found

    async def _hand_over(self, lease_id: int, claim_id: int, rows: list[Row], lanes: list[Lane]) -> None:
        if not rows:
            return
        self.claims += 1
        if len(lanes) > 1:
            place = {(lane.queue_id, lane.priority): n for n, lane in enumerate(lanes)}
            rows.sort(key=lambda row: (place.get((row[2], row[3]), 0), row[1] or 0))
        else:
            rows.sort(key=itemgetter(1))
        if any(row[_PAYLOAD] is None for row in rows):
            with self._doubting():
                rows = await self._with_bodies(rows)
        if self._lease() != lease_id:
            return  # lost while the bodies were fetched: the reaper has them
        self._claimed(claim_id, len(rows))
        # a claim that was under way when the worker was told to stop starts nothing: its jobs are given back
        self._executor.take(claim_id, rows, starts=not self.is_stopping)
        self._signals.emit(JobsClaimed(count=len(rows)))

    async def _with_bodies(self, rows: list[Row]) -> list[Row]:
        apart = [row for row in rows if row[_PAYLOAD] is None]
        bodies: dict[int, str] = dict(
            await self._link.fetch(
                "claim/bodies", ids=[r[0] for r in apart], created_ats=[r[_CREATED_AT] for r in apart]
            )
        )
        return [row if row[_PAYLOAD] is not None else (*row[:_PAYLOAD], bodies.get(row[0])) for row in rows]

    @property
    def _has_time_for_suspects(self) -> bool:
        is_idle = self._executor.is_empty and self._pace.is_idle
        return is_idle or self._clock() >= self._suspects_at

    async def _take_suspects(self, lease_id: int, lost: int) -> float:
        """Run jobs that were found in dead leases apart from all others: few at first, then one alone."""
        now = self._clock()
        if self._suspect_since is None:
            self._suspect_since = now
        waited = min(now - self._suspect_since, _SUSPECT_PATIENCE_SECONDS)
        if not self._executor.is_empty and waited < _SUSPECT_PATIENCE_SECONDS:
            self._executor.give_back_waiting()
            self.forget_view()
            return 0.02
        if not (free := self._executor.free_slots):
            return 0.05  # it would wait here, where another worker may have room; the next slot is for it
        self._suspect_since = None
        room = min(free, max(1, self._config.concurrency // 8)) if lost <= 2 else 1
        claim_id = secrets.randbits(63)
        with self._doubting():
            rows = await self._link.fetch(
                "claim/claim_suspects",
                claim_id=claim_id,
                lease_id=lease_id,
                queue_ids=list(self._queue_ids),
                kinds=self._kinds,
                lost=lost if lost <= 2 else 32767,
                room=room,
            )
        mine = {row[0] for row in rows}
        await self._hand_over(lease_id, claim_id, rows, [Lane(0, 0), Lane(0, 0)])
        while mine.intersection(self._executor.ids()) and not self.is_stopping and self._lease() == lease_id:
            await self._sleep(0.05)
        self._suspects_at = self._clock() + _SUSPECT_PAUSE * (waited + self._clock() - now)
        if mine:
            self.forget_view()
        else:
            self._suspects = None  # somebody was faster, or has locked it: other work goes on until the next view
        return 0.0
