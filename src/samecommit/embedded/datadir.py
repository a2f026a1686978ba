"""Prepares the directory that holds one server.

::

    users.lock, start.lock, supervisor.lock    who is here, who starts, who supervises (with its process id)
    server.json, postgres.log                  how the server runs, and what it says
    pgdata/                                    PostgreSQL's own
    s/                                         its socket, unless clients could not use that path

The directory belongs to the user. Where root is the user and another account the server, ``pgdata`` and ``s`` alone
belong to that account.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from samecommit.embedded.account import Runner, choose_runner
from samecommit.embedded.find import Binaries, find_binaries
from samecommit.embedded.supervisor import USERS_LOCK, Config
from samecommit.errors import EmbeddedError

LONGEST_SOCKET_DIR = 85
"""Bytes: a socket's path may have 103 on every system, and its name takes 15 with the slash."""


def claim_directory(data_dir: Path) -> None:
    """Make the directory, or see that it may be used: it is empty or ours, and nobody else's.

    Raises:
        EmbeddedError: it belongs to another account or holds other things.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        owner = data_dir.stat().st_uid
        if owner != os.geteuid():
            raise EmbeddedError(
                f"{str(data_dir)!r} belongs to uid {owner}, and this is uid {os.geteuid()}; "
                f"run as its owner or choose another data_dir"
            )
        contents = [entry.name for entry in data_dir.iterdir()]
    except OSError as error:
        raise EmbeddedError(f"{str(data_dir)!r} cannot be used as data_dir: {error}") from error
    if contents and USERS_LOCK not in contents:
        raise EmbeddedError(
            f"{str(data_dir)!r} holds other things, such as {min(contents)!r}; choose an empty data_dir"
        )
    if stat.S_IMODE(data_dir.stat().st_mode) & 0o027:
        data_dir.chmod(0o700)


def prepare(data_dir: Path, settings: dict[str, str], *, is_temporary: bool) -> Config:
    """Work out how the server of that directory runs, and make its socket's directory.

    Raises:
        EmbeddedError: no binaries fit the data, or no account can run them.
    """
    binaries = _binaries_for(data_dir)
    runner = choose_runner(data_dir, binaries)
    preload = {"shared_preload_libraries": "pg_stat_statements"} if _has_statistics(binaries.bin_dir) else {}
    config = Config(
        data_dir=str(data_dir),
        bin_dir=str(runner.bin_dir),
        version=binaries.version,
        socket_dir=_socket_dir(data_dir, runner),
        settings={**preload, **settings},
        uid=runner.uid,
        gid=runner.gid,
        namespaced=runner.namespaced,
        temporary=is_temporary,
    )
    config.save()
    return config


def _binaries_for(data_dir: Path) -> Binaries:
    major = _major_of(data_dir / "pgdata")
    try:
        return find_binaries(major=major)
    except EmbeddedError:
        if major is None:
            raise
        other = find_binaries()
    raise EmbeddedError(
        f"{str(data_dir)!r} holds data of PostgreSQL {major}, and what is found here is {other} (major {other.major}); "
        f"point SAMECOMMIT_PG_BIN at the bin directory of a PostgreSQL {major}, or choose another data_dir"
    )


def _major_of(pgdata: Path) -> int | None:
    if not pgdata.exists():
        return None
    try:
        return int((pgdata / "PG_VERSION").read_text(encoding="ascii").split(".")[0])
    except (OSError, ValueError) as error:
        raise EmbeddedError(f"{str(pgdata)!r} is damaged, its PG_VERSION cannot be read ({error})") from error


def _has_statistics(bin_dir: Path) -> bool:
    return any(True for pattern in ("lib", "lib/*") for _ in bin_dir.parent.glob(f"{pattern}/pg_stat_statements.*"))


def _socket_dir(data_dir: Path, runner: Runner) -> str:
    """Make the private directory for the socket; the same one as before, where it still exists."""
    path = data_dir / "s"
    # both clients and server take a comma for the end of a name
    if len(os.fsencode(path)) > LONGEST_SOCKET_DIR or "," in str(path):
        path = _earlier_socket_dir(data_dir) or Path(tempfile.mkdtemp(prefix="samecommit-", dir=_short_tempdir()))
    path.mkdir(exist_ok=True, mode=0o700)
    if runner.uid is not None and runner.gid is not None:
        os.chown(path, runner.uid, runner.gid)
    return str(path)


def _earlier_socket_dir(data_dir: Path) -> Path | None:
    try:
        earlier = Path(Config.load(data_dir).socket_dir)
        found = earlier.lstat()
    except OSError:
        return None
    ours = os.geteuid(), _pgdata_owner(data_dir)
    is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    return earlier if is_private and found.st_uid in ours else None


def _pgdata_owner(data_dir: Path) -> int:
    pgdata = data_dir / "pgdata"
    return pgdata.stat().st_uid if pgdata.exists() else os.geteuid()


def _short_tempdir() -> str:
    usual = tempfile.gettempdir()
    is_fit = len(os.fsencode(usual)) < LONGEST_SOCKET_DIR - 20 and "," not in usual
    return usual if is_fit else "/tmp"  # noqa: S108 - mkdtemp makes a private directory in it
