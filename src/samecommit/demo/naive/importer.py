"""Write the leads and tell the broker: in the order that is asked for, each in its own step.

Started again after a kill it skips the leads that are there, as importers do; that one of them may never have been
published it cannot know.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

from samecommit.demo.arrivals import arrivals
from samecommit.demo.child import follow_parent
from samecommit.demo.http_json import request_json
from samecommit.demo.intake import Lead, read_leads
from samecommit.demo.lead_table import values
from samecommit.demo.naive.store import NaiveStore

ORDERS = ("commit-first", "publish-first")


def import_leads(
    conn: psycopg.Connection[Any], store: NaiveStore, leads: Iterable[Lead], *, order: str, broker_url: str
) -> None:
    """Import on a connection in autocommit mode, one transaction a lead."""
    for lead in leads:
        if order == "commit-first":
            with conn.transaction():
                lead_id = _insert(conn, store, lead)
            if lead_id is not None:
                _publish(broker_url, lead_id)
        else:
            with conn.transaction():
                lead_id = _insert(conn, store, lead)
                if lead_id is not None:
                    _publish(broker_url, lead_id)
                    store.note_consent(conn, lead_id, lead.source)


def _insert(conn: psycopg.Connection[Any], store: NaiveStore, lead: Lead) -> int | None:
    row = conn.execute(store.leads.insert, values(lead)).fetchone()
    return None if row is None else int(row[0])


def _publish(broker_url: str, lead_id: int) -> None:
    request_json("POST", f"{broker_url}/publish", body={"lead_id": lead_id})


def main() -> None:
    """Run the importer as a process of its own, with the database in ``SAMECOMMIT_DSN``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("leads", type=Path)
    parser.add_argument("--schema", required=True)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--order", choices=ORDERS, required=True)
    parser.add_argument("--per-second", type=float, default=0.0)
    args = parser.parse_args()
    follow_parent()
    store = NaiveStore(args.schema)
    with psycopg.connect(os.environ["SAMECOMMIT_DSN"], autocommit=True) as conn:
        known = {email for (email,) in conn.execute(store.leads.emails)}
        new = [lead for lead in read_leads(args.leads).leads if lead.email not in known]
        import_leads(conn, store, arrivals(new, args.per_second), order=args.order, broker_url=args.broker)


if __name__ == "__main__":
    main()
