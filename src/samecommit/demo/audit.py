"""Compare both sides when the work is over: every accepted lead is in the CRM once, or held, or failed with a reason.

The comparison is a pure function over the file's accepted rows and what was read from the database and from the CRM; it
believes none of them. An accepted row without a committed lead is lost, and so is a lead whose job says done and that
the CRM does not have; a contact that no lead explains is a discrepancy too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from samecommit.demo.crm_client import Contact

Verdict = Literal["delivered", "held", "failed", "lost", "doubled", "unfinished", "unexplained"]

EXPLAINED: tuple[Verdict, ...] = ("delivered", "held", "failed")
WRONG: tuple[Verdict, ...] = ("lost", "doubled", "unfinished", "unexplained")
LIVE_STATES = ("ready", "running")
LABELS: Mapping[Verdict, str] = {
    "held": "held for a person",
    "failed": "failed, with a reason",
    "doubled": "duplicates",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadRow:
    """A committed lead; ``crm_id`` is what the application believes that the CRM calls it."""

    id: int
    email: str
    crm_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One of a lead's jobs; ``reason`` is why it is held or failed."""

    lead_id: int
    kind: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one lead; ``lead_id`` is None for one that was not stored, or a contact that belongs to no lead."""

    lead_id: int | None
    email: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result: ``accepted`` rows of the file, ``contacts`` in the CRM, and one finding a lead or stray contact."""

    accepted: int
    contacts: int
    findings: tuple[Finding, ...]

    def count(self, verdict: Verdict) -> int:
        """How many findings came to this verdict."""
        return Counter(finding.verdict for finding in self.findings)[verdict]

    @property
    def is_balanced(self) -> bool:
        """Whether accepted leads = CRM records + held + failed."""
        return self.accepted == self.contacts + self.count("held") + self.count("failed")

    @property
    def is_clean(self) -> bool:
        """Whether both sides agree on every lead and the sum comes out."""
        return self.is_balanced and not self.discrepancies

    @property
    def discrepancies(self) -> tuple[Finding, ...]:
        """The findings that should not be."""
        return tuple(finding for finding in self.findings if finding.verdict in WRONG)

    @property
    def equation(self) -> str:
        """The sum in words, for a person to check."""
        held, failed = self.count("held"), self.count("failed")
        sign = "=" if self.is_balanced else "≠"
        return f"{self.accepted} accepted {sign} {self.contacts} CRM records + {held} held + {failed} failed"


def audit(
    accepted: Collection[str], leads: Sequence[LeadRow], jobs: Iterable[JobRow], contacts: Sequence[Contact]
) -> Audit:
    """Compare what the file held, the committed leads with their jobs, and all contacts of the CRM.

    Args:
        accepted: the e-mail address of every accepted row of the file.
        leads: every row that was committed.
        jobs: every job that ever belonged to one of them, in any order.
        contacts: every record of the CRM.
    """
    jobs_of: dict[int, list[JobRow]] = defaultdict(list)
    for job in jobs:
        jobs_of[job.lead_id].append(job)
    contacts_of: dict[str, list[Contact]] = defaultdict(list)
    for contact in contacts:
        contacts_of[contact.email.lower()].append(contact)
    findings = [_judge(lead, jobs_of[lead.id], contacts_of.pop(lead.email, [])) for lead in leads]
    stored = {lead.email for lead in leads}
    findings += [
        Finding(lead_id=None, email=email, verdict="lost", detail="its row was accepted and never committed")
        for email in sorted(set(accepted) - stored)
    ]
    strays = [contact for group in contacts_of.values() for contact in group]
    findings += [
        Finding(lead_id=None, email=stray.email, verdict="unexplained", detail=f"contact {stray.id} has no lead")
        for stray in strays
    ]
    return Audit(accepted=len(stored.union(accepted)), contacts=len(contacts), findings=tuple(findings))


