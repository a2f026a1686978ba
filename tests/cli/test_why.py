"""Why is this not running: every answer of ``why`` and ``why_queue``, each brought about on a real database."""

from typing import Any

import pytest
from tests.cli.conftest import Samecommit
from tests.support.jobs import Jobs

pytestmark = pytest.mark.pg15

WORKER = """
    INSERT INTO $.worker (lease_id, expires_at, pid, concurrency, running, host, version, queues, kinds, state, note)
    VALUES (%s, clock_timestamp() + make_interval(secs => %s), 77, 5, %s, 'here', '1', %s, %s, %s, %s)"""


def add_worker(
    jobs: Jobs,
    lease_id: int = 1,
    *,
    seconds: float = 60,
    running: int = 0,
    queues: tuple[str, ...] = ("*",),
    kinds: tuple[str, ...] = ("greet",),
    state: str = "working",
    note: str | None = None,
) -> None:
    jobs.all(WORKER, lease_id, seconds, running, list(queues), list(kinds), state, note)


def enqueue(jobs: Jobs, kind: str = "greet", **options: Any) -> int:
    named = "".join(f", {name} => %s" for name in options)
    return int(jobs.value(f"SELECT id FROM $.enqueue(%s{named})", kind, *options.values()))


def change(jobs: Jobs, job_id: int, changes: str) -> None:
    jobs.all(f"UPDATE $.job SET {changes} WHERE id = %s", job_id)


def claim(jobs: Jobs, job_id: int, lease_id: int = 1) -> None:
    change(jobs, job_id, "claim_id = 9, claims = claims + 1, claimed_at = clock_timestamp()")
    jobs.all("INSERT INTO $.claim (claim_id, lease_id, ids) VALUES (9, %s, %s)", lease_id, [job_id])


def why(jobs: Jobs, job_id: int | None) -> list[tuple[str, str, str]]:
    """Return (state, code, sentence) of each reason."""
    rows = jobs.all("SELECT state, code, sentence FROM $.why(%s)", job_id)
    assert rows and all(None not in row and row[2] for row in rows), rows
    assert len({row[0] for row in rows}) == 1, "a job is in one state"
    return [(row[0], row[1], row[2]) for row in rows]


def codes(jobs: Jobs, job_id: int | None) -> list[str]:
    return [code for _, code, _ in why(jobs, job_id)]


def only(jobs: Jobs, job_id: int | None) -> tuple[str, str, str]:
    (reason,) = why(jobs, job_id)
    return reason


def until(jobs: Jobs, job_id: int, code: str) -> float | None:
    """In how many seconds that reason ends."""
    text = "SELECT extract(epoch FROM until_at - clock_timestamp())::float8 FROM $.why(%s) WHERE code = %s"
    seconds: float | None = jobs.value(text, job_id, code)
    return seconds


# Waiting


def test_next_in_line(jobs: Jobs) -> None:
    add_worker(jobs)
    assert only(jobs, enqueue(jobs)) == ("ready", "in_line", "next in line in queue 'default'")


def test_behind_others_of_its_queue_that_wait(jobs: Jobs) -> None:
    add_worker(jobs)
    jobs.all("SELECT $.create_queue('other')")
    for _ in range(3):
        enqueue(jobs)
    enqueue(jobs, queue="other")
    running = enqueue(jobs)
    claim(jobs, running)
    job_id = enqueue(jobs)
    enqueue(jobs, priority=-1)
    assert only(jobs, job_id)[2] == "in line in queue 'default', jobs before it: 3"
    enqueue(jobs, priority=5)
    assert only(jobs, job_id)[2] == "in line in queue 'default', jobs before it: 4"


def test_behind_more_than_it_looks_at(jobs: Jobs) -> None:
    add_worker(jobs)
    jobs.all("INSERT INTO $.job (pos, queue_id, kind) SELECT nextval('samecommit.pos_seq'), 1, 'greet' "
             "FROM generate_series(1, 10050)")  # fmt: skip
    assert only(jobs, enqueue(jobs))[2] == "in line in queue 'default' behind at least 10000 jobs"


def test_not_due(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs, delay="1 hour")
    state, code, sentence = only(jobs, job_id)
    assert (state, code) == ("scheduled", "not_due") and "in 60 min" in sentence
    assert 3500 < (until(jobs, job_id, "not_due") or 0) <= 3600


