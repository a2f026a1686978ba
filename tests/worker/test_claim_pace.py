"""When a worker looks next, and when it gives the bell up so that producers need not ring."""

import pytest

from samecommit.worker.pace import Pace


class Bell:
    def __init__(self) -> None:
        self.is_idle = self.is_held = self.is_heard = False

    def set_idle(self, is_idle: bool) -> None:
        self.is_idle = is_idle


def _pace() -> tuple[Pace, Bell]:
    bell = Bell()
    return Pace(bell, poll_seconds=0.5, clock=lambda: 100.0), bell


def test_a_backlog_is_claimed_without_a_pause_and_nobody_rings() -> None:
    pace, bell = _pace()
    bell.is_idle = True
    assert pace.after(100, 100) == pace.after(32, 100) == pace.after(1, 1) == 0.0
    assert not bell.is_idle


def test_a_few_jobs_keep_the_bell_and_bells_do_not_cut_the_pause_short() -> None:
    pace, bell = _pace()
    bell.is_idle = True
    for _ in range(15):
        assert pace.after(2, 100) == pytest.approx(pace.rest()) == 0.002
    assert bell.is_idle


def test_a_steady_trickle_gives_the_bell_up_and_outlives_a_few_empty_looks() -> None:
    pace, bell = _pace()
    bell.is_idle = True
    for _ in range(16):
        pace.after(2, 100)
    assert not bell.is_idle
    assert [pace.after(0, 100) for _ in range(3)] == [0.002] * 3
    assert not bell.is_idle
    assert pace.after(0, 100) == 0.002
    assert bell.is_idle


def test_until_the_bell_is_granted_it_goes_on_looking_since_whoever_began_before_commits_unheard() -> None:
    pace, bell = _pace()
    bell.is_idle = True
    assert [pace.after(0, 100) for _ in range(20)] == [0.002] * 19 + [0.005]
    pace.after(1, 100)
    bell.is_held = bell.is_heard = True
    assert pace.after(0, 100) == 0.005


def test_sleeps_double_up_to_the_poll_interval_and_beyond_it_while_commits_are_heard() -> None:
    pace, bell = _pace()
    bell.is_idle = True
    for _ in range(19):
        pace.after(0, 100)
    assert [pace.after(0, 100) for _ in range(9)] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    bell.is_heard = True
    assert [pace.after(0, 100) for _ in range(2)] == [2.0, 2.0]
    bell.is_held = True
    assert pace.after(0, 100) == 3.0
    pace.after(1, 100)
    assert pace.after(0, 100) == 0.005
