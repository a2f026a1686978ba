"""The marks of a lane: no committed job is ever passed over, in whatever order transactions end.

The database is simulated as far as it matters: places are given at the insert and seen at the commit, a snapshot's xmax is
the newest *ended* transaction and one, and the last place is read a little after the snapshot.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samecommit.worker.bookmark import HIGHEST, LOWEST, Bookmarks, Mode

steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "place", "commit", "rollback", "recover", "claim", "dig", "age", "touch"]),
        st.integers(0, 9),
    ),
    max_size=120,
)
slow = settings(deadline=None, max_examples=300)


@dataclass
class Simulated:
    """Transactions that take places and end, and one worker that claims."""

    marks: Bookmarks = field(default_factory=Bookmarks)
    next_xid: int = 100
    newest_ended: int = 99
    last_pos: int = 0
    open: dict[int, list[int]] = field(default_factory=dict)
    visible: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    given: int = 0
    is_caught_up: bool = True
    is_crowded: bool = False
    old_xid: int = 0

    def __post_init__(self) -> None:
        self.marks.watch([1])
        self.marks.add([(1, 0)])

    def begin(self, others: int = 0) -> None:
        """Begin a transaction, after some others that have nothing to do with jobs came and went."""
        if others:
            self.next_xid += 20 * others
            self.newest_ended = self.next_xid - 1
        self.open[self.next_xid] = []
        self.next_xid += 1

    def _pick(self, n: int) -> int | None:
        return sorted(self.open)[n % len(self.open)] if self.open else None

    def place(self, n: int = 0) -> None:
        if (xid := self._pick(n)) is not None:
            self.last_pos += 1
            self.open[xid].append(self.last_pos)

    def _end(self, n: int) -> list[int]:
        xid = self._pick(n)
        if xid is None:
            return []
        self.newest_ended = max(self.newest_ended, xid)
        return self.open.pop(xid)

    def commit(self, n: int = 0) -> None:
        self.visible.update(self._end(n))

    def recover(self, n: int = 0) -> None:
        """Give a job of a dead worker back: its place is below 0, after those that came back before."""
        self.last_pos += 1
        self.visible.add(self.last_pos - 2**62)

    def touch(self, n: int = 0) -> None:
        """Lock a job and let it go, or claim it and roll back: a look that is not sure takes it for claimed."""
        self.touched.update(sorted(self.visible)[n : n + 2])

    def rollback(self, n: int = 0) -> None:
        self._end(n)

    def age(self, n: int = 0) -> None:
        """Let what is open now have been open for long."""
        self.old_xid = self.newest_ended + 1

    def dig(self, n: int = 9) -> int:
        return self.claim(n, mode="deep")

    def claim(self, room: int = 9, mode: Mode | None = None) -> int:
        mode = mode or ("look-back" if self.is_caught_up else "forward")
        lanes = self.marks.next_order()
        brought: list[int] = []
        for _, _, start, sure in self.marks.walk(lanes, mode):
            passed = {pos for pos in self.touched if pos > sure}
            found = sorted(pos for pos in self.visible - passed if pos > start and (start >= 0 or pos <= 0))
            brought += found[: room + 1 - len(brought)]
        self.visible.difference_update(brought)
        self.given += len(brought)
        self.marks.claimed(lanes, [(1, 0, pos) for pos in brought], room=room + 1, mode=mode)
        self.is_caught_up = len(brought) < room + 1
        if mode != "forward":
            self.sample()
        return len(brought)

    def sample(self) -> None:
        xmax = self.newest_ended + 1
        xmin = min([*self.open, xmax])
        if self.is_crowded:
            self.place(3)  # somebody is given a place between the snapshot and the reading of the last one
        young_xmin = min([*(xid for xid in self.open if xid >= self.old_xid), max(xmax, self.old_xid)])
        self.marks.sample(xmin, young_xmin, xmax, self.last_pos)

    @property
    def low(self) -> int:
        return self.marks.lanes[1, 0].low

    @property
    def near(self) -> int:
        return self.marks.lanes[1, 0].near

    def waiting(self) -> list[int]:
        return sorted([*self.visible, *(pos for places in self.open.values() for pos in places)])


@slow
@given(steps=steps)
def test_the_low_mark_never_passes_a_job_that_waits_or_may_still_commit(steps: list[tuple[str, int]]) -> None:
    world = Simulated(is_crowded=True)
    for name, n in steps:
        getattr(world, name)(n)
        waiting = [pos for pos in world.waiting() if pos > 0]
        assert not waiting or waiting[0] > world.low
    while world.open:
        world.commit()
    for _ in range(3):
        while world.claim():
            pass
        while world.dig():
            pass
    assert world.waiting() == []


@slow
@given(steps=steps)
def test_the_near_mark_never_passes_a_job_but_of_a_transaction_that_is_open_for_long(
    steps: list[tuple[str, int]],
) -> None:
    world = Simulated(is_crowded=True)
    of_old: set[int] = set()
    for name, n in steps:
        getattr(world, name)(n)
        of_old.update(pos for xid, places in world.open.items() if xid < world.old_xid for pos in places)
        young = [pos for pos in world.waiting() if pos > 0 and pos not in of_old]
        assert not young or young[0] > world.near
        assert world.low <= world.near


def test_a_transaction_that_is_open_for_long_holds_back_the_low_mark_alone() -> None:
    world = Simulated()
    world.begin()
    world.place()
    world.begin()
    world.commit(1)  # what is open is older than what has ended
    world.age()
    for _ in range(200):
        world.begin()
        world.place(1)
        world.commit(1)
        world.claim()
    assert world.low == 0
    assert world.near >= 200 - 70, "a look back would walk over all that was claimed since the long transaction began"
    assert world.marks.is_split
    world.commit()
    for _ in range(200):
        world.begin()
        world.commit()
        assert world.claim() == 0
    assert world.low == 0, "what the long transaction left is not looked at yet"
    assert world.dig() == 1
    world.dig()
    assert not world.marks.is_split


def test_a_job_that_commits_behind_the_bookmark_is_found_by_the_next_look() -> None:
    world = Simulated()
    world.begin()
    world.place()  # the early place, committed late
    world.begin()
    world.place(1)
    world.commit(1)
    assert world.claim() == 1
    assert world.claim() == 0
    world.commit()
    assert world.claim() == 1


def test_the_low_mark_follows_when_transactions_come_and_go() -> None:
    world = Simulated()
    for _ in range(300):
        world.begin()
        world.place()
        world.commit()
        world.claim()
    assert world.given == 300
    assert world.low >= 300 - 70, "a look would walk over what was claimed long ago"


def test_an_open_transaction_that_wrote_holds_the_low_mark_back_and_nothing_is_lost() -> None:
    world = Simulated()
    world.begin()
    world.place()
    for _ in range(200):
        world.begin()
        world.place(1)
        world.commit(1)
        world.claim()
    assert world.low == 0
    world.commit()
    assert world.claim() == 1


def test_the_low_mark_rises_no_further_than_a_full_look_reached_and_never_by_a_forward_claim() -> None:
    marks = Bookmarks()
    marks.watch([1])
    marks.add([(1, 0)])
    for xid in (100, 200, 300, 400):
        marks.sample(xid, xid, xid, 20)  # all that took one of the 20 places have ended
    lanes = marks.next_order()
    marks.claimed(lanes, [(1, 0, pos) for pos in range(1, 6)], room=5, mode="look-back")
    assert (lanes[0].low, lanes[0].bookmark) == (5, 5)
    marks.claimed(lanes, [(1, 0, pos) for pos in (9, 10)], room=5, mode="forward")
    assert (lanes[0].low, lanes[0].bookmark) == (5, 10)
    assert marks.walk(lanes, "look-back") == [(1, 0, -(2**63), 2**63 - 1), (1, 0, 5, 2**63 - 1)]
    assert marks.walk(lanes, "forward") == [(1, 0, 10, 10)]
    marks.claimed(lanes, [(1, 0, pos) for pos in (6, 7)], room=5, mode="look-back")
    assert (lanes[0].low, lanes[0].bookmark) == (20, 10)


def test_a_look_that_is_not_sure_beyond_the_bookmark_raises_no_mark_beyond_it() -> None:
    marks = Bookmarks()
    marks.watch([1])
    for xid in (100, 200, 300, 400):
        marks.sample(xid, xid, xid, 90)
    lanes = marks.next_order()
    marks.claimed(lanes, [(1, 0, pos) for pos in range(1, 6)], room=5, mode="forward")
    assert marks.walk(lanes, "look-back") == [(1, 0, -(2**63), 5), (1, 0, 0, 5)]
    marks.claimed(lanes, [(1, 0, pos) for pos in range(8, 13)], room=5, mode="look-back")
    assert (lanes[0].low, lanes[0].bookmark) == (5, 12), "6 and 7 were passed over"
    marks.claimed(lanes, [(1, 0, 6)], room=5, mode="look-back")
    assert lanes[0].low == 12
    marks.claimed(lanes, [], room=5, mode="look-back")
    assert lanes[0].low == 90


def test_a_backlog_that_somebody_has_touched_is_not_walked_over_by_every_other_claim() -> None:
    world = Simulated()
    world.begin()
    for _ in range(200):
        world.place()
    world.commit()
    world.claim(9)
    for n in range(0, 190, 2):
        world.touch(n)  # an update of all of them was rolled back
    brought = [world.claim(9) for _ in range(20)]
    assert brought == [0, *[10] * 19]
    while world.claim(9):
        pass
    assert not world.waiting()
    assert world.marks.walk(world.marks.next_order(), "forward")[0][3] < 2**62, "the next backlog is others' again"


def test_a_lane_that_was_looked_at_to_its_end_is_not_walked_over_again_because_of_a_backlog_in_another() -> None:
    marks = Bookmarks()
    marks.watch([1])
    marks.add([(1, 10)])
    for xid in (100, 200, 300, 400):
        marks.sample(xid, xid, xid, 90)
    lanes = marks.next_order()
    for pos in (3, 6):
        marks.claimed(lanes, [(1, 0, pos)], room=1, mode="look-back")
    assert (marks.lanes[1, 10].low, marks.lanes[1, 0].low) == (90, 3)


def test_a_full_look_that_ends_below_the_marks_brings_them_back() -> None:
    marks = Bookmarks()
    marks.watch([1])
    for xid in (100, 200, 300, 400):
        marks.sample(xid, xid, xid, 90)
    lanes = marks.next_order()
    marks.claimed(lanes, [], room=5, mode="look-back")
    assert lanes[0].low == 90
    marks.claimed(lanes, [(1, 0, pos) for pos in (1, 2, 3, 4, 80)], room=5, mode="full")
    assert (lanes[0].low, lanes[0].near, lanes[0].bookmark) == (80, 80, 80)
    assert marks.walk(lanes, "forward") == [(1, 0, 80, 80)]


def test_queues_take_turns_at_coming_first_and_priorities_keep_their_order() -> None:
    marks = Bookmarks()
    marks.watch([3, 1, 2])
    marks.add([(1, 0), (1, 5), (2, 0), (3, 0), (3, -5), (9, 0)])
    orders = [[(lane.queue_id, lane.priority) for lane in marks.next_order()] for _ in range(3)]
    assert {order[0][0] for order in orders} == {1, 2, 3}
    assert all(
        order.index((1, 5)) < order.index((1, 0)) and order.index((3, 0)) < order.index((3, -5)) for order in orders
    )
    assert all(len(order) == 5 for order in orders)


@pytest.mark.parametrize(
    ("known", "gaps"),
    [
        ([], [(LOWEST, 0), (0, HIGHEST)]),
        ([0, 1], [(LOWEST, 0), (1, HIGHEST)]),
        ([5, 7], [(LOWEST, 0), (0, 5), (5, 7), (7, HIGHEST)]),
    ],
)
def test_gaps_are_what_lies_between_known_priorities(known: list[int], gaps: list[tuple[int, int]]) -> None:
    marks = Bookmarks()
    marks.watch([1])
    marks.add((1, priority) for priority in known)
    queue_ids, aboves, belows = marks.gaps()
    assert list(zip(aboves, belows, strict=True)) == gaps
    assert set(queue_ids) <= {1}


def test_a_queue_that_comes_back_is_looked_at_from_its_start() -> None:
    marks = Bookmarks()
    marks.watch([1, 2])
    marks.add([(1, 0), (2, 0)])
    marks.lanes[2, 0].bookmark = 50
    marks.watch([1])
    assert [lane.queue_id for lane in marks.next_order()] == [1]
    marks.watch([1, 2])
    assert marks.lanes[2, 0].bookmark == 0
    assert marks.add([(2, 5)])
    assert not marks.add([(2, 5)])


def test_the_samples_have_an_end_however_long_a_transaction_stays_open() -> None:
    marks = Bookmarks()
    for n in range(100_000):
        marks.sample(10, 10, 1000 + n, n)
    assert len(marks._low_horizon._samples) <= 1024


def test_a_look_is_complete_when_it_comes_back_short_or_passes_a_bookmark() -> None:
    marks = Bookmarks()
    marks.watch([1])
    marks.add([(1, 0)])
    lanes = marks.next_order()
    assert marks.claimed(lanes, [(1, 0, pos) for pos in range(1, 6)], room=5, mode="full")
    assert lanes[0].bookmark == 5
    marks.claimed(lanes, [(1, 0, 90)], room=1, mode="forward")
    assert not marks.claimed(lanes, [(1, 0, pos) for pos in (6, 7)], room=2, mode="full")
    assert marks.claimed(lanes, [(1, 0, pos) for pos in (8, 91)], room=2, mode="full")
    assert marks.claimed(lanes, [(1, 0, 9)], room=2, mode="full")


def test_jobs_of_dead_workers_that_fill_a_claim_raise_no_mark_for_what_was_not_looked_at() -> None:
    world = Simulated()
    world.begin()
    world.place()
    world.commit()
    for _ in range(3):
        world.begin(others=10)
        world.commit()
        world.sample()
    assert world.marks._low_horizon.safe_pos == 1
    for _ in range(4):
        world.recover()
    assert world.claim(room=1) == 2
    assert world.low == 0
    assert sum(world.claim(room=1) for _ in range(4)) == 3
    assert world.waiting() == []
