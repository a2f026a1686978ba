"""The process that owns one PostgreSQL server: it starts it, starts it again when it dies, and ends it after the last user.

::

    user ── shared flock on users.lock ────┐
    user ── shared flock on users.lock ────┤
                                           ▼
    supervisor ── exclusive flock on supervisor.lock, asks for users.lock ── parent of ── postgres

The kernel drops a lock when its holder dies, however it dies, so nobody keeps a list of process ids:

- a user is killed: the supervisor gets ``users.lock`` once no user is left, and shuts the server down;
- the server is killed: it is the supervisor's child, which reaps it and starts another one;
- the supervisor is killed: the server was told by the kernel to shut down with its parent (Linux), and the first user
  that finds ``supervisor.lock`` free starts a new supervisor. Where the kernel has no such order, that one ends what
  it finds before it starts its own server.

A supervisor therefore never takes over a running server, and knows one state only: the server is its child.

This file runs as a script in an isolated interpreter, for a start in a few milliseconds, and imports only the
standard library. :mod:`samecommit.embedded.server` imports its names.
"""

# ruff: noqa: S603 - the programs started here are named by this module, not by input

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

USERS_LOCK = "users.lock"
SUPERVISOR_LOCK = "supervisor.lock"
LOG_FILE = "postgres.log"
CONFIG_FILE = "server.json"
PORT = "5432"
FAILED = 3
"""Exit status of a supervisor that could not start its server; the log has the reason."""

