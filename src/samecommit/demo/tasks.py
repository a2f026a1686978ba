"""The steps of a lead. Each is a job that starts the next one in the transaction that ends it.

What a step needs travels with its job, so that no step reads the database before it calls a service. The second one ends with
an event, and where events go is said once, at the end: the CRM is a destination (`samecommit.demo.crm`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from samecommit import AsyncContext, Context, Fail, Hold, RateLimited, Retry, Tasks
from samecommit.demo.crm import Crm
from samecommit.demo.enrichment import enrich_lead
from samecommit.demo.errors import ModelBusy, ModelError, NoAnswer
from samecommit.demo.lead_table import LeadTable
from samecommit.demo.model_client import PROMPT_VERSION, Classification, ModelClient

CONFIDENT = 0.7
GONE = "the lead is not there"

TABLE = LeadTable("lead_intake")
tasks = Tasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the model may see of a lead, and what the CRM is told of it."""

    email: str
    name: str
    company: str
    segment: str
    message: str

    def without_address(self) -> dict[str, str]:
        """Leave out what a model has no use for."""
        return {field: value for field, value in asdict(self).items() if field != "email"}


@tasks.event(type="lead.classified", key="lead_id")
@dataclass(frozen=True, slots=True, kw_only=True)
class LeadClassified:
    """A lead that is worth something to somebody."""

    lead_id: int
    email: str
    name: str
    company: str
    label: str


@tasks.task(queue="leads", max_attempts=8, timeout=30)
async def enrich(ctx: AsyncContext, lead_id: int) -> None:
    """Tidy the lead's own fields. The importer enqueues this in the transaction that inserts the lead."""
    async with ctx.transaction() as conn:
        cursor = await conn.execute(TABLE.read, {"id": lead_id})
        row = await cursor.fetchone()
        if row is None:
            raise Fail(GONE)  # deleted since: a job is never there before its lead
        email, name, company, phone, country, message = row
        lead = enrich_lead(email=email, name=name, company=company, phone=phone, country=country)
        await conn.execute(TABLE.enrich, {"id": lead_id, **lead.values()})
        facts = Facts(email=email, name=lead.name, company=lead.company, segment=lead.segment, message=message)
        await classify.enqueue(conn, lead_id=lead_id, facts=facts)


# The model's client blocks, so this is a plain function: the worker runs it on its threads.


@tasks.task(queue="model", max_attempts=8, timeout=30)
def classify(ctx: Context, lead_id: int, facts: Facts) -> Hold | None:
    """Ask the model, or take a person's word where the job was held and released."""
    if decision := ctx.job.decision:
        label, confidence = str(decision["label"]), 1.0
        ctx.record(outcome=f"a person said {label}")
    else:
        judged = _ask_model(ctx, facts)
        label, confidence = judged.label, judged.confidence
        if confidence < CONFIDENT:
            doubt = {"lead_id": lead_id, "label": label, "confidence": confidence, "message": facts.message}
            return Hold(f"the model is {confidence:.0%} sure of {label!r}", data=doubt)
    with ctx.transaction() as conn:
        conn.execute(TABLE.classify, {"id": lead_id, "label": label, "confidence": confidence})
        lead = LeadClassified(lead_id=lead_id, email=facts.email, name=facts.name, company=facts.company, label=label)
        tasks.emit(conn, lead)
    return None


def _ask_model(ctx: Context, facts: Facts) -> Classification:
    client = ModelClient.from_environment()
    try:
        judged = client.classify(facts.without_address())
    except ModelBusy as busy:  # spends no attempt, and pauses this task in every worker
        raise RateLimited(after=busy.retry_after, reason="429 from the model's service") from busy
    except (ModelError, NoAnswer) as error:
        ctx.record(model=client.model, prompt_version=PROMPT_VERSION, outcome="unusable")
        raise Retry(reason=str(error)) from error
    ctx.record(
        model=judged.model,
        prompt_version=judged.prompt_version,
        tokens=judged.tokens,
        outcome=judged.label if judged.confidence >= CONFIDENT else "doubtful",
    )
    return judged


# A relay of 6 s for the same reason as the workers' lease: a person waits for the killed one to be replaced.
tasks.destination(
    "crm", matches="lead.classified", queue="crm", max_attempts=8, timeout=30, start="start", lease_seconds=6
)(Crm)
