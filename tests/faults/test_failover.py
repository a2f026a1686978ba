"""The server is gone for good and a standby takes its place: what was shipped is kept, what was not is lost and harms nothing else."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from tests.faults.cluster import Cluster, Machines, machines
from tests.faults.crew import crew, wait_for
from tests.faults.judging import conclude, drain
from tests.faults.producer import Producer, enqueue
from tests.support import history_audit
from tests.support.history import History, Run
from tests.support.history_checks import all_faults, judge
from tests.support.history_health import first_claims_after, resources, timing

from samecommit.storage.operate import Operator

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
WRITES = "&target_session_attrs=read-write"


@pytest.fixture(params=["pg18", pytest.param("pg15", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> Iterator[Machines]:
    """Where servers are made."""
    with machines(request.param) as made:
        yield made


def pair(place: Machines, *, sync: bool) -> tuple[Cluster, Cluster]:
    """A server with an installation, and a standby that follows it."""
    first = place.cluster("first", hot_standby="on", wal_keep_size="64MB", wal_receiver_status_interval="1s")
    first.install()
    second = place.empty("second")
    first.copy_to(second, settings={"synchronous_standby_names": ""}, follows=True)
    second.start(is_standby=True)
    if sync:
        first.admin("ALTER SYSTEM SET synchronous_standby_names = '*'")
        first.admin("SELECT pg_reload_conf()")
        wait_for(lambda: first.admin("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"), 20, "a standby")
    return first, second


def fail_over(first: Cluster, second: Cluster, folder: Path) -> None:
    began = first.kill()
    second.promote()
    until = second.wait_until_up()
    History(folder / "faults.jsonl").write("fault", kind="failover", is_down=True, at=began, until=until)


def starts_after(run: Run, kind: str) -> list[float]:
    waits = first_claims_after(run, kind)
    print("first claim after the standby took over:", [round(wait, 2) for wait in waits])
    return waits


def test_a_synchronous_standby_takes_over_without_a_loss(place: Machines, folder: Path, seed: int) -> None:
    first, second = pair(place, sync=True)
    dsn = first.dsn(second, options=WRITES)
    with crew(dsn, folder) as workers:
        for _ in range(2):
            workers.start().wait_until("lease")
        load = Producer(dsn, folder, "p", count=300, seconds=6, longest=0.3, seed=seed, kinds=("nap", "effect"))
        load.start()
        wait_for(lambda: load.made > 100, 30, "work in flight")
        fail_over(first, second, folder)
        load.join(60)
        run = conclude(dsn, folder, workers)
        assert max(starts_after(run, "failover")) <= 5
        assert [member.process.returncode for member in workers.members] == [0, 0]
        assert not any("copy" in line["error"] for line in run.handlers if line["op"] == "trouble")
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT count(*) FROM effect GROUP BY key HAVING count(*) > 1").fetchall() == []


def judged_but_for(run: Run, lost: set[str]) -> list[str]:
    """Everything that is wrong with a run if nobody knows whether these were enqueued: they may have run, and may be gone."""
    clients = [
        line | {"type": "unknown"} if line["type"] == "ok" and lost.issuperset(line["keys"]) else line
        for line in run.clients
    ]
    told = replace(run, clients=clients)
    return all_faults([*judge(told), timing(told), resources(told)])


def test_an_asynchronous_standby_loses_what_it_was_not_told_and_nothing_else(
    place: Machines, folder: Path, seed: int
) -> None:
    first, second = pair(place, sync=False)
    dsn = first.dsn(second)  # libpq would take the first that answers; a worker asks for the one that takes writes
    with crew(dsn, folder) as workers:
        for _ in range(2):
            workers.start().wait_until("lease")
        enqueue(dsn, folder, "nap", 40, 0.1, name="kept")
        enqueue(dsn, folder, "nap", 40, 6.0, name="long")
        drain_all_but(dsn, 40)
        caught_up(first, second)
        second.admin("ALTER SYSTEM SET primary_conninfo = ''")
        second.admin("SELECT pg_reload_conf()")
        wait_for(lambda: not first.admin("SELECT 1 FROM pg_stat_replication"), 20, "the standby to be cut off")
        lag_ids = enqueue(dsn, folder, "nap", 80, 0.05, name="lag")
        drain_all_but(dsn, 40)
        fail_over(first, second, folder)
        after_ids = enqueue(second.dsn(), folder, "nap", 80, 0.05, name="after")
        drain(second.dsn(), 60)
        history_audit.wait_for_the_dead(second.dsn(), 2, 20)
        workers.stop()
        history_audit.dump(second.dsn(), folder)
        run = Run.load(folder)
        lag = {f"lag-{n}" for n in range(80)}
        lost = {key for key in lag if key not in {line["key"] for line in run.tables}}
        again = set(lag_ids) & set(after_ids)
        print(f"acknowledged and not shipped: 80, lost {len(lost)}; ids given a second time: {len(again)}")
        assert lost == lag
        assert judged_but_for(run, lost) == []
        assert max(starts_after(run, "failover")) <= 5
        assert [member.process.returncode for member in workers.members] == [0, 0]
        assert again, "without ids that are given twice this does not show that effect keys differ"


def drain_all_but(dsn: str, rest: int) -> None:
    with psycopg.connect(dsn + WRITES, autocommit=True) as conn:
        wait_for(
            lambda: conn.execute("SELECT count(*) FROM samecommit.job").fetchone() == (rest,), 30, "the short jobs"
        )


def caught_up(first: Cluster, second: Cluster) -> None:
    (point,) = first.admin("SELECT pg_current_wal_flush_lsn()::text")[0]
    wait_for(lambda: second.admin(f"SELECT pg_last_wal_replay_lsn() >= '{point}'::pg_lsn") == [(True,)], 20)


def test_a_worker_on_a_standby_waits_until_it_is_promoted(place: Machines, folder: Path) -> None:
    first, second = pair(place, sync=False)
    dsn = second.dsn(first)  # the standby comes first, and would be taken if workers did not ask who takes writes
    with crew(dsn, folder) as workers:
        member = workers.start()
        member.wait_until("lease")
        enqueue(first.dsn(), folder, "nap", 5)
        wait_for(lambda: len(member.lines("end")) == 5, 20)
        caught_up(first, second)
        first.kill()
        began = time.time()
        wait_for(lambda: any("read-only" in x["error"] for x in member.lines("trouble")), 20, "a word on the standby")
        assert time.time() - began < 10
        second.promote()
        enqueue(second.dsn(), folder, "nap", 5, name="after")
        wait_for(lambda: len([x for x in member.lines("end") if x["key"].startswith("after")]) == 5, 20)
        conclude(second.dsn(), folder, workers)


@pytest.mark.slow
def test_a_copy_of_the_files_works_like_the_original_unless_it_was_told_not_to(place: Machines, folder: Path) -> None:
    first = place.cluster("first")
    first.install()
    copies = [place.empty("second"), place.empty("third")]
    for copy in copies:
        first.copy_to(copy, settings={}, follows=False)
        copy.start()
    page = Path(__file__).parents[2] / "docs/operations/backup-and-restore.md"
    (told,) = re.findall(r"`(UPDATE samecommit\.setting [^`]+)`", page.read_text(encoding="utf-8"))
    with psycopg.connect(copies[1].dsn(), autocommit=True) as conn:
        conn.execute(told.encode())
        assert conn.execute("SELECT samecommit.away() IS NOT NULL").fetchone() == (True,)
    for copy in copies:
        (own := folder / copy.home.name).mkdir()
        (job,) = enqueue(copy.dsn(), own, "nap")
        with crew(copy.dsn(), own) as workers:
            member = workers.start()
            if copy is copies[0]:
                member.wait_until("end")
            else:
                member.wait_until("waiting")
                assert not member.lines("lease", "start")
            with Operator.connect(copy.dsn(), "samecommit") as asked:
                assert (asked.why(job)[0]["code"] == "away") == (copy is copies[1])
