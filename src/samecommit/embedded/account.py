"""Decides under which account the server runs, and sees to it that this account can reach what it needs.

PostgreSQL refuses to run as root. Anybody else runs it under the own account. Root runs it

1. as the account that owns the existing data; for new data as ``postgres`` or ``nobody``, whichever exists first.
   No account is made and no directory of others is opened up: binaries that the account cannot reach (an environment
   below a private home) are copied once to a cache that belongs to root;
2. where that account cannot enter the data directory, in a user namespace, in which root has another id.
"""

# ruff: noqa: S603 - the programs started here are named by this module, not by input

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from samecommit.embedded import supervisor
from samecommit.embedded.find import Binaries
from samecommit.errors import EmbeddedError

CACHE_DIR = Path("/Library/Caches/samecommit" if sys.platform == "darwin" else "/var/cache/samecommit")
ACCOUNTS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Who runs the server, and with which binaries; see :class:`~samecommit.embedded.supervisor.Config`."""

    bin_dir: Path
    uid: int | None = None
    gid: int | None = None
    namespaced: bool = False


def choose_runner(data_dir: Path, binaries: Binaries) -> Runner:
    """Choose the account for the server of ``data_dir``, which exists and belongs to the caller.

    Raises:
        EmbeddedError: root can find no way; the message says what stands in it.
    """
    if os.geteuid() != 0:
        return Runner(bin_dir=binaries.bin_dir)
    owner = _owner_of(data_dir / "pgdata")
    if owner is not None and owner[0] != 0:
        return _as_account(owner, data_dir, binaries)
    obstacle = f"{data_dir / 'pgdata'} belongs to root, which needs a user namespace, and none can be made here"
    if owner is None:
        try:
            return _as_account(_existing_account(), data_dir, binaries)
        except (EmbeddedError, OSError) as error:
            obstacle = str(error)
    if not _namespace_works():
        raise EmbeddedError(obstacle)
    os.chown(data_dir, 0, 0)
    data_dir.chmod(0o700)
    return Runner(bin_dir=binaries.bin_dir, namespaced=True)


def _owner_of(pgdata: Path) -> tuple[int, int] | None:
    try:
        found = pgdata.stat()
    except FileNotFoundError:
        return None
    return found.st_uid, found.st_gid


def _existing_account() -> tuple[int, int]:
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise EmbeddedError(
        f"root cannot run PostgreSQL, and none of the accounts {ACCOUNTS!r} exists; run as another user"
    )


def _as_account(account: tuple[int, int], data_dir: Path, binaries: Binaries) -> Runner:
    uid, gid = account
    os.chown(data_dir, 0, gid)
    data_dir.chmod(0o710)  # the account may pass through; only root may change what lies here
    for directory in reversed((data_dir, *data_dir.parents)):
        if not _succeeds_as(account, "/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory)):
            raise EmbeddedError(
                f"the server runs as uid {uid}, which cannot enter {str(directory)!r}; "
                f"choose a data_dir that it can reach, or run as another user than root"
            )
    bin_dir = binaries.bin_dir
    if not _succeeds_as(account, str(bin_dir / "postgres"), "--version"):
        bin_dir = copy_binaries(binaries)
        if not _succeeds_as(account, str(bin_dir / "postgres"), "--version"):
            raise EmbeddedError(f"the server runs as uid {uid}, which cannot run the binaries in {str(bin_dir)!r}")
    return Runner(bin_dir=bin_dir, uid=uid, gid=gid)


def _succeeds_as(account: tuple[int, int], *command: str) -> bool:
    try:
        done = subprocess.run(
            command, cwd="/", user=account[0], group=account[1], extra_groups=[], capture_output=True, check=False
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _namespace_works() -> bool:
    command = [sys.executable, "-I", "-S", supervisor.__file__, "--probe-namespace"]
    return sys.platform == "linux" and subprocess.run(command, capture_output=True, check=False).returncode == 0


# The copy of binaries that lie where only root can reach


def copy_binaries(binaries: Binaries) -> Path:
    """Copy an installation to the cache of root, once, and return the bin directory of the copy.

    Raises:
        EmbeddedError: somebody else than root could have put something there.
    """
    prefix = binaries.bin_dir.parent
    # a wheel keeps its libraries beside the package, and its binaries look for them there
    package = prefix.parent if prefix.name == "pginstall" else prefix
    target = CACHE_DIR / f"postgres-{binaries.version}-{_fingerprint(binaries.bin_dir / 'postgres')}"
    CACHE_DIR.mkdir(parents=True, exist_ok=True, mode=0o755)
    _require_root_only(CACHE_DIR)
    if not target.exists():
        _copy_package(package, target)
    _require_root_only(target)
    return target / package.name / binaries.bin_dir.relative_to(package)


def _fingerprint(program: Path) -> str:
    found = program.stat()
    return hashlib.sha256(f"{program} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:16]


def _copy_package(package: Path, target: Path) -> None:
    draft = Path(tempfile.mkdtemp(prefix="copy.", dir=CACHE_DIR))
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "include", "*.a", "*.py")
            shutil.copytree(source, draft / source.name, symlinks=True, ignore=ignored)
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            is_program = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if is_program else 0o644)
    try:
        draft.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(draft)


def _require_root_only(path: Path) -> None:
    """Refuse a path of which somebody else than root could exchange a part."""
    for part in (path, *path.resolve().parents):
        found = part.lstat()
        is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or is_open:
            raise EmbeddedError(
                f"{str(part)!r} is not a directory that only root can change; remove it or fix its mode"
            )
