"""When a failed attempt is tried again."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samecommit import Backoff
from samecommit.errors import ConfigError
from samecommit.retry import MAX_DELAY_SECONDS, delay_of

quick = settings(deadline=None, max_examples=300)
ATTEMPTS = [0, 1, 2, 30, 31, 32, 62, 63, 64, 309, 1024, 10**6]  # B12
policies = st.builds(
    Backoff,
    base_seconds=st.floats(0, MAX_DELAY_SECONDS),
    factor=st.floats(0, 1e6),
    cap_seconds=st.floats(0, MAX_DELAY_SECONDS),
    jitter=st.floats(0, 1),
)


def test_the_default_doubles_from_two_seconds_to_an_hour() -> None:
    steps = [Backoff().step(attempts) for attempts in range(1, 15)]
    assert steps == [2.0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600, 3600]


@pytest.mark.parametrize("base", [0, 1, 2, 10])
@pytest.mark.parametrize("cap", [0, 1, MAX_DELAY_SECONDS])
@pytest.mark.parametrize("factor", [0, 0.5, 1, 2, 10])
def test_no_number_of_attempts_overflows(base: float, cap: float, factor: float) -> None:
    backoff = Backoff(base_seconds=base, cap_seconds=cap, factor=factor, jitter=0)
    delays = [backoff.delay(attempts) for attempts in ATTEMPTS]
    assert all(0 <= delay <= cap for delay in delays)
    if factor >= 1:
        assert delays == sorted(delays)


@quick
@given(policy=policies, attempts=st.integers(0, 10**7), draw=st.floats(0, 1, exclude_max=True))
def test_a_delay_is_between_nothing_and_the_cap(policy: Backoff, attempts: int, draw: float) -> None:
    assert 0 <= policy.delay(attempts, lambda: draw) <= policy.cap_seconds


def test_jitter_takes_off_a_share_of_the_step() -> None:
    draws = [0.0, 0.5, 0.999]
    assert [Backoff(jitter=0).delay(3, lambda d=d: d) for d in draws] == [8, 8, 8]  # type: ignore[misc]
    assert [Backoff(jitter=0.5).delay(3, lambda d=d: d) for d in draws] == pytest.approx([8, 6, 4.004])  # type: ignore[misc]
    assert [Backoff(jitter=1).delay(3, lambda d=d: d) for d in draws] == pytest.approx([8, 4, 0.008])  # type: ignore[misc]


@pytest.mark.parametrize(
    "options",
    [{"base_seconds": -1}, {"cap_seconds": math.inf}, {"factor": math.nan}, {"jitter": 1.1}, {"jitter": "much"}],
    ids=str,
)
def test_a_policy_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"backoff {next(iter(options))} is"):
        Backoff(**options)


def test_a_policy_of_one_s_own_is_asked_with_the_attempts_spent() -> None:
    assert delay_of(lambda attempts: attempts * 10, 3, Backoff()) == (30.0, None)
    assert delay_of(lambda _: timedelta(minutes=2), 3, Backoff()) == (120.0, None)


def broken(answer: Any) -> Any:
    def policy(_: int) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return policy


@pytest.mark.parametrize(
    "answer", [-1, math.nan, math.inf, None, "soon", 1e12, timedelta(days=-1), ValueError("x")], ids=str
)
def test_a_policy_that_answers_nonsense_falls_back_and_says_so(answer: Any) -> None:
    delay, complaint = delay_of(broken(answer), 2, Backoff(jitter=0))
    assert delay == 4
    assert complaint is not None and "attempt 2" in complaint
