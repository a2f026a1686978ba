"""Commit to start of the handler: on an idle worker, by polling alone, and when transactions go on after the enqueue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg

from samecommit import WorkerConfig
from samecommit.bench.place import PAYLOAD, Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report, histogram, percentile

Beside = Callable[[Place], AbstractContextManager[Any]]
_PRODUCERS, _LONG_WORK_SECONDS = 8, 0.030
_LARGE = {"concurrency": 1000, "batch": 500}


def pick_up(place: Place, report: Report, *, samples: int = 2000) -> None:
    """One producer, an idle worker: how long a committed job waits for its handler."""
    delays = _measure(place, producers=1, seconds=samples * 0.012, gap=0.01)
    _rows(report, "pick-up, idle", delays, bars={0.5: 1.8, 0.99: 3.5})


def polling(place: Place, report: Report, *, seconds: float = 120.0) -> None:
    """The same without a bell, as behind a transaction pooler: the longest sleep between two looks, and little more."""
    poll = WorkerConfig().poll_seconds
    delays = _measure(place, producers=4, seconds=seconds, gap=4 * 2.5 * poll, config={"doorbell": False})
    _rows(report, f"pick-up by polling every {poll * 1e3:.0f} ms", delays, bars={0.99: poll * 1e3 + 10})


def late_commit(place: Place, report: Report, *, seconds: float = 8.0) -> None:
    """Eight producers whose transactions go on for 0 to 30 ms after the enqueue of one job or 20; also with xmin pinned.

    A first row with 0 to 4 ms keeps both cores of a small machine busy with producing, so it says more about them.
    """
    delays = _late(place, seconds, jobs=1, work=0.004)
    _rows(report, "late commit, 0-4 ms", delays, bars={})
    turns: list[tuple[int, str, Beside]] = [
        (jobs, name, beside) for jobs in (1, 20) for name, beside in (("", _alone), (", xmin pinned", pinned))
    ]
    for n, (jobs, name, beside) in enumerate(turns):
        report.step((n + 1) / 5, f"{jobs} a transaction{name}")
        delays = _late(place, seconds, jobs=jobs, beside=beside)
        _rows(report, f"late commit, 0-30 ms, {jobs} a transaction{name}", delays, bars={0.99: 5.0})


def late_beside_writer(place: Place, report: Report, *, seconds: float = 60.0) -> None:
    """The same beside a transaction that has enqueued a job and stays open: it holds the low-water mark back."""
    for n, (jobs, bar) in enumerate(((1, 15.0), (20, 100.0))):
        report.step(n / 2, f"{jobs} a transaction")
        delays = _late(place, seconds, jobs=jobs, beside=_writing)
        _rows(report, f"late commit beside a writer of {seconds:.0f} s, {jobs} a transaction", delays, bars={0.99: bar})


def _late(
    place: Place, seconds: float, *, jobs: int, work: float = _LONG_WORK_SECONDS, beside: Beside | None = None
) -> list[float]:
    config = _LARGE if jobs > 1 else {}
    return _measure(
        place, producers=_PRODUCERS, seconds=seconds, work=work, jobs=jobs, beside=beside or _alone, config=config
    )


def _rows(report: Report, name: str, delays: list[float], bars: dict[float, float]) -> None:
    for share, label in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "max")):
        report.add("latency", f"{name} {label}", percentile(delays, share), "ms", bar=bars.get(share), better="lower")
    report.add("latency", f"{name}, samples", len(delays), "jobs")
    report.plots[name] = histogram(delays)


def _alone(_place: Place) -> AbstractContextManager[None]:
    return nullcontext()


def _measure(
    place: Place,
    *,
    producers: int,
    seconds: float,
    work: float = 0.0,
    gap: float = 0.0,
    jobs: int = 1,
    config: Mapping[str, Any] | None = None,
    beside: Beside = _alone,
) -> list[float]:
    place.renew()
    starts = place.folder / "starts.json"
    with beside(place), children() as start:
        worker = start("work", place, starts=str(starts), config=dict(config or {}))
        worker.wait_ready()
        time.sleep(0.5)
        feeders = [
            start("produce", place, seed=n + 1, seconds=seconds, work=work, gap=gap, jobs=jobs)
            for n in range(producers)
        ]
        commits = [pair for feeder in feeders for pair in feeder.result()["commits"]]
        time.sleep(1.5)
        worker.result(stop=True)
    begun = dict(json.loads(starts.read_text()))
    # a job that never began has waited for ever
    return [max(0.0, (begun[n] - at) / 1e6) if n in begun else float("inf") for n, at in commits]


@contextmanager
def pinned(place: Place) -> Generator[None]:
    """Hold a snapshot for as long as the block lasts, as a forgotten report does."""
    with psycopg.connect(place.dsn) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT count(*) FROM pg_class")
        yield


@contextmanager
def _writing(place: Place) -> Generator[None]:
    """Hold a transaction open that has enqueued a job, as an import does; it is never committed."""
    with place.connect() as conn, conn.transaction(force_rollback=True):
        conn.execute(
            "INSERT INTO job (queue_id, kind, pos, payload) VALUES (1, 'noop', nextval('pos_seq'), %s::jsonb)",
            (PAYLOAD,),
        )
        yield