def test_not_due_because_it_failed_before(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs, delay="3 days")
    change(jobs, job_id, "attempts = 2, last_error = E'ValueError: no\\n\\nTraceback'")
    state, code, sentence = only(jobs, job_id)
    assert (state, code) == ("retrying", "not_due")
    assert sentence.endswith("in 3 days; attempt 2 of 20 ended with: ValueError: no")


def test_due_and_about_to_be_put_in_line(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs, delay="1 hour")
    change(jobs, job_id, "run_at = clock_timestamp() - interval '1 s'")
    assert only(jobs, job_id)[:2] == ("scheduled", "coming_in_line")


def test_stepped_aside(jobs: Jobs) -> None:
    add_worker(jobs, kinds=("other",))
    job_id = enqueue(jobs)
    change(jobs, job_id, "pos = NULL, blocked_by = 'kind'")
    assert codes(jobs, job_id) == ["stepped_aside", "kind_unknown"]


def test_a_suspect_runs_apart(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs)
    change(jobs, job_id, "pos = NULL, blocked_by = 'suspect', lost = 2")
    state, code, sentence = only(jobs, job_id)
    assert (state, code) == ("ready", "suspect") and "died with it: 2" in sentence and "not before" not in sentence
    change(jobs, job_id, "run_at = clock_timestamp() + interval '1 min'")
    assert "not before" in only(jobs, job_id)[2] and (until(jobs, job_id, "suspect") or 0) > 50


def test_kept_back_by_a_limit(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs)
    change(jobs, job_id, "pos = NULL, blocked_by = 'limit'")
    assert codes(jobs, job_id) == ["limited"]


def test_expired_before_it_started(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs, expires_at="2020-01-01T00:00Z")
    assert codes(jobs, job_id) == ["expired", "in_line"]
    assert "2020-01-01 00:00:00 UTC" in why(jobs, job_id)[0][2]


def test_the_queue_is_paused(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs)
    jobs.all("SELECT $.pause('default', 'deploying', clock_timestamp() + interval '1 hour')")
    assert codes(jobs, job_id) == ["queue_paused", "in_line"]
    assert "deploying" in why(jobs, job_id)[0][2] and 3500 < (until(jobs, job_id, "queue_paused") or 0) <= 3600
    jobs.all("SELECT $.pause('default')")
    assert "samecommit queues resume default" in why(jobs, job_id)[0][2]
    assert until(jobs, job_id, "queue_paused") is None
    jobs.all("SELECT $.pause('default', 'over', clock_timestamp() - interval '1 s')")
    assert codes(jobs, job_id) == ["in_line"]


def test_no_worker_is_alive(jobs: Jobs) -> None:
    add_worker(jobs, seconds=-1)
    assert codes(jobs, enqueue(jobs)) == ["no_worker", "in_line"]


def test_no_living_worker_works_on_the_queue(jobs: Jobs) -> None:
    add_worker(jobs, queues=("other",))
    job_id = enqueue(jobs)
    assert codes(jobs, job_id) == ["no_worker_for_queue", "in_line"]
    add_worker(jobs, 2, queues=("default",))
    assert codes(jobs, job_id) == ["in_line"]


def test_no_living_worker_of_the_queue_knows_the_kind(jobs: Jobs) -> None:
    add_worker(jobs, kinds=("other",))
    add_worker(jobs, 2, kinds=("greet",), queues=("elsewhere",))
    job_id = enqueue(jobs)
    assert codes(jobs, job_id) == ["kind_unknown", "in_line"]
    assert "knows kind 'greet'" in why(jobs, job_id)[0][2]


def test_the_kind_cools_down(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs)
    jobs.all("INSERT INTO $.cooldown VALUES ('greet', clock_timestamp() + interval '90 s', '429 from the model')")
    assert codes(jobs, job_id) == ["kind_cooling", "in_line"]
    assert "429 from the model" in why(jobs, job_id)[0][2] and (until(jobs, job_id, "kind_cooling") or 0) > 80
    jobs.all("UPDATE $.cooldown SET until_at = clock_timestamp(), reason = NULL")
    assert codes(jobs, job_id) == ["in_line"]


