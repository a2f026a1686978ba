"""In which states a job holds its key, and what takes it back."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.support.engine import Actor, reap, run
from tests.support.jobs import Jobs
from tests.unique.keys import Keys

pytestmark = pytest.mark.pg15

Move = Callable[[Keys, Actor, int], None]
HOUR = timedelta(hours=1)


def nothing(keys: Keys, actor: Actor, job_id: int) -> None: ...


def claimed(keys: Keys, actor: Actor, job_id: int) -> None:
    assert [pair[0] for pair in actor.claim()] == [job_id]


def retried(keys: Keys, actor: Actor, job_id: int) -> None:
    actor.settle(actor.claim(), "error", delays=[3600.0], errors=["it broke"])


def snoozed(keys: Keys, actor: Actor, job_id: int) -> None:
    actor.settle(actor.claim(), "snoozed", delays=[3600.0])


def given_back(keys: Keys, actor: Actor, job_id: int) -> None:
    actor.settle(actor.claim())


def held(keys: Keys, actor: Actor, job_id: int) -> None:
    assert keys.call("hold", job_id, "look at it") == "held"


def released(keys: Keys, actor: Actor, job_id: int) -> None:
    held(keys, actor, job_id)
    assert keys.call("release", job_id) == "released"


def rescued(keys: Keys, actor: Actor, job_id: int) -> None:
    victim = Actor(actor.conn).register()
    assert victim.claim()
    victim.die()
    assert reap(actor.conn)[1] == 1


def asked_to_stop(keys: Keys, actor: Actor, job_id: int) -> None:
    actor.claim()
    assert keys.call("cancel", job_id) == "asked"


def done(keys: Keys, actor: Actor, job_id: int) -> None:
    assert actor.finish(actor.claim()) == [job_id]


def ended_as_cancelled(keys: Keys, actor: Actor, job_id: int) -> None:
    ((_, claim_id),) = actor.claim()
    values: dict[str, Any] = {"results": None, "errors": None, "records": None, "lease_id": 1}
    run(actor.conn, "job/finish", ids=[job_id], claim_ids=[claim_id], states=["cancelled"], **values)


def failed(keys: Keys, actor: Actor, job_id: int) -> None:
    actor.settle(actor.claim(), "failed", "failed", errors=["it broke"])


def marked_failed(keys: Keys, actor: Actor, job_id: int) -> None:
    ((_, claim_id),) = actor.claim()
    assert run(actor.conn, "job/mark_failed", id=job_id, claim_id=claim_id, error="its end could not be written")


def failed_by_the_reaper(keys: Keys, actor: Actor, job_id: int) -> None:
    keys.jobs.all("UPDATE $.job SET max_attempts = 1")
    rescued(keys, actor, job_id)
    assert keys.jobs.state(job_id) == "failed"


def held_too_long(keys: Keys, actor: Actor, job_id: int) -> None:
    held(keys, actor, job_id)
    keys.jobs.all("UPDATE $.job SET hold_until_at = clock_timestamp()")
    assert run(actor.conn, "chore/expire_holds", room=10) == [(job_id,)]


def cancelled(keys: Keys, actor: Actor, job_id: int) -> None:
    assert keys.call("cancel", job_id) == "cancelled"


def cancelled_after_its_worker_died(keys: Keys, actor: Actor, job_id: int) -> None:
    asked_to_stop(keys, actor, job_id)
    keys.jobs.all("UPDATE $.cancellation SET requested_at = requested_at - interval '1 minute'")
    actor.die()
    assert run(actor.conn, "chore/reap_cancelled") == [(1,)]


def aged(keys: Keys, actor: Actor, job_id: int) -> None:
    failed(keys, actor, job_id)
    assert run(actor.conn, "chore/age_failed", age_seconds=0.0, room=10) == [(1,)]


LIVE: list[Move] = [
    nothing,
    claimed,
    retried,
    snoozed,
    given_back,
    held,
    released,
    rescued,
    asked_to_stop,
]
UNSUCCESSFUL: list[Move] = [
    ended_as_cancelled,
    failed,
    marked_failed,
    failed_by_the_reaper,
    held_too_long,
    cancelled,
    cancelled_after_its_worker_died,
    aged,
]


@pytest.mark.parametrize("move", LIVE)
def test_a_live_job_holds_its_key(keys: Keys, actor: Actor, move: Move) -> None:
    first, created, _ = keys.enqueue()
    assert created
    move(keys, actor, first)
    assert keys.enqueue() == (first, False, False)
    assert keys.holder() == first
    keys.check()


@pytest.mark.parametrize("move", [done, *UNSUCCESSFUL])
def test_the_end_of_a_job_gives_its_key_back(keys: Keys, actor: Actor, move: Move) -> None:
    first, _, _ = keys.enqueue()
    move(keys, actor, first)
    assert keys.holder() is None
    second, created, _ = keys.enqueue()
    assert (created, second > first) == (True, True)
    keys.check()


@pytest.mark.parametrize("move", LIVE)
def test_a_job_that_outlives_its_window_still_holds_its_key(keys: Keys, actor: Actor, move: Move) -> None:
    first, _, _ = keys.enqueue(unique_for=HOUR)
    move(keys, actor, first)
    keys.jobs.all("UPDATE $.unique_key SET until_at = clock_timestamp()")
    assert run(actor.conn, "unique/sweep", room=10) == [(0, 1)]
    assert run(actor.conn, "unique/sweep", room=10) == [(0, 0)], "it is looked at once"
    assert keys.enqueue() == (first, False, False)


def test_a_window_outlasts_success(keys: Keys, actor: Actor) -> None:
    first, _, _ = keys.enqueue(unique_for=HOUR)
    done(keys, actor, first)
    assert keys.enqueue(unique_for=HOUR) == (first, False, False)
    assert keys.enqueue(on_conflict="replace") == (first, False, False)


@pytest.mark.parametrize("move", UNSUCCESSFUL)
def test_a_window_does_not_outlast_failure(keys: Keys, actor: Actor, move: Move) -> None:
    first, _, _ = keys.enqueue(unique_for=HOUR)
    move(keys, actor, first)
    assert keys.enqueue(unique_for=HOUR)[1]


def test_a_window_that_is_over_is_taken_over_or_swept(keys: Keys, actor: Actor) -> None:
    for key in ("taken", "swept"):
        first, _, _ = keys.enqueue(key, unique_for=HOUR)
        done(keys, actor, first)
    keys.jobs.all("UPDATE $.unique_key SET until_at = clock_timestamp()")
    second, created, _ = keys.enqueue("taken")
    assert (created, keys.holder("taken")) == (True, second)
    assert run(actor.conn, "unique/sweep", room=10) == [(1, 0)]
    assert keys.holder("swept") is None
    keys.check()


def test_jobs_without_a_key_leave_no_trace(keys: Keys, actor: Actor, jobs: Jobs) -> None:
    jobs.all("SELECT $.enqueue('work') FROM generate_series(1, 3)")
    assert len(actor.finish(actor.claim())) == 3
    assert jobs.value("SELECT count(*) FROM $.unique_key") == 0
