"""What is left open: a prepared transaction, a session, a standby's slot. Nothing is skipped, and the one to blame is named."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.faults.cluster import Cluster, machines
from tests.faults.crew import crew, wait_for
from tests.faults.judging import conclude
from tests.faults.producer import Producer
from tests.support.history import History

from samecommit.storage.operate import Operator

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A server on which transactions can be prepared, with an installation."""
    with machines() as place:
        made = place.cluster("one", max_prepared_transactions="5")
        made.install()
        yield made


def prepare(dsn: str, folder: Path, key: str) -> int:
    """Enqueue in a transaction that is prepared and left open; the job's id."""
    history = History(folder / "client-prepared.jsonl")
    history.write("enqueue", type="invoke", keys=[key])
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("BEGIN")
        conn.execute("SET LOCAL samecommit.doorbell = off")  # NOTIFY cannot be prepared
        row = conn.execute(
            "SELECT id FROM samecommit.enqueue('nap', jsonb_build_object('key', %s::text, 'seconds', 0))", [key]
        ).fetchone()
        conn.execute("PREPARE TRANSACTION 'left open'")
    history.write("enqueue", type="ok", keys=[key], ids=list(row or ()))
    assert row is not None
    return int(row[0])


def test_a_job_in_a_prepared_transaction_runs_when_that_is_committed_and_not_before(
    cluster: Cluster, folder: Path, seed: int
) -> None:
    dsn = cluster.dsn()
    with crew(dsn, folder) as workers:
        member = workers.start()
        member.wait_until("lease")
        job = prepare(dsn, folder, "prepared-0")
        load = Producer(dsn, folder, "p", count=2000, seconds=4, longest=0.01, seed=seed, groups=(20, 50))
        load.start()
        load.join(60)
        wait_for(lambda: len(member.lines("end")) >= 2000, 30, "all that came later")
        assert not [line for line in member.lines("start") if line["key"] == "prepared-0"]
        with Operator.connect(dsn, "samecommit") as asked:
            assert "'left open'" in asked.why(job)[0]["sentence"]
            held = wait_for(lambda: [x for x in asked.why_queue("default") if x["code"] == "horizon_held"], 10)
            assert "prepared transaction 'left open'" in held[0]["sentence"]
            assert "COMMIT PREPARED 'left open'" in held[0]["sentence"]
        with psycopg.connect(dsn, autocommit=True) as conn:
            began = time.time()
            conn.execute("COMMIT PREPARED 'left open'")
        wait_for(lambda: [line for line in member.lines("end") if line["key"] == "prepared-0"], 10)
        started = next(line["at"] for line in member.lines("start") if line["key"] == "prepared-0")
        print(f"started {started - began:.3f} s after its transaction was committed")
        assert started - began <= 1.5
        conclude(dsn, folder, workers)


def test_what_holds_the_horizon_is_named(cluster: Cluster) -> None:
    with psycopg.connect(cluster.dsn(), application_name="monthly report") as pin:
        pin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        pin.execute("SELECT 1 FROM samecommit.job")
        with psycopg.connect(cluster.dsn(), autocommit=True) as conn:
            asked = "SELECT holder, name, advice FROM samecommit.horizon_holders(interval '0', 0)"
            (found,) = [row for row in conn.execute(asked).fetchall() if "monthly report" in row[1]]
            assert found[0] == "session"
            assert found[2] == f"SELECT pg_terminate_backend({pin.info.backend_pid})"


@pytest.mark.slow
def test_a_slot_whose_standby_is_gone_is_named() -> None:
    with machines() as place:
        first = place.cluster("first")
        first.install()
        first.admin("SELECT pg_create_physical_replication_slot('gone', true)")
        second = place.empty("second")
        settings = {"hot_standby_feedback": "on", "primary_slot_name": "gone", "wal_receiver_status_interval": "1s"}
        first.copy_to(second, settings=settings, follows=True)
        second.start(is_standby=True)
        wait_for(lambda: first.admin("SELECT 1 FROM pg_replication_slots WHERE xmin IS NOT NULL"), 20, "its feedback")
        second.kill()
        with psycopg.connect(first.dsn(), autocommit=True) as conn:
            asked = "SELECT holder, name FROM samecommit.horizon_holders(interval '1 h', 0)"
            assert conn.execute(asked).fetchall() == [("replication slot", "gone")]
