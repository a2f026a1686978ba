"""Applications that are broken on purpose, as ``samecommit worker tests.demo.broken:...`` loads them.

An end-to-end test that stays green with one of these would prove nothing.
"""

from samecommit import App
from samecommit.demo import app
from samecommit.demo.crm import Crm
from samecommit.event import StoredEvent
from samecommit.maintenance.chores import Chores
from samecommit.outbox.adapter import Delivery
from samecommit.outbox.outcomes import Delivered, Lookup, NotFound, Outcome


def without_read_back() -> App:
    """Creates again after a doubt, without looking whether the CRM did it the first time."""

    async def find_existing(self: Crm, event: StoredEvent, delivery: Delivery) -> Lookup:
        return NotFound()

    Crm.find_existing = find_existing  # type: ignore[method-assign]
    return app.create_app()


def without_reaper() -> App:
    """Never gives the jobs of a killed worker to another one."""

    async def reap(self: Chores) -> float:
        return 1.0

    Chores.reap = reap  # type: ignore[method-assign]
    return app.create_app()


def done_without_doing() -> App:
    """Ends every tenth delivery as done before the CRM has heard of it."""
    send = Crm.send

    async def nothing_done(self: Crm, event: StoredEvent, delivery: Delivery) -> Outcome:
        if sum(event.json()["email"].encode()) % 10 == 0:
            return Delivered(ref="0")
        return await send(self, event, delivery)

    Crm.send = nothing_done  # type: ignore[method-assign]
    return app.create_app()
