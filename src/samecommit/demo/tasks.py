"""The three steps of a lead, each a job that enqueues the next one in the transaction that ends it.

What a step needs travels with its job, so that no step reads the database before it calls a service. Two things make
the CRM safe although it offers no idempotency: every attempt looks before it creates, and an attempt in doubt waits
until the CRM must be over with the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import ParamSpec, TypeVar

from samecommit import AsyncContext, Fail, Hold, RateLimited, Retry, Tasks
from samecommit.demo.crm_client import Contact, CrmClient
from samecommit.demo.enrichment import enrich_lead
from samecommit.demo.errors import CrmError, CrmRefused, ModelBusy, ModelError, NoAnswer
from samecommit.demo.lead_table import LeadTable
from samecommit.demo.model_client import PROMPT_VERSION, Classification, ModelClient

P = ParamSpec("P")
R = TypeVar("R")

TABLE = LeadTable("lead_intake")
CONFIDENT = 0.7
CRM_SETTLES_SECONDS = 1.0  # by then it has created what it was asked to create, or never will

tasks = Tasks()
_threads = ThreadPoolExecutor(32, thread_name_prefix="http")  # the clients block; the loop must not


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the model may see of a lead, and what the CRM is told."""

    email: str
    name: str
    company: str
    segment: str
    message: str

    def shown(self) -> dict[str, str]:
        """Leave out the address: a model has no use for it."""
        return {field: value for field, value in asdict(self).items() if field != "email"}


@tasks.task(queue="leads", max_attempts=8, timeout=30)
async def enrich(ctx: AsyncContext, lead_id: int) -> None:
    """Tidy the lead's own fields; the first job, enqueued with the lead itself."""
    async with ctx.transaction() as conn:
        cursor = await conn.execute(TABLE.read, {"id": lead_id})
        row = await cursor.fetchone()
        if row is None:
            raise Fail(f"lead {lead_id} is not there")  # a job exists only if its lead does; the audit would tell
        email, name, company, phone, country, message = row[:6]
        lead = enrich_lead(email=email, name=name, company=company, phone=phone, country=country)
        await conn.execute(TABLE.enrich, {"id": lead_id, **lead.values()})
        facts = Facts(email=email, name=lead.name, company=lead.company, segment=lead.segment, message=message)
        await classify.enqueue(conn, lead_id=lead_id, facts=facts)


@tasks.task(queue="model", max_attempts=8, timeout=30)
async def classify(ctx: AsyncContext, lead_id: int, facts: Facts) -> Hold | None:
    """Ask the model, or take a person's word where the job was held and released."""
    if decision := ctx.job.decision:
        label, confidence = str(decision["label"]), 1.0
        ctx.record(outcome=f"a person said {label}")
    else:
        judged = await _ask_model(ctx, facts)
        label, confidence = judged.label, judged.confidence
        if confidence < CONFIDENT:
            doubt = {"lead_id": lead_id, "label": label, "confidence": confidence, "message": facts.message}
            return Hold(f"the model is {confidence:.0%} sure of {label!r}", data=doubt)
    async with ctx.transaction() as conn:
        await conn.execute(TABLE.classify, {"id": lead_id, "label": label, "confidence": confidence})
        await deliver.enqueue(conn, lead_id=lead_id, facts=facts, label=label)
    return None


@tasks.task(queue="crm", max_attempts=8, timeout=30)
async def deliver(ctx: AsyncContext, lead_id: int, facts: Facts, label: str) -> None:
    """See to it that the CRM has the lead once, and note under which number."""
    contact = await _find_or_create(ctx, facts, label)
    async with ctx.transaction() as conn:
        await conn.execute(TABLE.deliver, {"id": lead_id, "crm_id": contact.id})


async def _ask_model(ctx: AsyncContext, facts: Facts) -> Classification:
    client = ModelClient.from_environment()
    try:
        judged = await _in_thread(client.classify, facts.shown())
    except ModelBusy as busy:
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


async def _find_or_create(ctx: AsyncContext, facts: Facts, label: str) -> Contact:
    client = CrmClient.from_environment()
    try:
        if found := await _in_thread(client.find, facts.email):
            ctx.record(outcome="found")  # an earlier attempt made it and never heard
            return found[0]
        created = await _in_thread(
            client.create, email=facts.email, name=facts.name, company=facts.company, label=label
        )
    except CrmRefused as refused:
        raise Fail(refused.reason) from refused
    except (CrmError, NoAnswer) as doubt:
        ctx.record(outcome="in doubt")
        raise Retry(after=CRM_SETTLES_SECONDS, reason=str(doubt)) from doubt
    return created


async def _in_thread(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return await asyncio.get_running_loop().run_in_executor(_threads, lambda: call(*args, **kwargs))