def test_every_able_worker_is_stopping_or_busy(jobs: Jobs) -> None:
    add_worker(jobs, state="stopping")
    job_id = enqueue(jobs)
    assert codes(jobs, job_id) == ["workers_stopping", "in_line"]
    add_worker(jobs, 2, running=5)
    assert codes(jobs, job_id) == ["workers_busy", "in_line"]
    add_worker(jobs, 3, running=4)
    assert codes(jobs, job_id) == ["in_line"]


def test_what_a_worker_has_to_say_is_passed_on(jobs: Jobs) -> None:
    add_worker(jobs, note="started paused: the database was cloned")
    job_id = enqueue(jobs)
    assert why(jobs, job_id)[0][1:] == (
        "worker_note",
        "worker 77 on here says: started paused: the database was cloned",
    )


def test_several_reasons_come_with_the_most_decisive_first(jobs: Jobs) -> None:
    job_id = enqueue(jobs, delay="1 hour")
    jobs.all("SELECT $.pause('default')")
    assert codes(jobs, job_id) == ["not_due", "queue_paused", "no_worker"]


# Running


def test_running(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs)
    claim(jobs, job_id)
    state, code, sentence = only(jobs, job_id)
    assert (state, code) == ("running", "running") and "attempt 1 of 20, by pid 77 on here" in sentence
    assert 50 < (until(jobs, job_id, "running") or 0) <= 60


def test_asked_to_stop(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs)
    claim(jobs, job_id)
    jobs.all("SELECT $.cancel(%s, 'not wanted')", job_id)
    assert codes(jobs, job_id) == ["cancel_asked", "running"] and "not wanted" in why(jobs, job_id)[0][2]


def test_the_lease_has_run_out(jobs: Jobs) -> None:
    add_worker(jobs, seconds=-1)
    job_id = enqueue(jobs)
    claim(jobs, job_id)
    assert codes(jobs, job_id) == ["lease_expired", "no_worker"]
    assert "pid 77 on here" in why(jobs, job_id)[0][2]
    add_worker(jobs, 2)
    assert only(jobs, job_id)[2].endswith("a living worker gives the job back within seconds")


@pytest.mark.parametrize("gone", ["worker", "claim"])
def test_the_worker_is_gone(jobs: Jobs, gone: str) -> None:
    add_worker(jobs)
    add_worker(jobs, 2)
    job_id = enqueue(jobs)
    claim(jobs, job_id)
    jobs.all(f"DELETE FROM $.{gone} WHERE lease_id = 1")
    assert only(jobs, job_id)[1] == "lease_expired" and "is gone" in only(jobs, job_id)[2]


# Over


def test_held_for_a_person(jobs: Jobs) -> None:
    job_id = enqueue(jobs)
    jobs.all("SELECT $.hold(%s, 'looks like a duplicate')", job_id)
    state, code, sentence = only(jobs, job_id)
    assert (state, code) == ("held", "held") and "looks like a duplicate; until it is released" in sentence
    jobs.all("UPDATE $.job SET hold_until_at = clock_timestamp() + interval '1 hour'")
    assert "if nobody decides" in only(jobs, job_id)[2] and (until(jobs, job_id, "held") or 0) > 3500


def test_failed(jobs: Jobs) -> None:
    job_id = enqueue(jobs)
    change(
        jobs,
        job_id,
        "state = 'failed', pos = NULL, since_at = clock_timestamp(), attempts = 20, last_error = E'No: 1\\n2'",
    )
    state, code, sentence = only(jobs, job_id)
    assert (state, code) == ("failed", "failed")
    assert sentence.endswith(f"after 20 of 20 attempts: No: 1 (samecommit jobs retry {job_id})")
    change(jobs, job_id, "last_error = NULL")
    assert "no reason given" in only(jobs, job_id)[2]


@pytest.mark.parametrize(
    ("state", "error", "code", "says"),
    [
        ("done", None, "done", "done at"),
        ("cancelled", "not wanted", "cancelled", "not wanted"),
        ("cancelled", "expired at 2020-01-01 00:00:00 UTC before it started", "expired", "expired at 2020"),
        ("failed", "ValueError: no", "failed", "moved to the history"),
    ],
)
def test_ended(jobs: Jobs, state: str, error: str | None, code: str, says: str) -> None:
    job_id = enqueue(jobs)
    jobs.all("SELECT $.cancel(%s)", job_id)
    jobs.all("UPDATE $.job_history SET state = %s, last_error = %s", state, error)
    found = only(jobs, job_id)
    assert found[:2] == (state, code) and says in found[2]


