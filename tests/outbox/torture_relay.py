"""A relay process that is killed again and again: three destinations, each with its own way to fail.

``python torture_relay.py DSN DIRECTORY SEED TROUBLE`` runs until it is killed, or ends after SIGTERM.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from samecommit import App
from samecommit.event import Event, StoredEvent
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Outcome, Retry, Throttled
from samecommit.outbox.sink import NoIdempotency, Target, Traits
from samecommit.outbox.sinks.table import Table


class Appending:
    """Appends a line per event to one file that all relays share; with a chance of every failure."""

    traits = Traits(idempotency=NoIdempotency(), batch=100)

    def __init__(self, path: Path, trouble: float, seed: int) -> None:
        self._path, self._trouble, self._random = path, trouble, random.Random(seed)
        self._file = -1

    def complaint(self, event: Event) -> str | None:
        return None

    async def connect(self, target: Target) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        outcomes = [await self._one(event) for event in batch]
        if self._random.random() < self._trouble / 10:
            raise ConnectionResetError("the answer was lost")
        return outcomes

    async def _one(self, event: StoredEvent) -> Outcome:
        if self._random.random() < self._trouble:
            outcome = self._random.choice(
                (
                    Retry("busy", after=0.02),
                    Throttled(after=0.01),
                    DestinationDown("gone", after=0.01),
                    Doubt("cut off"),
                )
            )
            if not isinstance(outcome, Doubt) or self._random.random() < 0.5:
                return outcome
            self._write(event)
            return outcome
        self._write(event)
        if self._random.random() < 0.05:
            await asyncio.sleep(0)
        return Delivered()

    def _write(self, event: StoredEvent) -> None:
        key, seq = json.loads(event.data)
        os.write(self._file, f"{event.id} {key} {seq}\n".encode())


def application(dsn: str, directory: Path, seed: int, trouble: float) -> App:
    """Return the application that relays, in the words of the test."""
    app = App(dsn)
    timing = {"start": "start", "lease_seconds": 1.0, "send_seconds": 0.4}
    app.stream("table", Table(dsn), **timing)  # type: ignore[arg-type]
    app.stream("plain", Appending(directory / "plain", 0.0, seed), **timing)  # type: ignore[arg-type]
    app.stream("flaky", lambda: Appending(directory / "flaky", trouble, seed), shards=2, **timing)  # type: ignore[arg-type]
    return app


async def main() -> None:
    relay = application(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])).relay()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
    print("listening", flush=True)
    await relay.run()


if __name__ == "__main__":
    asyncio.run(main())
