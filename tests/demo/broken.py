"""Applications that are broken on purpose, as ``samecommit worker tests.demo.broken:...`` loads them.

An end-to-end test that stays green with one of these would prove nothing.
"""

from samecommit import App
from samecommit.demo import app
from samecommit.demo.crm_client import Contact, CrmClient
from samecommit.maintenance.chores import Chores


def without_read_back() -> App:
    """Creates again after a doubt, without looking whether the CRM did it the first time."""

    def find(self: CrmClient, email: str) -> list[Contact]:
        return []

    CrmClient.find = find  # type: ignore[method-assign]
    return app.create_app()


def without_reaper() -> App:
    """Never gives the jobs of a killed worker to another one."""

    async def reap(self: Chores) -> float:
        return 1.0

    Chores.reap = reap  # type: ignore[method-assign]
    return app.create_app()


def done_without_doing() -> App:
    """Ends every tenth delivery as done before the CRM has heard of it."""
    find = CrmClient.find

    def nothing_there(self: CrmClient, email: str) -> list[Contact]:
        if sum(email.encode()) % 10 == 0:
            return [Contact(id=0, email=email)]
        return find(self, email)

    CrmClient.find = nothing_there  # type: ignore[method-assign]
    return app.create_app()
