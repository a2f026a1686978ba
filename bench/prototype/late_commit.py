"""Commit → claim when the caller's transaction goes on after the enqueue: where to start looking.

A job gets its place at INSERT and appears at COMMIT, so a worker that starts behind what it has claimed misses ordinary
transactional enqueues until its next full look. The low-water mark trails the commit horizon instead (review-postgres A5).
Usage: PROTO_DSN=… python late_commit.py [--pinned] [--claimers N]
"""

import multiprocessing as mp
import pathlib
import random
import sys
import time

import psycopg

from worker import CLAIM, DSN, SESSION

HORIZON = """
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, (SELECT last_value FROM proto.pos_seq)
FROM pg_current_snapshot() AS s
"""
SECONDS, PRODUCERS, BATCH = 5, 8, 200


class LowWater:
    """The highest place below which every transaction that could have taken a place has ended."""

    def __init__(self) -> None:
        self.low, self.previous, self.pairs = 0, 0, []

    def sample(self, conn: psycopg.Connection) -> None:
        self.xmin, xmax, last_place = conn.execute(HORIZON, prepare=True).fetchone()
        # the previous sample's place, because last_value is read after the snapshot; + 64, because xmax is not the next xid
        self.pairs.append((self.previous, xmax + 64))
        self.previous = last_place

    def rise(self) -> None:
        # after a claim that came back short: rows that committed just before the rise must have been looked at once
        while self.pairs and self.pairs[0][1] <= self.xmin:
            self.low = self.pairs.pop(0)[0]


def claim_loop(mode: str, claimed: mp.Queue, stop: mp.Value) -> None:
    conn = psycopg.connect(DSN, autocommit=True, options=SESSION + " -c synchronous_commit=off")
    mark, bookmark, seen, looked = LowWater(), 0, {}, time.time()
    again = False
    while not stop.value:
        start = {"start": 0, "bookmark": bookmark, "low-water": min(mark.low, bookmark)}[mode]
        if mode == "low-water":
            mark.sample(conn)
        full = again or (mode == "bookmark" and time.time() - looked > 1)
        if full:
            start, looked = 0, time.time()
        claim_id = random.getrandbits(63)
        rows = conn.execute(CLAIM, (claim_id, start, BATCH, claim_id), prepare=True).fetchall()
        now = time.time()
        again = full and len(rows) == BATCH
        seen.update((row[0], now) for row in rows)
        if mode == "low-water" and len(rows) < BATCH:
            mark.rise()
        if rows:
            bookmark = max(bookmark, max(row[1] for row in rows))
        time.sleep(0.001)
    claimed.put(seen)


def produce(seed: int, work: float, committed: mp.Queue, stop: mp.Value) -> None:
    conn, rng, when = psycopg.connect(DSN), random.Random(seed), {}
    while not stop.value:
        job = conn.execute("INSERT INTO proto.job (payload) VALUES ('{}') RETURNING id").fetchone()[0]
        time.sleep(rng.random() * work)
        conn.commit()
        when[job] = time.time()
    committed.put(when)


def measure(mode: str, work: float, claimers: int) -> str:
    claimed, committed, stop, rest = mp.Queue(), mp.Queue(), mp.Value("i", 0), mp.Value("i", 0)
    readers = [mp.Process(target=claim_loop, args=(mode, claimed, stop)) for _ in range(claimers)]
    writers = [mp.Process(target=produce, args=(n, work, committed, rest)) for n in range(PRODUCERS)]
    for process in readers + writers:
        process.start()
    time.sleep(SECONDS)
    rest.value = 1
    when = {}
    for _ in writers:
        when.update(committed.get())
    time.sleep(1.5)
    stop.value = 1
    got, twice = {}, 0
    for _ in readers:
        part = claimed.get()
        twice += len(got.keys() & part.keys())
        got.update(part)
    for process in readers + writers:
        process.join()
    delays = sorted(max(0.0, (got[job] - when[job]) * 1e3) for job in when if job in got)
    n = len(delays)
    return (
        f"{mode:10} work 0-{work * 1e3:.0f} ms: {n} jobs, unclaimed {len(when) - n}, twice {twice}, "
        f"p50 {delays[n // 2]:.1f} p99 {delays[int(n * 0.99)]:.1f} max {delays[-1]:.0f} ms"
    )


def main() -> None:
    claimers = int(sys.argv[sys.argv.index("--claimers") + 1]) if "--claimers" in sys.argv else 1
    pin = psycopg.connect(DSN)
    if "--pinned" in sys.argv:
        pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT count(*) FROM pg_class")
    for work in (0.004, 0.030):
        for mode in ("start", "bookmark", "low-water"):
            with psycopg.connect(DSN, autocommit=True) as conn:
                conn.execute(pathlib.Path(__file__).with_name("job.sql").read_text())
            print(measure(mode, work, claimers), flush=True)


if __name__ == "__main__":
    main()
