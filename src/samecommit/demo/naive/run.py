"""Run the same input the common way, kill an importer and a worker half-way, and count what became of the leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from samecommit.demo.audit import Audit, audit
from samecommit.demo.child import Child
from samecommit.demo.crm_client import CrmClient
from samecommit.demo.errors import ChildError
from samecommit.demo.http_json import request_json
from samecommit.demo.naive.store import NaiveStore


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveInput:
    """What a naive run works on; ``order`` is ``commit-first`` or ``publish-first``."""

    dsn: str
    leads: Path
    accepted: int
    order: str
    folder: Path
    per_second: float = 0.0
    workers: int = 2
    stub_args: Mapping[str, tuple[object, ...]]


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


Watch = Callable[[NaiveProgress], None]


def run_naive(given: NaiveInput, *, watch: Watch = lambda _: None, timeout_seconds: float = 120.0) -> NaiveResult:
    """Run one order from the first lead to the last message, with the kill half-way.

    Raises:
        ChildError: a process did not start, or the work did not end in time.
    """
    store = NaiveStore(f"naive_{given.order.replace('-', '_')}")
    with ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(given.dsn, autocommit=True))
        store.create(conn)
        crm_file = given.folder / f"crm-{given.order}.sqlite"
        model = stack.enter_context(Child("samecommit.demo.model_stub", *given.stub_args.get("model", ())))
        crm = stack.enter_context(Child("samecommit.demo.crm_stub", crm_file, *given.stub_args.get("crm", ())))
        broker = stack.enter_context(Child("samecommit.demo.naive.broker"))
        env = {
            "SAMECOMMIT_DSN": given.dsn,
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "DEMO_CRM_URL": crm.url,
        }
        party = _Party(given, store.leads.schema, broker.url, env, stack)
        party.start()
        _watch_to_the_end(party, store, conn, watch, deadline=time.monotonic() + timeout_seconds)
        contacts = list(CrmClient(base_url=crm.url).contacts())
        result = audit(store.lead_rows(conn), store.job_rows(conn), contacts)
        return NaiveResult(audit=result, early=store.count_early(conn))


class _Party:
    """The processes that do the work: one importer, some workers."""

    def __init__(
        self, given: NaiveInput, schema: str, broker_url: str, env: Mapping[str, str], stack: ExitStack
    ) -> None:
        self.given = given
        self._where = ("--schema", schema, "--broker", broker_url)
        self._broker_url = broker_url
        self._env = env
        self._stack = stack
        self._workers: list[Child] = []
        self._importer: Child | None = None
        self.is_killed = False

    def start(self) -> None:
        self._workers = [self._worker() for _ in range(self.given.workers)]
        self._importer = self._import()

    def kill(self) -> None:
        """Kill the importer and a worker at one moment, and start them again as a supervisor does."""
        assert self._importer is not None
        self._importer.kill()
        self._workers.pop().kill()
        self.is_killed = True
        self._workers.append(self._worker())
        self._importer = self._import()

    @property
    def is_importing(self) -> bool:
        return self._importer is not None and self._importer.exit_status is None

    def finish(self, *, timeout_seconds: float) -> None:
        """Tell the workers to end when the broker is empty, and wait for them."""
        request_json("POST", f"{self._broker_url}/close", body={})
        for child in (self._importer, *self._workers):
            if child is not None and child.wait(timeout_seconds=timeout_seconds):
                raise ChildError(f"{child!r} failed: see what it printed")

    def _worker(self) -> Child:
        child = Child("samecommit.demo.naive.worker", *self._where, env=self._env, announces=False)
        return self._stack.enter_context(child)

    def _import(self) -> Child:
        given = self.given
        args = (given.leads, *self._where, "--order", given.order, "--per-second", given.per_second)
        child = Child("samecommit.demo.naive.importer", *args, env=self._env, announces=False)
        return self._stack.enter_context(child)


def _watch_to_the_end(
    party: _Party, store: NaiveStore, conn: psycopg.Connection[Any], watch: Watch, *, deadline: float
) -> None:
    expected = party.given.accepted
    while party.is_importing and time.monotonic() < deadline:
        committed, delivered = store.count(conn)
        if not party.is_killed and committed * 2 >= expected:
            party.kill()
        watch(NaiveProgress(committed=committed, delivered=delivered, is_killed=party.is_killed))
        time.sleep(0.05)
    party.finish(timeout_seconds=max(1.0, deadline - time.monotonic()))
    committed, delivered = store.count(conn)
    watch(NaiveProgress(committed=committed, delivered=delivered, is_killed=party.is_killed))
