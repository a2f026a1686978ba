"""What the contract's ``enqueue`` stores, called from SQL alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.engine import enqueue
from tests.support.jobs import Jobs

pytestmark = pytest.mark.pg15


def place(jobs: Jobs, job_id: int) -> int | None:
    row = jobs.all("SELECT pos FROM $.job WHERE id = %s", job_id)
    assert len(row) == 1
    return None if row[0][0] is None else int(row[0][0])


def test_a_name_alone_makes_a_job_that_is_due(jobs: Jobs) -> None:
    before = datetime.now(UTC)
    (job_id,) = enqueue(jobs, kind="mail")
    row = jobs.row(job_id)
    assert row["state"] == "ready"
    assert (row["queue"], row["kind"], row["payload"], row["priority"]) == ("default", "mail", {}, 0)
    assert (row["attempts"], row["claims"], row["crashes"], row["max_attempts"]) == (0, 0, 0, 20)
    assert before - timedelta(seconds=5) < row["run_at"] < datetime.now(UTC) + timedelta(seconds=5)
    assert place(jobs, job_id) is not None


def test_every_option_is_kept(jobs: Jobs) -> None:
    jobs.all("SELECT $.create_queue('mail', 'long', 3)")
    expires = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)
    options: dict[str, Any] = {
        "payload": Jsonb({"a": [1, None]}),
        "queue": "mail",
        "priority": -100,
        "max_attempts": 7,
        "tags": ["x", "y z"],
        "parent_id": 41,
        "effect_key": "order:1",
        "expires_at": expires,
        "payload_version": 2,
        "meta": Jsonb({"actor": "anna"}),
    }
    (job_id,) = enqueue(jobs, **options)
    row = jobs.row(job_id)
    wanted = {**options, "payload": {"a": [1, None]}, "meta": {"actor": "anna"}}
    assert {name: row[name] for name in wanted} == wanted
    assert jobs.value("SELECT retention FROM $.job WHERE id = %s", job_id) == 3


def test_attempts_and_retention_come_from_the_queue(jobs: Jobs) -> None:
    jobs.all("SELECT $.create_queue('rare', 'none', 3)")
    (job_id,) = enqueue(jobs, queue="rare")
    assert jobs.all("SELECT max_attempts, retention FROM $.job WHERE id = %s", job_id) == [(3, 0)]


def test_a_job_for_later_has_no_place_in_line(jobs: Jobs) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    (later,) = enqueue(jobs, run_at=at)
    (delayed,) = enqueue(jobs, delay=timedelta(minutes=5))
    (both,) = enqueue(jobs, run_at=at, delay=timedelta(minutes=5))
    (past,) = enqueue(jobs, run_at=at - timedelta(days=3))
    assert [place(jobs, one) for one in (later, delayed, both)] == [None] * 3
    assert place(jobs, past) is not None
    assert jobs.row(later)["run_at"] == at
    assert jobs.row(both)["run_at"] == at + timedelta(minutes=5)
    assert {jobs.row(one)["shown_as"] for one in (later, delayed, both)} == {"scheduled"}


def test_a_delay_counts_from_now_and_not_from_the_start_of_the_transaction(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT pg_sleep(0.3)")
        row = conn.execute(
            "SELECT j.run_at - now() FROM samecommit.enqueue('work', delay => '1 hour') AS e "
            "JOIN samecommit.jobs AS j USING (id)"
        ).fetchone()
        assert row is None  # the function's row is not in this statement's snapshot
        row = conn.execute("SELECT min(run_at) - now() FROM samecommit.jobs").fetchone()
    assert row is not None and row[0] >= timedelta(hours=1, seconds=0.3)


def test_an_unknown_queue_is_refused_by_name_with_its_own_code(jobs: Jobs) -> None:
    with pytest.raises(psycopg.Error, match="unknown queue 'nowhere'") as caught:
        enqueue(jobs, queue="nowhere")
    assert caught.value.sqlstate == "SC001"
    assert caught.value.diag.message_hint is not None and "make it first" in caught.value.diag.message_hint
    assert jobs.count() == 0


@pytest.mark.parametrize(
    "options",
    [{"priority": 101}, {"priority": -101}, {"max_attempts": 0}, {"kind": ""}, {"kind": "x" * 201}, {"kind": "a\nb"}],
    ids=str,
)
def test_what_no_worker_could_run_is_refused(jobs: Jobs, options: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error) as caught:
        enqueue(jobs, **options)
    assert caught.value.sqlstate == "SC004"


def test_a_rolled_back_enqueue_never_was(dsn: str, jobs: Jobs) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT samecommit.enqueue('work', jsonb_build_object('text', repeat('long ', 5000)))")
        conn.rollback()
    assert jobs.count() == 0
    assert jobs.value("SELECT count(*) FROM $.body") == 0


def test_places_in_line_grow(jobs: Jobs) -> None:
    places = [place(jobs, job_id) for job_id in enqueue(jobs, 5)]
    assert places == sorted(place for place in places if place is not None)
    assert len(set(places)) == 5


@pytest.mark.parametrize("name", ["", " a", "a ", "a\tb", "x" * 201])
def test_a_queue_needs_a_clean_name(jobs: Jobs, name: str) -> None:
    with pytest.raises(psycopg.Error, match="queue name") as caught:
        jobs.all("SELECT $.create_queue(%s)", name)
    assert caught.value.sqlstate == "SC004"


def test_making_a_queue_again_changes_only_what_is_said(jobs: Jobs) -> None:
    made = jobs.value("SELECT $.create_queue('mail', 'long', 3)")
    assert jobs.value("SELECT $.create_queue('mail')") == made
    assert jobs.all("SELECT retention, max_attempts FROM $.queues WHERE name = 'mail'") == [("long", 3)]
    assert jobs.value("SELECT $.create_queue('mail', max_attempts => 5)") == made
    assert jobs.all("SELECT retention, max_attempts FROM $.queues WHERE name = 'mail'") == [("long", 5)]


def test_an_unknown_retention_class_is_refused(jobs: Jobs) -> None:
    with pytest.raises(psycopg.Error, match="unknown retention 'forever'") as caught:
        jobs.all("SELECT $.create_queue('mail', 'forever')")
    assert caught.value.sqlstate == "SC004"


def test_names_that_differ_in_case_or_quotes_are_different_queues(jobs: Jobs) -> None:
    names = [
        "Mail",
        "mail",
        "MAIL",
        "a-b",
        "a.b",
        "a b",
        "a/b",
        "*",
        "a'b",
        'a"b',
        "a;drop table x--",
        "$$",
        "%s",
        "🦆" * 30,
    ]
    ids = {jobs.value("SELECT $.create_queue(%s)", name) for name in names}
    assert len(ids) == len(names)
    for name in names:
        (job_id,) = enqueue(jobs, queue=name)
        assert jobs.row(job_id)["queue"] == name