def _judge(lead: LeadRow, jobs: Sequence[JobRow], contacts: Sequence[Contact]) -> Finding:
    match contacts:
        case []:
            verdict, detail = _judge_absent(lead, jobs)
        case [contact]:
            verdict, detail = _judge_present(lead, jobs, contact)
        case _:
            verdict, detail = "doubled", f"contacts {', '.join(str(contact.id) for contact in contacts)}"
    return Finding(lead_id=lead.id, email=lead.email, verdict=verdict, detail=detail)


def _judge_absent(lead: LeadRow, jobs: Sequence[JobRow]) -> tuple[Verdict, str]:
    if lead.crm_id is not None:
        return "lost", f"contact {lead.crm_id} is noted for it, the CRM has none"
    if job := _first(jobs, *LIVE_STATES):
        return "unfinished", f"{job.kind} is {job.state}"
    if job := _first(jobs, "held", "failed"):
        verdict: Verdict = "held" if job.state == "held" else "failed"
        if job.reason:
            return verdict, job.reason
        return "unexplained", f"{job.kind} is {job.state} without a reason"
    return "lost", "its jobs are done, yet the CRM has no contact" if jobs else "no job is left for it"


def _judge_present(lead: LeadRow, jobs: Sequence[JobRow], contact: Contact) -> tuple[Verdict, str]:
    if job := _first(jobs, "held", "failed"):
        return "unexplained", f"{job.kind} is {job.state}, yet the CRM has contact {contact.id}"
    if job := _first(jobs, *LIVE_STATES):
        return "unfinished", f"contact {contact.id} is there, {job.kind} is {job.state}"
    if lead.crm_id != contact.id:
        return "unexplained", f"the CRM has contact {contact.id}, noted is {lead.crm_id}"
    return "delivered", f"contact {contact.id}"


def _first(jobs: Iterable[JobRow], *states: str) -> JobRow | None:
    return next((job for job in jobs if job.state in states), None)


def make_table(title: str = "") -> Table:
    """Make an empty table as all of the demo's look."""
    return Table(
        title=Text(title, style="bold") if title else None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )


def audit_table(results: Mapping[str, Audit], *, extra: Mapping[str, Mapping[str, int]] | None = None) -> Table:
    """Lay audits side by side, one column each.

    Args:
        results: audits by the heading of their column.
        extra: further rows that only some columns have, by label, then by heading; what is not 0 there is wrong.
    """
    table = make_table("Audit, read from both sides")
    table.add_column()
    for heading in results:
        table.add_column(heading, justify="right")
    table.add_row("leads accepted", *(str(result.accepted) for result in results.values()))
    table.add_row("CRM records", *(str(result.contacts) for result in results.values()))
    for verdict in EXPLAINED[1:]:
        table.add_row(LABELS[verdict], *(str(result.count(verdict)) for result in results.values()))
    table.add_section()
    for verdict in WRONG:
        table.add_row(LABELS.get(verdict, verdict), *(_marked(result.count(verdict)) for result in results.values()))
    for label, counts in (extra or {}).items():
        table.add_row(label, *(_marked(counts[heading]) if heading in counts else "" for heading in results))
    table.add_section()
    table.add_row("both sides agree", *(_verdict(result) for result in results.values()))
    return table


def discrepancy_table(result: Audit, *, limit: int = 20) -> Table:
    """List what should not be, at most ``limit`` of it."""
    table = make_table(f"Discrepancies: {len(result.discrepancies)}")
    for heading in ("lead", "e-mail", "verdict", "detail"):
        table.add_column(heading)
    for finding in result.discrepancies[:limit]:
        table.add_row(str(finding.lead_id or ""), Text(finding.email), finding.verdict, Text(finding.detail))
    return table


def _marked(count: int) -> Text:
    return Text(str(count), style="bold red" if count else "green")


def _verdict(result: Audit) -> Text:
    return Text("yes", style="bold green") if result.is_clean else Text("NO", style="bold red")
