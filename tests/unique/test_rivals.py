"""B08, B10: callers that meet at a key."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.support.engine import Actor
from tests.support.jobs import Jobs
from tests.support.waiting import wait_until
from tests.unique.keys import Keys

pytestmark = pytest.mark.pg15

ENQUEUE = "SELECT id, created FROM samecommit.enqueue('work', unique_key => 'k')"


def waits(jobs: Jobs) -> bool:
    """Whether somebody waits for another transaction."""
    text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'"
    return bool(jobs.value(text))


def meet(dsn: str, jobs: Jobs, end: str) -> tuple[Any, Any]:
    """Two transactions enqueue under one key; the first is ended when the second waits for it. Their answers."""
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second, ThreadPoolExecutor(1) as pool:
        answer = first.execute(ENQUEUE).fetchone()
        waiting: Future[Any] = pool.submit(lambda: second.execute(ENQUEUE).fetchone())
        wait_until(lambda: waits(jobs), what="the second waits")
        assert not waiting.done()
        getattr(first, end)()
        return answer, waiting.result(10)


def test_b08a_a_rival_that_rolls_back_leaves_the_job_to_the_one_who_waited(dsn: str, jobs: Jobs, keys: Keys) -> None:
    (lost, _), (kept, created) = meet(dsn, jobs, "rollback")
    assert created
    assert (jobs.state(lost), jobs.state(kept)) == (None, "ready")
    keys.check()


def test_b08a_a_rival_that_commits_is_the_job_that_the_other_gets(dsn: str, jobs: Jobs, keys: Keys) -> None:
    (first, _), (same, created) = meet(dsn, jobs, "commit")
    assert (same, created) == (first, False)
    keys.check()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("call", [ENQUEUE, 'SELECT samecommit.enqueue_many(\'[{"kind": "work", "unique_key": "k"}]\')'])
def test_b08d_a_snapshot_that_is_too_old_is_explained(dsn: str, conn: Any, keys: Keys, level: str, call: str) -> None:
    with psycopg.connect(dsn) as caller:
        caller.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        caller.execute("SELECT count(*) FROM samecommit.jobs")
        conn.execute(ENQUEUE)
        with pytest.raises(psycopg.errors.SerializationFailure) as caught:
            caller.execute(call.encode())
        assert f"unique key 'k' of 'work' was taken after this {level} transaction began" in str(caught.value)
        assert "repeat the whole transaction" in str(caught.value.diag.message_hint)
        caller.rollback()
        caller.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        assert caller.execute(ENQUEUE).fetchone() == (keys.holder(), False)


def test_b08e_while_the_holder_ends_the_caller_waits_and_gets_a_job_of_its_own(
    dsn: str, jobs: Jobs, keys: Keys, actor: Actor
) -> None:
    first, _, _ = keys.enqueue()
    pairs = actor.claim()
    with psycopg.connect(dsn) as ender, psycopg.connect(dsn) as caller, ThreadPoolExecutor(1) as pool:
        assert actor.finish(pairs, on=ender) == [first]
        waiting: Future[Any] = pool.submit(lambda: caller.execute(ENQUEUE).fetchone())
        wait_until(lambda: waits(jobs), what="the caller waits for the end")
        ender.commit()
        second, created = waiting.result(10)
    assert (created, second > first) == (True, True)
    keys.check()


def test_finding_a_key_taken_keeps_no_lock_on_its_holder(dsn: str, keys: Keys, actor: Actor) -> None:
    first, _, _ = keys.enqueue()
    with psycopg.connect(dsn) as caller:
        assert caller.execute(ENQUEUE).fetchone() == (first, False)
        actor.conn.execute("SET lock_timeout = '1s'")
        assert actor.finish(actor.claim()) == [first]
        assert keys.enqueue()[1]
    keys.check()


def test_b08f_a_batch_with_one_key_twice_makes_one_job(conn: psycopg.Connection[Any], keys: Keys) -> None:
    rows = conn.execute(
        "SELECT id, created FROM samecommit.enqueue_many(%s::jsonb)",
        ['[{"kind": "work", "unique_key": "k"}, {"kind": "work"}, {"kind": "work", "unique_key": "k"}]'],
    ).fetchall()
    assert [created for _, created in rows] == [True, True, False]
    assert rows[0][0] == rows[2][0] == keys.holder()
    keys.check()


def test_one_transaction_that_asks_twice_comes_to_its_own_job(dsn: str, keys: Keys) -> None:
    with psycopg.connect(dsn) as caller:
        (first, created) = caller.execute(ENQUEUE).fetchone() or (0, False)
        assert created
        assert caller.execute(ENQUEUE).fetchone() == (first, False)
        caller.rollback()
    assert keys.holder() is None


@pytest.mark.parametrize("policy", ["existing", "replace"])
def test_b10a_batches_of_the_same_keys_in_opposite_order_never_deadlock(dsn: str, keys: Keys, policy: str) -> None:
    text = (
        "SELECT count(*) FILTER (WHERE created) FROM samecommit.enqueue_many((SELECT jsonb_agg(jsonb_build_object("
        "'kind', 'work', 'unique_key', n::text, 'on_conflict', %s::text) ORDER BY n * %s) FROM generate_series(1, 200) AS n))"
    )
    start = threading.Barrier(4)

    def push(direction: int) -> int:
        made = 0
        with psycopg.connect(dsn) as caller:
            start.wait(10)
            for turn in range(6):
                row = caller.execute(text.encode(), [policy, direction]).fetchone()
                assert row is not None
                if turn % 3 == 1:
                    caller.rollback()
                else:
                    made += row[0]
                    caller.commit()
        return made

    with ThreadPoolExecutor(4) as pool:
        made = sum(pool.map(push, (1, -1, 1, -1)))
    assert made == 200
    keys.check()
