"""The outbox of one process: a ticker, one relay for each position, five connections however many destinations there are.

It runs beside a worker's services, or alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from samecommit.clock import monotonic
from samecommit.definition import TaskDefinition
from samecommit.outbox.adapter import Closes
from samecommit.outbox.deliver import Deliverer
from samecommit.outbox.destination import Destination, JobDestination, Start, StreamDestination
from samecommit.outbox.expand import Expander
from samecommit.outbox.keeper import Keeper
from samecommit.outbox.log import Log, SharedLink
from samecommit.outbox.relay import Relay
from samecommit.outbox.ticker import Ticker
from samecommit.runtime.doorbell import SLOTS, Doorbell
from samecommit.runtime.listener import Listener
from samecommit.runtime.reach import reach
from samecommit.runtime.service import Service
from samecommit.signals import CopyFound, Signals
from samecommit.storage.link import AsyncLink, LinkBusy
from samecommit.storage.migrate import check_version_on

STOP_SECONDS = 10.0
"""How long sends in flight have when a relay stops."""
_LET_GO_SECONDS = 0.05
_COPY_SECONDS, _NEVER = 1.0, 86_400.0
_BUSY_SECONDS, _BUSY_PAUSE_SECONDS = 60.0, 0.2


def destination_row(destination: Destination, start: Start | datetime | None = None) -> dict[str, Any]:
    """Return what the database is told of a destination, as ``event/add_destination`` takes it; ``start`` in place of its own."""
    start = destination.start if start is None else start
    if isinstance(destination, StreamDestination):
        mode, code, ordering = "stream", type(destination.sink).__name__, destination.order
    else:
        mode, code, ordering = "jobs", type(destination.adapter).__name__, "none"
    return {
        "name": destination.name,
        "mode": mode,
        "shards": destination.shards,
        "matches": list(destination.matches.patterns),
        "sink": code,
        "ordering": ordering,
        "start_at": start if isinstance(start, datetime) else None,
        "from_start": start == "start",
    }


class Outbox:
    """Relays the events of one installation.

    Args:
        dsn: the database.
        schema: the installation.
        destinations: where events go.
        signals: where it tells what happens.
        is_relaying: False only lends `tasks` to a worker, while relays run elsewhere.
        doorbell: False polls only (behind a transaction pooler).
        keep_days: how long the log is kept; longer while a destination still needs it.
    """

    def __init__(
        self,
        dsn: str,
        schema: str,
        destinations: Sequence[Destination],
        signals: Signals | None = None,
        *,
        is_relaying: bool = True,
        doorbell: bool = True,
        keep_days: int = 3,
    ) -> None:
        self.dsn, self.schema, self.signals = dsn, schema, signals or Signals()
        self.destinations = tuple(destinations)
        self._is_relaying = is_relaying
        self._has_doorbell, self._keep_days = doorbell, keep_days
        self._links = {name: AsyncLink(dsn, schema, f"outbox {name}") for name in ("read", "write", "bell", "listen")}
        self._links["deliver"] = AsyncLink(dsn, schema, "outbox deliver")
        for name in ("keep", "tick"):
            self._links[name] = AsyncLink(dsn, schema, f"outbox {name}", settings={"statement_timeout": "10min"})
        self._services: list[Service] = []
        self._ears: list[Service] = []
        self._relays: dict[Service, Relay | Expander] = {}
        self._door: Service | None = None
        self._is_copy = False
        self._stop_asked, self._stop_seconds = asyncio.Event(), STOP_SECONDS

    def __repr__(self) -> str:
        return f"<Outbox {[d.name for d in self.destinations]}>"

    def tasks(self) -> dict[str, TaskDefinition]:
        """Return the tasks of the job destinations, by kind: for a worker that runs beside this."""
        link = SharedLink(self._links["deliver"])
        made = [Deliverer(d, link, self.signals).task for d in self.destinations if isinstance(d, JobDestination)]
        return {task.name: task for task in made}

    def stop(self, *, now: bool = False) -> None:
        """End `run` after the sends in flight; ``now`` cuts them off. Safe to repeat."""
        self._stop_seconds = _LET_GO_SECONDS if now else self._stop_seconds
        self._stop_asked.set()

    async def run(self) -> None:
        """Relay until `stop`. A database that is away is waited for; errors as those of `start`."""
        try:
            if await reach(self._links["keep"], self.signals, self._stop_asked):
                await self.start()
                await self._stop_asked.wait()
        finally:
            await self.finish()

    async def start(self, _lease: Callable[[], int | None] | None = None) -> None:
        """Begin: the database's side of the destinations is made or brought up to date first.

        Raises:
            SchemaError: the schema is missing or does not fit this version.
            LinkDown: the database cannot be reached.
            LinkBusy: something that must be locked was not free for a minute.
        """
        if not self._is_relaying:
            return
        read, write = SharedLink(self._links["read"]), SharedLink(self._links["write"])
        await check_version_on(self._links["keep"])
        await self._insist("event/rebase")
        for destination in self.destinations:
            await self._add(destination)
        self._door = Service("outbox door", lambda: self._open(read, write), self.signals)
        if await self._open(read, write) != _NEVER:
            self._door.start()

    async def _open(self, read: SharedLink, write: SharedLink) -> float:
        """Begin to relay, unless this database is a copy: then the delay until the next look."""
        if self._services:
            return _NEVER
        installation, number, away = (await write.fetch("worker/place"))[0]
        if away is not None:
            if not self._is_copy:
                self._is_copy = True
                self.signals.emit(CopyFound(reason=away))
            return _COPY_SECONDS
        log = Log(read)
        self._make_relays(log, write, installation)
        self._make_ticker(read, log, number)
        keeper = Keeper(self._links["keep"], self._keep_days)
        self._services.append(Service("outbox keeper", keeper.run_once, self.signals))
        for service in (*self._services, *self._ears):
            service.start()
        return _NEVER

    async def _add(self, destination: Destination) -> None:
        if isinstance(destination, JobDestination):
            await self._insist("queue/create", name=destination.queue, retention=None, max_attempts=None)
        await self._insist("event/add_destination", **destination_row(destination))

    async def _insist(self, label: str, **values: Any) -> None:
        """Run a statement, again for a while when a lock is in its way: another process may be starting, too."""
        until = monotonic() + _BUSY_SECONDS
        while True:
            try:
                await self._links["keep"].fetch(label, **values)
            except LinkBusy:
                if monotonic() > until or self._stop_asked.is_set():
                    raise
                await asyncio.sleep(_BUSY_PAUSE_SECONDS)
            else:
                return

    def _make_relays(self, log: Log, write: SharedLink, installation: str) -> None:
        holder = secrets.randbits(63)
        for destination in self.destinations:
            for shard in range(destination.shards):
                relay = (
                    Relay(
                        destination,
                        shard,
                        log,
                        write,
                        self.signals,
                        holder=holder,
                        installation=installation,
                    )
                    if isinstance(destination, StreamDestination)
                    else Expander(destination, log, write, self.signals, holder=holder)
                )
                service = Service(f"relay {destination.name}/{shard}", relay.run_once, self.signals)
                self._relays[service] = relay
                self._services.append(service)

    def _make_ticker(self, link: SharedLink, log: Log, number: int) -> None:
        bell = Doorbell(self._links["bell"], on_grant=lambda: service.wake())
        bell.watch_slots([SLOTS])
        ticker = Ticker(
            link,
            self._links["tick"],
            log,
            on_window=self._wake,
            set_idle=bell.set_idle,
            is_heard=lambda: bell.is_held,
        )
        service = Service("outbox ticker", ticker.run_once, self.signals)
        self._services.append(service)
        if self._has_doorbell and not self._links["write"].is_pooled:
            listener = Listener(
                self._links["listen"],
                f"samecommit_event_{number}",
                lambda message: self._changed(message) if message else service.wake(),
                self._missed_some(service),
            )
            self._ears = [
                Service("outbox listener", listener.run_once, self.signals),
                Service("outbox bell", bell.run_once, self.signals),
            ]

    def _missed_some(self, ticker: Service) -> Callable[[], None]:
        def look() -> None:
            ticker.wake()
            self._changed(None)

        return look

    def _changed(self, destination: str | None) -> None:
        """Let relays look at what somebody has paused or decided; None is all of them, after a gap in hearing."""
        for service, relay in self._relays.items():
            if destination in (None, relay.name):
                relay.look_again()
                service.wake()

    def _wake(self) -> None:
        for service in self._relays:
            service.wake()

    async def finish(self) -> None:
        """End the sends in flight, write what was delivered, let go of the positions."""
        if self._door is not None:
            await self._door.stop(_LET_GO_SECONDS)
        await asyncio.gather(
            *(service.stop(self._stop_seconds) for service in self._services),
            *(
                service.stop(_LET_GO_SECONDS) for service in self._ears
            ),  # they only wait: nothing is lost by cutting it short
        )
        await asyncio.gather(*(relay.stop() for relay in self._relays.values()), return_exceptions=True)
        for link in self._links.values():
            await link.close()
        for destination in self.destinations:
            if isinstance(destination, JobDestination) and isinstance(destination.adapter, Closes):
                with suppress(Exception):  # it is given up anyway
                    await asyncio.wait_for(destination.adapter.close(), STOP_SECONDS)
