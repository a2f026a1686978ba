"""What the tests of plans share: the hot statements, what they may touch, and the history that breaks plans."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from tests.support.database import Database
from tests.support.engine import Actor, set_session

from samecommit.storage.query import statement

LEASE = 42
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BODIES_AT = datetime.now(UTC)
BIG = ("job", "body", "claim", "attempt", "job_history", "parked")


@dataclass
class Hot:
    """A statement that runs all the time, and what it is given.

    Args:
        empty: parameters while the tables are empty.
        full: parameters that make it do work, or find nothing, on full tables.
        buffers: the most that it may touch then; a few per row that it brings, never in proportion to the table.
        rows: how many it then brings, so that a statement that does nothing is not taken for a cheap one.
        fault: what is known to be wrong with it.
    """

    label: str
    empty: dict[str, Any]
    full: dict[str, Any] = field(default_factory=dict)
    buffers: int = 50
    rows: int | None = None
    fault: str = ""

    def __str__(self) -> str:
        return self.label


def arrays(names: str, many: int = 0) -> dict[str, list[Any]]:
    return {name: [None] * many for name in names.split()}


PAIRS = {"ids": list(range(101, 201)), "claim_ids": [7] * 100}
NOTHING: dict[str, Any] = {"ids": [], "claim_ids": []}
SETTLE = "outcomes states delays spends errors hold_datas hold_untils records run_ats firsts"
HEAD = -(2**63)
LANES = {
    "queue_ids": [1] * 4,
    "priorities": [5, 5, 0, 0],
    "starts": [HEAD, 0, HEAD, 0],
    "sures": [0] * 4,
    "kinds": ["work"],
}

HOT = [
    Hot("claim/claim", {"claim_id": 1, "lease_id": LEASE, **LANES, "room": 100}, {"claim_id": 2}, 900, 100),
    Hot("claim/claim_suspects", {"claim_id": 3, "lease_id": LEASE, "queue_ids": [1], "kinds": ["work"], "lost": 9, "room": 10}, {"claim_id": 4}),
    Hot("claim/horizon", {"queue_ids": [1, 1], "aboves": [-32768, 0], "belows": [0, 32767], "old_xid": 0}),
    Hot("claim/owned", NOTHING, PAIRS, 600, 100),
    Hot("claim/bodies", {"ids": [], "created_ats": []}, {"ids": list(range(1, 101)), "created_ats": [BODIES_AT] * 100}, 600, 100),
    Hot("claim/forget", {"claim_ids": [1]}, {"claim_ids": [1, 2, 3]}),
    Hot("job/finish", {**NOTHING, "lease_id": LEASE, **arrays("states results errors records")}, PAIRS, 1600, 100),
    Hot("job/settle", {**NOTHING, "lease_id": LEASE, **arrays(SETTLE)}, {"ids": list(range(201, 301)), "claim_ids": [7] * 100, **arrays(SETTLE, 100), "states": ["ready"] * 100, "delays": [0.0] * 100, "spends": [False] * 100, "outcomes": ["snoozed"] * 100}, 3500, 100),
    Hot("attempt/record", {**NOTHING, "lease_id": LEASE, **arrays("records progresses")}, {"ids": list(range(301, 401)), "claim_ids": [7] * 100, "records": ["{}"] * 100, "progresses": [None] * 100}, 2000, 100),
    Hot("chore/promote", {"start": EPOCH, "room": 100}),
    Hot("chore/reap", {"room": 100, "crash_limit": 3, "crash_delay_seconds": 1.0, "trouble_seconds": 60.0}),
    Hot("chore/reap_cancelled", {}),
    Hot("chore/forget_dead_claims", {"room": 100}),
    Hot("chore/set_aside", {"room": 100, "patience_seconds": 10.0}, {"patience_seconds": 0.0}, 400),
    Hot("chore/take_in", {"room": 100}),
    Hot("chore/expire_holds", {"room": 100}),
    Hot("chore/oldest_job", {"after": 0, "room": 1000}, {}, 1100),
    Hot("chore/age_failed", {"age_seconds": 1e6, "room": 100}),
    Hot("worker/cancellations", {"ids": [1, 2, 3]}),
    Hot("event/parked_due", {"destination": "there", "shards": 1, "shard": 0, "room": 100, "sent_until": None}),
    Hot("worker/view", {"queues": None, "kinds": ["work"]}),
]  # fmt: skip


each_hot_statement = pytest.mark.parametrize(
    "hot",
    [pytest.param(hot, marks=pytest.mark.xfail(reason=hot.fault) if hot.fault else ()) for hot in HOT],
    ids=str,
)


def scans_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan:
        yield plan
    for part in plan.get("Plans", []):
        yield from scans_of(part)


def buffers_of(plan: dict[str, Any]) -> int:
    return sum(int(plan[f"Shared {kind} Blocks"]) for kind in ("Hit", "Read"))


class Session:
    """A worker's session that keeps what it has prepared."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn

    def prepare(self, hot: Hot) -> None:
        self.conn.execute(f'PREPARE "{hot.label}" AS {statement(hot.label, "samecommit").text}'.encode())

    def _call(self, hot: Hot, values: dict[str, Any]) -> tuple[str, list[Any]]:
        names = statement(hot.label, "samecommit").parameters
        given = [self._literal(values.get(name)) for name in names]
        return f'EXECUTE "{hot.label}"' + (f"({', '.join(given)})" if given else ""), []

    def _literal(self, value: Any) -> str:
        return psycopg.sql.Literal(value).as_string(self.conn)

    def run(self, hot: Hot, values: dict[str, Any]) -> None:
        self.conn.execute(self._call(hot, values)[0].encode())

    def explain(self, hot: Hot, values: dict[str, Any]) -> dict[str, Any]:
        call = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + self._call(hot, values)[0]
        row = self.conn.execute(call.encode()).fetchone()
        assert row is not None
        plan: dict[str, Any] = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
        return plan


