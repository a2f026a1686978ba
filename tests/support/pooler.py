"""PgBouncer in transaction mode before a server, for tests that ask how things are behind a pooler."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict
from tests.support.database import missing

_SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 1000
autodb_idle_timeout = 5
ignore_startup_parameters = {ignored}
logfile = {folder}/log
pidfile = {folder}/pid
"""


@contextmanager
def pooler(
    dsn: str, *, size: int = 4, ignored: str = "extra_float_digits,options", ready: str | None = None
) -> Iterator[int]:
    """Start a PgBouncer for every database of that server; the port where it listens.

    Args:
        size: server connections for each database.
        ready: a database that takes connections, when that of the DSN does not.
        ignored: what it ignores of a client's first words; it refuses connections with anything else.
    """
    program = shutil.which("pgbouncer")
    if program is None:
        missing("pgbouncer is not installed (on Debian and Ubuntu: apt install pgbouncer)")
    place = conninfo_to_dict(dsn)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="pooler-") as name:
        folder = Path(name)
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(**{"port": 5432, **place}, listen=listen, size=size, ignored=ignored, folder=folder)
        )
        folder.chmod(0o777)
        owner = Path(str(place["host"])).stat()  # it refuses to run as root
        as_server = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        with subprocess.Popen([program, "-q", settings], **as_server) as process:  # type: ignore[call-overload]
            try:
                _wait(f"postgresql://{place['user']}@127.0.0.1:{listen}/{ready or place['dbname']}")
                yield listen
            finally:
                process.terminate()
                process.wait(10)


def behind(dsn: str, port: int) -> str:
    """Return the address of the same database through the pooler on that port."""
    place = conninfo_to_dict(dsn)
    return f"postgresql://{place['user']}@127.0.0.1:{port}/{place['dbname']}"


def _wait(address: str) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            psycopg.connect(address, connect_timeout=1).close()
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return
