"""What a caller says of a key, in Python and in SQL."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.engine import Actor, run
from tests.support.jobs import Jobs
from tests.unique.keys import Keys
from tests.unique.test_states import held

from samecommit import App
from samecommit.errors import ConfigError, PayloadError, UniqueConflict
from samecommit.job import Enqueued
from samecommit.task import Task

pytestmark = pytest.mark.pg15

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def enrich(app: App) -> Task[[int], None]:
    @app.task()
    def enrich(lead_id: int) -> None: ...

    return enrich


def test_a_key_belongs_to_its_task(app: App, enrich: Task[[int], None], dsn: str) -> None:
    @app.task()
    def score(lead_id: int) -> None: ...

    with psycopg.connect(dsn) as conn:
        first = enrich.using(unique="lead:42").enqueue(conn, 42)
        assert first.created
        assert enrich.using(unique="lead:42").enqueue(conn, 43) == Enqueued(first.id, created=False)
        assert enrich.using(unique="lead:43").enqueue(conn, 43).created
        assert score.using(unique="lead:42").enqueue(conn, 42).created


def test_a_scope_is_shared_by_the_tasks_that_name_it(app: App, enrich: Task[[int], None], dsn: str) -> None:
    @app.task()
    def score(lead_id: int) -> None: ...

    with psycopg.connect(dsn) as conn:
        first = enrich.using(unique="42", unique_scope="leads").enqueue(conn, 42)
        assert score.using(unique="42", unique_scope="leads").enqueue(conn, 42) == Enqueued(first.id, created=False)
        assert score.using(unique="42").enqueue(conn, 42).created


def test_replace_gives_a_waiting_job_the_new_arguments_and_time(
    enrich: Task[[int], None], dsn: str, jobs: Jobs
) -> None:
    with psycopg.connect(dsn) as conn:
        first = enrich.using(unique="k", tags=["old"], max_attempts=3).enqueue(conn, 1)
        second = enrich.using(
            unique="k", on_conflict="replace", run_at=LATER, priority=7, tags=["new"], meta={"by": "me"}
        ).enqueue(conn, 2)
    assert second == Enqueued(first.id, created=False, replaced=True)
    row = jobs.row(first.id)
    assert (row["payload"], row["run_at"], row["priority"], row["tags"]) == ({"lead_id": 2}, LATER, 7, ["new"])
    assert (row["shown_as"], row["meta"], row["max_attempts"]) == ("scheduled", {"by": "me"}, 3)


def test_a_replaced_job_that_is_due_goes_to_the_end_of_the_line(keys: Keys, jobs: Jobs) -> None:
    first, _, _ = keys.enqueue("a", run_at=LATER)
    other, _, _ = keys.enqueue("b")
    assert keys.enqueue("a", on_conflict="replace") == (first, False, True)
    line = jobs.all("SELECT id FROM $.job WHERE pos IS NOT NULL ORDER BY pos")
    assert line == [(other,), (first,)]


@pytest.mark.parametrize(("before", "after"), [(10, 5000), (5000, 10), (5000, 6000)])
def test_replace_moves_a_large_payload_where_it_belongs(
    keys: Keys, jobs: Jobs, actor: Actor, before: int, after: int
) -> None:
    first, _, _ = keys.enqueue(payload=Jsonb({"text": "a" * before}))
    assert keys.enqueue(payload=Jsonb({"text": "b" * after}), on_conflict="replace") == (first, False, True)
    assert jobs.row(first)["payload"] == {"text": "b" * after}
    assert jobs.value("SELECT count(*) FROM $.body") == (1 if after > 2000 else 0)


def runs(keys: Keys, actor: Actor, job_id: int) -> None:
    actor.claim()


@pytest.mark.parametrize("move", [runs, held])
def test_b08c_replace_leaves_a_job_alone_that_runs_or_is_held(
    keys: Keys, jobs: Jobs, actor: Actor, move: Callable[[Keys, Actor, int], None]
) -> None:
    first, _, _ = keys.enqueue(payload=Jsonb({"n": 1}))
    move(keys, actor, first)
    assert keys.enqueue(payload=Jsonb({"n": 2}), on_conflict="replace") == (first, False, False)
    assert jobs.row(first)["payload"] == {"n": 1}
    assert jobs.value("SELECT count(*) FROM $.job") == 1


def test_replace_does_not_free_a_job_that_is_blocked(keys: Keys, jobs: Jobs, actor: Actor) -> None:
    first, _, _ = keys.enqueue(kind="unknown")
    assert run(actor.conn, "chore/set_aside", room=10, patience_seconds=0.0) == [(1,)]
    assert keys.enqueue(kind="unknown", on_conflict="replace") == (first, False, True)
    assert jobs.row(first)["blocked_by"] == "kind"


def test_reject_raises_names_the_job_and_leaves_the_transaction_usable(enrich: Task[[int], None], dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        first = enrich.using(unique="lead:42").enqueue(conn, 42)
        with pytest.raises(
            UniqueConflict, match=rf"unique key 'lead:42' of 'enrich' is held by job {first.id}"
        ) as caught:
            enrich.using(unique="lead:42", on_conflict="reject").enqueue(conn, 43)
        assert (caught.value.key, caught.value.scope, caught.value.job_id) == ("lead:42", "enrich", first.id)
        assert enrich.enqueue(conn, 44).created


def test_a_long_key_is_stored_as_its_digest(enrich: Task[[int], None], dsn: str, jobs: Jobs) -> None:
    """B02e: 20 kB, more than an index entry can hold."""
    key = "ключ" * 2500
    with psycopg.connect(dsn) as conn:
        first = enrich.using(unique=key).enqueue(conn, 1)
        assert not enrich.using(unique=key).enqueue(conn, 1).created
        assert enrich.using(unique=key + "!").enqueue(conn, 1).created
    assert jobs.row(first.id)["unique_key"] == "sha256:" + hashlib.sha256(key.encode()).hexdigest()


@pytest.mark.parametrize("key", ["k", "k" * 200, "ü" * 100, "sha256:" + "0" * 64, "a'b\"\\%s :x"])
def test_a_key_of_up_to_200_bytes_is_stored_as_it_is(jobs: Jobs, key: str) -> None:
    assert jobs.value("SELECT $.stored_key(%s)", key) == key


@pytest.mark.parametrize("key", ["k" * 201, "ü" * 101, "\N{ROCKET}" * 51])
def test_the_digest_of_a_longer_one_is_its_utf8_sha256_and_stays_as_it_is(jobs: Jobs, key: str) -> None:
    digest = "sha256:" + hashlib.sha256(key.encode()).hexdigest()
    assert jobs.value("SELECT $.stored_key(%s)", key) == jobs.value("SELECT $.stored_key(%s)", digest) == digest


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"unique": ""}, PayloadError, "unique is '': give a text"),
        ({"unique": "a\0b"}, PayloadError, "without NUL"),
        ({"unique": "\ud800"}, PayloadError, "lone surrogates"),
        ({"unique": 42}, PayloadError, "unique is 42: give a text"),
        ({"unique": "k", "unique_scope": "s" * 201}, PayloadError, "201 characters: give 200 at most"),
        ({"unique": "k", "unique_for": 0}, ConfigError, "unique_for is 0"),
        ({"unique": "k", "unique_for": timedelta(-1)}, ConfigError, "more than 0 seconds"),
        ({"unique": "k", "on_conflict": "ignore"}, ConfigError, "one of existing, replace, reject"),
        ({"unique_for": 5}, ConfigError, "no unique="),
        ({"unique_scope": "s"}, ConfigError, "no unique="),
        ({"on_conflict": "reject"}, ConfigError, "no unique="),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_sql(
    enrich: Task[[int], None], options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        enrich.using(**options).job(1)
