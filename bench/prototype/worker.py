"""The smallest worker that shows what the storage design gives: claim, run a no-op, finish into history.

No lease table, retries, errors, priorities or shutdown: a yardstick, not a start.
Usage: PROTO_DSN=postgresql://… python worker.py [jobs] [concurrency] [batch]
       PROTO_SCHEMA names its schema, which it drops and makes anew; proto when not given
       PROTO_DSN=… python worker.py --steady SECONDS [--pinned]   (a producer process keeps it fed)
"""

import asyncio
import json
import multiprocessing as mp
import os
import pathlib
import random
import re
import sys
import time

import msgspec
import psycopg
import uvloop

DSN = os.environ["PROTO_DSN"]
SCHEMA = os.environ.get("PROTO_SCHEMA", "proto")
PAYLOAD = json.dumps({"submission_id": 12345, "email": "someone@example.com", "note": "x" * 60})


def here(text: str) -> str:
    """Return a statement for the schema that was named."""
    return re.sub(r"\bproto\b", SCHEMA, text)


CLAIM = here("""
WITH claimed AS (
    UPDATE proto.job
    SET claim_id = %s, claims = claims + 1, claimed_at = now()
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM proto.job
        WHERE queue_id = 1 AND priority = 0 AND pos > %s AND claim_id IS NULL
        ORDER BY pos LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, pos, kind, claims, payload::text),
recorded AS (
    INSERT INTO proto.claim (claim_id, lease_id, ids) SELECT %s, 1, array_agg(id) FROM claimed HAVING count(*) > 0)
SELECT id, pos, kind, claims, payload FROM claimed
""")
FINISH = here("""
WITH finished AS (
    DELETE FROM proto.job WHERE ctid = ANY (ARRAY(
        SELECT mine.ctid FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (id, claim_id)
        CROSS JOIN LATERAL (
            SELECT ctid FROM proto.job
            WHERE id = wanted.id AND claim_id = wanted.claim_id FOR UPDATE SKIP LOCKED) AS mine))
    RETURNING id, queue_id, priority, kind, run_at, created_at, claims, claimed_at, last_error, meta, payload)
INSERT INTO proto.history
SELECT id, queue_id, priority, kind, 1, run_at, created_at, claims, claimed_at, now(), last_error, meta, payload FROM finished
""")
FORGET = here("DELETE FROM proto.claim WHERE claim_id = ANY (%s::bigint[])")
FILL = here("INSERT INTO proto.job (payload) SELECT %s::jsonb FROM generate_series(1, %s)")
SESSION = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
decode = msgspec.json.Decoder().decode
finished = mp.Value("q", 0)


async def noop(submission_id: int, email: str, note: str) -> None: ...


class Worker:
    def __init__(self, concurrency: int, batch: int) -> None:
        self.concurrency, self.batch = concurrency, batch
        self.running, self.acks, self.stopping = 0, [], False
        self.room, self.flush, self.left = asyncio.Event(), asyncio.Event(), {}

    async def attempt(self, job_id: int, claim_id: int, payload: str) -> None:
        await noop(**decode(payload))
        self.acks.append((job_id, claim_id))
        self.flush.set()
        self.running -= 1
        if self.running <= self.concurrency - self.batch:
            self.room.set()

    async def completer(self) -> None:
        conn = await psycopg.AsyncConnection.connect(DSN, autocommit=True, options=SESSION)
        cur, left = conn.cursor(binary=True), self.left
        while not (self.stopping and not self.acks and not self.running):
            await self.flush.wait()
            self.flush.clear()
            await asyncio.sleep(0.002)
            while self.acks:
                done, self.acks = self.acks[:1000], self.acks[1000:]
                await cur.execute(FINISH, ([job for job, _ in done], [claim for _, claim in done]), prepare=True)
                finished.value += len(done)
                for _, claim in done:
                    left[claim] -= 1
                if empty := [claim for claim in {claim for _, claim in done} if not left[claim]]:
                    await cur.execute(FORGET, (empty,), prepare=True)
                    for claim in empty:
                        del left[claim]

    async def run(self, seconds: float = 0) -> None:
        conn = await psycopg.AsyncConnection.connect(
            DSN, autocommit=True, options=SESSION + " -c synchronous_commit=off"
        )
        cur, cursor_pos, tasks = conn.cursor(binary=True), 0, set()
        completer = asyncio.create_task(self.completer())
        start = shown = time.perf_counter()
        seen = 0
        while True:
            if self.concurrency - self.running < self.batch:
                self.room.clear()
                if self.concurrency - self.running < self.batch:
                    await self.room.wait()
            claim_id = random.getrandbits(63)
            room = min(self.batch, self.concurrency - self.running)
            await cur.execute(CLAIM, (claim_id, cursor_pos, room, claim_id), prepare=True)
            rows = await cur.fetchall()
            if not rows:
                if time.perf_counter() - start >= seconds:
                    break
                await asyncio.sleep(0.001)
                continue
            cursor_pos = max(cursor_pos, max(row[1] for row in rows))
            self.running += len(rows)
            self.left[claim_id] = len(rows)
            for row in rows:
                task = asyncio.create_task(self.attempt(row[0], claim_id, row[4]))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            now = time.perf_counter()
            if seconds and now - shown > 10:
                print(f"  {(finished.value - seen) / (now - shown):,.0f} jobs/s", flush=True)
                shown, seen = now, finished.value
        self.stopping = True
        self.flush.set()
        await completer
        print(f"{finished.value:,} jobs, {finished.value / (time.perf_counter() - start):,.0f}/s")


def producer(seconds: float) -> None:
    conn, sent, start = psycopg.connect(DSN, autocommit=True), 0, time.time()
    while time.time() - start < seconds:
        if sent - finished.value < 3000:
            conn.execute(FILL, (PAYLOAD, 2000))
            sent += 2000
        else:
            time.sleep(0.002)


def main() -> None:
    with psycopg.connect(DSN, autocommit=True) as conn:
        conn.execute(here(pathlib.Path(__file__).with_name("job.sql").read_text()))
        if "--steady" in sys.argv:
            seconds = float(sys.argv[sys.argv.index("--steady") + 1])
            pin = psycopg.connect(DSN)
            if "--pinned" in sys.argv:
                pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                pin.execute("SELECT count(*) FROM pg_class")
            feeder = mp.Process(target=producer, args=(seconds,))
            feeder.start()
            uvloop.run(Worker(1000, 200).run(seconds))
            feeder.join()
            print(
                conn.execute(here("SELECT pg_size_pretty(pg_total_relation_size('proto.job'))")).fetchone()[0],
                "hot table and indexes",
            )
            return
        jobs, concurrency, batch = list(map(int, sys.argv[1:])) + [200_000, 1000, 500][len(sys.argv) - 1 :]
        conn.execute(FILL, (PAYLOAD, jobs))
        conn.execute(here("VACUUM ANALYZE proto.job"))
    uvloop.run(Worker(concurrency, batch).run())


if __name__ == "__main__":
    main()
