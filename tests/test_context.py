"""What a context says of its job, without a database."""

from datetime import UTC, datetime
from typing import Any

import pytest

from samecommit import AsyncContext, Context, Job

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Run:
    """What runs the job: it keeps what it is told."""

    installation = "here"
    cancel_requested = False

    def __init__(self) -> None:
        self.told: list[Any] = []

    def record(self, fields: dict[str, Any]) -> None:
        self.told.append(fields)

    def progress(self, value: Any) -> None:
        self.told.append(value)

    def finish(self, conn: Any, result: Any) -> None:
        self.told.append((conn, result))

    async def finish_async(self, conn: Any, result: Any) -> None:
        self.told.append((conn, result))

    def transaction(self) -> Any:
        return "transaction"

    def transaction_async(self) -> Any:
        return "async transaction"


def job(**changes: Any) -> Job:
    fields: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    fields |= {
        "id": 7,
        "kind": "work",
        "attempts": 2,
        "max_attempts": 5,
        "claimed_at": NOW,
        "created_at": NOW,
        "run_at": NOW,
    }
    return Job(**{**fields, **changes})


def test_attempts_count_from_one() -> None:
    assert Context(job(attempts=0), Run()).attempt == 1
    assert Context(job(attempts=2), Run()).attempt == 3
    assert [job(attempts=n).is_last_attempt for n in (3, 4, 5)] == [False, True, True]


def test_the_effect_key_is_the_job_s_own_unless_one_was_given() -> None:
    assert Context(job(), Run()).effect_key == "here:7:1767225600000000"
    assert Context(job(effect_key="order:1"), Run()).effect_key == "order:1"


def test_the_json_beside_the_payload_is_read_when_asked_for() -> None:
    made = job(decision_json='{"ok": true}', meta_json='{"actor": "anna"}')
    assert (made.decision, made.meta) == ({"ok": True}, {"actor": "anna"})
    assert (job().decision, job().meta) == (None, None)


@pytest.mark.parametrize("kind", [Context, AsyncContext])
def test_a_context_passes_on_what_it_is_told(kind: type[Context] | type[AsyncContext]) -> None:
    run = Run()
    ctx = kind(job(), run)
    ctx.record(a=1)
    ctx.progress(0.5)
    assert run.told == [{"a": 1}, 0.5]
    assert repr(ctx) == f"<{kind.__name__} work 7 attempt 3 of 5>"
    assert ctx.cancel_requested is False


async def test_each_twin_ends_the_job_in_its_own_way() -> None:
    run = Run()
    Context(job(), run).finish("conn", 1)
    await AsyncContext(job(), run).finish("conn", 2)
    assert run.told == [("conn", 1), ("conn", 2)]
    assert Context(job(), run).transaction() == "transaction"  # type: ignore[comparison-overlap]
    assert AsyncContext(job(), run).transaction() == "async transaction"  # type: ignore[comparison-overlap]
