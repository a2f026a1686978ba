"""What the naive run keeps in the database beside the leads: one row each time a worker took up a message."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql

from samecommit.demo.audit import JobRow, LeadRow
from samecommit.demo.lead_table import LeadTable

CREATE_RUN: LiteralString = """
    CREATE TABLE IF NOT EXISTS {schema}.run (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        lead_id bigint NOT NULL,
        is_early boolean NOT NULL,
        ended text,
        reason text
    );
    CREATE TABLE IF NOT EXISTS {schema}.consent (lead_id bigint NOT NULL, source text NOT NULL)"""


class NaiveStore:
    """The tables of one naive run; ``schema`` keeps runs apart."""

    def __init__(self, schema: str) -> None:
        self.leads = LeadTable(schema)
        self._name = sql.Identifier(schema)

    def create(self, conn: psycopg.Connection[Any]) -> None:
        """Make the tables anew."""
        conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(self._name))
        conn.execute(self.leads.create)
        conn.execute(sql.SQL(CREATE_RUN).format(schema=self._name))

    def note_consent(self, conn: psycopg.Connection[Any], lead_id: int, source: str) -> None:
        """Write what an importer writes after the lead itself."""
        conn.execute(sql.SQL("INSERT INTO {}.consent VALUES (%s, %s)").format(self._name), (lead_id, source))

    def start(self, conn: psycopg.Connection[Any], lead_id: int, *, is_early: bool) -> int:
        """Note that a worker took up a message; early means that it found no row."""
        statement = sql.SQL("INSERT INTO {}.run (lead_id, is_early) VALUES (%s, %s) RETURNING id").format(self._name)
        row = conn.execute(statement, (lead_id, is_early)).fetchone()
        assert row is not None
        return int(row[0])

    def end(self, conn: psycopg.Connection[Any], run_id: int, ended: str, reason: str = "") -> None:
        """Note how it ended: done, held or failed."""
        statement = sql.SQL("UPDATE {}.run SET ended = %s, reason = %s WHERE id = %s").format(self._name)
        conn.execute(statement, (ended, reason, run_id))

    def count(self, conn: psycopg.Connection[Any]) -> tuple[int, int]:
        """Return how many leads are committed and how many of them are delivered."""
        row = conn.execute(self.leads.count).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def lead_rows(self, conn: psycopg.Connection[Any]) -> list[LeadRow]:
        """Read the leads for the audit."""
        rows = conn.execute(self.leads.audit)
        return [LeadRow(id=id_, email=email, crm_id=crm_id) for id_, email, crm_id in rows]

    def job_rows(self, conn: psycopg.Connection[Any]) -> list[JobRow]:
        """Read the runs as jobs; one that never ended is no job any more: nobody knows of it."""
        rows = conn.execute(
            sql.SQL("SELECT lead_id, ended, reason FROM {}.run WHERE ended IS NOT NULL").format(self._name)
        )
        return [JobRow(lead_id=lead_id, kind="message", state=ended, reason=reason) for lead_id, ended, reason in rows]

    def count_early(self, conn: psycopg.Connection[Any]) -> int:
        """Count the messages that were taken up before their row could be seen."""
        row = conn.execute(sql.SQL("SELECT count(*) FROM {}.run WHERE is_early").format(self._name)).fetchone()
        assert row is not None
        return int(row[0])
