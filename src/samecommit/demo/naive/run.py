"""Run the same input the common way, kill an importer and a worker half-way, and count what became of the leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from samecommit.demo.audit import Audit, audit
from samecommit.demo.child import Child
from samecommit.demo.crew import Crew
from samecommit.demo.http_json import request_json
from samecommit.demo.naive.store import NaiveStore
from samecommit.demo.services import start_services

LOOK_SECONDS = 0.05
SLOWEST_PER_SECOND = 20  # leads that the workers manage at least


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveInput:
    """What a naive run works on.

    Args:
        leads: the file.
        emails: the address of each of its accepted rows.
        order: ``commit-first`` or ``publish-first``.
        folder: where the CRM keeps its file.
        per_second: the pace at which leads arrive; 0 is all at once.
        model_args, crm_args: options of the two services.
    """

    dsn: str
    leads: Path
    emails: frozenset[str]
    order: str
    folder: Path
    per_second: float = 0.0
    workers: int = 2
    model_args: Sequence[object] = ()
    crm_args: Sequence[object] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveResult:
    """What became of the leads; ``early`` messages were taken up before their row could be seen."""

    audit: Audit
    early: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveProgress:
    """How far a run is: committed leads and delivered ones; ``is_killed`` once the kill has happened."""

    committed: int
    delivered: int
    is_killed: bool


Watcher = Callable[[NaiveProgress], None]


def run_naive(given: NaiveInput, *, watch: Watcher = lambda _: None, timeout_seconds: float = 120.0) -> NaiveResult:
    """Run one order from the first lead to the last message, with the kill half-way.

    Args:
        given: what it works on.
        watch: told how far it is.
        timeout_seconds: how long it may take, beside what its leads take (`work_seconds`).

    Raises:
        ChildError: a process did not start, failed, or did not end in time.
    """
    store = NaiveStore(f"naive_{given.order.replace('-', '_')}")
    deadline = time.monotonic() + timeout_seconds + work_seconds(given)
    with ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(given.dsn, autocommit=True))
        store.create(conn)
        services = start_services(
            stack,
            dsn=given.dsn,
            crm_file=given.folder / f"crm-{given.order}.sqlite",
            model_args=given.model_args,
            crm_args=given.crm_args,
        )
        broker = stack.enter_context(Child("samecommit.demo.naive.broker"))
        where = ("--schema", store.leads.schema, "--broker", broker.url)
        pace = ("--order", given.order, "--per-second", given.per_second)

        def start(module: str, *args: object) -> Child:
            return Child(f"samecommit.demo.naive.{module}", *args, *where, env=services.env, announces=False)

        crew = Crew(
            stack,
            start_worker=lambda: start("worker"),
            start_importer=lambda: start("importer", given.leads, *pace),
            workers=given.workers,
        )
        _watch(crew, store, conn, accepted=len(given.emails), watch=watch, deadline=deadline)
        request_json("POST", f"{broker.url}/close", body={})  # the workers end when the broker is empty
        crew.wait(timeout_seconds=max(1.0, deadline - time.monotonic()))
        watch(_look(crew, store, conn))
        result = audit(given.emails, store.lead_rows(conn), store.job_rows(conn), list(services.crm.contacts()))
        return NaiveResult(audit=result, early=store.count_early(conn))


def work_seconds(given: NaiveInput) -> float:
    """Return how long the leads take at most, at the pace at which they arrive or are worked off."""
    return len(given.emails) / min(given.per_second or SLOWEST_PER_SECOND, SLOWEST_PER_SECOND)


def _watch(
    crew: Crew, store: NaiveStore, conn: psycopg.Connection[Any], *, accepted: int, watch: Watcher, deadline: float
) -> None:
    """Look on until the last lead has arrived, and kill half-way."""
    while crew.is_importing and time.monotonic() < deadline:
        seen = _look(crew, store, conn)
        if not crew.is_killed and seen.committed * 2 >= accepted:
            crew.kill(crew.worker_pids[0])
        watch(seen)
        time.sleep(LOOK_SECONDS)


def _look(crew: Crew, store: NaiveStore, conn: psycopg.Connection[Any]) -> NaiveProgress:
    committed, delivered = store.count(conn)
    return NaiveProgress(committed=committed, delivered=delivered, is_killed=crew.is_killed)
