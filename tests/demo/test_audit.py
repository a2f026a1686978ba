import io

import pytest
from rich.console import Console

from samecommit.demo import audit as auditing
from samecommit.demo.audit import Audit, JobRow, LeadRow, audit_table, discrepancy_table
from samecommit.demo.crm_client import Contact


def lead(number: int, crm_id: int | None = None) -> LeadRow:
    return LeadRow(id=number, email=f"a{number}@b.example", crm_id=crm_id)


def contact(number: int, crm_id: int) -> Contact:
    return Contact(id=crm_id, email=f"a{number}@b.example")


def done(number: int) -> list[JobRow]:
    return [JobRow(lead_id=number, kind=kind, state="done") for kind in ("enrich", "classify", "push")]


def audit(leads: list[LeadRow], jobs: list[JobRow], contacts: list[Contact]) -> Audit:
    """Audit a run of which every accepted row was committed."""
    return auditing.audit([row.email for row in leads], leads, jobs, contacts)


def judge(row: LeadRow, jobs: list[JobRow], *contacts: Contact) -> tuple[str, str]:
    """Judge one lead beside a healthy one, which must stay healthy."""
    result = audit([lead(99, 1), row], [*done(99), *jobs], [contact(99, 1), *contacts])
    assert result.findings[0].verdict == "delivered"
    return result.findings[1].verdict, result.findings[1].detail


def test_delivered_held_and_failed_leads_make_a_clean_audit() -> None:
    leads = [lead(1, 10), lead(2), lead(3)]
    jobs = [
        *done(1),
        JobRow(lead_id=2, kind="classify", state="held", reason="61 % sure"),
        JobRow(lead_id=3, kind="push", state="failed", reason="do not contact"),
    ]
    result = audit(leads, jobs, [contact(1, 10)])
    assert result.is_clean
    assert result.equation == "3 accepted = 1 CRM records + 1 held + 1 failed"


def test_a_lead_that_nobody_works_on_and_the_crm_does_not_have_is_lost() -> None:
    assert judge(lead(1), []) == ("lost", "no job is left for it")


def test_a_lead_whose_jobs_say_done_is_lost_all_the_same_when_the_crm_has_nothing() -> None:
    assert judge(lead(1), done(1)) == ("lost", "its jobs are done, yet the CRM has no contact")


def test_a_lead_that_claims_a_contact_the_crm_does_not_have_is_lost() -> None:
    assert judge(lead(1, 10), done(1)) == ("lost", "contact 10 is noted for it, the CRM has none")


def test_two_contacts_for_one_lead_are_doubled() -> None:
    assert judge(lead(1, 10), done(1), contact(1, 10), contact(1, 11)) == ("doubled", "contacts 10, 11")


def test_a_contact_with_its_address_in_capitals_is_the_same_lead_s() -> None:
    shouted = Contact(id=11, email="A1@B.EXAMPLE")
    assert judge(lead(1, 10), done(1), contact(1, 10), shouted)[0] == "doubled"


@pytest.mark.parametrize("state", ["held", "failed"])
def test_a_lead_that_stopped_without_a_reason_is_unexplained(state: str) -> None:
    job = JobRow(lead_id=1, kind="push", state=state)
    assert judge(lead(1), [job]) == ("unexplained", f"push is {state} without a reason")


@pytest.mark.parametrize("state", ["held", "failed"])
def test_a_lead_that_stopped_and_is_in_the_crm_is_unexplained(state: str) -> None:
    job = JobRow(lead_id=1, kind="push", state=state, reason="x")
    assert judge(lead(1), [job], contact(1, 10)) == ("unexplained", f"push is {state}, yet the CRM has contact 10")


def test_a_contact_that_the_lead_does_not_know_of_is_unexplained() -> None:
    assert judge(lead(1), done(1), contact(1, 10)) == ("unexplained", "the CRM has contact 10, noted is None")


def test_a_contact_without_a_lead_is_unexplained() -> None:
    result = audit([], [], [contact(1, 10)])
    assert [(finding.lead_id, finding.verdict) for finding in result.findings] == [(None, "unexplained")]
    assert not result.is_clean


def test_an_accepted_row_that_was_never_committed_is_lost() -> None:
    result = auditing.audit(["a1@b.example", "a2@b.example"], [lead(1, 10)], done(1), [contact(1, 10)])
    assert result.accepted == 2
    assert [(finding.email, finding.verdict) for finding in result.discrepancies] == [("a2@b.example", "lost")]
    assert not result.is_balanced


@pytest.mark.parametrize("state", ["ready", "running"])
def test_a_lead_with_work_left_is_unfinished(state: str) -> None:
    job = JobRow(lead_id=1, kind="push", state=state)
    assert judge(lead(1), [job])[0] == "unfinished"
    assert judge(lead(1), [job], contact(1, 10))[0] == "unfinished"


def test_a_lost_and_a_doubled_lead_do_not_cancel_out() -> None:
    result = audit([lead(1, 10), lead(2)], done(1), [contact(1, 10), contact(1, 11)])
    assert result.is_balanced
    assert not result.is_clean


def rendered(result: Audit) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(audit_table({"samecommit": result, "naive": result}, extra={"too early": {"naive": 7}}))
    console.print(discrepancy_table(result))
    return console.export_text()


def test_the_tables_show_counts_side_by_side_and_what_is_wrong() -> None:
    text = rendered(audit([lead(1), lead(2, 5)], done(2), [contact(2, 5)]))
    assert "samecommit" in text
    assert "naive" in text
    assert "NO" in text
    assert "no job is left for it" in text
    assert "7" in next(line for line in text.splitlines() if "too early" in line)


def test_text_from_outside_is_no_markup_in_the_table() -> None:
    odd = LeadRow(id=1, email="[bold]@b.example", crm_id=None)
    assert "[bold]@b.example" in rendered(audit([odd], [], []))
