"""The contract's ``enqueue_many``, called from SQL alone."""

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.jobs import Jobs

pytestmark = pytest.mark.pg15


def enqueue_many(jobs: Jobs, *given: Any) -> list[tuple[int, bool, bool]]:
    return jobs.all("SELECT id, created, replaced FROM $.enqueue_many(%s)", Jsonb(list(given)))


def test_each_object_is_a_call_of_enqueue(jobs: Jobs) -> None:
    jobs.all("SELECT $.create_queue('mail', 'long', 3)")
    whole = {
        "kind": "mail",
        "payload": {"a": [1, None, 1.10]},
        "queue": "mail",
        "priority": 5,
        "run_at": "2099-01-01T00:00:00+02:00",
        "delay": "90 seconds",
        "tags": ["x", 'y "z"'],
        "parent_id": 41,
        "effect_key": "order:1",
        "expires_at": "2099-02-01T00:00:00Z",
        "payload_version": 2,
        "meta": {"actor": "anna"},
        "unique_key": "k",
        "unique_scope": "s",
        "unique_for": "1 day",
        "on_conflict": "existing",
    }
    ((first, created, _), (second, _, _)) = enqueue_many(jobs, whole, {"kind": "plain"})
    row = jobs.row(first)
    same = ("kind", "payload", "queue", "priority", "tags", "parent_id", "effect_key", "payload_version", "meta")
    assert {name: row[name] for name in same} == {name: whole[name] for name in same}
    assert (row["unique_scope"], row["unique_key"], row["max_attempts"], created) == ("s", "k", 3, True)
    assert (row["run_at"].isoformat()[:16], row["shown_as"]) == ("2098-12-31T22:01", "scheduled")
    assert (jobs.row(second)["payload"], jobs.row(second)["queue"], jobs.row(second)["max_attempts"]) == (
        {},
        "default",
        20,
    )


def test_places_and_ids_follow_the_order_given(jobs: Jobs) -> None:
    found = enqueue_many(jobs, *({"kind": "a", "payload": {"n": n}} for n in range(200)))
    ids = [row[0] for row in found]
    assert jobs.all("SELECT id, (payload ->> 'n')::int FROM $.job ORDER BY pos") == list(
        zip(ids, range(200), strict=True)
    )


def test_a_large_payload_is_kept_apart_and_whole(jobs: Jobs) -> None:
    ((found, _, _),) = enqueue_many(jobs, {"kind": "a", "payload": {"text": "x" * 5000}})
    assert jobs.value("SELECT payload IS NULL FROM $.job WHERE id = %s", found) is True
    assert jobs.row(found)["payload"] == {"text": "x" * 5000}


@pytest.mark.parametrize(
    ("given", "state", "says"),
    [
        ({"kind": "a"}, "SC004", "jobs is object"),
        (None, "SC004", "jobs is null"),
        ([1], "SC004", "job 0 is no object"),
        ([{"kind": "a"}, {"payload": {}}], "SC004", "job 1 has no kind"),
        ([{"kind": "a", "que": "x"}], "SC004", 'job 0 has an unknown key: {"que": "x"}'),
        ([{"kind": "a", "queue": "none such"}], "SC001", "unknown queue 'none such'"),
        ([{"kind": "a", "unique_key": ""}], "SC004", "job 0: unique key ''"),
        ([{"kind": "a", "unique_scope": "s"}], "SC004", "job 0: unique key NULL"),
        ([{"kind": "a", "unique_key": "k", "unique_for": "-1 s"}], "SC004", "job 0: unique key 'k'"),
        ([{"kind": "a", "unique_key": "k", "on_conflict": "perhaps"}], "SC004", "on_conflict is 'perhaps'"),
        ([{"kind": "a", "priority": "high"}], "22P02", "integer"),
    ],
)
def test_what_is_no_job_is_refused_with_its_place(jobs: Jobs, given: Any, state: str, says: str) -> None:
    with pytest.raises(psycopg.Error, match=says.replace("{", r"\{")) as caught:
        jobs.all("SELECT * FROM $.enqueue_many(%s)", Jsonb(given) if given is not None else None)
    assert caught.value.sqlstate == state
    assert jobs.count() == 0


def test_none_is_fine(jobs: Jobs) -> None:
    assert enqueue_many(jobs) == []


@pytest.mark.session("the doorbell")
def test_each_queue_is_rung_once(jobs: Jobs, dsn: str) -> None:
    jobs.all("SELECT $.create_queue('other')")
    with psycopg.connect(dsn, autocommit=True) as worker:
        for queue_id in (1, 2):
            worker.execute("SELECT pg_advisory_lock(hashoid('samecommit.queue'::regclass), %s)", [queue_id])
        oid = worker.execute("SELECT 'samecommit.queue'::regclass::oid").fetchone()
        assert oid is not None
        worker.execute(f"LISTEN samecommit_{oid[0]}".encode())
        later = {"kind": "a", "queue": "other", "delay": "1 hour"}
        enqueue_many(jobs, *({"kind": "a"} for _ in range(3)), later)
        assert [told.payload for told in worker.notifies(timeout=5, stop_after=1)] == ["1"]
        assert list(worker.notifies(timeout=0.05)) == []
