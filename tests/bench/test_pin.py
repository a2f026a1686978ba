"""The windows in which a rate under a pin is judged."""

import pytest

from samecommit.bench.pin import windows


@pytest.mark.parametrize(("seconds", "number"), [(20, 2), (30, 3), (60, 6)])
def test_a_run_is_judged_to_its_end(seconds: int, number: int) -> None:
    slow_at_last = [1.0] * (seconds - 9) + [0.5] * 10
    assert windows(slow_at_last, seconds) == [1.0] * (number - 1) + [0.5]


def test_a_worker_that_stands_still_falls_short() -> None:
    assert windows([1.0] * 31, 60) == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_the_seconds_that_are_not_whole_are_left_out() -> None:
    assert windows([0.1, *[1.0] * 19, 0.1], 20) == [1.0, 1.0]
