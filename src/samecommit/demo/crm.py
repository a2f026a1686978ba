"""The CRM as a destination of events: a contact for each classified lead, and never a second one.

It takes no idempotency key. So what matters is said in two methods: `send` creates, and says when nobody knows whether it
did; `find_existing` looks. The outbox calls the second before it would ever repeat the first.
"""

from __future__ import annotations

import asyncio

from samecommit.demo.crm_client import CrmClient
from samecommit.demo.errors import CrmError, CrmRefused, NoAnswer
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import Delivery
from samecommit.outbox.outcomes import Delivered, Doubt, Found, Lookup, NotFound, Outcome, Rejected, Unsure

CRM_SETTLES_SECONDS = 1.0  # by then it has created what it was asked to create, or never will


class Crm:
    """Creates contacts, and finds them by their address."""

    settle_seconds = CRM_SETTLES_SECONDS

    async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:  # noqa: ARG002 - one contact per address
        """Create the contact of one lead."""
        lead = event.json()
        contact = {field: lead[field] for field in ("email", "name", "company", "label")}
        try:
            created = await asyncio.to_thread(CrmClient.from_environment().create, **contact)
        except CrmRefused as refused:
            return Rejected(refused.reason)
        except (CrmError, NoAnswer) as error:
            return Doubt(str(error))
        return Delivered(ref=str(created.id))

    async def find_existing(self, event: StoredEvent, delivery: Delivery) -> Lookup:  # noqa: ARG002
        """Look whether an attempt that nobody heard of has created it."""
        try:
            found = await asyncio.to_thread(CrmClient.from_environment().find, event.json()["email"])
        except (CrmError, NoAnswer) as error:
            return Unsure(str(error))
        return Found(str(found[0].id)) if found else NotFound()
