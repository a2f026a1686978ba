"""The processes of the outbox under test: relays into nothing or into a broker, emitters, and a plain reader of the log."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from samecommit import App
from samecommit.bench.loop import run_loop, stop_at_eof
from samecommit.event import Event, StoredEvent
from samecommit.outbox.log import Log, Place, SharedLink
from samecommit.outbox.outcomes import Delivered, Outcome
from samecommit.outbox.sink import NoIdempotency, Sink, Target, Traits
from samecommit.outbox.told import EventsDelivered, RelayStarted
from samecommit.signals import Signal
from samecommit.storage.link import AsyncLink


class Nothing:
    """A sink that takes everything at once, and remembers when it took which event if asked to."""

    traits = Traits(idempotency=NoIdempotency(), keeps_key_order=True)

    def __init__(self, arrivals: list[tuple[int, int]] | None) -> None:
        self._arrivals = arrivals

    def complaint(self, event: Event) -> str | None:
        """Take every event."""

    async def connect(self, target: Target) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is to be closed."""

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Take the batch."""
        if self._arrivals is not None:
            now = time.monotonic_ns()
            self._arrivals += [(event.number, now) for event in batch]
        return [Delivered()] * len(batch)


def _sink(options: dict[str, Any], arrivals: list[tuple[int, int]] | None) -> Sink:
    match options.get("sink", "nothing"):
        case "redis":
            from samecommit.outbox.sinks.redis import RedisStream

            return RedisStream(options["url"], "bench")
        case "nats":
            from samecommit.outbox.sinks.nats import NatsStream

            return NatsStream(options["url"], "bench", subject="bench.{type}", owns_stream=True)
        case _:
            return Nothing(arrivals)


def relay(options: dict[str, Any]) -> dict[str, Any]:
    """Relay until ``expect`` deliveries are written down or standard input is closed; return what was delivered when."""
    app = App(options["dsn"], schema=options["schema"])
    arrivals: list[tuple[int, int]] | None = [] if options.get("arrivals") else None
    destinations = options.get("destinations", 1)
    for n in range(destinations):
        app.stream(f"bench{n}", _sink(options, arrivals), start=options.get("start", "now"))
    seen = {"delivered": 0, "first": 0, "last": 0, "relays": 0}
    moments: list[tuple[int, int]] = []

    async def main() -> None:
        outbox = app.relay()

        def heard(signal: Signal) -> None:
            now = time.monotonic_ns()
            match signal:
                case EventsDelivered(count=count):
                    seen["delivered"], seen["last"] = seen["delivered"] + count, now
                    moments.append((now, seen["delivered"]))
                    if seen["delivered"] >= (options.get("expect") or float("inf")):
                        outbox.stop()
                case RelayStarted():
                    seen["relays"], seen["first"] = seen["relays"] + 1, now
                    if seen["relays"] == destinations:
                        print("ready", flush=True)
                case _:
                    pass

        app.signals.subscribe(heard)
        threading.Thread(target=stop_at_eof, args=(asyncio.get_running_loop(), outbox), daemon=True).start()
        await outbox.run()

    run_loop(main())
    if arrivals is not None:
        Path(options["arrivals"]).write_text(json.dumps(arrivals))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {**seen, "cpu": usage.ru_utime + usage.ru_stime, "moments": moments[:: max(len(moments) // 5000, 1)]}


def read(options: dict[str, Any]) -> dict[str, Any]:
    """Read the whole log page by page and do nothing with it."""

    async def main() -> dict[str, Any]:
        link = AsyncLink(options["dsn"], options["schema"], "bench read")
        log, place, events = Log(SharedLink(link)), Place(0, 0), 0
        log.newest_n = (await link.fetch("event/make_window"))[0][0]
        began = time.monotonic()
        while (page := await log.page(place)).windows:
            events, place = events + len(page.events), page.end
            log.expect(place)
        seconds = time.monotonic() - began
        await link.close()
        return {"events": events, "seconds": seconds}

    return run_loop(main())


def emit(options: dict[str, Any]) -> dict[str, Any]:
    """Emit an event in each transaction until the time is over; return the events' numbers and times of commit."""
    app, rng = App(options["dsn"], schema=options["schema"]), random.Random(options["seed"])
    commits: list[tuple[int, int]] = []
    until = time.monotonic() + options["seconds"]
    with psycopg.connect(options["dsn"]) as conn:
        while time.monotonic() < until:
            made = app.emit(
                conn, {"id": len(commits), "note": "x" * 60}, type="lead.created", key=str(rng.randrange(1000))
            )
            conn.commit()
            commits.append((made.number, time.monotonic_ns()))
            time.sleep(options["gap"] * (0.5 + rng.random()))
    return {"commits": commits}


OUTBOX_ROLES = {"relay": relay, "read": read, "emit": emit}
