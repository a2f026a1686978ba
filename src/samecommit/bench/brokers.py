"""Starts a Redis or NATS server for a measurement, on a free port of this machine, if its program is installed."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from samecommit.errors import SamecommitError
from samecommit.outbox.sinks.needed import needed

_START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A running server, and its settings in words."""

    kind: str
    url: str
    settings: str


@contextmanager
def broker(kind: str, folder: Path) -> Generator[Broker | None]:
    """Give a running server, which is gone afterwards; None where its program or its client library is not installed."""
    program = _program({"redis": "redis-server", "nats": "nats-server"}[kind])
    if program is None or find_spec(kind) is None:
        yield None
        return
    port, place = _free_port(), folder / kind
    place.mkdir(exist_ok=True)
    if kind == "redis":
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "everysec"]
        found = Broker(kind, f"redis://127.0.0.1:{port}", "appendonly, fsync each second")
    else:
        options = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(place)]
        found = Broker(kind, f"nats://127.0.0.1:{port}", "JetStream on file, default sync")
    with (folder / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen([program, *options], stdout=log, stderr=log, start_new_session=True)  # noqa: S603
    try:
        _wait_for(process, port, folder / f"{kind}.log")
        if kind == "nats":
            asyncio.run(_make_stream(found.url))
        yield found
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _program(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > until:
            msg = f"a broker to measure did not start: {log.read_text(errors='replace')[-500:]}"
            raise SamecommitError(msg)
        time.sleep(0.05)


async def _make_stream(url: str) -> None:
    client: Any = await needed("nats", "nats").connect(url)
    await client.jetstream().add_stream(name="bench", subjects=["bench.>"])
    await client.close()
