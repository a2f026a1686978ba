"""The three steps of a lead. Each is a job that enqueues the next one in the transaction that ends it.

What a step needs travels with its job, so that no step reads the database before it calls a service. The CRM offers no
idempotency; two habits make it safe all the same: every attempt looks before it creates, and an attempt that cannot know
what the CRM did leaves it time to finish.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from samecommit import AsyncContext, Context, Fail, Hold, RateLimited, Retry, Tasks
from samecommit.demo.crm_client import Contact, CrmClient
from samecommit.demo.enrichment import enrich_lead
from samecommit.demo.errors import CrmError, CrmRefused, ModelBusy, ModelError, NoAnswer
from samecommit.demo.lead_table import LeadTable
from samecommit.demo.model_client import PROMPT_VERSION, Classification, ModelClient

CONFIDENT = 0.7
GONE = "the lead is not there"
FOUND = "found"  # what an earlier attempt created and never heard of
CRM_SETTLES_SECONDS = 1.0  # by then it has created what it was asked to create, or never will

TABLE = LeadTable("lead_intake")
tasks = Tasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the model may see of a lead, and what the CRM is told."""

    email: str
    name: str
    company: str
    segment: str
    message: str

    def without_address(self) -> dict[str, str]:
        """Leave out what a model has no use for."""
        return {field: value for field, value in asdict(self).items() if field != "email"}


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


# The clients of both services block, so the next two are plain functions: the worker runs them on its threads.


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
        deliver.enqueue(conn, lead_id=lead_id, facts=facts, label=label)
    return None


@tasks.task(queue="crm", max_attempts=8, timeout=30)
def deliver(ctx: Context, lead_id: int, facts: Facts, label: str) -> None:
    """See to it that the CRM has the lead once, and note under which number."""
    contact = _find_or_create(ctx, facts, label)
    with ctx.transaction() as conn:
        conn.execute(TABLE.deliver, {"id": lead_id, "crm_id": contact.id})


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


def _find_or_create(ctx: Context, facts: Facts, label: str) -> Contact:
    client = CrmClient.from_environment()
    try:
        # looked for in every attempt: one whose worker was killed left no word of what it had done
        if found := client.find(facts.email):
            ctx.record(outcome=FOUND)
            return found[0]
        return client.create(email=facts.email, name=facts.name, company=facts.company, label=label)
    except CrmRefused as refused:
        raise Fail(refused.reason) from refused
    except (CrmError, NoAnswer) as doubt:
        raise Retry(after=CRM_SETTLES_SECONDS, reason=str(doubt)) from doubt
