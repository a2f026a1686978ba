from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
import pytest
from tests.cli.conftest import Samecommit
from tests.support.jobs import Jobs

from samecommit.storage import operate
from samecommit.storage.operate import JobFilter, Operator
from samecommit.storage.query import statement


def enqueue(jobs: Jobs, count: int = 1, kind: str = "greet", **options: Any) -> list[int]:
    named = "".join(f", {name} => %s" for name in options)
    return [jobs.value(f"SELECT id FROM $.enqueue(%s{named})", kind, *options.values()) for _ in range(count)]


def fail(jobs: Jobs, ids: Sequence[int], error: str = "ValueError: no") -> None:
    for job_id in ids:
        jobs.all("UPDATE $.job SET state = 'failed', pos = NULL, since_at = clock_timestamp(), attempts = 1, last_error = %s "
                 "WHERE id = %s", error, job_id)  # fmt: skip


def end(jobs: Jobs, ids: Sequence[int]) -> None:
    jobs.all("SELECT $.cancel(id) FROM unnest(%s::bigint[]) AS ended (id)", list(ids))


def ids_of(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def test_jobs_are_listed_newest_first_whether_live_or_ended(on_database: Samecommit, jobs: Jobs) -> None:
    ids = enqueue(jobs, 5)
    end(jobs, ids[1:3])
    answer = on_database("jobs", "--json").answer
    assert ids_of(answer["data"]) == ids[::-1]
    assert [row["state"] for row in answer["data"]] == ["ready", "ready", "cancelled", "cancelled", "ready"]
    assert answer["next"] is None and answer["is_cut"] is False
    assert "no jobs" in on_database("jobs", "--kind", "other").out


def test_jobs_whose_moments_python_has_not_are_shown(on_database: Samecommit, jobs: Jobs) -> None:
    ids = [
        jobs.value(f"SELECT id FROM $.enqueue('greet', {option})")
        for option in (
            "run_at => 'infinity'",
            "run_at => '4000-01-01 BC'",
            "expires_at => 'infinity'",
            "delay => '100000 y'",
        )
    ]
    jobs.all("SELECT $.hold(%s, 'look', until_at => 'infinity')", ids[1])
    jobs.all("SELECT $.pause('default', 'for good', 'infinity')")
    assert ids_of(on_database("jobs", "--json").data) == ids[::-1]
    for command in (["jobs"], ["queues"], ["queues", "why", "default"], *(["jobs", "why", n] for n in ids)):
        assert on_database(*command).status == 0, command
    shown = {n: on_database("jobs", "show", n, "--json").data for n in ids}
    assert (shown[ids[0]]["run_at"][:4], shown[ids[1]]["run_at"][:4]) == ("9999", "0001")


def test_a_number_of_more_digits_than_python_reads_is_shown(on_database: Samecommit, jobs: Jobs) -> None:
    job_id = jobs.value("SELECT id FROM $.enqueue('greet', jsonb_build_object('n', 10::numeric ^ 5000))")
    assert on_database("jobs", "show", job_id).status == 0
    assert on_database("jobs", "show", job_id, "--json").data["payload"]["n"].startswith("1000")


@pytest.mark.parametrize("walk", [1, 2, 3, 20_000])
def test_pages_hold_every_job_once(
    on_database: Samecommit, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, walk: int
) -> None:
    monkeypatch.setattr(operate, "_WALK", walk)
    monkeypatch.setattr(operate, "_STEPS", 2)
    ids = enqueue(jobs, 9)
    end(jobs, ids[::2])
    for filters in ([], ["--kind", "greet"]):
        found, page = list[int](), list[str]()
        for _ in range(30):
            answer = on_database("jobs", "--limit", 2, "--json", *filters, *page).answer
            found += ids_of(answer["data"])
            if answer["next"] is None:
                break
            page = ["--page", answer["next"]]
        assert found == ids[::-1]


def test_a_look_through_many_that_do_not_fit_ends_and_goes_on(
    on_database: Samecommit, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "_WALK", 2)
    monkeypatch.setattr(operate, "_STEPS", 2)
    (rare,) = enqueue(jobs, kind="rare")
    enqueue(jobs, 20)
    answer = on_database("jobs", "--kind", "rare", "--json").answer
    assert answer["data"] == [] and answer["is_cut"] and answer["next"]
    assert "no jobs so far" in (told := on_database("jobs", "--kind", "rare").out) and "--page" in told
    for _ in range(10):
        answer = on_database("jobs", "--kind", "rare", "--json", "--page", answer["next"]).answer
        if answer["data"]:
            break
    assert ids_of(answer["data"]) == [rare]


def test_filters_choose_by_queue_kind_and_state(on_database: Samecommit, jobs: Jobs) -> None:
    on_database("queues", "create", "slow")
    (greet,), (slow,), (later,) = enqueue(jobs), enqueue(jobs, queue="slow"), enqueue(jobs, delay="1 day")
    (failed,), (held,), (cancelled,), (retrying,) = (
        enqueue(jobs),
        enqueue(jobs),
        enqueue(jobs),
        enqueue(jobs, delay="1 day"),
    )
    fail(jobs, [failed])
    end(jobs, [cancelled])
    jobs.all("SELECT $.hold(%s, 'look at it')", held)
    jobs.all("UPDATE $.job SET attempts = 1 WHERE id = %s", retrying)

    def listed(*filters: str) -> list[int]:
        return ids_of(on_database("jobs", "--json", *filters).data)

    assert listed("--queue", "slow") == [slow]
    assert listed("--state", "ready") == [retrying, later, slow, greet]
    assert listed("--state", "scheduled") == [later]
    assert listed("--state", "retrying") == [retrying]
    assert listed("--state", "failed") == [failed]
    assert listed("--state", "held") == [held]
    assert listed("--state", "cancelled") == [cancelled]
    assert listed("--state", "done") == listed("--state", "running") == []
    assert listed("--state", "failed", "--kind", "other") == listed("--state", "held", "--queue", "slow") == []
    assert [row["note"] for row in on_database("jobs", "--state", "held", "--json").data] == ["look at it"]


def test_failed_jobs_are_listed_by_when_they_failed(
    on_database: Samecommit, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "_WALK", 2)
    ids = enqueue(jobs, 7)
    order = [ids[n] for n in (3, 0, 6, 2, 5, 1, 4)]
    fail(jobs, order)
    jobs.all("UPDATE $.job SET since_at = (SELECT min(since_at) FROM $.job) WHERE id = ANY (%s)", order[:3])
    found, page = list[int](), list[str]()
    for _ in range(10):
        answer = on_database("jobs", "--state", "failed", "--limit", 2, "--json", *page).answer
        found += ids_of(answer["data"])
        if answer["next"] is None:
            break
        page = ["--page", answer["next"]]
    assert found == order[:2:-1] + sorted(order[:3], reverse=True)


@pytest.mark.parametrize(("state", "page"), [([], "x"), (["--state", "failed"], "7"), (["--state", "running"], "-1")])
def test_a_page_that_is_none_is_refused(on_database: Samecommit, state: list[str], page: str) -> None:
    told = on_database("jobs", *state, "--page", page)
    assert told.status == 2 and f"page {page!r}" in told.err


def test_running_jobs_are_found_through_their_claims(on_database: Samecommit, jobs: Jobs) -> None:
    ids = enqueue(jobs, 3)
    jobs.all("UPDATE $.job SET claim_id = 9, claims = 1, claimed_at = clock_timestamp() WHERE id = ANY (%s)", ids[:2])
    jobs.all("INSERT INTO $.claim (claim_id, lease_id, ids) VALUES (9, 1, %s)", ids[:2])
    rows = on_database("jobs", "--state", "running", "--json").data
    assert ids_of(rows) == ids[1::-1] and rows[0]["note"] == "its worker is gone"
    page = on_database("jobs", "--state", "running", "--limit", 1, "--json").answer["next"]
    assert ids_of(on_database("jobs", "--state", "running", "--page", page, "--json").data) == ids[:1]


def test_ids_alone_feed_other_commands(on_database: Samecommit, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    ids = enqueue(jobs, 3)
    fail(jobs, ids[:2])
    listed = on_database("jobs", "--state", "failed", "--ids").out
    assert listed == f"{ids[1]}\n{ids[0]}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(listed))
    assert on_database("jobs", "retry", "-").status == 0
    assert jobs.count("failed") == 0


def test_one_job_is_shown_with_all_that_is_known(on_database: Samecommit, jobs: Jobs) -> None:
    (job_id,) = enqueue(jobs, payload='{"name": "Ann"}', tags=["vip"])
    fail(jobs, [job_id], "ValueError: no\n\nTraceback (most recent call last): …")
    jobs.all(
        "INSERT INTO $.attempt (job_id, claim_id, claimed_at, ended_at, number, outcome, error, record) "
        "VALUES (%s, 1, clock_timestamp(), clock_timestamp(), 1, 'error', 'ValueError: no', '{\"tokens\": 3}')",
        job_id,
    )
    shown = on_database("jobs", "show", job_id, "--json").data
    assert (shown["payload"], shown["tags"], shown["state"]) == ({"name": "Ann"}, ["vip"], "failed")
    assert [(attempt["outcome"], attempt["record"]) for attempt in shown["attempts_made"]] == [("error", {"tokens": 3})]
    assert [reason["code"] for reason in shown["why"]] == ["failed"]
    assert datetime.fromisoformat(shown["created_at"]).tzinfo is not None and "T" in shown["created_at"]
    told = on_database("jobs", job_id).out
    assert all(part in told for part in ("vip", "Ann", "tokens", "Traceback", f"jobs retry {job_id}"))


def test_a_job_that_is_not_there_is_refused_with_a_reason(on_database: Samecommit, jobs: Jobs) -> None:
    (job_id,) = enqueue(jobs)
    for command in (["show"], ["why"]):
        told = on_database("jobs", *command, job_id + 1)
        assert told.status == 3 and f"the newest is {job_id}" in told.out + told.err


def test_verbs_say_what_came_of_each_job(on_database: Samecommit, jobs: Jobs) -> None:
    failed, ready = enqueue(jobs, 2)
    fail(jobs, [failed])
    told = on_database("jobs", "retry", failed, ready, 999, "--json")
    assert told.status == 3
    assert [row["outcome"] for row in told.answer["data"]] == ["retried", "ready", "not found"]
    assert (told.answer["done"], told.answer["refused"]) == (1, 2)
    told = on_database("jobs", "retry", ready)
    assert told.status == 3 and told.out == f"job {ready}: not retried, it is ready\n"


def test_a_job_is_held_and_released_with_a_decision(on_database: Samecommit, jobs: Jobs) -> None:
    (job_id,) = enqueue(jobs)
    options = ["--reason", "doubtful", "--data", '{"sure": 0.4}', "--until", "2h"]
    assert on_database("jobs", "hold", job_id, *options).out == f"job {job_id}: held\n"
    row = jobs.row(job_id)
    assert (row["hold_reason"], row["hold_data"]) == ("doubtful", {"sure": 0.4})
    assert 7100 < jobs.value("SELECT extract(epoch FROM hold_until_at - clock_timestamp()) FROM $.jobs") <= 7200
    assert on_database("jobs", "release", job_id, "--decision", '{"go": true}').status == 0
    assert jobs.row(job_id)["decision"] == {"go": True}
    assert on_database("jobs", "hold", job_id).status == 2, "a reason is required"


def test_a_hold_may_end_at_a_time(on_database: Samecommit, jobs: Jobs) -> None:
    (job_id,) = enqueue(jobs)
    assert on_database("jobs", "hold", job_id, "--reason", "x", "--until", "2999-01-01T00:00Z").status == 0
    assert jobs.row(job_id)["hold_until_at"].year == 2999


def test_jobs_are_cancelled_each_once(on_database: Samecommit, jobs: Jobs) -> None:
    first, second = enqueue(jobs, 2)
    told = on_database("jobs", "cancel", f"{first},{second}", first, "--reason", "not wanted", "--json")
    assert told.data == [{"id": first, "outcome": "cancelled"}, {"id": second, "outcome": "cancelled"}]
    assert jobs.row(first)["last_error"] == "not wanted"
    assert on_database("jobs", "cancel", first).status == 3


def test_a_replay_makes_new_jobs_in_the_order_given(on_database: Samecommit, jobs: Jobs) -> None:
    first, second = enqueue(jobs, 2, payload='{"a": 1, "b": 1}')
    end(jobs, [first])
    on_database("queues", "create", "again")
    told = on_database("jobs", "replay", second, first, 999, "--patch", '{"b": 2}', "--queue", "again", "--json")
    assert told.status == 3 and told.answer["not_found"] == [999]
    assert [row["replay_of"] for row in told.answer["data"]] == [second, first]
    new = jobs.row(told.answer["data"][0]["id"])
    assert (new["payload"], new["queue"], new["replay_of"]) == ({"a": 1, "b": 2}, "again", second)
    assert on_database("jobs", "replay", first, "--queue", "gone").status == 3


@pytest.mark.parametrize("ids", ["x", "-5", "1.5", str(2**63), "9" * 5000, "٣"])
def test_what_is_no_id_is_wrong_usage(on_database: Samecommit, ids: str) -> None:
    for command in ("retry", "show", "why"):
        told = on_database("jobs", command, "--", ids)
        assert (told.status, "is no job id" in told.err) == (2, True), command


def test_a_list_never_looks_at_more_than_its_steps(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = list[str]()
    run = Operator.ask

    def counted(self: Operator, label: str, **values: Any) -> list[dict[str, Any]]:
        labels.append(label)
        assert values["walk"] <= 20_000
        return run(self, label, **values)

    monkeypatch.setattr(Operator, "ask", counted)
    with Operator.connect(dsn, "samecommit") as operator:
        operator.jobs(JobFilter(kind="rare"))
    assert labels == ["operate/jobs"]


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ("operate/jobs", {"state": None, "kind": "rare"}),
        ("operate/jobs", {"state": "done", "kind": None}),
        ("operate/jobs_kept", {"state": "failed", "kind": "rare", "before_at": "2999-01-01T00:00Z"}),
    ],
)
def test_a_step_of_a_list_reads_no_more_than_it_may_walk(jobs: Jobs, label: str, values: dict[str, Any]) -> None:
    jobs.all("INSERT INTO $.job (queue_id, kind, state, since_at) SELECT 1, 'greet', 'failed', now() - n * interval '1 s' "
             "FROM generate_series(1, 5000) AS n")  # fmt: skip
    end(jobs, enqueue(jobs, 50))
    jobs.all("ANALYZE $.job")
    query = statement(label, "samecommit")
    bound = query.bind({"before": 2**62, "walk": 100, "room": 50, "queue": None, **values})
    with jobs.conn.transaction():
        jobs.conn.execute(statement("operate/session", "samecommit").text.encode())
        explain = f"EXPLAIN (ANALYZE, COSTS off, TIMING off, FORMAT json) {query.text}"
        ((plan,),) = psycopg.RawCursor(jobs.conn).execute(explain, bound).fetchall()
    read = [node["Actual Rows"] * node["Actual Loops"] for node in nodes(plan[0]["Plan"]) if "Relation Name" in node]
    assert read and max(read) <= 101, plan  # an incremental sort looks one further


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def test_a_narrow_terminal_hides_nothing(on_database: Samecommit, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    ids = enqueue(jobs, kind="k" * 40)
    fail(jobs, ids, "ValueError: cannot do 3 of the many things that were asked for")
    told = on_database("jobs").out
    assert "k" * 40 in told and f"{ids[0]}  " in told and "default" in told
    assert {"ValueError:", "cannot", "do", "3", "of", "the", "many", "things"} <= set(told.split())
