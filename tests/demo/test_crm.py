from http import HTTPStatus
from pathlib import Path

import pytest
from tests.demo.conftest import Running

from samecommit.demo.crm_client import CrmClient
from samecommit.demo.crm_stub import CrmStub, Moods
from samecommit.demo.errors import CrmError, CrmRefused, NoAnswer
from samecommit.demo.stub import Request

CALM = Moods(error=0, dropped=0, search_error=0, latency_seconds=0)
ANN = {"email": "ann@b.example", "name": "Ann", "company": "B", "label": "hot"}


def start(serving: Running, moods: Moods = CALM) -> CrmClient:
    stub = CrmStub(":memory:", moods=moods)
    serving.on_close(stub.close)
    return CrmClient(base_url=serving(stub))


def test_a_contact_is_created_and_found(serving: Running) -> None:
    crm = start(serving)
    created = crm.create(**ANN)
    assert crm.find("ann@b.example") == [created]
    assert crm.find("bob@b.example") == []


def test_the_same_contact_twice_is_two_contacts_and_a_duplicate(serving: Running) -> None:
    crm = start(serving)
    crm.create(**ANN)
    crm.create(**ANN)
    assert len(crm.find("ann@b.example")) == 2
    assert crm.stats() == {"contacts": 2, "duplicates": 1, "500": 0, "dropped": 0}


def test_a_500_created_nothing(serving: Running) -> None:
    crm = start(serving, Moods(error=1, dropped=0, search_error=0, latency_seconds=0))
    with pytest.raises(CrmError, match="500"):
        crm.create(**ANN)
    assert crm.find("ann@b.example") == []


def test_a_dropped_connection_left_a_contact_behind(serving: Running) -> None:
    crm = start(serving, Moods(error=0, dropped=1, search_error=0, latency_seconds=0))
    with pytest.raises(NoAnswer):
        crm.create(**ANN)
    assert len(crm.find("ann@b.example")) == 1


def test_a_contact_is_found_once_the_index_has_it(serving: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("samecommit.demo.crm_stub.time.time", lambda: now)
    crm = start(serving, Moods(error=0, dropped=0, search_error=0, latency_seconds=0, index_lag_seconds=2.0))
    crm.create(**ANN)
    now = 1001.9
    assert crm.find("ann@b.example") == []
    assert len(list(crm.contacts())) == 1, "the records themselves do not lag"
    now = 1002.0
    assert len(crm.find("ann@b.example")) == 1


def test_an_address_on_the_do_not_contact_list_is_refused_for_good(serving: Running) -> None:
    with pytest.raises(CrmRefused, match="do-not-contact"):
        start(serving).create(**{**ANN, "email": "ann@do-not-contact.example"})


def test_a_contact_without_an_address_is_refused(serving: Running) -> None:
    with pytest.raises(CrmRefused, match="email is required"):
        start(serving).create(**{**ANN, "email": ""})


def test_all_contacts_come_page_by_page(serving: Running) -> None:
    stub = CrmStub(":memory:", moods=CALM)
    serving.on_close(stub.close)
    for number in range(1203):
        stub(Request(method="POST", path="/contacts", body={**ANN, "email": f"a{number}@b.example"}))
    contacts = list(CrmClient(base_url=serving(stub)).contacts())
    assert [contact.email for contact in contacts] == [f"a{number}@b.example" for number in range(1203)]


def test_faults_come_as_often_as_asked_and_alike_for_one_seed() -> None:
    def faults(seed: int) -> dict[str, int]:
        stub = CrmStub(":memory:", moods=Moods(error=0.1, dropped=0.2, latency_seconds=0), seed=seed)
        for number in range(1000):
            stub(Request(method="POST", path="/contacts", body={**ANN, "email": f"a{number}@b.example"}))
        stats = stub.stats()
        stub.close()
        return stats

    first = faults(1)
    assert first == faults(1) != faults(2)
    assert 60 < first["500"] < 140
    assert 140 < first["dropped"] < 260
    assert first["contacts"] == 1000 - first["500"]


def test_the_contacts_are_in_a_file_of_its_own_that_outlives_the_process(tmp_path: Path) -> None:
    counts: list[int] = []
    for _ in range(2):
        stub = CrmStub(tmp_path / "crm.sqlite", moods=CALM)
        stub(Request(method="POST", path="/contacts", body=ANN))
        counts.append(stub.stats()["contacts"])
        stub.close()
    assert counts == [1, 2]


def test_another_path_is_not_found() -> None:
    stub = CrmStub(":memory:")
    assert stub(Request(method="GET", path="/companies")).status == HTTPStatus.NOT_FOUND
    stub.close()
