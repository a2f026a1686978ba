"""What can be a task, and what is refused where it is declared."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from samecommit import App, AsyncContext, Backoff, Context, Tasks
from samecommit.errors import ConfigError, PayloadError, TaskDefinitionError


def plain(n: int) -> None: ...


async def coroutine(n: int) -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def selfish(self: Any, n: int) -> None: ...


def late_context(n: int, ctx: Context) -> None: ...


def wrong_context(ctx: AsyncContext) -> None: ...


async def wrong_async_context(ctx: Context) -> None: ...


def bare_context(ctx, n: int) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def unresolved(n: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Machine:
    def __call__(self, n: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (generator, "a generator has no end"),
        (async_generator, "a generator has no end"),
        (lambda n: None, "a lambda has no name"),
        (selfish, "its first parameter is 'self'"),
        (late_context, "the context must be the first parameter, not 'ctx'"),
        (wrong_context, "a plain function takes Context, not AsyncContext"),
        (wrong_async_context, "an async function takes AsyncContext, not Context"),
        (bare_context, "annotate ctx"),
        (unresolved, "its annotations cannot be resolved"),
        (Machine(), "give a plain or async function"),
        (functools.partial(plain, 1), "give a plain or async function"),
        (print, "give a plain or async function"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value))[:40],
)
def test_what_cannot_run_is_refused_with_its_reason(fn: Callable[..., Any], reason: str) -> None:
    with pytest.raises(TaskDefinitionError, match=reason):
        Tasks().task()(fn)


def test_a_refusal_names_the_file_and_the_line() -> None:
    with pytest.raises(
        TaskDefinitionError, match=rf"selfish \(.*test_definition\.py:{selfish.__code__.co_firstlineno}\)"
    ):
        Tasks().task()(selfish)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": ""}, "task name ''"),
        ({"name": "x" * 201}, "task name"),
        ({"name": "a\nb"}, "task name"),
        ({"name": "\ud800"}, "task name"),
        ({"aliases": ["fine", " not"]}, "task name ' not'"),
        ({"queue": ""}, "queue name ''"),
        ({"priority": 101}, "priority is 101"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_attempts": 32_768}, "max_attempts is 32768"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"permanent": ["ValueError"]}, "give exception classes"),
        ({"permanent": [ValueError("x")]}, "give exception classes"),
        ({"backoff": 5}, "backoff is 5"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(TaskDefinitionError, match=reason):
        Tasks().task(**options)(plain)


def test_the_defaults_are_those_of_the_pages() -> None:
    tasks = Tasks()
    tasks.task()(plain)
    definition = tasks.definitions["plain"]
    shown = (
        definition.queue,
        definition.priority,
        definition.max_attempts,
        definition.timeout_seconds,
        definition.version,
    )
    assert shown == ("default", 0, None, None, 1)
    assert (definition.is_async, definition.context, definition.permanent, definition.aliases) == (
        False,
        "none",
        (),
        (),
    )


def test_options_are_kept() -> None:
    tasks = Tasks()
    backoff = Backoff(base_seconds=1)
    tasks.task(
        name="other", queue="q", timeout=timedelta(minutes=1), backoff=backoff, permanent=[LookupError], aliases=["old"]
    )(coroutine)
    definition = tasks.definitions["other"]
    assert definition is tasks.definitions["old"]
    assert definition.kinds == ("other", "old")
    assert (definition.timeout_seconds, definition.backoff, definition.permanent) == (60.0, backoff, (LookupError,))
    assert definition.is_async


@pytest.mark.parametrize("kinds", [({"name": "a"}, {"name": "a"}), ({"name": "a"}, {"name": "b", "aliases": ["a"]})])
def test_two_tasks_of_one_name_are_refused_with_both_places(kinds: tuple[dict[str, Any], dict[str, Any]]) -> None:
    tasks = Tasks()
    tasks.task(**kinds[0])(plain)
    with pytest.raises(TaskDefinitionError, match=r"two tasks are named 'a': plain \(.*\) and coroutine \(.*\)"):
        tasks.task(**kinds[1])(coroutine)


def test_a_registry_becomes_part_of_an_application() -> None:
    tasks = Tasks()
    task = tasks.task()(plain)
    with pytest.raises(ConfigError, match="belong to no application yet"):
        task.enqueue(object(), 1)  # type: ignore[call-overload]
    app = App("", tasks=[tasks], schema="elsewhere")
    assert set(app.definitions) == {"plain"}
    assert task._schema() == "elsewhere"


def test_an_application_without_tasks_has_nothing_to_work_on() -> None:
    with pytest.raises(ConfigError, match="has no tasks"):
        App("").worker()


def test_making_an_application_touches_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMECOMMIT_DSN", "postgresql://from-the-environment")
    app = App()
    app.task()(plain)
    assert app.dsn == "postgresql://from-the-environment"
    assert App("postgresql://given").dsn == "postgresql://given"
    monkeypatch.delenv("SAMECOMMIT_DSN")
    assert app.dsn == ""


def test_a_task_called_directly_runs_its_function() -> None:
    tasks = Tasks()

    @tasks.task()
    def double(n: int) -> int:
        return 2 * n

    @tasks.task()
    async def triple(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert asyncio.run(triple(4)) == 12


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((), {"m": 1}), (("1",), {}), ((1,), {"n": 1})])
def test_arguments_that_do_not_fit_the_signature_are_refused_where_they_are_given(args: Any, kwargs: Any) -> None:
    task = Tasks().task()(plain)
    with pytest.raises(PayloadError, match="plain"):
        task.job(*args, **kwargs)
