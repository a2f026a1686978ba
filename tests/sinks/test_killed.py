"""Relays as processes, killed and stopped past their lease and resumed, before real servers: nothing is lost or out of order,
and where the destination keeps the position nothing is there twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sinks.broker import Broker
from tests.sinks.conftest import Start, broker_of
from tests.sinks.story import check, emit
from tests.sinks.test_conformance import opened

PROGRAM = Path(__file__).with_name("relay_process.py")
SINKS = {
    "redis": "RedisStream('redis://127.0.0.1:{port}', '{name}')",
    "nats": "NatsStream('nats://127.0.0.1:{port}', '{name}', subject='{name}.{{type}}')",
    "nats owned": "NatsStream('nats://127.0.0.1:{port}', '{name}', subject='{name}.{{type}}', owns_stream=True)",
    "rabbitmq": "RabbitMQ('amqp://guest:guest@127.0.0.1:{port}/', '{name}')",
}


class Relays:
    """Two at any time."""

    def __init__(self, dsn: str, sink: str) -> None:
        self._command = [sys.executable, str(PROGRAM), dsn, sink]
        self._living = [self._one(), self._one()]
        self.kills = self.stops = 0

    def _one(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})

    def kill(self) -> None:
        victim = self._living.pop(0)
        assert victim.poll() is None, "a relay died by itself"
        victim.kill()
        victim.wait()
        self._living.append(self._one())
        self.kills += 1

    async def stop_for(self, seconds: float) -> None:
        """Stop the older one for longer than its lease, then let it go on."""
        victim = self._living[0]
        victim.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        victim.send_signal(signal.SIGCONT)
        self.stops += 1

    def end(self) -> None:
        for process in self._living:
            process.terminate()
        for process in self._living:
            process.wait(30)


async def all_there(broker: Broker, wanted: set[str]) -> None:
    async with asyncio.timeout(60):
        while True:
            if {event.id for event in await broker.received()} >= wanted:
                return
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SINKS)
async def test_relays_that_are_killed_and_stopped(
    dsn: str, conn: psycopg.Connection[Any], started: Start, name: str
) -> None:
    async with opened(broker_of(name, started)) as broker:
        relays = Relays(dsn, SINKS[name].format(port=broker.server.port, name=broker.name))
        emitted: list[tuple[str, str | None]] = []
        try:
            for turn in range(8):
                emitted += [(emit(conn, f"key {n % 20}", {"n": n}), f"key {n % 20}") for n in range(400)]
                at_least = {id_ for id_, _ in emitted[: 400 * turn]}
                await all_there(broker, at_least)
                if turn % 2:
                    relays.kill()
                else:
                    await relays.stop_for(1.5)
            await all_there(broker, {id_ for id_, _ in emitted})
        finally:
            relays.end()
        got = await broker.received()
    assert (relays.kills, relays.stops) == (4, 4)
    check(got, emitted, may_repeat=name in ("nats", "rabbitmq"))
