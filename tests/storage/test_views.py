"""What the views show of jobs in every state, of queues and of failures."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.support.engine import Actor, enqueue, reap
from tests.support.jobs import Jobs

pytestmark = pytest.mark.pg15


def test_a_job_is_shown_by_what_it_waits_for(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    actor = Actor(conn).register()
    failed, retrying, done, running, cancelled = enqueue(jobs, 5)
    pairs = dict(actor.claim())
    actor.settle([(failed, pairs[failed])], "failed", "failed", errors=["x"])
    actor.settle([(retrying, pairs[retrying])], "error", spends=[True], delays=[60.0])
    actor.finish([(done, pairs[done])])
    actor.settle([(cancelled, pairs[cancelled])])
    jobs.all("SELECT $.cancel(%s)", cancelled)
    (ready,) = enqueue(jobs)
    (later,) = enqueue(jobs, delay=timedelta(hours=1))
    (held,) = enqueue(jobs)
    jobs.all("SELECT $.hold(%s, 'look')", held)
    shown = {row[0]: row[1:] for row in jobs.all("SELECT id, state, shown_as FROM $.jobs")}
    assert shown == {
        failed: ("failed", "failed"),
        retrying: ("ready", "retrying"),
        done: ("done", "done"),
        running: ("running", "running"),
        cancelled: ("cancelled", "cancelled"),
        ready: ("ready", "ready"),
        later: ("ready", "scheduled"),
        held: ("held", "held"),
    }


def test_what_runs_is_shown_with_its_worker_and_its_lease(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    (job_id, _) = enqueue(jobs, 2)
    actor = Actor(conn).register()
    ((_, claim_id),) = actor.claim(1)
    (row,) = jobs.all("SELECT id, queue, kind, lease_id, claim_id, host, pid, attempts FROM $.running")
    assert row == (job_id, "default", "work", actor.lease_id, claim_id, "test", 1, 0)
    lease = jobs.value("SELECT expires_at FROM $.worker")
    assert jobs.row(job_id)["leased_until"] == jobs.value("SELECT leased_until FROM $.running") == lease
    actor.die()
    assert jobs.all("SELECT id, leased_until FROM $.running") == [(job_id, None)]
    reap(conn)
    assert jobs.all("SELECT id FROM $.running") == []


def test_plain_successes_are_in_the_audit_without_a_row_of_their_own(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    (job_id,) = enqueue(jobs)
    actor = Actor(conn).register()
    actor.finish(actor.claim())
    assert jobs.value("SELECT count(*) FROM $.attempt") == 0
    (attempt,) = jobs.attempts(job_id)
    assert (attempt["outcome"], attempt["number"]) == ("done", 1)
    assert attempt["claimed_at"] <= attempt["ended_at"]


def test_failures_are_grouped_by_what_they_died_of(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    ids = [*enqueue(jobs, 3), *enqueue(jobs, kind="other")]
    actor = Actor(conn, kinds=("work", "other")).register()
    pairs = sorted(actor.claim())
    errors = ["Timeout: order 17\n\ntrace", "Timeout: order 4\n\nother trace", "ValueError: x", "Timeout: order 3"]
    actor.settle(pairs, "failed", "failed", errors=errors)
    groups = {
        (row[0], row[1]): row[2:] for row in jobs.all("SELECT kind, cause, jobs, newest_id FROM $.failure_groups")
    }
    assert groups == {
        ("work", "Timeout: order #"): (2, ids[1]),
        ("work", "ValueError: x"): (1, ids[2]),
        ("other", "Timeout: order #"): (1, ids[3]),
    }


def test_an_error_of_any_size_harms_no_view(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:  # B02f
    enqueue(jobs)
    actor = Actor(conn).register()
    actor.settle(actor.claim(), "failed", "failed", errors=["x" * 5_000_000])
    assert [row[0] for row in jobs.all("SELECT length(cause) FROM $.failure_groups")] == [400]
    assert jobs.value("SELECT length(last_error) FROM $.jobs") == 5_000_000


def test_a_queue_is_shown_with_its_settings_and_its_workers(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    jobs.all("SELECT $.create_queue('mail', 'short', 5)")
    jobs.all("UPDATE $.queue SET created_at = created_at")
    Actor(conn).register()
    Actor(conn, lease_seconds=-1.0).register()
    rows = jobs.all("SELECT name, is_paused, retention, max_attempts, workers FROM $.queues ORDER BY name")
    assert rows == [("default", False, "default", 20, 1), ("mail", False, "short", 5, 1)]
