import pytest
from tests.cli.conftest import Samecommit
from tests.support.jobs import Jobs


def test_a_queue_is_made_changed_and_listed(on_database: Samecommit) -> None:
    assert on_database("queues", "create", "mail", "--retention", "long", "--max-attempts", 3).status == 0
    assert on_database("queues", "create", "mail", "--retention", "short").status == 0
    (mail,) = [queue for queue in on_database("queues", "--json").data if queue["name"] == "mail"]
    assert (mail["retention"], mail["is_paused"], mail["waiting"]) == ("short", False, 0)
    assert "mail" in on_database("queues").out


@pytest.mark.parametrize("name", ["", " a", "a\nb", "x" * 201])
def test_a_name_that_cannot_be_is_wrong_usage(on_database: Samecommit, name: str) -> None:
    told = on_database("queues", "create", name)
    assert told.status == 2 and "queue name" in told.err


def test_a_queue_is_paused_for_a_while_and_resumed(on_database: Samecommit, jobs: Jobs) -> None:
    assert on_database("queues", "pause", "default", "--reason", "deploying", "--until", "30min").status == 0
    (queue,) = on_database("queues", "--json").data
    assert (queue["is_paused"], queue["pause_reason"]) == (True, "deploying")
    assert 1700 < jobs.value("SELECT extract(epoch FROM paused_until - clock_timestamp()) FROM $.queue") <= 1800
    told = on_database("queues").out
    assert "paused" in told and "deploying; ends in 30 min" in told
    assert on_database("queues", "resume", "default").status == 0
    assert not on_database("queues", "--json").data[0]["is_paused"]


def test_a_pause_without_end_says_so(on_database: Samecommit) -> None:
    on_database("queues", "pause", "default")
    assert "no reason given; ends when it is resumed" in on_database("queues").out


@pytest.mark.parametrize("verb", ["pause", "resume", "why"])
def test_an_unknown_queue_is_refused(on_database: Samecommit, verb: str) -> None:
    told = on_database("queues", verb, "gone")
    assert told.status == 3 and "gone" in told.out + told.err


def test_a_queue_says_why_it_stands_still(on_database: Samecommit) -> None:
    reasons = on_database("queues", "why", "default", "--json").data
    assert [reason["code"] for reason in reasons] == ["no_worker", "empty"]
    assert "queue 'default' is open" in on_database("queues", "why", "default").out


def test_failures_are_grouped_by_cause(on_database: Samecommit, jobs: Jobs) -> None:
    assert on_database("failures").out == "no job has failed\n"
    for n, kind in enumerate(["greet", "greet", "boom"]):
        job_id = jobs.value("SELECT id FROM $.enqueue(%s)", kind)
        jobs.all(
            "UPDATE $.job SET state = 'failed', pos = NULL, since_at = clock_timestamp(), last_error = %s WHERE id = %s",
            f"ValueError: no {n}\n\nTraceback",
            job_id,
        )
    groups = on_database("failures", "--json").data
    assert [(group["kind"], group["cause"], group["jobs"]) for group in groups] == [
        ("greet", "ValueError: no #", 2),
        ("boom", "ValueError: no #", 1),
    ]
    assert len(on_database("failures", "--kind", "boom", "--json").data) == 1
    assert "ValueError: no #" in on_database("failures").out


def test_workers_are_listed_dead_or_alive(on_database: Samecommit, jobs: Jobs) -> None:
    assert "no worker is alive" in on_database("workers").out
    for pid, seconds in ((1, 60), (2, -60)):
        jobs.all(
            "INSERT INTO $.worker (lease_id, expires_at, pid, concurrency, host, version, queues, kinds) "
            "VALUES (%s, clock_timestamp() + make_interval(secs => %s), %s, 5, 'here', '1', '{*}', '{greet}')",
            pid,
            seconds,
            pid,
        )
    assert [worker["state"] for worker in on_database("workers", "--json").data] == ["working", "dead"]
    assert "greet" in on_database("workers").out and "note" not in on_database("workers").out
    jobs.all("UPDATE $.worker SET note = '2 threads hang'")
    assert "2 threads hang" in on_database("workers").out