def test_a_job_that_lives_again_is_not_told_by_its_history(jobs: Jobs) -> None:
    add_worker(jobs)
    job_id = enqueue(jobs)
    jobs.all("SELECT $.cancel(%s)", job_id)
    jobs.all("SELECT $.retry(%s)", job_id)
    assert codes(jobs, job_id) == ["in_line"]


def test_not_found(jobs: Jobs) -> None:
    assert only(jobs, 1)[2] == "no job has had the id 1 yet; there was no job at all"
    job_id = enqueue(jobs)
    assert only(jobs, job_id + 1)[2] == f"no job has had the id {job_id + 1} yet; the newest is {job_id}"
    jobs.all("DELETE FROM $.job")
    assert (
        only(jobs, job_id)[:2] == ("unknown", "not_found")
        and "has not committed or was rolled back" in only(jobs, job_id)[2]
    )
    assert only(jobs, None)[1] == only(jobs, -1)[1] == "not_found"


# Queues


def why_queue(jobs: Jobs, name: str) -> list[tuple[str, str, str]]:
    rows = jobs.all("SELECT state, code, sentence FROM $.why_queue(%s)", name)
    assert rows and all(None not in row for row in rows)
    return [(row[0], row[1], row[2]) for row in rows]


def test_a_queue_with_nothing_in_line(jobs: Jobs) -> None:
    add_worker(jobs)
    assert why_queue(jobs, "default") == [("open", "empty", "nothing is in line")]
    claim(jobs, enqueue(jobs))
    assert why_queue(jobs, "default") == [("open", "empty", "nothing is in line")]


def test_a_queue_with_jobs_in_line(jobs: Jobs) -> None:
    add_worker(jobs)
    enqueue(jobs)
    enqueue(jobs)
    ((state, code, sentence),) = why_queue(jobs, "default")
    assert (state, code) == ("open", "in_line") and sentence.startswith("jobs in line: 2, the oldest due since 2")


def test_a_queue_that_is_paused_without_workers(jobs: Jobs) -> None:
    jobs.all("SELECT $.pause('default', 'deploying')")
    assert [row[:2] for row in why_queue(jobs, "default")] == [
        ("paused", "queue_paused"),
        ("paused", "no_worker"),
        ("paused", "empty"),
    ]


def test_a_queue_whose_head_nobody_knows_and_whose_kinds_cool_down(jobs: Jobs) -> None:
    add_worker(jobs)
    for kind in ("nope", "greet", "nil"):
        enqueue(jobs, kind)
    jobs.all("INSERT INTO $.cooldown VALUES ('greet', clock_timestamp() + interval '90 s', NULL)")
    jobs.all("INSERT INTO $.cooldown VALUES ('elsewhere', clock_timestamp() + interval '90 s', NULL)")
    rows = why_queue(jobs, "default")
    assert [row[1] for row in rows] == ["kind_unknown", "kind_cooling", "in_line"]
    assert "'nil', 'nope'" in rows[0][2] and "told to slow down" in rows[1][2]


def test_a_queue_that_is_not_there(jobs: Jobs) -> None:
    ((state, code, sentence),) = why_queue(jobs, "gone")
    assert (state, code) == ("unknown", "not_found") and "'default'" in sentence


def test_the_commands_show_the_same(on_database: Samecommit, jobs: Jobs) -> None:
    job_id = enqueue(jobs)
    assert [reason["code"] for reason in on_database("jobs", "why", job_id, "--json").data] == codes(jobs, job_id)
    told = on_database("jobs", "why", job_id).out
    assert told.startswith(f"job {job_id} is ready\n  no worker is alive")


def test_a_role_that_may_only_call_it_gets_the_answer(jobs: Jobs) -> None:
    # the function runs with its owner's rights: nobody needs a right on the tables
    definer = jobs.value("SELECT bool_and(prosecdef) FROM pg_proc WHERE pronamespace = 'samecommit'::regnamespace "
                         "AND proname IN ('why', 'why_queue', 'why_line', 'why_waiting', 'why_running', 'why_over')")  # fmt: skip
    assert definer is True
