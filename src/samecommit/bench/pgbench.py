"""Runs pgbench, PostgreSQL's own load generator, against the scratch schema."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from samecommit.bench.place import Place
from samecommit.bench.report import percentile
from samecommit.errors import ConfigError, SamecommitError


@dataclass(frozen=True, slots=True)
class Load:
    """What an application got: transactions a second and the 99th percentile of their latency in ms."""

    rate: float
    p99: float


class Pgbench:
    """The program, and where it works.

    Raises:
        ConfigError: it is not installed.
    """

    def __init__(self, place: Place) -> None:
        program = shutil.which("pgbench")
        if place.is_ours:
            from samecommit.embedded import find_binaries

            beside = find_binaries().bin_dir / "pgbench"
            program = str(beside) if beside.exists() else program
        if program is None:
            msg = (
                "an application is played by pgbench, which is not on PATH: it comes with PostgreSQL's client packages"
            )
            raise ConfigError(msg)
        self._program, self._place = program, place

    def run(self, *arguments: str, settings: Mapping[str, str] | None = None) -> str:
        """Run it to its end and return what it printed.

        Raises:
            SamecommitError: it failed.
        """
        place = self._place
        named = {"search_path": place.schema, **(settings or {})}
        done = subprocess.run(  # noqa: S603 - found above
            [self._program, *arguments, place.dsn],
            env={**os.environ, "PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in named.items())},
            cwd=place.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode:
            msg = f"pgbench failed: {done.stderr.strip()[-500:]}"
            raise SamecommitError(msg)
        return done.stdout

    def load(self, seconds: int, rate: float | None, clients: int = 4) -> Load:
        """Run its usual transaction, as fast as it can or at a rate."""
        folder = self._place.folder
        for old in folder.glob("pgbench_log.*"):
            old.unlink()
        limit = () if rate is None else ("-R", f"{rate:.0f}")
        out = self.run("-n", "-c", str(clients), "-j", "1", "-T", str(seconds), "-l", *limit)
        return Load(_rate(out), _tail(folder))

    def commits(self, script: Path, seconds: int, *, clients: int, settings: Mapping[str, str]) -> float:
        """Run a script's transaction as fast as so many clients can; return commits a second."""
        options = ("-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds), "-f", str(script))
        return _rate(self.run(*options, settings=settings))


def _rate(out: str) -> float:
    found = re.search(r"tps = ([\d.]+)", out)
    assert found is not None, out
    return float(found[1])


def _tail(folder: Path) -> float:
    times = [
        float(line.split()[2]) / 1e3 for log in folder.glob("pgbench_log.*") for line in log.read_text().splitlines()
    ]
    return percentile(times, 0.99) or 0.0
