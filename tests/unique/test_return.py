"""B09: what brings a job back to life asks for its key again, and answers instead of raising."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.support.engine import Actor, reap, run
from tests.support.jobs import Jobs
from tests.support.waiting import wait_until
from tests.unique.keys import Keys
from tests.unique.test_rivals import waits
from tests.unique.test_states import (
    HOUR,
    Move,
    aged,
    cancelled,
    failed,
    failed_by_the_reaper,
    held,
    held_too_long,
    marked_failed,
)

pytestmark = pytest.mark.pg15


@pytest.mark.parametrize("end", [failed, cancelled, aged])
def test_a_retried_job_takes_its_key_again(keys: Keys, actor: Actor, end: Any) -> None:
    first, _, _ = keys.enqueue()
    end(keys, actor, first)
    assert keys.call("retry", first) == "retried"
    assert keys.enqueue() == (first, False, False)
    keys.check()


@pytest.mark.parametrize("end", [failed, cancelled, aged])
def test_a_retry_whose_key_is_taken_by_now_says_so_and_changes_nothing(keys: Keys, actor: Actor, end: Any) -> None:
    first, _, _ = keys.enqueue()
    end(keys, actor, first)
    before = keys.jobs.row(first)
    second, _, _ = keys.enqueue()
    assert keys.call("retry", first) == "duplicate"
    assert keys.jobs.row(first) == before
    assert keys.holder() == second
    done_ids = actor.finish(actor.claim())
    assert done_ids == [second]
    assert keys.call("retry", first) == "retried"
    keys.check()


@pytest.mark.parametrize("end", [failed, marked_failed, failed_by_the_reaper, held_too_long])
@pytest.mark.parametrize("bring_back", ["retry", "hold"])
def test_a_failed_job_that_returns_goes_on_with_its_window(
    keys: Keys, actor: Actor, end: Move, bring_back: str, jobs: Jobs
) -> None:
    first, _, _ = keys.enqueue(unique_for=HOUR)
    until = jobs.value("SELECT until_at FROM $.unique_key")
    end(keys, actor, first)
    assert keys.call(bring_back, first, *(["look"] if bring_back == "hold" else [])) in ("retried", "held")
    if bring_back == "hold":
        keys.call("release", first)
    assert keys.enqueue() == (first, False, False)
    assert actor.finish(actor.claim()) == [first]
    assert keys.enqueue() == (first, False, False), "at most once in the window, if it succeeds"
    assert jobs.value("SELECT until_at FROM $.unique_key") == until
    keys.check()


@pytest.mark.parametrize("bring_back", ["retry", "hold"])
def test_a_job_that_returns_after_its_window_keeps_nothing_of_it_that_a_sweep_would_look_at(
    keys: Keys, actor: Actor, bring_back: str, jobs: Jobs
) -> None:
    """A sweep whose snapshot is from before the return sees a failed job, and decides by the row's newest version alone."""
    first, _, _ = keys.enqueue(unique_for=HOUR)
    failed(keys, actor, first)
    jobs.all("UPDATE $.unique_key SET until_at = clock_timestamp() - interval '1 second'")
    assert keys.call(bring_back, first, *(["look"] if bring_back == "hold" else [])) in ("retried", "held")
    assert jobs.all("SELECT job_id, until_at FROM $.unique_key") == [(first, None)]
    keys.check()


def test_a_job_that_takes_over_a_failed_ones_key_has_its_own_window_or_none(keys: Keys, actor: Actor) -> None:
    first, _, _ = keys.enqueue(unique_for=HOUR)
    failed(keys, actor, first)
    second, created, _ = keys.enqueue()
    assert (created, keys.call("retry", first)) == (True, "duplicate")
    assert actor.finish(actor.claim()) == [second]
    assert keys.holder() is None
    keys.check()


def test_many_jobs_take_over_the_keys_of_failed_ones(keys: Keys, actor: Actor, jobs: Jobs) -> None:
    first, _, _ = keys.enqueue(unique_for=HOUR)
    failed(keys, actor, first)
    wanted = '[{"kind": "work", "unique_key": "k"}, {"kind": "work", "unique_key": "k"}]'
    (second, created), (again, created_again) = jobs.all("SELECT id, created FROM $.enqueue_many(%s::jsonb)", wanted)
    assert (second == again, created, created_again, keys.holder()) == (True, True, False, second)
    keys.check()


