"""The floor: what the same work costs when nothing but SQL is done, and the prototype that the storage follows.

The prototype (``prototype/``) has the same table shape and no leases, retries, priorities or records. Ratios to it, taken in
one run, say what all of those cost; absolute rates say more about the machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from samecommit.bench.place import Place
from samecommit.bench.report import Report
from samecommit.errors import SamecommitError

_FOLDER = Path(__file__).parents[3] / "bench" / "prototype"


def is_here() -> bool:
    """Whether the prototype is at hand: it comes with a checkout, not with the installed package."""
    return (_FOLDER / "worker.py").exists()


def prototype_drain(place: Place, report: Report, jobs: int, *, name: str = "prototype") -> float:
    """Drain with the prototype, in a scratch schema of its own that is dropped, and return its jobs/s."""
    scratch = replace(place, schema=f"{place.schema}_prototype")
    try:
        rate = _rate(_run(scratch, "worker.py", str(jobs), "1000", "500"))
    finally:
        scratch.drop()
    report.add("drain", name, rate, "jobs/s")
    return rate


def _run(place: Place, script: str, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(_FOLDER / script), *arguments],
        env={**os.environ, "PROTO_DSN": place.dsn, "PROTO_SCHEMA": place.schema},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        msg = f"the prototype's {script} failed: {done.stderr.strip().splitlines()[-1:]}"
        raise SamecommitError(msg)
    return done.stdout


def _rate(text: str) -> float:
    found = re.search(r"([\d,]+)/s", text)
    if found is None:
        msg = f"the prototype printed no rate: {text!r}"
        raise SamecommitError(msg)
    return float(found[1].replace(",", ""))
