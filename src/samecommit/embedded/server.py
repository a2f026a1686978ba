"""The user's side: asks for a server, waits until it answers, and leaves."""

# ruff: noqa: S603 - the programs started here are named by this module, not by input

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self
from urllib.parse import quote

from samecommit.embedded import supervisor
from samecommit.embedded.datadir import claim_directory, prepare
from samecommit.embedded.supervisor import Config, open_lock, try_lock, wait_for_lock, wait_until
from samecommit.errors import EmbeddedError

START_SECONDS = 60.0
STOP_SECONDS = 45.0
"""Longer than the supervisor takes at worst to end its server."""

MAX_LOG_BYTES = 10 * 1024 * 1024

FIXED_SETTINGS = frozenset({"data_directory", "hba_file", "listen_addresses", "port", "unix_socket_directories"})
"""What would open the server, which trusts whoever reaches its socket, or make it unreachable."""


class EmbeddedServer:
    """A PostgreSQL server of our own, shared by every process that names the same directory.

    It listens on a unix socket in a private directory only, and lives as long as somebody uses it: when the last user
    stops, ends or is killed, it shuts down. A forked child counts as a user while it lives. It is durable like any
    other server (``fsync`` is on) unless ``settings`` say otherwise.

    ::

        with EmbeddedServer("var/postgres") as server:
            connection = psycopg.connect(server.dsn)

    Args:
        data_dir: where the data lives; None for a temporary directory, deleted after its last user.
        settings: server settings, as in ``{"max_connections": "200"}``. A server that already runs is joined if it
            has the same values for those named here, and refused otherwise.

    Raises:
        EmbeddedError: a setting is unusable.
    """

    def __init__(self, data_dir: Path | str | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        self._wanted_dir = None if data_dir is None else Path(data_dir)
        self._settings = dict(settings or {})
        _check_settings(self._settings)
        self._config: Config | None = None
        self._users: int | None = None
        self._keeper: _Keeper | None = None

    def __repr__(self) -> str:
        if self._config is None:
            return f"<EmbeddedServer {str(self._wanted_dir or 'temporary')!r} not started>"
        return f"<EmbeddedServer {self._config.data_dir!r} PostgreSQL {self._config.version}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, timeout_seconds: float = START_SECONDS) -> Self:
        """Join the server of the directory, started if nobody did; return once it accepts connections.

        Safe to repeat: a started one stays as it is.

        Raises:
            EmbeddedError: it cannot be started, in time or at all; the message ends with what the server's log says.
        """
        if self._users is not None:
            return self
        deadline = time.monotonic() + timeout_seconds
        is_temporary = self._wanted_dir is None
        data_dir = Path(tempfile.mkdtemp(prefix="samecommit-") if is_temporary else self._wanted_dir or "").resolve()
        self._users = _enter(data_dir, deadline)
        try:
            with _starting(data_dir, deadline):
                self._config = _join(data_dir, self._settings) or _launch(data_dir, self._settings, is_temporary)
                _await_ready(self._config, deadline)
        except BaseException:
            self._leave(data_dir, is_temporary=is_temporary)
            raise
        self._keeper = _Keeper(data_dir)
        return self

    def stop(self) -> None:
        """Leave the server; return when it has shut down, or at once if others use it. Safe to repeat."""
        if self._config is not None:
            self._leave(Path(self._config.data_dir), is_temporary=self._config.temporary)

    def restart(self, mode: Literal["fast", "immediate"] = "fast", timeout_seconds: float = START_SECONDS) -> None:
        """End the server under its users and wait for the supervisor to bring it back; meant for tests.

        Args:
            mode: ``fast`` shuts it down cleanly, ``immediate`` lets it recover as after a crash.
            timeout_seconds: how long that may take.

        Raises:
            EmbeddedError: it did not come back in time.
        """
        config, before = self._started, self.server_pid
        os.kill(before, signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        if not wait_until(lambda: supervisor.ready_pid(self.data_dir) not in (None, before), timeout_seconds):
            raise EmbeddedError(
                f"the server did not come back within {timeout_seconds:g} s{_log_tail(config.data_dir)}"
            )

    @property
    def dsn(self) -> str:
        """The libpq URI of the database ``postgres``, for the superuser ``postgres``."""
        return self.dsn_for("postgres")

    def dsn_for(self, database: str) -> str:
        """Return the libpq URI of another database of this server."""
        # the port is said, since PGPORT in the environment would change what is left out
        return (
            f"postgresql://postgres@/{quote(database, safe='')}"
            f"?host={quote(self._started.socket_dir)}&port={supervisor.PORT}"
        )

    @property
    def version(self) -> str:
        """The server's version, as in ``18.6``."""
        return self._started.version

    @property
    def bin_dir(self) -> Path:
        """Where ``psql``, ``pg_dump`` and the others lie that fit this server."""
        return Path(self._started.bin_dir)

    @property
    def data_dir(self) -> Path:
        """The directory that holds the server, with its log."""
        return Path(self._started.data_dir)

    @property
    def server_pid(self) -> int:
        """The process id of the server, which changes when it is restarted.

        Raises:
            EmbeddedError: it is down at this moment.
        """
        pid = supervisor.postmaster_pid(self._started.pgdata)
        if pid is None:
            raise EmbeddedError(f"no server runs in {self._started.data_dir!r} at this moment; it is brought back")
        return pid

    @property
    def _started(self) -> Config:
        if self._config is None:
            raise EmbeddedError("the embedded server is not started; call start() or use it in a with statement")
        return self._config

    def _leave(self, data_dir: Path, *, is_temporary: bool) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        if self._users is not None:
            _depart(data_dir, self._users, is_temporary=is_temporary)
        self._keeper = self._users = self._config = None


def _check_settings(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        if name.lower() in FIXED_SETTINGS:
            raise EmbeddedError(
                f"the setting {name!r} cannot be changed: the server trusts whoever can reach its socket"
            )
        if not re.fullmatch(r"[A-Za-z_][\w.]*", name) or "\0" in value:
            raise EmbeddedError(f"{name!r} = {value!r} is no server setting; give names and values as strings")


# Coming


def _enter(data_dir: Path, deadline: float) -> int:
    """Lock the directory as one of its users; waits while the server of the last users shuts down."""
    while True:
        claim_directory(data_dir)
        users = open_lock(data_dir / supervisor.USERS_LOCK)
        is_locked = wait_for_lock(users, fcntl.LOCK_SH, deadline - time.monotonic())
        if is_locked and _is_current(users, data_dir):
            return users
        os.close(users)
        if not is_locked:
            raise EmbeddedError(f"the former server of {str(data_dir)!r} is still shutting down{_log_tail(data_dir)}")


def _is_current(users: int, data_dir: Path) -> bool:
    """Whether the lock is that of the directory as it is now: a temporary one may have been deleted meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(users), (data_dir / supervisor.USERS_LOCK).stat())
    return False


@contextlib.contextmanager
def _starting(data_dir: Path, deadline: float) -> Generator[None, None, None]:
    """One starter at a time."""
    lock = open_lock(data_dir / "start.lock")
    try:
        if not wait_for_lock(lock, fcntl.LOCK_EX, deadline - time.monotonic()):
            raise EmbeddedError(
                f"another process is still starting the server of {str(data_dir)!r}{_log_tail(data_dir)}"
            )
        yield
    finally:
        os.close(lock)


def _is_supervised(data_dir: Path) -> bool:
    lock = open_lock(data_dir / supervisor.SUPERVISOR_LOCK)
    try:
        return not try_lock(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def _join(data_dir: Path, settings: dict[str, str]) -> Config | None:
    """Return how the running server runs; None if there is none."""
    if not _is_supervised(data_dir):
        return None
    config = Config.load(data_dir)
    different = {name: config.settings.get(name) for name in settings if settings[name] != config.settings.get(name)}
    if different:
        raise EmbeddedError(
            f"the server of {str(data_dir)!r} already runs with {different!r}, not with "
            f"{ {name: settings[name] for name in different}!r}; ask for the same settings, or stop its users first"
        )
    return config


def _launch(data_dir: Path, settings: dict[str, str], is_temporary: bool) -> Config:
    config = prepare(data_dir, settings, is_temporary=is_temporary)
    _spawn_supervisor(data_dir)
    return config


def _spawn_supervisor(data_dir: Path) -> None:
    """Start a supervisor; it has its lock, or another has, when this returns."""
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(data_dir)]
    with _open_log(data_dir / supervisor.LOG_FILE) as log:
        try:
            subprocess.run(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, umask=0o077, timeout=20, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedError(f"the supervisor did not start: {error}{_log_tail(data_dir)}") from error


def _await_ready(config: Config, deadline: float) -> None:
    data_dir = Path(config.data_dir)
    while supervisor.ready_pid(data_dir) is None:
        if not _is_supervised(data_dir):
            raise EmbeddedError(f"the server of {config.data_dir!r} did not start{_log_tail(data_dir)}")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"the server of {config.data_dir!r} did not start in time{_log_tail(data_dir)}")
        time.sleep(0.01)


def _open_log(path: Path) -> BinaryIO:
    """Open the log to add to it; a big one is put aside first."""
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "ab")


def _log_tail(data_dir: Path | str, lines: int = 15) -> str:
    path = Path(data_dir, supervisor.LOG_FILE)
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 8192))
            tail = log.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return ""
    return "\n".join([f"; {path} ends with:", *tail])


# Leaving


def _depart(data_dir: Path, users: int, *, is_temporary: bool) -> None:
    """Give up the place in the directory; if nobody else has one, wait until its server is gone."""
    if not _is_current(users, data_dir):
        os.close(users)
        return
    # closed, not unlocked, and asked for under another descriptor: a forked child shares this lock
    probe = open_lock(data_dir / supervisor.USERS_LOCK)
    os.close(users)
    deadline, has_cleaned = time.monotonic() + STOP_SECONDS, False
    try:
        while _is_current(probe, data_dir):
            if time.monotonic() > deadline:
                raise EmbeddedError(f"the server of {str(data_dir)!r} did not shut down{_log_tail(data_dir)}")
            if not try_lock(probe, fcntl.LOCK_EX):
                if try_lock(probe, fcntl.LOCK_SH):
                    return  # others use it
            elif not _is_supervised(data_dir):
                if has_cleaned or supervisor.postmaster_pid(data_dir / "pgdata") is None:
                    if is_temporary:
                        shutil.rmtree(data_dir, ignore_errors=True)
                    return
                fcntl.flock(probe, fcntl.LOCK_UN)
                _spawn_supervisor(data_dir)  # which ends what a former one left, and nothing else
                has_cleaned = True
            fcntl.flock(probe, fcntl.LOCK_UN)
            time.sleep(0.02)
        if is_temporary:
            wait_until(lambda: not data_dir.exists(), 10)  # its lock is gone, and the rest goes with it
    finally:
        os.close(probe)


class _Keeper:
    """Starts a new supervisor when the present one was killed; a thread in each user."""

    def __init__(self, data_dir: Path, pause_seconds: float = 0.2) -> None:
        self._data_dir = data_dir
        self._pause_seconds = pause_seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="samecommit-embedded", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _keep(self) -> None:
        pause = self._pause_seconds
        while not self._is_over.wait(pause):
            pause = self._pause_seconds
            # a directory that was deleted, or a supervisor that does not come up: look again, less and less often
            try:
                self._revive()
            except (OSError, EmbeddedError):
                pause = min(pause * 2, 5.0)

    def _revive(self) -> None:
        if not _is_supervised(self._data_dir):
            with _starting(self._data_dir, time.monotonic()):
                if not _is_supervised(self._data_dir):
                    _spawn_supervisor(self._data_dir)
