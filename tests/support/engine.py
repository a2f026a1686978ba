"""Drives the engine's own statements one at a time, as a worker would, so that a test can stand between two of them."""

import secrets
from dataclasses import dataclass, field
from typing import Any

import psycopg
from tests.support.jobs import Jobs

from samecommit.storage.query import statement
from samecommit.storage.session import session_settings


def run(conn: psycopg.Connection[Any], label: str, schema: str = "samecommit", **values: Any) -> list[tuple[Any, ...]]:
    """Run the statement of that label on this connection."""
    query = statement(label, schema)
    cursor = psycopg.RawCursor(conn).execute(query.text, query.bind(values))
    return cursor.fetchall() if cursor.description else []


def set_session(conn: psycopg.Connection[Any]) -> None:
    """Give the connection what every session of a worker has."""
    for name, value in session_settings().items():
        conn.execute("SELECT set_config(%s, %s, false)", [name, value])


@dataclass
class Actor:
    """A worker made of statements: one lease, and what it has claimed."""

    conn: psycopg.Connection[Any]
    kinds: tuple[str, ...] = ("work",)
    lease_id: int = field(default_factory=lambda: secrets.randbits(63))
    lease_seconds: float = 60.0

    def register(self, schema: str = "samecommit") -> "Actor":
        """Take the lease."""
        run(
            self.conn,
            "worker/register",
            schema,
            lease_id=self.lease_id,
            lease_seconds=self.lease_seconds,
            pid=1,
            concurrency=10,
            host="test",
            version="0",
            queues=["*"],
            kinds=list(self.kinds),
            backends="[]",
        )
        return self

    def claim(
        self,
        room: int = 10,
        *,
        on: psycopg.Connection[Any] | None = None,
        queue_id: int = 1,
        priority: int = 0,
        sure: int = 2**63 - 1,
    ) -> list[tuple[int, int]]:
        """Claim from one lane, the jobs of dead workers first; the (job id, claim id) pairs."""
        claim_id = secrets.randbits(63)
        rows = run(
            on or self.conn,
            "claim/claim",
            claim_id=claim_id,
            lease_id=self.lease_id,
            queue_ids=[queue_id] * 2,
            priorities=[priority] * 2,
            starts=[-(2**63), 0],
            sures=[sure] * 2,
            kinds=list(self.kinds),
            room=room,
        )
        return [(row[0], claim_id) for row in rows]

    def claim_suspects(self, room: int = 10, lost: int = 32767) -> list[tuple[int, int]]:
        """Claim what was found in dead leases."""
        claim_id = secrets.randbits(63)
        rows = run(
            self.conn,
            "claim/claim_suspects",
            claim_id=claim_id,
            lease_id=self.lease_id,
            queue_ids=[1],
            kinds=list(self.kinds),
            lost=lost,
            room=room,
        )
        return [(row[0], claim_id) for row in rows]

    def finish(
        self, pairs: list[tuple[int, int]], *, on: psycopg.Connection[Any] | None = None, **columns: Any
    ) -> list[int]:
        """End these jobs as done; the ids that were ours to end."""
        values: dict[str, Any] = {"results": None, "errors": None, "records": None, **columns}
        rows = run(
            on or self.conn,
            "job/finish",
            ids=[p[0] for p in pairs],
            claim_ids=[p[1] for p in pairs],
            states=["done"] * len(pairs),
            lease_id=self.lease_id,
            **values,
        )
        return [row[0] for row in rows]

    def settle(
        self, pairs: list[tuple[int, int]], outcome: str | None = None, state: str = "ready", **columns: Any
    ) -> list[int]:
        """End these attempts with jobs that go on; a give-back unless told otherwise."""
        many = len(pairs)
        values: dict[str, Any] = {
            "ids": [p[0] for p in pairs],
            "claim_ids": [p[1] for p in pairs],
            "outcomes": [outcome] * many,
            "states": [state] * many,
            "delays": [0.0] * many,
            "spends": [outcome is not None] * many,
            "lease_id": self.lease_id,
            **columns,
        }
        # what is not said is NULL in every row
        unsaid = {name: [None] * many for name in statement("job/settle", "samecommit").parameters}
        return [row[0] for row in run(self.conn, "job/settle", **{**unsaid, **values})]

    def die(self) -> None:
        """Lose the lease, as the reaper would take it."""
        self.conn.execute("DELETE FROM samecommit.worker WHERE lease_id = %s", [self.lease_id])


def reap(conn: psycopg.Connection[Any], crash_limit: int = 3) -> tuple[int, int, int]:
    """One round of the reaper: (claims, jobs, held)."""
    row = run(conn, "chore/reap", room=100, crash_limit=crash_limit, crash_delay_seconds=0.0, trouble_seconds=60.0)[0]
    return row[0], row[1], row[2]


def enqueue(jobs: Jobs, count: int = 1, kind: str = "work", **options: Any) -> list[int]:
    """Store jobs through the contract's function, one statement each."""
    named = "".join(f", {name} => %s" for name in options)
    text = f"SELECT id FROM $.enqueue(%s{named})"
    return [jobs.value(text, kind, *options.values()) for _ in range(count)]
