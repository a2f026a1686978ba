"""Options of jobs to come: what is refused where it is given, and what is sent."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from samecommit import App, Task
from samecommit.errors import ConfigError, PayloadError

app = App()


@app.task(queue="leads", priority=3)
def work(n: int) -> None: ...


@app.task()
def plain(n: int) -> None: ...


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"run_at": datetime(2099, 1, 1)}, "run_at .*time zone"),  # noqa: DTZ001 - B07: naive
        ({"expires_at": datetime(2099, 1, 1)}, "expires_at .*time zone"),  # noqa: DTZ001
        ({"run_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}, "run_at .*calendar"),
        ({"run_at": "2099-01-01"}, "run_at"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": timedelta(days=40_000)}, "delay"),
        ({"priority": 101}, "priority is 101"),
        ({"priority": True}, "priority is True"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"parent_id": 2**63}, "parent_id"),
        ({"tags": "one"}, "tags is 'one'"),
        ({"queue": ""}, "queue name ''"),
        ({"queue": "a\nb"}, "queue name"),
        ({"colour": "red"}, "unknown option 'colour'"),
    ],
)
def test_an_option_is_refused_where_it_is_given(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        work.using(**options)


@pytest.mark.parametrize("text", ["", "x" * 1001, "a\0b", "\ud800"])
def test_a_text_that_cannot_be_stored_is_refused_where_it_is_given(text: str) -> None:
    for options in ({"tags": [text]}, {"effect_key": text}):
        with pytest.raises(PayloadError, match=r"tag|effect_key"):
            work.using(**options)


def test_only_what_differs_from_the_contracts_defaults_is_sent() -> None:
    assert plain.job(n=1).options.values == {"kind": "plain"}
    assert work.job(n=1).options.values == {"kind": "work", "queue": "leads", "priority": 3}
    assert work.using(queue="default", priority=0, delay=0).job(n=1).options.values == {"kind": "work"}


def test_moments_are_sent_in_utc_and_sort_as_text() -> None:
    zone = timezone(timedelta(hours=-3))
    early, late = (
        plain.using(run_at=datetime(2026, 3, 1, 22, 0, n, tzinfo=zone)).job(n=1).options.values["run_at"]
        for n in (9, 10)
    )
    assert (early, late) == ("2026-03-02T01:00:09.000000+00:00", "2026-03-02T01:00:10.000000+00:00")


def test_options_add_up_and_leave_the_task_as_it_was() -> None:
    once = plain.using(priority=1, tags=iter(["a"]))
    twice = once.using(priority=2, expires_at=datetime(2099, 1, 1, tzinfo=UTC))
    assert twice.job(n=1).options.values["priority"] == 2
    assert once.job(n=1).options.values == {"kind": "plain", "priority": 1, "tags": ["a"]}
    assert plain.job(n=1).options.values == {"kind": "plain"}


def test_a_job_shows_what_it_is() -> None:
    assert repr(plain.job(n=1)) == '<NewJob plain {"n":1}>'
    assert repr(work) == "<Task 'work' queue='leads'>"


def test_tasks_without_an_application_say_so() -> None:
    from samecommit import Tasks

    tasks = Tasks()
    lonely: Task[[], None] = tasks.task(name="lonely")(nothing)
    with pytest.raises(ConfigError, match="belong to no application"):
        lonely.enqueue(object())  # type: ignore[call-overload]


def nothing() -> None: ...
