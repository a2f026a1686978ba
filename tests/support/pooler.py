"""PgBouncer in transaction mode before a server, for tests that ask how things are behind a pooler."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from tests.support.database import missing

_SETTINGS = """
[databases]
* = host={host} port={port} auth_user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
auth_query = SELECT rolname::text, ''::text FROM pg_catalog.pg_roles WHERE rolname = $1
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 1000
autodb_idle_timeout = 5
ignore_startup_parameters = {ignored}
logfile = {folder}/log
pidfile = {folder}/pid
"""

_PGBOUNCER = "SAMECOMMIT_TEST_PGBOUNCER"
_CAREFUL = {"samecommit", "psycopg_pool"}


def _program() -> str | None:
    return shutil.which(os.environ.get(_PGBOUNCER) or "pgbouncer")


def prepares() -> bool:
    """Whether the PgBouncer here knows prepared statements, and does so unless it is told otherwise: 1.24 and newer."""
    program = _program()
    if program is None:
        return False
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"PgBouncer (\d+)\.(\d+)", shown)
    assert found is not None, shown
    return (int(found[1]), int(found[2])) >= (1, 24)


def unprepared() -> None:
    """Let no connection prepare statements but those that the product makes: it has to say so by itself."""
    for connection in (psycopg.Connection, psycopg.AsyncConnection):
        made: Any = connection.connect
        setattr(connection, "connect", classmethod(_unprepared(made.__func__)))  # noqa: B010 - it may not be assigned
    psycopg.connect = psycopg.Connection.connect


def _unprepared(connect: Callable[..., Any]) -> Callable[..., Any]:
    def without(kind: type, *args: Any, **options: Any) -> Any:
        if str(sys._getframe(1).f_globals["__name__"]).partition(".")[0] not in _CAREFUL:
            options.setdefault("prepare_threshold", None)
        return connect(kind, *args, **options)

    return without


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
    program = _program()
    if program is None:
        missing(
            f"pgbouncer is not installed (on Debian and Ubuntu: apt install pgbouncer), and {_PGBOUNCER} names none"
        )
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
        (folder / "users").write_text(f'"{place["user"]}" ""\n')
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