POLL_SECONDS = 0.05
START_ATTEMPTS = 3
INITDB_SECONDS = 300
NAMESPACE_ID = 65534
IS_LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How one server runs; written beside its data, so that every user and every later supervisor agree.

    ``uid`` and ``gid`` are those of the account that runs the server, None for the account of the user itself.
    ``namespaced`` says that root runs it under another id in a user namespace.
    """

    data_dir: str
    bin_dir: str
    version: str
    socket_dir: str
    settings: dict[str, str]
    uid: int | None = None
    gid: int | None = None
    namespaced: bool = False
    temporary: bool = False

    @property
    def pgdata(self) -> Path:
        """The directory that belongs to PostgreSQL alone."""
        return Path(self.data_dir, "pgdata")

    def save(self) -> None:
        """Write it in one step: a reader sees the old one or the new one."""
        target = Path(self.data_dir, CONFIG_FILE)
        draft = target.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        draft.replace(target)

    @classmethod
    def load(cls, data_dir: Path) -> Config:
        """Read the one that the data directory holds.

        Raises:
            OSError: there is none.
        """
        return cls(**json.loads((data_dir / CONFIG_FILE).read_text(encoding="utf-8")))


# Locks


def open_lock(path: Path) -> int:
    """Open a lock file, made when it is missing; a link in its place is refused."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, kind: int) -> bool:
    """Take the lock (``LOCK_SH`` or ``LOCK_EX``) if it can be had at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Ask until the answer is yes; False when ``seconds`` have passed without it."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def wait_for_lock(descriptor: int, kind: int, seconds: float) -> bool:
    """Take the lock within that time, without a wait that nothing can end."""
    return wait_until(lambda: try_lock(descriptor, kind), seconds)


# The server as the system shows it


def _pid_file(pgdata: Path) -> list[str]:
    try:
        return (pgdata / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _serves(pid: int, pgdata: Path) -> bool:
    """Whether this process is alive and a postgres of that directory: not a zombie, not a reused id."""
    if not IS_LINUX:
        shown = subprocess.run(
            ["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return f"postgres -D {pgdata} " in shown.stdout
    try:
        # a zombie has no working directory, and every postgres process works in its data directory
        is_here = Path(f"/proc/{pid}/cwd").samefile(pgdata)
        return is_here and Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "postgres"
    except OSError:
        return False


def _is_hidden(pid: str) -> bool:
    """Whether this process is some live postgres, and the system does not tell us of which directory."""
    process = Path("/proc", pid)
    try:
        shown = (process / "stat").read_text(encoding="utf-8")
        if "(postgres) " in shown and "(postgres) Z" not in shown:
            (process / "cwd").stat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def postmaster_pid(pgdata: Path) -> int | None:
    """The id of the live server of that directory, ready or not."""
    lines = _pid_file(pgdata)
    if not lines or not lines[0].isdigit():
        return None
    pid = int(lines[0])
    return pid if _serves(pid, pgdata) else None


def ready_pid(data_dir: Path) -> int | None:
    """The id of the server that the latest supervisor started, if it accepts connections (line 8 says so)."""
    lines, ids = _pid_file(data_dir / "pgdata"), (data_dir / SUPERVISOR_LOCK).read_text(encoding="ascii").split()
    is_ready = len(lines) > 7 and lines[7].strip() == "ready" and lines[:1] == ids[1:]
    return postmaster_pid(data_dir / "pgdata") if is_ready else None


def _strays(pgdata: Path) -> Iterator[int]:
    """Every process that still works in that directory, as a busy backend does after its server was killed."""
    if IS_LINUX:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _serves(int(entry.name), pgdata):
                yield int(entry.name)


def _end(pid: int, is_gone: Callable[[], bool]) -> None:
    """Shut a server down: cleanly, then at once, then by force."""
    for number, seconds in ((signal.SIGINT, 30), (signal.SIGQUIT, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_until(is_gone, seconds, pause=0.01):
            return


# Child processes


def _enter_namespace() -> None:
    """Make root look like an ordinary account to this process; many containers forbid it."""
    import ctypes

    uid, gid = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(0x10000000) != 0:  # CLONE_NEWUSER
        raise OSError("no user namespace can be made")
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{NAMESPACE_ID} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{NAMESPACE_ID} {gid} 1", encoding="ascii")


def child_setup(*, namespaced: bool) -> Callable[[], None] | None:
    """Return what a child does before it becomes its program: leave root behind, and die with its parent.

    To be called in a process with one thread only. None where the system has no such calls.
    """
    if not IS_LINUX:
        return None
    import ctypes

    libc, parent = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        if namespaced:
            _enter_namespace()
        libc.prctl(1, int(signal.SIGINT), 0, 0, 0)  # PR_SET_PDEATHSIG: after every change of identity, which resets it
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class Supervisor:
    """Keeps one server up while ``users`` (a descriptor of ``users.lock``) is locked by anybody.

    ``lock``, that of ``supervisor.lock``, takes the ids of this process and of its server.
    """

    def __init__(self, config: Config, lock: int, users: int) -> None:
        self._config = config
        self._lock = lock
        self._users = users
        self._postgres: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Serve until the last user has left; return the exit status."""
        self._clear_leftovers()
        if not self._is_abandoned() and not (self._initialise() and self._start()):
            return FAILED
        was_ready = True
        while not self._is_abandoned():
            if self._postgres is None or self._postgres.poll() is not None:
                if not was_ready:
                    time.sleep(0.5)
                self._clear_leftovers()
                self._postgres, was_ready = self._spawn_postgres(), False
            was_ready = was_ready or ready_pid(Path(self._config.data_dir)) == self._postgres.pid
            time.sleep(POLL_SECONDS)
        return 0

    def close(self) -> None:
        """End the server, cleanly if it lets us; and what belonged to this run only, if nobody is left."""
        postgres = self._postgres
        if postgres is not None and postgres.poll() is None:
            _end(postgres.pid, lambda: postgres.poll() is not None)
        if self._is_abandoned():
            self._remove_traces()

    def _is_abandoned(self) -> bool:
        """Whether nobody uses the server; from the first yes on, newcomers wait until this process has ended."""
        return try_lock(self._users, fcntl.LOCK_EX)

    def _remove_traces(self) -> None:
        if Path(self._config.socket_dir).parent != Path(self._config.data_dir):
            shutil.rmtree(self._config.socket_dir, ignore_errors=True)
        if self._config.temporary:
            wait_until(lambda: _is_removed(Path(self._config.data_dir)), 5)  # what was killed may end a write first

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        config = self._config
        return subprocess.Popen(
            [f"{config.bin_dir}/{program}", *arguments],
            cwd="/",
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            umask=0o077,
            user=config.uid,
            group=config.gid,
            extra_groups=None if config.uid is None else [],
            preexec_fn=child_setup(namespaced=config.namespaced),  # noqa: PLW1509 - one thread here
        )

    def _spawn_postgres(self) -> subprocess.Popen[bytes]:
        fixed = {"listen_addresses": "", "port": PORT, "unix_socket_directories": self._config.socket_dir}
        options = [f"--{name}={value}" for name, value in {**self._config.settings, **fixed}.items()]
        postgres = self._spawn("postgres", "-D", str(self._config.pgdata), *options)
        os.pwrite(self._lock, f"{os.getpid():>10} {postgres.pid:>10}\n".encode(), 0)
        return postgres

    def _initialise(self) -> bool:
        """Make the data directory if there is none: under another name first, so that half a one is never used."""
        config = self._config
        if config.pgdata.exists():
            return True
        for leftover in Path(config.data_dir).glob("init.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        # a fresh name each time: what a killed run left behind may still be writing for a moment
        draft = Path(tempfile.mkdtemp(prefix="init.", dir=config.data_dir))
        if config.uid is not None and config.gid is not None:
            os.chown(draft, config.uid, config.gid)
        options = ["--username=postgres", "--auth-local=trust", "--auth-host=reject", "--encoding=UTF8"]
        options += ["--no-locale", "--data-checksums", "--no-instructions"]
        if config.temporary or config.settings.get("fsync") == "off":
            options.append("--no-sync")
        initdb = self._spawn("initdb", f"--pgdata={draft}", *options)
        # not cut short when the last user leaves: killed, it would leave shared memory behind
        if initdb.wait(INITDB_SECONDS) != 0:
            _say(f"initdb ended with status {initdb.returncode}")
            return False
        draft.rename(config.pgdata)
        return True

    def _start(self) -> bool:
        """Start the server for the first time; a refusal is final after a few attempts."""
        for attempt in range(START_ATTEMPTS):
            if attempt:
                time.sleep(0.3)
            self._postgres = postgres = self._spawn_postgres()
            while postgres.poll() is None:
                if ready_pid(Path(self._config.data_dir)) == postgres.pid or self._is_abandoned():
                    return True
                time.sleep(0.01)
            _say(f"postgres ended with status {postgres.returncode} before it was ready")
        return False

    def _clear_leftovers(self) -> None:
        """End what an earlier run left alive, and drop a pid file that would keep a new server from starting.

        PostgreSQL takes any process that has the old id for its old self: a zombie that nobody reaps, or a stranger.
        """
        pgdata = self._config.pgdata
        if (pid := postmaster_pid(pgdata)) is not None:
            if _pid_file(pgdata)[4:5] != [self._config.socket_dir]:
                _say(f"another server (pid {pid}) runs in {pgdata}; stop it first")
                raise SystemExit(FAILED)
            _end(pid, lambda: postmaster_pid(pgdata) is None)
        for stray in _strays(pgdata):
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray, signal.SIGKILL)
        wait_until(lambda: not any(_strays(pgdata)), 5)
        if not any(_is_hidden(former) for former in _pid_file(pgdata)[:1]):  # else PostgreSQL has to judge
            (pgdata / "postmaster.pid").unlink(missing_ok=True)


def _is_removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def _say(text: str) -> None:
    """Add a line to the log, which is this process's standard error."""
    sys.stderr.write(f"samecommit: {text}\n")
    sys.stderr.flush()


def supervise(data_dir: Path) -> int:
    """Become the supervisor of ``data_dir``; the caller returns as soon as the lock is held, by us or another."""
    lock = open_lock(data_dir / SUPERVISOR_LOCK)
    # somebody who looks whether the lock is free holds it for a moment
    if not wait_for_lock(lock, fcntl.LOCK_EX, 1.0):
        return 0
    os.ftruncate(lock, 0)
    config, users = Config.load(data_dir), open_lock(data_dir / USERS_LOCK)
    if os.fork():
        os._exit(0)
    os.setsid()
    os.pwrite(lock, f"{os.getpid():>10}".encode(), 0)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    supervisor = Supervisor(config, lock, users)
    try:
        return supervisor.run()
    finally:
        supervisor.close()
        # in this order: who gets users.lock next must find no supervisor
        os.close(lock)
        os.close(users)


if __name__ == "__main__":
    if sys.argv[1] != "--probe-namespace":
        sys.exit(supervise(Path(sys.argv[1])))
    _enter_namespace()
