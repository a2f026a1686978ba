"""A worker that is killed again and again while it writes to a CRM that cannot tell a repeat.

``python torture_crm.py DSN URL SETTLE_SECONDS LEASE_SECONDS`` runs until it is killed, or ends after SIGTERM.
"""

import asyncio
import logging
import signal
import sys
from typing import Any

import aiohttp

from samecommit import App, WorkerConfig
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import Delivery
from samecommit.outbox.outcomes import Delivered, Doubt, Found, Lookup, NotFound, Outcome, Unsure

TIMEOUT_SECONDS = 2.0


class Crm:
    """Creates a contact for each event, and finds it by its address."""

    def __init__(self, url: str, settle_seconds: float) -> None:
        self.settle_seconds = settle_seconds
        self._url = url
        self._timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)

    async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:
        contact = {"email": event.json()["email"], "name": delivery.marker, "company": str(delivery.attempt)}
        try:
            async with self._client() as http, http.post(f"{self._url}/contacts", json=contact) as response:
                created: dict[str, Any] = await response.json()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return Doubt(f"{type(error).__name__}: {error}")
        return Delivered(str(created["id"])) if response.status == 201 else Doubt(f"answered {response.status}")

    async def find_existing(self, event: StoredEvent, delivery: Delivery) -> Lookup:
        asked = {"email": event.json()["email"]}
        try:
            async with self._client() as http, http.get(f"{self._url}/contacts", params=asked) as response:
                found: list[dict[str, Any]] = (await response.json()).get("contacts", [])
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return Unsure(f"{type(error).__name__}: {error}")
        if response.status != 200:
            return Unsure(f"answered {response.status}")
        return Found(str(found[0]["id"])) if found else NotFound()

    def _client(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=self._timeout, connector=aiohttp.TCPConnector(force_close=True))


def application(dsn: str, url: str, settle_seconds: float, lease_seconds: float) -> App:
    """Return the application that writes to the CRM, in the words of the test."""
    config = WorkerConfig(
        concurrency=24,
        lease_seconds=lease_seconds,
        heartbeat_seconds=lease_seconds / 4,
        reap_seconds=lease_seconds / 8,
        poll_seconds=0.05,
    )
    app = App(dsn, worker=config)
    app.destination("crm", matches="lead.*", start="start", lease_seconds=lease_seconds)(Crm(url, settle_seconds))
    return app


async def main() -> None:
    logging.disable()
    worker = application(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])).worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
