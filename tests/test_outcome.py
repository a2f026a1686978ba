"""Outcomes are values: equal when they say the same, shown as they are written, refused when they make no sense."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from samecommit import Cancel, Done, Fail, Hold, RateLimited, Retry, Snooze
from samecommit.errors import ConfigError
from samecommit.outcome import Outcome
from samecommit.retry import MAX_DELAY_SECONDS

AT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (Done(1), "Done(result=1)"),
        (Done(), "Done()"),
        (Retry(), "Retry()"),
        (Retry(timedelta(minutes=1), "x"), "Retry(after=60.0, reason='x')"),
        (Snooze(5), "Snooze(until=5.0)"),
        (Snooze(AT, "x"), f"Snooze(reason='x', until={AT!r})"),
        (RateLimited(2), "RateLimited(after=2.0)"),
        (Hold("look", [1], AT), f"Hold(data=[1], reason='look', until={AT!r})"),
        (Fail("no"), "Fail(reason='no')"),
        (Cancel(), "Cancel()"),
    ],
)
def test_an_outcome_is_shown_as_it_is_written(made: Outcome, shown: str) -> None:
    assert repr(made) == str(made) == shown


def test_outcomes_that_say_the_same_are_equal() -> None:
    assert Retry(60) == Retry(timedelta(minutes=1))
    assert hash(Retry(60)) == hash(Retry(timedelta(minutes=1)))
    assert Retry(60) != Retry(61)
    assert Retry(60) != RateLimited(60)
    assert Done(None) != None  # noqa: E711 - the point


def test_what_lies_in_the_past_or_beyond_ten_years_is_brought_in_range() -> None:
    assert Snooze(-5).until == 0
    assert Retry(math.inf).after == MAX_DELAY_SECONDS
    assert RateLimited(timedelta(days=-1)).after == 0


NONSENSE: list[Callable[[], Any]] = [
    lambda: Snooze("tomorrow"),  # type: ignore[arg-type]
    lambda: Snooze(None),  # type: ignore[arg-type]
    lambda: Snooze(datetime(2030, 1, 1)),  # noqa: DTZ001 - the point
    lambda: Snooze(math.nan),
    lambda: Retry("soon"),  # type: ignore[arg-type]
    lambda: Retry(True),
    lambda: RateLimited(None),  # type: ignore[arg-type]
    lambda: Hold("x", until=datetime(2030, 1, 1)),  # noqa: DTZ001 - the point
]


@pytest.mark.parametrize("make", NONSENSE)
def test_what_makes_no_sense_is_refused_where_it_is_made(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=r"(after|until) is .*: give"):
        make()


def test_an_outcome_can_be_raised_from_deep_inside() -> None:
    def deep() -> None:
        raise Hold("a duplicate?", {"of": 7})

    with pytest.raises(Hold) as caught:
        deep()
    assert caught.value == Hold("a duplicate?", {"of": 7})


def test_an_outcome_has_no_dictionary_of_its_own_fields() -> None:
    assert set(type(Fail("x")).__slots__) == {"reason"}
