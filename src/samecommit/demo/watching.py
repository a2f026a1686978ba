"""What the demo reads of the engine: how far the work is, what is held, and both sides for the audit.

Everything comes from the documented views, through any connection: an operator could type it into psql.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from samecommit.demo.audit import LIVE_STATES, JobRow, LeadRow
from samecommit.demo.lead_table import LeadTable

DELIVERY = "deliver:crm"  # the kind of the jobs that the outbox makes for the CRM
FOUND = "found"  # how such a job ends when an attempt that nobody heard of had created the contact

COUNTS: LiteralString = """
    SELECT kind, state, count(*)
    FROM {schema}.jobs
    GROUP BY kind, state"""

HELD: LiteralString = """
    SELECT id, hold_reason, coalesce(hold_data, '{{}}')
    FROM {schema}.jobs
    WHERE state = 'held'
    ORDER BY id"""

JOBS: LiteralString = """
    SELECT coalesce(payload ->> 'lead_id', payload #>> '{{event,key}}')::bigint, kind, state,
           coalesce(CASE WHEN state = 'held' THEN hold_reason ELSE last_error END, '')
    FROM {schema}.jobs"""

REFS: LiteralString = """
    SELECT (payload #>> '{{event,key}}')::bigint, (result ->> 'ref')::bigint
    FROM {schema}.jobs
    WHERE kind = %s AND state = 'done'"""

CALLS: LiteralString = """
    SELECT record ->> 'model', record ->> 'prompt_version', record ->> 'outcome',
           count(*), coalesce(sum((record ->> 'tokens')::bigint), 0)
    FROM {schema}.attempts
    WHERE record ? 'model'
    GROUP BY 1, 2, 3
    ORDER BY 4 DESC"""


ATTEMPTS: LiteralString = """
    SELECT j.kind, a.outcome,
           coalesce(a.record ->> 'outcome',
                    CASE WHEN a.outcome = 'done' AND j.result ->> 'found' = 'true' THEN 'found' END, ''),
           count(*)
    FROM {schema}.attempts AS a
    JOIN {schema}.jobs AS j ON j.id = a.job_id
    WHERE a.outcome IS NOT NULL
    GROUP BY 1, 2, 3"""

BUSIEST: LiteralString = """
    SELECT pid, count(*)
    FROM {schema}.running
    WHERE pid = ANY (%s)
    GROUP BY pid
    ORDER BY count(*) DESC, pid
    LIMIT 1"""

STRANDED: LiteralString = """
    SELECT id, lease_id
    FROM {schema}.running
    WHERE pid = %s"""

STILL_STRANDED: LiteralString = """
    SELECT EXISTS (SELECT FROM {schema}.running WHERE lease_id = ANY (%s))"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How far the work is at one moment; ``jobs`` counts by kind and state."""

    arrived: int
    delivered: int
    jobs: Mapping[tuple[str, str], int]

    def count(self, *states: str, kind: str | None = None) -> int:
        """Count the jobs in these states, of one kind or of all."""
        return sum(
            number for (of, state), number in self.jobs.items() if state in states and (kind is None or of == kind)
        )

    @property
    def finished(self) -> tuple[int, int]:
        """What only moves when work is done: leads that arrived, and jobs that reached an end."""
        return self.arrived, self.count("done", "failed", "held", "cancelled")

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left that a worker or a relay could do: each classified lead has become a delivery."""
        deliveries = self.count(*LIVE_STATES, "held", "done", "failed", "cancelled", kind=DELIVERY)
        return not self.count(*LIVE_STATES) and self.count("done", kind="classify") == deliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLead:
    """A job that waits for a person, with what the task showed them."""

    job_id: int
    reason: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """Attempts that asked the model alike and were answered alike."""

    model: str
    prompt_version: str
    outcome: str
    calls: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often attempts of one kind ended alike; ``note`` is the outcome that the task itself recorded."""

    kind: str
    outcome: str
    note: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranded:
    """What a killed worker had in its hands."""

    leases: tuple[int, ...]
    jobs: int


class Watch:
    """Reads on one connection in autocommit mode; ``schema`` is the engine's."""

    def __init__(self, conn: psycopg.Connection[Any], table: LeadTable, *, schema: str = "samecommit") -> None:
        self._conn = conn
        self._table = table
        self._schema = sql.Identifier(schema)

    def snapshot(self) -> Snapshot:
        """Count leads and jobs."""
        row = self._conn.execute(self._table.count).fetchone()
        assert row is not None
        jobs = {(kind, state): number for kind, state, number in self._rows(COUNTS)}
        return Snapshot(arrived=row[0], delivered=jobs.get((DELIVERY, "done"), 0), jobs=jobs)

    def held(self) -> list[HeldLead]:
        """Read what waits for a person, oldest first."""
        return [HeldLead(job_id=id_, reason=reason, data=data) for id_, reason, data in self._rows(HELD)]

    def release(self, job_id: int, decision: Mapping[str, Any]) -> None:
        """Let a held job run again with a person's decision, by the function that any client can call."""
        statement = sql.SQL("SELECT {}.release(%s, %s)").format(self._schema)
        self._conn.execute(statement, (job_id, Jsonb(dict(decision))))

    def lead_rows(self) -> list[LeadRow]:
        """Read the leads for the audit, with what their deliveries noted as the CRM's number."""
        refs = dict(self._rows(REFS, DELIVERY))
        rows = self._conn.execute(self._table.audit)
        return [LeadRow(id=id_, email=email, crm_id=refs.get(id_)) for id_, email, _ in rows]

    def job_rows(self) -> list[JobRow]:
        """Read the jobs for the audit."""
        return [
            JobRow(lead_id=lead_id, kind=kind, state=state, reason=reason)
            for lead_id, kind, state, reason in self._rows(JOBS)
        ]

    def model_calls(self) -> list[ModelCalls]:
        """Sum up what the attempts recorded about the model."""
        return [
            ModelCalls(model=model, prompt_version=version, outcome=outcome, calls=calls, tokens=int(tokens))
            for model, version, outcome, calls, tokens in self._rows(CALLS)
        ]

    def attempts(self) -> list[Attempts]:
        """Count all attempts by kind and by how they ended."""
        return [
            Attempts(kind=kind, outcome=outcome, note=note, count=count)
            for kind, outcome, note, count in self._rows(ATTEMPTS)
        ]

    def busiest(self, pids: Sequence[int]) -> tuple[int, int]:
        """Return which of these processes runs most jobs, and how many."""
        rows = self._rows(BUSIEST, list(pids))
        return (int(rows[0][0]), int(rows[0][1])) if rows else (pids[0], 0)

    def stranded(self, pid: int) -> Stranded:
        """Look what a process that was just killed had in its hands."""
        rows = self._rows(STRANDED, pid)
        return Stranded(leases=tuple({lease for _, lease in rows}), jobs=len(rows))

    def still_stranded(self, stranded: Stranded) -> bool:
        """Whether something of it has not been given back yet."""
        return bool(self._rows(STILL_STRANDED, list(stranded.leases))[0][0])

    def _rows(self, statement: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        return self._conn.execute(sql.SQL(statement).format(schema=self._schema), values).fetchall()
