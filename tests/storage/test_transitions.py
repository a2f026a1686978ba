"""What the contract's functions do to a job in each of the states that it can be in."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.engine import Actor, enqueue, reap, run
from tests.support.jobs import Jobs

pytestmark = pytest.mark.pg15

LONG = "long " * 2000


@pytest.fixture
def actor(conn: psycopg.Connection[Any], jobs: Jobs) -> Actor:
    return Actor(conn).register()


def in_line(jobs: Jobs, actor: Actor) -> int:
    return enqueue(jobs, payload=Jsonb({"text": LONG}))[0]


def later(jobs: Jobs, actor: Actor) -> int:
    return enqueue(jobs, delay=timedelta(hours=1))[0]


def running(jobs: Jobs, actor: Actor) -> int:
    job_id = in_line(jobs, actor)
    assert [pair[0] for pair in actor.claim()] == [job_id]
    return job_id


def held(jobs: Jobs, actor: Actor) -> int:
    job_id = in_line(jobs, actor)
    jobs.all("SELECT $.hold(%s, 'look at it', '{\"a\": 1}')", job_id)
    return job_id


def failed(jobs: Jobs, actor: Actor) -> int:
    job_id = in_line(jobs, actor)
    actor.settle(actor.claim(), "failed", "failed", errors=["it broke"])
    return job_id


def unknown_kind(jobs: Jobs, actor: Actor) -> int:
    (job_id,) = enqueue(jobs, kind="unknown")
    run(actor.conn, "chore/set_aside", room=10, patience_seconds=0.0)
    assert jobs.row(job_id)["blocked_by"] == "kind"
    return job_id


def suspect(jobs: Jobs, actor: Actor) -> int:
    (job_id,) = enqueue(jobs)
    for _ in range(2):
        victim = Actor(actor.conn).register()
        victim.claim()
        victim.die()
        reap(actor.conn)
    assert jobs.row(job_id)["blocked_by"] == "suspect"
    return job_id


def done(jobs: Jobs, actor: Actor) -> int:
    job_id = in_line(jobs, actor)
    actor.finish(actor.claim())
    return job_id


def cancelled(jobs: Jobs, actor: Actor) -> int:
    job_id = in_line(jobs, actor)
    jobs.all("SELECT $.cancel(%s)", job_id)
    return job_id


def aged(jobs: Jobs, actor: Actor) -> int:
    job_id = failed(jobs, actor)
    run(actor.conn, "chore/age_failed", age_seconds=-1.0, room=10)
    assert jobs.value("SELECT count(*) FROM $.job_history WHERE id = %s AND state = 'failed'", job_id) == 1
    return job_id


def bare(jobs: Jobs, actor: Actor) -> int:
    """A job in the history whose payload went with its day."""
    job_id = aged(jobs, actor)
    assert jobs.all("DELETE FROM $.body WHERE job_id = %s RETURNING true", job_id) == [(True,)]
    return job_id


Make = Callable[[Jobs, Actor], int]


def check(jobs: Jobs, call: str, job_id: int, answer: str, state: str) -> dict[str, Any]:
    assert jobs.value(f"SELECT $.{call}", job_id) == answer
    row = jobs.row(job_id)
    assert row["state"] == state
    return row


@pytest.mark.parametrize(
    ("make", "answer", "state"),
    [
        (in_line, "cancelled", "cancelled"),
        (later, "cancelled", "cancelled"),
        (running, "asked", "running"),
        (held, "cancelled", "cancelled"),
        (failed, "cancelled", "cancelled"),
        (unknown_kind, "cancelled", "cancelled"),
        (suspect, "cancelled", "cancelled"),
        (done, "too late", "done"),
        (cancelled, "too late", "cancelled"),
        (aged, "too late", "failed"),
    ],
)
def test_cancel(jobs: Jobs, actor: Actor, make: Make, answer: str, state: str) -> None:
    job_id = make(jobs, actor)
    before = jobs.row(job_id)["payload"]
    row = check(jobs, "cancel(%s, 'not wanted')", job_id, answer, state)
    assert row["payload"] == before
    assert (row["last_error"] == "not wanted") is (answer == "cancelled")
    asked = jobs.value("SELECT count(*) FROM $.cancellation WHERE job_id = %s AND reason = 'not wanted'", job_id)
    assert asked == (answer == "asked")


@pytest.mark.parametrize(
    ("make", "answer", "state"),
    [
        (in_line, "held", "held"),
        (later, "held", "held"),
        (running, "running", "running"),
        (held, "held", "held"),
        (failed, "held", "held"),
        (unknown_kind, "held", "held"),
        (suspect, "held", "held"),
        (done, "too late", "done"),
        (cancelled, "too late", "cancelled"),
        (aged, "too late", "failed"),
    ],
)
def test_hold(jobs: Jobs, actor: Actor, make: Make, answer: str, state: str) -> None:
    job_id = make(jobs, actor)
    row = check(jobs, "hold(%s, 'a person decides', '{\"seen\": 2}')", job_id, answer, state)
    if answer == "held":
        assert (row["hold_reason"], row["hold_data"]) == ("a person decides", {"seen": 2})
        assert [pair[0] for pair in [*actor.claim(), *actor.claim_suspects()]] == []


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (in_line, "ready"),
        (later, "ready"),
        (running, "running"),
        (held, "released"),
        (failed, "failed"),
        (done, "done"),
        (cancelled, "cancelled"),
        (aged, "failed"),
    ],
)
def test_release(jobs: Jobs, actor: Actor, make: Make, answer: str) -> None:
    job_id = make(jobs, actor)
    before = jobs.row(job_id)
    state = "ready" if answer == "released" else before["state"]
    row = check(jobs, "release(%s, '{\"ok\": true}')", job_id, answer, state)
    if answer == "released":
        assert row["decision"] == {"ok": True}
        assert [pair[0] for pair in actor.claim()] == [job_id]
    else:
        assert row == before


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (in_line, "ready"),
        (later, "retried"),
        (running, "running"),
        (held, "held"),
        (failed, "retried"),
        (unknown_kind, "retried"),
        (suspect, "retried"),
        (done, "done"),
        (cancelled, "retried"),
        (aged, "retried"),
        (bare, "incomplete"),
    ],
)
def test_retry(jobs: Jobs, actor: Actor, make: Make, answer: str) -> None:
    job_id = make(jobs, actor)
    before = jobs.row(job_id)
    row = check(jobs, "retry(%s)", job_id, answer, "ready" if answer == "retried" else before["state"])
    if answer == "retried":
        assert (row["attempts"], row["crashes"], row["blocked_by"]) == (0, 0, None)
        assert row["claims"] == before["claims"]
        assert row["payload"] == before["payload"]
        assert row["run_at"] <= datetime.now(UTC) + timedelta(seconds=1)
        actor.kinds = ("work", "unknown")
        assert [pair[0] for pair in actor.claim()] == [job_id]
    else:
        assert row == before


@pytest.mark.parametrize("make", [in_line, later, running, held, failed, done, cancelled, aged])
def test_replay_makes_a_new_job_and_leaves_the_old_one(jobs: Jobs, actor: Actor, make: Make) -> None:
    job_id = make(jobs, actor)
    before = jobs.row(job_id)
    ((new_id, old_id),) = jobs.all("SELECT id, replay_of FROM $.replay(%s, '{\"more\": 1}')", [job_id])
    assert old_id == job_id != new_id
    assert jobs.row(job_id) == before
    row = jobs.row(new_id)
    assert row["payload"] == {**before["payload"], "more": 1}
    assert (row["state"], row["replay_of"], row["kind"], row["attempts"]) == ("ready", job_id, "work", 0)
    assert new_id in [pair[0] for pair in actor.claim()]


def test_a_replay_of_what_has_no_payload_any_more_is_refused_whatever_the_patch(jobs: Jobs, actor: Actor) -> None:
    whole, job_id = done(jobs, actor), bare(jobs, actor)
    for patch in (None, '{"text": "new"}'):
        with pytest.raises(psycopg.Error, match=f"the payload of job {job_id} is no longer kept") as caught:
            jobs.all("SELECT id FROM $.replay(%s, %s::jsonb)", [whole, job_id], patch)
        assert caught.value.sqlstate == "SC002"
    assert jobs.value("SELECT count(*) FROM $.job") == 0
    jobs.all("SELECT id FROM $.replay(%s)", [whole])
    assert jobs.value("SELECT count(*) FROM $.job") == 1


def test_replay_of_many_ids_makes_one_each_in_another_queue(jobs: Jobs, actor: Actor) -> None:
    jobs.all("SELECT $.create_queue('night')")
    old = [make(jobs, actor) for make in (failed, done, cancelled)]
    new = jobs.all("SELECT id, replay_of FROM $.replay(%s, queue => 'night')", [*old, *old, 999_999])
    assert sorted(row[1] for row in new) == sorted(old)
    assert {jobs.row(row[0])["queue"] for row in new} == {"night"}


def test_replay_into_an_unknown_queue_is_refused(jobs: Jobs, actor: Actor) -> None:
    job_id = done(jobs, actor)
    with pytest.raises(psycopg.Error) as caught:
        jobs.all("SELECT id, replay_of FROM $.replay(%s, queue => 'nowhere')", [job_id])
    assert caught.value.sqlstate == "SC001"


def test_a_replay_has_effects_of_its_own_unless_told(jobs: Jobs, actor: Actor) -> None:
    (named,) = enqueue(jobs, effect_key="order:1")
    (plain,) = enqueue(jobs)
    for keep in (False, True):
        jobs.all("SELECT id, replay_of FROM $.replay(%s, keep_effect_key => %s)", [named, plain], keep)
    stored = jobs.all("SELECT replay_of, effect_key FROM $.job WHERE replay_of IS NOT NULL ORDER BY id")
    assert sorted(stored[:2]) == [(named, None), (plain, None)]
    installation = jobs.value("SELECT value #>> '{}' FROM $.setting WHERE name = 'installation'")
    created = jobs.value("SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM $.job WHERE id = %s", plain)
    assert sorted(stored[2:]) == [(named, "order:1"), (plain, f"{installation}:{plain}:{created}")]


@pytest.mark.parametrize("call", ["cancel(%s)", "hold(%s, 'x')", "release(%s)", "retry(%s)"])
def test_a_job_that_nobody_knows_is_said_to_be_unknown(jobs: Jobs, call: str) -> None:
    with pytest.raises(psycopg.Error, match="no job 4711") as caught:
        jobs.all(f"SELECT $.{call}", 4711)
    assert caught.value.sqlstate == "SC002"


def test_pause_and_resume_live_in_the_database(jobs: Jobs) -> None:
    jobs.all("SELECT $.pause('default', 'the mail server is down')")
    assert jobs.all("SELECT is_paused, pause_reason FROM $.queues") == [(True, "the mail server is down")]
    jobs.all("SELECT $.pause('default', 'still', clock_timestamp() - interval '1 second')")
    assert jobs.all("SELECT is_paused, pause_reason FROM $.queues") == [(False, "still")]
    jobs.all("SELECT $.resume('default')")
    assert jobs.all("SELECT is_paused, paused_at, paused_until, pause_reason FROM $.queues") == [
        (False, None, None, None)
    ]
    jobs.all("SELECT $.resume('default')")


@pytest.mark.parametrize("call", ["pause('nowhere')", "resume('nowhere')"])
def test_an_unknown_queue_cannot_be_paused(jobs: Jobs, call: str) -> None:
    with pytest.raises(psycopg.Error, match="unknown queue 'nowhere'") as caught:
        jobs.all(f"SELECT $.{call}")
    assert caught.value.sqlstate == "SC001"


def test_a_running_job_cannot_be_cancelled_twice_with_two_reasons(jobs: Jobs, actor: Actor) -> None:
    job_id = running(jobs, actor)
    for reason in ("first", "second"):
        assert jobs.value("SELECT $.cancel(%s, %s)", job_id, reason) == "asked"
    assert jobs.all("SELECT reason FROM $.cancellation") == [("first",)]


def test_an_aged_job_with_a_body_comes_back_whole_with_its_attempts(jobs: Jobs, actor: Actor) -> None:
    job_id = aged(jobs, actor)
    jobs.all("SELECT $.retry(%s)", job_id)
    assert jobs.row(job_id)["payload"] == {"text": LONG}
    assert jobs.outcomes(job_id) == ["failed"]
    actor.finish(actor.claim())
    assert jobs.outcomes(job_id) == ["failed", "done"]
    assert [attempt["number"] for attempt in jobs.attempts(job_id)] == [1, 2]


def test_nobody_but_the_owner_and_who_was_granted_may_call(dsn: str, jobs: Jobs) -> None:
    granted = jobs.all(
        "SELECT p.proname FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'samecommit' AND has_function_privilege('public', p.oid, 'EXECUTE')"
    )
    assert granted == []


def test_a_job_for_no_time_at_all_does_not_keep_others_from_their_turn(jobs: Jobs, actor: Actor) -> None:
    (never,) = enqueue(jobs, run_at="infinity")
    (due,) = enqueue(jobs, delay=timedelta(hours=1))
    jobs.all("UPDATE $.job SET run_at = clock_timestamp() WHERE id = %s", due)
    assert run(actor.conn, "chore/promote", start="-infinity", room=10)[0][0] == 1
    assert jobs.value("SELECT pos FROM $.job WHERE id = %s", due) is not None
    assert jobs.all("SELECT code, sentence FROM $.why(%s)", never) == [("not_due", "not due at any time")]


@pytest.mark.parametrize("ends", ["retry", "release"])
def test_a_request_to_cancel_does_not_outlive_the_run_that_it_was_for(jobs: Jobs, actor: Actor, ends: str) -> None:
    (job_id,) = enqueue(jobs)
    pairs = actor.claim()
    assert jobs.value("SELECT $.cancel(%s)", job_id) == "asked"
    if ends == "release":
        actor.settle(pairs, "held", "held")
        assert jobs.value("SELECT $.release(%s)", job_id) == "released"
    else:
        actor.settle(pairs, delays=[3600.0])
        jobs.all("UPDATE $.cancellation SET requested_at = requested_at - interval '1 minute'")
        assert run(actor.conn, "chore/reap_cancelled")[0][0] == 1
        assert jobs.value("SELECT $.retry(%s)", job_id) == "retried"
    assert jobs.value("SELECT count(*) FROM $.cancellation") == 0
    jobs.all("UPDATE $.cancellation SET requested_at = requested_at - interval '1 minute'")
    assert run(actor.conn, "chore/reap_cancelled")[0][0] == 0
    assert jobs.state(job_id) == "ready"
