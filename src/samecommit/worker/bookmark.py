"""Where in line to look next: a bookmark for each lane, and two low-water marks that trail the commit horizon.

A job gets its place when it is inserted and appears when its transaction commits, so places appear out of order. A worker
that only looked behind its bookmark would strand them (measured: p99 988 ms); one that always looked from the start would
walk over everything that was claimed and not yet vacuumed. So each lane has three marks::

        places given ->  ..x.........xxxxxxxx.xx.xxxx|............
                         ^low        ^near   ^late   ^bookmark
        low       below it every transaction that could have taken a place has ended, and it was looked at since
        near      the same, but for transactions that have been open for long: they are few, and hold `low` back
        bookmark  the last place that this worker claimed

A *forward* claim starts behind the bookmark: right while there is a backlog. A *look-back* starts at the near mark and finds
late commits; a *deep* look starts at the low mark and finds those of long transactions, too, over all that was claimed
in the meantime. A low mark rises only after a look from it that reached past the bookmark (or came back short), to the
place that had been given before a horizon sample whose next transaction id is now behind the oldest open one.

Three details, each worth an order of magnitude in the measurements: the place is the *previous* sample's, since it is read
after the snapshot; the mark rises only *after* a claim, since rows that committed just before must be looked at once; and
64 is added to the snapshot's xmax, which is not the next id. The marks are hints: a rare full look starts at 0.

Jobs of dead workers come back at places below 0: few, ahead of the lane's line, and looked at on their own by every look that
is not forward. So they wait for nobody, the marks know nothing of them, and no look has to go far back for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Mode = Literal["forward", "look-back", "deep", "full"]
_XID_MARGIN = 64
_MOST_SAMPLES = 512
LOWEST, HIGHEST = -32768, 32767
_HEAD, _LAST = -(2**63), 2**63 - 1


@dataclass(slots=True)
class Lane:
    """One priority of one queue."""

    queue_id: int
    priority: int
    low: int = 0
    near: int = 0
    bookmark: int = 0
    is_behind: bool = False  # the last claim that came here was full before the lane was at its end
    is_passed: bool = False  # there was a backlog, and a forward claim found no more of it
    is_open: bool = False  # there was more, touched and free: by a mass update that was rolled back, for instance

    @property
    def sure(self) -> int:
        """The place up to which a look that is not forward takes rows that somebody has touched."""
        return self.bookmark if self.is_behind and not self.is_open else _LAST


class Bookmarks:
    """The marks of all lanes that this worker looks at, best priority first within a queue."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[int, int], Lane] = {}
        self._order: list[Lane] = []
        self._queues: tuple[int, ...] = ()
        self._turn = 0
        self._low_horizon, self._near_horizon = _Horizon(), _Horizon()
        self._last_pos = 0

    def watch(self, queue_ids: Iterable[int]) -> bool:
        """Look at these queues only; a queue that comes (back) is looked at from its start.

        Priority 0 is known at once: to find it, one would walk over all its places that are taken and not yet committed.

        Returns:
            Whether there are new queues, whose other priorities are to be found before anything is claimed.
        """
        wanted = tuple(sorted(queue_ids))
        if wanted == self._queues:
            return False
        has_new = bool(set(wanted) - set(self._queues))
        self.lanes = {key: lane for key, lane in self.lanes.items() if lane.queue_id in wanted}
        self._queues = wanted
        for queue_id in wanted:
            self.lanes.setdefault((queue_id, 0), Lane(queue_id, 0))
        self._arrange()
        return has_new

    def add(self, found: Iterable[tuple[int, int]]) -> bool:
        """Take up new lanes; True when there were any."""
        new = [key for key in found if key not in self.lanes and key[0] in self._queues]
        for key in new:
            self.lanes[key] = Lane(*key)
        if new:
            self._arrange()
        return bool(new)

    def reset(self) -> None:
        """Forget the marks: the kinds that are asked for have changed."""
        for lane in self.lanes.values():
            lane.low = lane.near = lane.bookmark = 0
            lane.is_behind = lane.is_passed = lane.is_open = False

    def _arrange(self) -> None:
        self._order = sorted(self.lanes.values(), key=lambda lane: (lane.queue_id, -lane.priority))

    def gaps(self) -> tuple[list[int], list[int], list[int]]:
        """Return the gaps between known priorities as parallel arrays (queue, above, below), bounds excluded."""
        rows: list[tuple[int, int, int]] = []
        for queue_id in self._queues:
            known = [LOWEST, *sorted(lane.priority for lane in self._order if lane.queue_id == queue_id), HIGHEST]
            rows += [(queue_id, low, high) for low, high in pairwise(known) if high - low > 1]
        return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]

    def next_order(self) -> list[Lane]:
        """Return the lanes for the next claim; which queue comes first takes turns."""
        if len(self._queues) > 1 and self._order:
            self._turn = (self._turn + 1) % len(self._queues)
            first = self._queues[self._turn]
            return [x for x in self._order if x.queue_id >= first] + [x for x in self._order if x.queue_id < first]
        return self._order

    def sample(self, xmin: int, young_xmin: int, xmax: int, last_pos: int) -> None:
        """Take a horizon sample, made before the claim whose `claimed` call uses it.

        Args:
            xmin: the oldest transaction that is open.
            young_xmin: the oldest that has not been open for long.
            xmax: the next transaction, or a little before it.
            last_pos: the last place given.
        """
        self._low_horizon.pass_by(xmin, xmax + _XID_MARGIN, self._last_pos)
        self._near_horizon.pass_by(young_xmin, xmax + _XID_MARGIN, self._last_pos)
        self._last_pos = last_pos

    @property
    def is_split(self) -> bool:
        """Whether a look back leaves something to a deep look."""
        return any(lane.low < lane.near for lane in self._order)

    @staticmethod
    def walk(lanes: Sequence[Lane], mode: Mode) -> list[tuple[int, int, int, int]]:
        """Return what to look at, in order: queue, priority, the place to begin behind, the place up to which to be sure.

        Beyond the latter a row that another transaction has touched is passed over: in a lane with a backlog that
        was another worker, and if it was not, the next look back is sure of it.
        """
        if mode == "forward":
            starts = [max(lane.low, lane.bookmark) for lane in lanes]
            return [
                (lane.queue_id, lane.priority, start, _LAST if lane.is_open else start)
                for lane, start in zip(lanes, starts, strict=True)
            ]
        return [
            (lane.queue_id, lane.priority, start, lane.sure)
            for lane in lanes
            for start in (_HEAD, {"look-back": lane.near, "deep": lane.low, "full": 0}[mode])
        ]

    def claimed(self, lanes: Sequence[Lane], places: Sequence[tuple[int, int, int]], *, room: int, mode: Mode) -> bool:
        """Move the marks after a claim that brought (queue_id, priority, pos) of each job.

        Returns:
            Whether all that was passed over before has been looked at: the claim came back short, or went past a bookmark.
        """
        highest: dict[tuple[int, int], int] = {}
        for queue_id, priority, pos in places:
            key = (queue_id, priority)
            highest[key] = max(pos, highest.get(key, 0))  # a place below 0 says that the lane was begun, and no more
        is_full = len(places) >= room
        is_complete = not is_full
        last = next((lane for lane in reversed(lanes) if (lane.queue_id, lane.priority) in highest), None)
        for lane in lanes:
            reached = highest.get((lane.queue_id, lane.priority), 0)
            is_last = is_full and lane is last
            is_complete = is_complete or (is_last and reached > lane.bookmark)
            if mode != "forward":
                self._raise(lane, reached, mode, is_last=is_last)
            lane.bookmark = max(lane.bookmark, reached)
            if mode == "full" and is_last and 0 < reached < lane.low:
                # whatever had let the marks pass a roomful may have hidden more
                lane.low = lane.near = lane.bookmark = reached
            lane.is_open = is_last and (lane.is_open or (lane.is_passed and mode != "forward"))
            lane.is_passed = mode == "forward" and lane.is_behind and not is_last
            lane.is_behind = is_last
            if is_last:
                break
        return is_complete

    def _raise(self, lane: Lane, reached: int, mode: Mode, *, is_last: bool) -> None:
        if is_last and reached <= lane.bookmark:
            return
        most = min(reached, lane.sure) if is_last else lane.sure
        if mode != "look-back" or lane.near <= lane.low:
            lane.low = max(lane.low, min(self._low_horizon.safe_pos, most))
        lane.near = max(lane.near, lane.low, min(self._near_horizon.safe_pos, most))


class _Horizon:
    """Which places are safe: given before every transaction that a sample could not rule out had ended."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()
        self.safe_pos = 0

    def pass_by(self, oldest: int, newest: int, pos: int) -> None:
        """Note a place with the newest transaction that may have taken one before; ``oldest`` is the oldest still open."""
        self._samples.append((pos, newest))
        while self._samples and self._samples[0][1] <= oldest:
            self.safe_pos = self._samples.popleft()[0]
        if len(self._samples) > _MOST_SAMPLES:
            self._samples = deque(list(self._samples)[::2])
