import pytest

from samecommit.demo.enrichment import Enriched, enrich_lead


def enrich(**changes: str) -> Enriched:
    fields = {"email": "a@blue-bay.example", "name": "Ann Lee", "company": "", "phone": "", "country": ""}
    return enrich_lead(**{**fields, **changes})


def test_a_business_address_gives_the_missing_company() -> None:
    assert enrich().company == "Blue Bay"
    assert enrich(company="Other").company == "Other"


def test_a_private_address_gives_none() -> None:
    private = enrich(email="a@mail.example")
    assert (private.segment, private.company) == ("private", "")


@pytest.mark.parametrize(
    ("raw", "tidy"), [("ANN LEE", "Ann Lee"), ("ann lee", "Ann Lee"), ("Ann van Lee", "Ann van Lee")]
)
def test_a_name_in_one_case_is_tidied(raw: str, tidy: str) -> None:
    assert enrich(name=raw).name == tidy


@pytest.mark.parametrize(("raw", "code"), [("United Kingdom", "GB"), ("es", "ES"), ("Türkiye", "TR"), ("Peru", "Peru")])
def test_countries_become_codes_where_they_are_known(raw: str, code: str) -> None:
    assert enrich(country=raw).country == code


def test_a_phone_number_keeps_its_digits() -> None:
    assert enrich(phone="'+44 555 0100").phone == "+445550100"