def fill(rows: int, *, later: int, ended: int) -> str:
    """Return what puts so many jobs in line, for later and in the history, and a share of everything else."""
    return f"""
INSERT INTO samecommit.job (pos, queue_id, priority, kind, payload)
    SELECT nextval('samecommit.pos_seq'), 1, 0, 'work', '{{"n": 1}}' FROM generate_series(1, {rows});
INSERT INTO samecommit.job (queue_id, kind, payload, run_at)
    SELECT 1, 'work', '{{}}', clock_timestamp() + interval '1 hour' FROM generate_series(1, {later});
INSERT INTO samecommit.job (queue_id, kind, payload, state, since_at, last_error)
    SELECT 1, 'work', '{{}}', 'failed', clock_timestamp(), 'x' FROM generate_series(1, {rows // 10});
UPDATE samecommit.job SET claim_id = 7, claimed_at = clock_timestamp(), claims = 1 WHERE id <= 1000;
INSERT INTO samecommit.claim (claim_id, lease_id, ids)
    SELECT 7, {LEASE}, array_agg(id) FROM samecommit.job WHERE id BETWEEN 1 AND 1000;
INSERT INTO samecommit.body (job_id, created_at, payload)
    SELECT n, '{BODIES_AT}', '{{}}' FROM generate_series(1, {rows // 10}) AS n;
INSERT INTO samecommit.attempt (job_id, claim_id, claimed_at, number)
    SELECT n, n, clock_timestamp(), 1 FROM generate_series(1000001, {1_000_000 + rows // 10}) AS n;
INSERT INTO samecommit.parked (destination, number, created_at, lane, blocks, state, due_at)
    SELECT 'there', n, clock_timestamp(), n & 1023, false, 'due', clock_timestamp() + interval '1 hour'
    FROM generate_series(1, {rows // 3}) AS n;
INSERT INTO samecommit.job_history (id, run_at, created_at, finished_at, queue_id, claims, priority, attempts, crashes,
                                    max_attempts, retention, payload_version, kind, state, payload)
    SELECT -n, clock_timestamp(), clock_timestamp(), clock_timestamp(), 1, 1, 0, 0, 0, 20, 2, 1, 'work', 'done', '{{}}'
    FROM generate_series(1, {ended}) AS n;
"""


A_FEW = """
ALTER TABLE samecommit.job SET (autovacuum_enabled = off);
INSERT INTO samecommit.job (pos, queue_id, kind, payload)
    SELECT nextval('samecommit.pos_seq'), 1, 'other', '{"n": 1}' FROM generate_series(1, 60);
INSERT INTO samecommit.body SELECT id, created_at, payload FROM samecommit.job;
INSERT INTO samecommit.attempt (job_id, claim_id, claimed_at, number) SELECT id, 1, created_at, 1 FROM samecommit.job;
"""


@contextmanager
def history(server: Database, filling: str, *, with_settings: bool = True) -> Iterator[Session]:
    """A session whose statements were prepared on tables that were as good as empty, and which then saw them fill."""
    with server.fresh() as dsn, psycopg.connect(dsn, autocommit=True) as worker, psycopg.connect(dsn) as producer:
        made = Session(worker)
        if with_settings:
            set_session(worker)
        Actor(worker, lease_id=LEASE, lease_seconds=3600.0).register()
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute(A_FEW.encode())
            other.execute(b"ANALYZE")
            other.execute(b"DELETE FROM samecommit.job")
        for hot in HOT:
            made.prepare(hot)
            for _ in range(8):
                made.run(hot, hot.empty)
        producer.execute(filling.encode())
        producer.commit()
        yield made


def check(hot: Hot, plan: dict[str, Any], buffers: int) -> None:
    """Refuse a plan that walks a big table otherwise than by an index, visits more rows or buffers, or does not do its work."""
    shown = json.dumps(plan, indent=1)
    for scan in scans_of(plan):
        is_big = re.match(rf"(?:{'|'.join(BIG)})(?:_\d+)*$", scan["Relation Name"])
        if is_big and scan["Actual Loops"]:
            visited = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
            assert visited <= 10 * buffers, shown
            assert scan["Node Type"] != "Bitmap Heap Scan", shown
            assert scan["Relation Name"] == "claim" or scan["Node Type"] != "Seq Scan", shown
    assert buffers_of(plan) <= buffers, shown
    if hot.rows is not None:
        assert plan["Actual Rows"] == hot.rows, shown