def test_holding_a_failed_job_takes_its_key_or_says_duplicate(keys: Keys, actor: Actor) -> None:
    first, _, _ = keys.enqueue()
    failed(keys, actor, first)
    assert keys.call("hold", first, "look") == "held"
    assert keys.holder() == first
    second, _, _ = keys.enqueue("other")
    failed(keys, actor, second)
    third, _, _ = keys.enqueue("other")
    assert keys.call("hold", second, "look") == "duplicate"
    assert (keys.holder("other"), keys.jobs.state(second)) == (third, "failed")
    keys.check()


def test_a_replay_takes_the_key_or_comes_to_the_job_that_holds_it(keys: Keys, actor: Actor, jobs: Jobs) -> None:
    free, _, _ = keys.enqueue("free")
    actor.finish(actor.claim())
    taken, _, _ = keys.enqueue("taken")
    rows = {old: (new, created) for new, old, created in jobs.all("SELECT * FROM $.replay(%s)", [taken, free])}
    assert rows[taken] == (taken, False)
    new, created = rows[free]
    assert (created, keys.holder("free"), jobs.row(new)["replay_of"]) == (True, new, free)
    keys.check()


def test_a_replay_of_two_jobs_of_one_key_makes_one(keys: Keys, actor: Actor, jobs: Jobs) -> None:
    old = []
    for _ in range(2):
        old.append(keys.enqueue("k" * 5000)[0])
        actor.finish(actor.claim())
    rows = jobs.all("SELECT id, created FROM $.replay(%s)", old)
    assert len({row[0] for row in rows}) == 1
    assert sorted(row[1] for row in rows) == [False, True]
    keys.check()


def test_a_failed_unique_job_never_keeps_others_from_their_turn(keys: Keys, actor: Actor, jobs: Jobs) -> None:
    """A job fails and waits for its retry, another comes with its key, and a thousand others are due and to be rescued."""
    first, _, _ = keys.enqueue()
    actor.settle(actor.claim(), "error", delays=[0.01], errors=["it broke"])
    assert keys.enqueue() == (first, False, False)
    jobs.all("SELECT $.enqueue('work', delay => '1 microsecond') FROM generate_series(1, 500)")
    jobs.all("SELECT $.enqueue('work') FROM generate_series(1, 500)")
    victim = Actor(actor.conn).register()
    assert len(victim.claim(500)) == 500
    victim.die()
    assert reap(actor.conn)[1] == 500
    jobs.all("UPDATE $.job SET run_at = clock_timestamp() WHERE pos IS NULL")
    run(actor.conn, "chore/promote", start="-infinity", room=2000)
    assert jobs.value("SELECT count(*) FROM $.job WHERE pos IS NOT NULL") == 1001
    keys.check()


def test_the_key_of_a_job_from_before_is_kept_in_its_history(keys: Keys, actor: Actor, jobs: Jobs) -> None:
    job_id, _, _ = keys.enqueue("lead:42", unique_scope="leads")
    actor.finish(actor.claim())
    row = jobs.row(job_id)
    assert (row["unique_scope"], row["unique_key"], row["state"]) == ("leads", "lead:42", "done")


def test_a_retry_waits_for_a_rival_and_takes_the_key_when_it_rolls_back(keys: Keys, actor: Actor, dsn: str) -> None:
    first, _, _ = keys.enqueue()
    held(keys, actor, first)
    keys.call("cancel", first)
    with psycopg.connect(dsn) as rival:
        rival.execute("SELECT samecommit.enqueue('work', unique_key => 'k')")
        keys.jobs.conn.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            keys.call("retry", first)
        rival.rollback()
        assert keys.call("retry", first) == "retried"
    keys.check()


def test_a_cancel_that_waited_for_a_retry_gives_the_key_back_that_the_retry_took(
    keys: Keys, actor: Actor, dsn: str
) -> None:
    """The statement that ends the job has a snapshot from before the key was taken again."""
    first, _, _ = keys.enqueue()
    failed(keys, actor, first)
    with psycopg.connect(dsn) as person, psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        assert person.execute("SELECT samecommit.retry(%s)", [first]).fetchone() == ("retried",)
        end = pool.submit(lambda: other.execute("SELECT samecommit.cancel(%s)", [first]).fetchone())
        wait_until(lambda: waits(keys.jobs), what="the cancel waits for the retry")
        person.commit()
        assert end.result(10) == ("cancelled",)
    assert keys.holder() is None
