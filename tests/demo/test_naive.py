import csv
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.demo.conftest import Running

from samecommit.demo.crm_client import CrmClient
from samecommit.demo.crm_stub import CrmStub, Moods
from samecommit.demo.intake import Lead
from samecommit.demo.lead_table import values
from samecommit.demo.model_client import ModelClient
from samecommit.demo.model_stub import ModelStub
from samecommit.demo.naive.broker import Broker
from samecommit.demo.naive.importer import import_leads
from samecommit.demo.naive.run import NaiveInput, NaiveProgress, run_naive, work_seconds
from samecommit.demo.naive.store import NaiveStore
from samecommit.demo.naive.worker import NaiveWorker
from samecommit.demo.stub import Request
from samecommit.embedded import EmbeddedServer

CALM = Moods(error=0, dropped=0, search_error=0, latency_seconds=0)
ANN = Lead(row=2, email="ann@b.example", name="Ann", message="Please send a quote")


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with EmbeddedServer() as server:
        yield server.dsn


@pytest.fixture
def store() -> NaiveStore:
    return NaiveStore("naive_test")


@pytest.fixture
def conn(dsn: str, store: NaiveStore) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        store.create(conn)
        yield conn


def worker(serving: Running, store: NaiveStore, moods: Moods = CALM) -> NaiveWorker:
    crm = CrmStub(":memory:", moods=moods)
    serving.on_close(crm.close)
    model = ModelClient(base_url=f"{serving(ModelStub(latency_seconds=0))}/v1", api_key="", model="m")
    return NaiveWorker(store=store, model=model, crm=CrmClient(base_url=serving(crm)))


def insert(conn: psycopg.Connection, store: NaiveStore, lead: Lead) -> int:
    row = conn.execute(store.leads.insert, values(lead)).fetchone()
    assert row is not None
    return int(row[0])


def endings(conn: psycopg.Connection, store: NaiveStore) -> list[str]:
    return [job.state for job in store.job_rows(conn)]


def test_a_lead_goes_through_all_three_steps(conn: psycopg.Connection, store: NaiveStore, serving: Running) -> None:
    it = worker(serving, store)
    it.handle(conn, insert(conn, store, ANN))
    assert endings(conn, store) == ["done"]
    assert store.lead_rows(conn)[0].crm_id == it.crm.find(ANN.email)[0].id


def test_a_doubtful_lead_is_held_and_a_refused_one_fails(
    conn: psycopg.Connection, store: NaiveStore, serving: Running
) -> None:
    it = worker(serving, store)
    doubtful = Lead(row=3, email="b@b.example", message="I can't log in, please send a quote")
    it.handle(conn, insert(conn, store, doubtful))
    it.handle(conn, insert(conn, store, Lead(row=4, email="c@do-not-contact.example", message="a demo")))
    assert endings(conn, store) == ["held", "failed"]


def test_a_message_before_its_row_is_early_and_does_nothing(
    conn: psycopg.Connection, store: NaiveStore, serving: Running
) -> None:
    worker(serving, store).handle(conn, 4711)
    assert store.count_early(conn) == 1
    assert endings(conn, store) == []


def test_trying_again_after_a_dropped_connection_makes_the_same_contact_again(
    conn: psycopg.Connection, store: NaiveStore, serving: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samecommit.demo.naive.worker.PAUSE_SECONDS", 0)
    it = worker(serving, store, Moods(error=0, dropped=1, search_error=0, latency_seconds=0))
    it.handle(conn, insert(conn, store, ANN))
    assert len(it.crm.find(ANN.email)) == 5
    assert endings(conn, store) == ["failed"]


@pytest.mark.parametrize("order", ["commit-first", "publish-first"])
def test_the_importer_publishes_each_new_lead_once(
    conn: psycopg.Connection, store: NaiveStore, serving: Running, order: str
) -> None:
    broker = Broker()
    url = serving(broker)
    import_leads(conn, store, [ANN, ANN], order=order, broker_url=url)
    taken = broker(Request(method="POST", path="/take", body={"most": 9})).body
    assert taken == {"messages": [store.lead_rows(conn)[0].id], "is_over": False}


def test_what_the_broker_handed_out_it_has_forgotten() -> None:
    broker = Broker()
    take = Request(method="POST", path="/take", body={"most": 2})
    for number in range(3):
        broker(Request(method="POST", path="/publish", body={"lead_id": number}))
    broker(Request(method="POST", path="/close"))
    assert broker(take).body == {"messages": [0, 1], "is_over": False}
    assert broker(take).body == {"messages": [2], "is_over": True}


def small_file(folder: Path, rows: int) -> Path:
    path = folder / "small.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["email", "message"])
        writer.writerows([f"a{number}@b.example", f"Please send a quote for {number} seats"] for number in range(rows))
    return path


def test_a_worker_killed_with_messages_in_its_hands_loses_them(dsn: str, tmp_path: Path) -> None:
    seen: list[NaiveProgress] = []
    given = NaiveInput(
        dsn=dsn,
        leads=small_file(tmp_path, 120),
        emails=frozenset(f"a{number}@b.example" for number in range(120)),
        order="commit-first",
        folder=tmp_path,
        per_second=120,
        workers=1,
        # slow enough that the only worker has its hands full when half of the leads are there
        model_args=("--latency-seconds", 0.3),
        crm_args=("--error", 0, "--dropped", 0, "--latency-seconds", 0.01),
    )
    result = run_naive(given, watch=seen.append, timeout_seconds=60)
    assert seen[-1].is_killed
    assert seen[-1].committed == result.audit.accepted == 120
    assert result.audit.count("lost") > 0
    assert not result.audit.is_clean
    lost_or_forgotten = result.audit.count("lost") + result.audit.count("unexplained")
    assert result.audit.count("delivered") + lost_or_forgotten == 120


@pytest.mark.parametrize(("per_second", "least"), [(0.0, 1000), (120.0, 1000), (5.0, 4000)])
def test_a_large_file_has_the_time_that_its_leads_take(tmp_path: Path, per_second: float, least: float) -> None:
    emails = frozenset(f"{number}@b.example" for number in range(20_000))
    given = NaiveInput(
        dsn="", leads=tmp_path, emails=emails, order="commit-first", folder=tmp_path, per_second=per_second
    )
    assert work_seconds(given) >= least
