"""What a fault test ends with: let all drain, stop, write down what is there, judge it."""

from __future__ import annotations

from pathlib import Path

import psycopg
from tests.faults.crew import Crew, wait_for
from tests.support import history_audit
from tests.support.history import Run
from tests.support.history_checks import all_faults, judge
from tests.support.history_health import resources, timing


def ready(dsn: str) -> int:
    """How many jobs still have to run."""
    with psycopg.connect(dsn, connect_timeout=5) as conn:
        row = conn.execute("SELECT count(*) FROM samecommit.job WHERE state = 'ready'").fetchone()
        assert row is not None
        return int(row[0])


def drain(dsn: str, seconds: float = 60.0) -> None:
    """Wait until nothing is left to run."""

    def is_drained() -> bool:
        try:
            return ready(dsn) == 0
        except psycopg.OperationalError:
            return False

    wait_for(is_drained, seconds, "all jobs to end")


def conclude(dsn: str, folder: Path, workers: Crew, *, drain_seconds: float = 60.0) -> Run:
    """Drain, stop and judge: nothing may be lost, doubled, early or left behind. The run, for what the test itself asks."""
    drain(dsn, drain_seconds)
    config = workers.config
    history_audit.wait_for_the_dead(dsn, len(workers.alive), config["lease_seconds"] + config["reap_seconds"] + 15)
    workers.stop()
    history_audit.dump(dsn, folder)
    run = Run.load(folder)
    if faults := all_faults([*judge(run), timing(run), resources(run)]):
        raise AssertionError("\n".join(faults))
    return run


def starts(run: Run, key: str | None = None) -> int:
    """How often handlers began."""
    return sum(line["op"] == "start" and key in (None, line["key"]) for line in run.handlers)


def attempts_of(run: Run) -> dict[str, int]:
    """Attempts that were spent, by key."""
    return {line["key"]: line["attempts"] for line in run.tables}
