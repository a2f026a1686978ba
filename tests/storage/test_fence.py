"""Who may write what: the faults that other systems had, one statement at a time."""

import threading
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.engine import Actor, enqueue, reap, run, set_session
from tests.support.jobs import Jobs

pytestmark = pytest.mark.pg15


@pytest.fixture
def actor(conn: psycopg.Connection[Any]) -> Actor:
    return Actor(conn).register()


def test_a_claim_takes_nothing_without_a_living_lease(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    enqueue(jobs, 2)
    assert Actor(conn).claim() == []
    dead = Actor(conn, lease_seconds=-1.0).register()
    assert dead.claim() == []
    assert dead.claim_suspects() == []
    assert len(Actor(conn).register().claim()) == 2


def test_a_claim_that_commits_after_its_lease_was_reaped_gives_its_jobs_back(  # A4: the orphan claim
    dsn: str, jobs: Jobs, conn: psycopg.Connection[Any], actor: Actor
) -> None:
    ids = enqueue(jobs, 3)
    with psycopg.connect(dsn) as stopped:
        assert sorted(pair[0] for pair in actor.claim(on=stopped)) == ids
        # the worker is stopped here, inside its claim, for longer than its lease
        actor.die()
        assert reap(conn) == (0, 0, 0)
        stopped.commit()
    assert jobs.value("SELECT count(*) FROM $.job WHERE claim_id IS NOT NULL") == 3
    assert reap(conn) == (1, 3, 0)
    other = Actor(conn).register()
    assert sorted(pair[0] for pair in other.claim()) == ids
    assert run(conn, "chore/forget_dead_claims", room=10) == []
    assert jobs.value("SELECT count(*) FROM $.claim") == 1


def test_a_finish_never_ends_another_job_that_took_its_slot(jobs: Jobs, actor: Actor) -> None:  # A1: the reused slot
    enqueue(jobs, 200)
    first = actor.claim(20)
    places = dict(jobs.all("SELECT id, ctid FROM $.job WHERE claim_id IS NOT NULL"))
    # somebody touches the running rows: their versions are pruned, and the next claim takes over the slots
    for _ in range(5):
        jobs.all("UPDATE $.job SET tags = array['touched'] WHERE claim_id IS NOT NULL")
        jobs.all("SELECT count(*) FROM $.job")
    second = actor.claim(100)
    now = dict(jobs.all("SELECT id, ctid FROM $.job WHERE claim_id IS NOT NULL"))
    reused = {job_id for job_id, place in now.items() if place in places.values() and places.get(job_id) != place}
    assert reused & {pair[0] for pair in second}, "no slot was reused: this test shows nothing"
    assert sorted(actor.finish(first)) == sorted(pair[0] for pair in first)
    assert actor.finish(first) == []
    states = {job_id: jobs.state(job_id) for job_id, _ in second}
    assert set(states.values()) == {"running"}


def test_the_second_run_of_a_job_cannot_be_ended_by_the_first(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:  # B15
    (job_id,) = enqueue(jobs)
    first = Actor(conn).register()
    old = first.claim()
    first.die()
    reap(conn)
    second = Actor(conn).register()
    new = second.claim()
    before, attempts = jobs.row(job_id), jobs.attempts(job_id)
    assert first.finish(old) == []
    assert first.settle(old, "error", spends=[True]) == []
    assert first.settle(old) == []
    assert run(conn, "job/mark_failed", id=job_id, claim_id=old[0][1], error="x") == []
    written = run(
        conn, "attempt/record", ids=[job_id], claim_ids=[old[0][1]], records=["{}"], progresses=[None], lease_id=1
    )
    assert written == []
    assert (jobs.row(job_id), jobs.attempts(job_id)) == (before, attempts)
    assert second.finish(new) == [job_id]


@pytest.mark.parametrize("fate", ["done", "failed", "cancelled", "put off"])
def test_b15_a_stale_run_changes_nothing_whatever_became_of_the_job(
    fate: str, jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    (job_id,) = enqueue(jobs)
    first = Actor(conn).register()
    old = first.claim()
    first.die()
    reap(conn)
    second = Actor(conn).register()
    new = second.claim()
    match fate:
        case "done":
            assert second.finish(new) == [job_id]
        case "failed":
            assert second.settle(new, "error", "failed") == [job_id]
        case "cancelled":
            jobs.value("SELECT $.cancel(%s)", job_id)
            assert second.settle(new) == [job_id]
            jobs.value("SELECT $.cancel(%s)", job_id)
        case _:
            assert second.settle(new, "snoozed", delays=[60.0], spends=[False]) == [job_id]

    def all_there_is() -> list[Any]:
        return [
            jobs.all(f"SELECT t::text FROM $.{table} AS t ORDER BY 1") for table in ("job", "job_history", "attempt")
        ]

    before = all_there_is()
    assert first.finish(old) == []
    assert first.settle(old, "error", spends=[True]) == []
    assert first.settle(old) == []
    assert run(conn, "job/mark_failed", id=job_id, claim_id=old[0][1], error="x") == []
    assert all_there_is() == before


@pytest.mark.parametrize("how", ["its row", "all rows"])
def test_b16_a_claim_whose_worker_is_not_there_is_free(how: str, jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    ids = enqueue(jobs, 5)
    killed = Actor(conn).register()
    assert len(killed.claim()) == 5
    if how == "its row":
        killed.die()
    else:
        conn.execute("TRUNCATE samecommit.worker")
    assert reap(conn) == (1, 5, 0)
    assert sorted(pair[0] for pair in Actor(conn).register().claim()) == ids


def test_two_leases_of_one_process_are_two_owners(
    jobs: Jobs, conn: psycopg.Connection[Any], actor: Actor
) -> None:  # A2
    (job_id,) = enqueue(jobs)
    old = actor.claim()
    jobs.all(
        "UPDATE $.job SET claim_id = NULL, claims = claims - 1, claimed_at = NULL"
    )  # as if a crash took the claim back
    new = actor.claim()
    assert [pair[0] for pair in new] == [job_id]
    assert actor.finish(old) == []
    assert actor.finish(new) == [job_id]


def test_a_locked_row_delays_no_other_of_its_batch(dsn: str, jobs: Jobs, actor: Actor) -> None:  # B1
    ids = enqueue(jobs, 5)
    pairs = actor.claim()
    with psycopg.connect(dsn) as operator:
        operator.execute("UPDATE samecommit.job SET tags = '{seen}' WHERE id = %s", [ids[2]])
        jobs.all("SET statement_timeout = '2s'")
        assert sorted(actor.finish(pairs)) == [*ids[:2], *ids[3:]]
        still = run(actor.conn, "claim/owned", ids=[p[0] for p in pairs], claim_ids=[p[1] for p in pairs])
        assert [row[0] for row in still] == [ids[2]]
        operator.commit()
    assert actor.finish(pairs) == [ids[2]]


def test_a_locked_row_delays_no_other_of_a_claim(dsn: str, jobs: Jobs, actor: Actor) -> None:
    ids = enqueue(jobs, 5)
    with psycopg.connect(dsn) as operator:
        operator.execute("SELECT FROM samecommit.job WHERE id = %s FOR UPDATE", [ids[0]])
        jobs.all("SET statement_timeout = '2s'")
        assert [pair[0] for pair in actor.claim(3)] == ids[1:4]
    assert sorted(pair[0] for pair in actor.claim()) == [ids[0], ids[4]]


def test_a_locked_row_delays_no_other_of_a_dead_lease(
    dsn: str, jobs: Jobs, conn: psycopg.Connection[Any], actor: Actor
) -> None:
    ids = enqueue(jobs, 3)
    actor.claim()
    actor.die()
    with psycopg.connect(dsn) as operator:
        operator.execute("SELECT FROM samecommit.job WHERE id = %s FOR UPDATE", [ids[1]])
        jobs.all("SET statement_timeout = '2s'")
        assert reap(conn) == (1, 2, 0)
        assert reap(conn) == (1, 0, 0)
    assert reap(conn) == (1, 1, 0)


def test_workers_that_claim_at_once_never_get_the_same_job(dsn: str, jobs: Jobs) -> None:
    ids = enqueue(jobs, 300)
    got: list[list[int]] = []
    start = threading.Barrier(4)

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            set_session(conn)
            mine = Actor(conn).register()
            start.wait()
            while pairs := mine.claim(7):
                got.append([pair[0] for pair in pairs])
                while pairs:  # a rival that finds a row taken has locked it for a moment
                    ended = set(mine.finish(pairs))
                    pairs = [pair for pair in pairs if pair[0] not in ended]

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claimed = [job_id for one in got for job_id in one]
    assert sorted(claimed) == ids
    assert jobs.count("done") == 300


def test_lanes_are_emptied_best_first_and_only_as_far_as_there_is_room(jobs: Jobs, actor: Actor) -> None:
    low = enqueue(jobs, 3, priority=-5)
    high = enqueue(jobs, 3, priority=7)

    def claim(room: int) -> list[int]:
        rows = run(
            actor.conn,
            "claim/claim",
            claim_id=room,
            lease_id=actor.lease_id,
            queue_ids=[1, 1, 1],
            priorities=[7, 0, -5],
            starts=[0, 0, 0],
            sures=[0, 0, 0],
            kinds=["work"],
            room=room,
        )
        return sorted(row[0] for row in rows)

    assert claim(2) == high[:2]
    assert claim(3) == sorted([high[2], *low[:2]])
    assert claim(9) == low[2:]


def test_a_claim_that_is_not_sure_leaves_alone_what_another_has_touched_since(
    jobs: Jobs, actor: Actor, dsn: str
) -> None:
    ids = enqueue(jobs, 6)
    with psycopg.connect(dsn) as late:
        late.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        late.execute("SELECT 1")  # its snapshot is older than the claim that follows
        taken = actor.claim(2)
        assert [pair[0] for pair in actor.claim(2, on=late, sure=0)] == ids[2:4]
        assert sorted(actor.finish(taken)) == ids[:2], "the late one has locked what it could not claim"
        late.rollback()
    assert [pair[0] for pair in actor.claim(9, sure=0)] == ids[4:], "what was rolled back looks claimed"
    assert [pair[0] for pair in actor.claim(9)] == ids[2:4]


def test_a_claim_leaves_kinds_that_it_does_not_know(jobs: Jobs, actor: Actor) -> None:
    enqueue(jobs, 2, kind="other")
    mine = enqueue(jobs, 2)
    assert [pair[0] for pair in actor.claim()] == mine


def test_a_give_back_leaves_no_trace(jobs: Jobs, actor: Actor) -> None:
    (job_id,) = enqueue(jobs)
    before = jobs.row(job_id)
    assert actor.settle(actor.claim()) == [job_id]
    after = jobs.row(job_id)
    same = ("state", "claims", "attempts", "crashes", "last_error", "payload")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert jobs.attempts(job_id) == []
    assert [pair[0] for pair in actor.claim()] == [job_id]


def test_a_claim_that_somebody_forgets_meanwhile_is_not_waited_for(jobs: Jobs, actor: Actor, dsn: str) -> None:  # B10
    enqueue(jobs, 2)
    (_, first), (late, _) = *actor.claim(1), *actor.claim(1)
    with psycopg.connect(dsn) as completer:
        run(completer, "claim/forget", claim_ids=[first])
        actor.conn.execute("SET lock_timeout = '1s'")
        run(
            actor.conn, "claim/give_back", lease_id=actor.lease_id, known=[]
        )  # each would wait for a row of the other's
        assert [pair[0] for pair in actor.claim()] == [late]
        completer.rollback()


def test_what_is_given_back_goes_to_the_head_of_its_lane_or_to_its_end(jobs: Jobs, actor: Actor) -> None:
    first, second, third, fourth, fifth = enqueue(jobs, 5)

    def claim(room: int) -> list[int]:
        return sorted(pair[0] for pair in actor.claim(room))

    actor.settle(actor.claim(2), firsts=[True, True])
    assert claim(2) == [first, second]
    better = enqueue(jobs, priority=1)
    actor.settle(actor.claim(1, priority=1), firsts=[True])
    assert claim(1) == [third], "the head of one lane is not that of another"
    assert [pair[0] for pair in actor.claim(priority=1)] == better
    actor.settle(actor.claim(1), firsts=[False])
    assert claim(1) == [fifth]
    assert claim(1) == [fourth]


def test_a_suspect_that_is_given_back_stays_one(jobs: Jobs, actor: Actor) -> None:
    (job_id,) = enqueue(jobs)
    for _ in range(2):
        victim = Actor(actor.conn).register()
        victim.claim()
        victim.die()
        reap(actor.conn)
    assert actor.settle(actor.claim_suspects(), firsts=[True]) == [job_id]
    assert (jobs.row(job_id)["blocked_by"], actor.claim()) == ("suspect", [])
    pairs = actor.claim_suspects()
    assert [pair[0] for pair in pairs] == [job_id]
    actor.settle(pairs, "error")
    assert jobs.row(job_id)["blocked_by"] is None


def test_the_class_none_keeps_no_history_and_loses_no_failure(jobs: Jobs, actor: Actor) -> None:
    jobs.all("SELECT $.create_queue('default', 'none')")
    done, failed, cancelled = enqueue(jobs, 3)
    pairs = dict(actor.claim())
    actor.finish([(done, pairs[done])])
    actor.settle([(failed, pairs[failed])], "failed", "failed")
    actor.settle([(cancelled, pairs[cancelled])])
    jobs.all("SELECT $.cancel(%s)", cancelled)
    assert [jobs.state(one) for one in (done, failed, cancelled)] == [None, "failed", "cancelled"]


def test_a_result_a_record_and_an_error_are_kept_with_the_end(jobs: Jobs, actor: Actor) -> None:
    (job_id,) = enqueue(jobs)
    actor.finish(actor.claim(), results=[Jsonb({"n": 1})], records=[Jsonb({"model": "m"})])
    assert jobs.row(job_id)["result"] == {"n": 1}
    (attempt,) = jobs.attempts(job_id)
    assert (attempt["outcome"], attempt["record"], attempt["number"]) == ("done", {"model": "m"}, 1)
    assert attempt["lease_id"] == actor.lease_id


def test_the_audit_counts_every_run_once(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    (job_id,) = enqueue(jobs)
    for outcome in ("error", "snoozed"):
        actor = Actor(conn).register()
        actor.settle(actor.claim(), outcome, spends=[outcome == "error"])
    victim = Actor(conn).register()
    victim.claim()
    victim.die()
    reap(conn)
    actor = Actor(conn).register()
    actor.finish(actor.claim())
    assert jobs.outcomes(job_id) == ["error", "snoozed", "lost", "done"]
    assert [attempt["number"] for attempt in jobs.attempts(job_id)] == [1, 2, 3, 4]
    row = jobs.row(job_id)
    assert (row["claims"], row["attempts"], row["crashes"]) == (4, 2, 0)


# ------------------------------------------------------------------------------------------------- jobs that kill workers


def kill(conn: psycopg.Connection[Any], *, alone: bool = True) -> None:
    victim = Actor(conn).register()
    assert victim.claim_suspects(1 if alone else 10)
    victim.die()
    reap(conn)


def test_a_job_found_in_a_second_dead_lease_waits_apart_and_is_held_at_the_crash_limit(
    jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    (job_id,) = enqueue(jobs, max_attempts=50)

    def shown() -> tuple[Any, ...]:
        row = jobs.row(job_id)
        return row["state"], row["blocked_by"], row["attempts"], row["crashes"]

    victim = Actor(conn).register()
    victim.claim()
    victim.die()
    reap(conn)
    assert shown() == ("ready", None, 1, 0)
    with_neighbours = Actor(conn).register()
    enqueue(jobs, 3)
    assert len(with_neighbours.claim()) == 4
    with_neighbours.die()
    reap(conn)
    assert shown() == ("ready", "suspect", 2, 0)
    assert [row[0] for row in jobs.all("SELECT count(*) FROM $.job WHERE blocked_by IS NULL AND pos < 0")] == [3]
    for expected in [("ready", "suspect", 3, 1), ("ready", "suspect", 4, 2), ("held", None, 5, 3)]:
        kill(conn)
        assert shown() == expected
    assert "died 3 times while it ran alone" in jobs.row(job_id)["hold_reason"]
    assert jobs.outcomes(job_id) == ["lost", "lost", "crashed", "crashed", "crashed"]
    assert jobs.value("SELECT $.release(%s)", job_id) == "released"
    assert shown() == ("ready", None, 5, 0)


def test_a_lost_lease_is_no_crash_while_other_leases_die_without_the_job(
    jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    (job_id,) = enqueue(jobs)
    for turn in range(6):
        victim = Actor(conn).register()
        victim.claim() or victim.claim_suspects()
        bystander = Actor(conn, kinds=("other",)).register()
        for dying in (victim, bystander):
            conn.execute("UPDATE samecommit.worker SET expires_at = now() WHERE lease_id = %s", [dying.lease_id])
        run(conn, "chore/expire_workers")
        assert reap(conn)[1:] == (1, 0), turn
    row = jobs.row(job_id)
    assert (row["state"], row["attempts"], row["crashes"]) == ("ready", 6, 0)


def test_a_suspect_that_ends_well_is_none_any_more(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    (job_id,) = enqueue(jobs)
    for _ in range(2):
        victim = Actor(conn).register()
        victim.claim()
        victim.die()
        reap(conn)
    actor = Actor(conn).register()
    actor.settle(actor.claim_suspects(), "error", spends=[True])
    assert jobs.all("SELECT lost, blocked_by, pos IS NOT NULL FROM $.job WHERE id = %s", job_id) == [(0, None, True)]


def test_a_lost_lease_spends_an_attempt_and_the_last_one_fails_the_job(
    jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    (job_id,) = enqueue(jobs, max_attempts=1)
    victim = Actor(conn).register()
    victim.claim()
    victim.die()
    assert reap(conn) == (1, 1, 0)
    row = jobs.row(job_id)
    assert (row["state"], row["attempts"]) == ("failed", 1)
    assert row["last_error"].startswith("lease lost")


def test_a_job_that_was_cancelled_while_its_worker_died_ends_as_cancelled(
    jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    (job_id,) = enqueue(jobs)
    victim = Actor(conn).register()
    victim.claim()
    assert jobs.value("SELECT $.cancel(%s, 'not wanted')", job_id) == "asked"
    jobs.all("UPDATE $.cancellation SET requested_at = requested_at - interval '2 seconds'")
    assert run(conn, "chore/reap_cancelled")[0][0] == 0, "its worker is alive and is told"
    victim.die()
    assert run(conn, "chore/reap_cancelled")[0][0] == 1
    row = jobs.row(job_id)
    assert (row["state"], row["last_error"]) == ("cancelled", "not wanted")


def test_a_worker_that_leaves_keeps_the_claims_of_what_it_did_not_end(
    jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:  # B16
    enqueue(jobs, 2)
    actor = Actor(conn).register()
    first = actor.claim(1)
    actor.claim(1)
    actor.finish(first)
    run(conn, "worker/leave", lease_id=actor.lease_id)
    assert jobs.value("SELECT count(*) FROM $.worker") == 0
    assert reap(conn) == (1, 1, 0)


def test_a_lease_that_ran_out_cannot_be_prolonged(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    def beat(actor: Actor) -> bool:
        rows = run(
            conn,
            "worker/beat",
            lease_id=actor.lease_id,
            lease_seconds=30.0,
            running=0,
            state="working",
            note=None,
            backends="[]",
        )
        return bool(rows)

    alive = Actor(conn).register()
    late = Actor(conn, lease_seconds=-1.0).register()
    assert (beat(alive), beat(late)) == (True, False)
    assert [row[0] for row in run(conn, "chore/expire_workers")] == [late.lease_id]
    assert jobs.all("SELECT lease_id FROM $.worker") == [(alive.lease_id,)]


# ---------------------------------------------------------------------------------------------------- the shape of a job


def test_no_index_mentions_what_a_claim_changes(jobs: Jobs) -> None:
    indexed = {
        row[0]
        for row in jobs.all(
            "SELECT a.attname FROM pg_index AS i "
            "JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjid = i.indrelid "
            "JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid "
            "WHERE i.indrelid = 'samecommit.job'::regclass"
        )
    } | {
        row[0]
        for row in jobs.all(
            "SELECT a.attname FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) AS k (attnum) "
            "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
            "WHERE i.indrelid = 'samecommit.job'::regclass"
        )
    }
    assert {"pos", "state", "run_at", "blocked_by"} <= indexed, "the question finds nothing"
    assert not indexed & {"claim_id", "claims", "claimed_at"}


def test_first_claims_are_hot(jobs: Jobs, actor: Actor) -> None:
    for size in (100, 1000, 1900):
        jobs.all(
            f"SELECT $.enqueue('work', jsonb_build_object('n', n, 'text', repeat('x', {size}))) FROM generate_series(1, 200) AS n"
        )
    while actor.claim(100):
        pass
    hot, all_updates = jobs.all(
        "SELECT pg_stat_get_xact_tuples_hot_updated(oid) + pg_stat_get_tuples_hot_updated(oid), "
        "pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_tuples_updated(oid) FROM pg_class WHERE oid = 'samecommit.job'::regclass"
    )[0]
    if not all_updates:
        jobs.all("SELECT pg_stat_force_next_flush()")
        hot, all_updates = jobs.all("SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'job'")[0]
    assert all_updates == 600
    assert hot >= 0.99 * all_updates


def test_the_payload_is_the_last_column_and_the_key_is_a_replica_identity(jobs: Jobs) -> None:  # B10
    columns = jobs.all(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'samecommit.job'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert columns[-1] == ("payload",)
    without = jobs.all(
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'samecommit'::regnamespace AND c.relkind IN ('r', 'p') "
        "AND c.relname !~ '_\\d{8}$' AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)"
    )
    assert {row[0] for row in without} <= {"job_history", "job_history_1", "job_history_2", "job_history_3"}


def test_places_are_given_out_one_by_one(jobs: Jobs) -> None:
    assert jobs.value("SELECT seqcache FROM pg_sequence WHERE seqrelid = 'samecommit.pos_seq'::regclass") == 1
