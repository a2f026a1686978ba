"""Take messages and do all three steps for each: look the lead up, classify it, create it in the CRM.

It retries as people do: a few times, after a short pause, with the same request again.
"""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg

from samecommit.demo.child import follow_parent
from samecommit.demo.crm_client import CrmClient
from samecommit.demo.enrichment import enrich_lead
from samecommit.demo.errors import CrmError, CrmRefused, ModelBusy, ModelError, NoAnswer
from samecommit.demo.http_json import request_json
from samecommit.demo.model_client import ModelClient
from samecommit.demo.naive.store import NaiveStore
from samecommit.errors import DemoError

T = TypeVar("T")

CONFIDENT = 0.7
TRIES = 5
PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveWorker:
    """Everything that handling a message needs but its connection."""

    store: NaiveStore
    model: ModelClient
    crm: CrmClient

    def handle(self, conn: psycopg.Connection[Any], lead_id: int) -> None:
        """Do the three steps for one lead on a connection in autocommit mode."""
        row = conn.execute(self.store.leads.read, {"id": lead_id}).fetchone()
        run_id = self.store.start(conn, lead_id, is_early=row is None)
        if row is None:
            return  # the lookup fails, the task with it, and the message is gone
        try:
            ended, reason = self._work(conn, lead_id, row)
        except DemoError as error:
            ended, reason = "failed", str(error)
        self.store.end(conn, run_id, ended, reason)

    def _work(self, conn: psycopg.Connection[Any], lead_id: int, row: tuple[Any, ...]) -> tuple[str, str]:
        email, name, company, phone, country, message = row
        lead = enrich_lead(email=email, name=name, company=company, phone=phone, country=country)
        conn.execute(self.store.leads.enrich, {"id": lead_id, **lead.values()})
        facts = {"name": lead.name, "company": lead.company, "segment": lead.segment, "message": message}
        judged = _patiently(lambda: self.model.classify(facts))
        label = {"id": lead_id, "label": judged.label, "confidence": judged.confidence}
        conn.execute(self.store.leads.classify, label)
        if judged.confidence < CONFIDENT:
            return "held", f"the model is {judged.confidence:.0%} sure of {judged.label!r}"
        contact = _patiently(
            lambda: self.crm.create(email=email, name=lead.name, company=lead.company, label=judged.label)
        )
        conn.execute(self.store.leads.deliver, {"id": lead_id, "crm_id": contact.id})
        return "done", ""


def _patiently(call: Callable[[], T]) -> T:
    """Call up to ``TRIES`` times; being told to wait is no try."""
    tries = 0
    while True:
        try:
            return call()
        except ModelBusy as busy:
            time.sleep(busy.retry_after)
        except CrmRefused:
            raise
        except (ModelError, CrmError, NoAnswer):
            tries += 1
            if tries == TRIES:
                raise
            time.sleep(PAUSE_SECONDS)


def run(worker: NaiveWorker, *, dsn: str, broker_url: str, threads: int, prefetch: int) -> None:
    """Work until the broker says that it is over."""
    inbox: queue.Queue[int | None] = queue.Queue(prefetch)
    crew = [threading.Thread(target=_loop, args=(worker, dsn, inbox), daemon=True) for _ in range(threads)]
    for thread in crew:
        thread.start()
    is_over = False
    while not is_over:
        taken = request_json("POST", f"{broker_url}/take", body={"most": max(1, prefetch - inbox.qsize())}).body
        for lead_id in taken["messages"]:
            inbox.put(lead_id)
        is_over = taken["is_over"]
    for _ in crew:
        inbox.put(None)
    for thread in crew:
        thread.join()


def _loop(worker: NaiveWorker, dsn: str, inbox: queue.Queue[int | None]) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        while (lead_id := inbox.get()) is not None:
            worker.handle(conn, lead_id)


def main() -> None:
    """Run a worker as a process of its own, with its addresses in the environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schema", required=True)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--prefetch", type=int, default=24)
    args = parser.parse_args()
    follow_parent()
    worker = NaiveWorker(
        store=NaiveStore(args.schema), model=ModelClient.from_environment(), crm=CrmClient.from_environment()
    )
    dsn = os.environ["SAMECOMMIT_DSN"]
    run(worker, dsn=dsn, broker_url=args.broker, threads=args.threads, prefetch=args.prefetch)


if __name__ == "__main__":
    main()
