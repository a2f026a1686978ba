"""Samecommit: one worker process with its defaults but for concurrency and batch; history kept."""

import asyncio

import psycopg
from common import DSN, Peer, main

from samecommit import App, WorkerConfig


class SamecommitPeer(Peer):
    name = package = "samecommit"
    drain_n = 400_000
    bulk_n = 200_000
    bulk = "app.enqueue_many in one transaction"
    defaults = {"concurrency": 1000, "batch": 500}
    settings = {"history": "kept", "executor": "async def on the loop"}
    notes = "Leases, fences, retries, attempts, history and chores are on, as always."
    any_left_sql = "select exists(select 1 from samecommit.job)::int"
    remaining_sql = "select count(*) from samecommit.job"
    done_sql = "select count(*) from samecommit.job_history where state = 'done'"

    def __init__(self):
        self.app = App(DSN)
        self.record = None

        @self.app.task()
        async def noop(submission_id: int, email: str, note: str, t: int | None = None) -> None:
            self.record({"t": t})

        self.noop = noop

    async def setup(self):
        self.app.migrate()

    async def open(self):
        self.conn = await psycopg.AsyncConnection.connect(DSN)

    async def close(self):
        await self.conn.close()

    async def enqueue(self, args):
        await self.noop.enqueue(self.conn, **args)
        await self.conn.commit()

    async def enqueue_many(self, batch):
        await self.app.enqueue_many(self.conn, (self.noop.job(**args) for args in batch))
        await self.conn.commit()

    async def work(self, record, stop):
        self.record = record
        worker = self.app.worker(WorkerConfig(concurrency=self.tune("concurrency"), batch=self.tune("batch")))
        run = asyncio.create_task(worker.run())
        await stop.wait()
        worker.stop()
        await run


main(SamecommitPeer())
