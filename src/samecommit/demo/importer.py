"""Insert the leads, each together with its first job in one transaction.

Killed at any moment and started again, it goes on with the leads that are not there: what is there has its job.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

from samecommit.demo.app import create_app
from samecommit.demo.arrivals import arrivals
from samecommit.demo.intake import Lead, read_leads
from samecommit.demo.lead_table import values
from samecommit.demo.tasks import TABLE, enrich


def import_leads(conn: psycopg.Connection[Any], leads: Iterable[Lead]) -> None:
    """Insert leads that are not there yet, one transaction each."""
    for lead in leads:
        with conn.transaction():
            row = conn.execute(TABLE.insert, values(lead)).fetchone()
            if row is not None:
                enrich.enqueue(conn, lead_id=int(row[0]))


def main() -> None:
    """Run the importer as a process of its own, with the database in ``SAMECOMMIT_DSN``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("leads", type=Path)
    parser.add_argument("--per-second", type=float, default=0.0)
    args = parser.parse_args()
    create_app()  # gives the tasks their database's schema, and ends this process with its parent
    with psycopg.connect(os.environ["SAMECOMMIT_DSN"], autocommit=True, prepare_threshold=None) as conn:
        known = {email for (email,) in conn.execute(TABLE.emails)}
        new = [lead for lead in read_leads(args.leads).leads if lead.email not in known]
        import_leads(conn, arrivals(new, args.per_second))


if __name__ == "__main__":
    main()
