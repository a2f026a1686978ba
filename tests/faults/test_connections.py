"""What may happen to a worker's connections: ended, cancelled, cut around a commit, silent. Each heals by itself."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psycopg
import pytest
from tests.faults.arena import Arena
from tests.faults.crew import Crew, crew, wait_for
from tests.faults.judging import attempts_of, conclude, drain, starts
from tests.faults.producer import Producer, enqueue
from tests.faults.proxy import Pair, proxy
from tests.support.history import Run
from tests.support.history_checks import all_faults, judge

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
LINKS = ("claim", "finish", "heartbeat", "chores", "listen", "bell")


def hurt(ground: Arena, dsn: str, link: str, how: str) -> int:
    """Terminate or cancel every backend of that link of this database; how many."""
    database = dsn.rsplit("/", 2)[1] if "?" not in dsn else dsn.partition("?")[0].rpartition("/")[2]
    rows = ground.admin(
        f"SELECT pg_{how}_backend(pid) FROM pg_stat_activity "
        f"WHERE datname = '{database}' AND application_name = 'samecommit {link}'"
    )
    return len(rows)


@pytest.mark.parametrize("how", ["terminate", pytest.param("cancel", marks=pytest.mark.slow)])
@pytest.mark.parametrize("link", [*LINKS[:3], *(pytest.param(link, marks=pytest.mark.slow) for link in LINKS[3:])])
def test_a_link_that_is_hurt_heals_by_itself(
    link: str, how: str, ground: Arena, dsn: str, folder: Path, workers: Crew
) -> None:
    member = workers.start()
    member.wait_until("lease")
    for n in range(3):
        enqueue(dsn, folder, "nap", 15, 0.15, name=f"round{n}")
        wait_for(lambda: hurt(ground, dsn, link, how), 10, f"a {link} link to hurt")
    enqueue(dsn, folder, "nap", 5, name="after")
    began = time.monotonic()
    wait_for(lambda: len({x["key"] for x in member.lines("end") if x["key"].startswith("after")}) == 5, 10)
    print(f"{link} {how}: after {time.monotonic() - began:.2f} s")
    run = conclude(dsn, folder, workers)
    assert set(attempts_of(run).values()) == {0}
    assert not workers.errors()


def test_connections_that_are_hurt_at_random_lose_nothing(
    ground: Arena, dsn: str, folder: Path, workers: Crew, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(2):
        workers.start().wait_until("lease")
    load = Producer(dsn, folder, "p", count=250, seconds=5, longest=0.3, seed=seed, kinds=("nap", "doze", "effect"))
    load.start()
    hits = 0
    while load.is_alive():
        link = rng.choice((*LINKS, "handler"))
        hits += hurt(ground, dsn, link, rng.choice(("terminate", "cancel")))
        time.sleep(0.1)
    run = conclude(dsn, folder, workers)
    print(f"{hits} connections hurt, {len(run.ends)} jobs")
    assert hits >= 30
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT count(*) FROM effect GROUP BY key HAVING count(*) > 1").fetchall() == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_commit_that_is_cut_leaves_the_client_in_doubt_and_the_job_in_none(
    side: str, dsn: str, folder: Path, workers: Crew, seed: int
) -> None:
    workers.start().wait_until("lease")
    rng = random.Random(seed)
    with proxy(dsn) as (line, address):

        def cut(pair: Pair, data: bytes) -> bool:
            return pair.app == "producer" and b"COMMIT" in data and rng.random() < 0.3

        setattr(line, side, cut)
        load = Producer(address, folder, "p", count=100, seconds=3, longest=0.05, seed=seed)
        load.start()
        load.join(60)
    run = conclude(dsn, folder, workers)
    unknown = {key for line in run.clients if line["type"] == "unknown" for key in line["keys"]}
    ran = {line["key"] for line in run.handlers if line["op"] == "start"}
    assert unknown
    assert unknown <= ran if side == "after" else not unknown & ran


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_end_whose_answer_is_lost_is_written_once(side: str, dsn: str, folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    cuts = 0

    def cut(pair: Pair, data: bytes) -> bool:
        nonlocal cuts
        is_cut = pair.app == "samecommit finish" and len(data) > 200 and rng.random() < 0.2
        cuts += is_cut
        return is_cut

    with proxy(dsn) as (line, address), crew(address, folder) as workers:
        workers.start().wait_until("lease")
        setattr(line, side, cut)
        enqueue(dsn, folder, "nap", 200, 0.5)
        for n in range(20):
            enqueue(dsn, folder, "nap", 5, 0.0, name=f"later{n}")
            time.sleep(0.1)
        run = conclude(dsn, folder, workers)
    assert cuts >= 3
    assert starts(run) == 300
    assert set(attempts_of(run).values()) == {0}


@pytest.mark.parametrize(
    "link", ["claim", *(pytest.param(link, marks=pytest.mark.slow) for link in ("", "finish", *LINKS[2:]))]
)
def test_a_connection_that_goes_silent_is_noticed(link: str, dsn: str, folder: Path) -> None:
    with proxy(dsn) as (line, address), crew(address, folder) as workers:
        member = workers.start()
        member.wait_until("lease")
        enqueue(dsn, folder, "nap", 5, name="before")
        wait_for(lambda: len(member.lines("end")) == 5)
        wait_for(lambda: [pair for pair in line.pairs if link in pair.app], 10)
        assert line.silence(f"samecommit {link}")
        began = time.monotonic()
        enqueue(dsn, folder, "nap", 5, 0.1, name="during")
        wait_for(
            lambda: [pair for pair in line.pairs if f"samecommit {link}" in pair.app and not pair.is_silent],
            40,
            "a new connection in the place of the silent one",
        )
        noticed = time.monotonic() - began
        drain(dsn, 30)
        print(f"{link or 'all'}: noticed after {noticed:.1f} s, all done after {time.monotonic() - began:.1f} s")
        run = conclude(dsn, folder, workers)
        assert noticed <= 15
        assert starts(run) >= 10


@pytest.mark.slow
def test_a_worker_can_be_stopped_while_its_connections_are_silent(dsn: str, folder: Path) -> None:
    with proxy(dsn) as (line, address), crew(address, folder) as workers:
        member = workers.start(grace_seconds=1.0)
        member.wait_until("lease")
        enqueue(dsn, folder, "nap", 5, 0.5)
        member.wait_until("start")
        line.silence("samecommit")
        began = time.monotonic()
        member.end(40)
        print(f"stopped after {time.monotonic() - began:.1f} s")
        workers.start()
        run = conclude(dsn, folder, workers)
        assert isinstance(run, Run) and all_faults(judge(run)) == []


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        pytest.param("nap", "before claim/owned=raise@1", id="done"),
        pytest.param("stumble", "before claim/owned=raise@1", id="settled"),
    ],
)
def test_an_end_that_finds_its_row_locked_and_then_fails_is_written_all_the_same(
    kind: str, faults: str, dsn: str, folder: Path, workers: Crew
) -> None:
    member = workers.start(faults)
    member.wait_until("lease")
    enqueue(dsn, folder, kind, 3, 0.5)
    member.wait_until("start", count=3)
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT FROM samecommit.job FOR UPDATE")
        member.wait_until("trouble")
    run = conclude(dsn, folder, workers, drain_seconds=15)
    assert "a fault was asked for" in member.lines("trouble")[0]["error"]
    assert starts(run) == (3 if kind == "nap" else 6)


@pytest.mark.parametrize(
    "faults", ["after claim/claim=raise@1", "before claim/bodies=raise@1"], ids=["answer lost", "bodies not read"]
)
def test_what_was_claimed_and_not_taken_up_is_given_back_by_the_worker_that_claimed_it(
    faults: str, dsn: str, folder: Path, workers: Crew
) -> None:
    enqueue(dsn, folder, "nap", 20)
    with psycopg.connect(dsn) as conn:  # half of the payloads are kept apart, so that their keys are not in the audit
        conn.execute(
            "WITH wide AS (UPDATE samecommit.job SET payload = NULL WHERE id % 2 = 0 RETURNING id, created_at) "
            "INSERT INTO samecommit.body (job_id, created_at, payload) "
            "SELECT id, created_at, jsonb_build_object('key', 'wide-' || id, 'seconds', 0) FROM wide"
        )
    member = workers.start(faults, lease_seconds=60.0, concurrency=5)
    drain(dsn, 20)
    workers.stop()
    assert member.lines("trouble")
    assert len(member.lines("start")) == len({line["key"] for line in member.lines("end")}) == 20
    with psycopg.connect(dsn) as conn:
        ended = conn.execute("SELECT state, sum(attempts), sum(claims), count(*) FROM samecommit.jobs GROUP BY state")
        assert ended.fetchall() == [("done", 0, 20, 20)]
        assert conn.execute("SELECT count(*) FROM samecommit.claim").fetchone() == (0,)
