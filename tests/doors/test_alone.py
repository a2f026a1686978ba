"""Scripts: one job without other data, results, and what is known when the connection is lost while committing."""

import asyncio
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.support.jobs import Jobs
from tests.support.workers import running_worker

from samecommit import App, Cancel, Fail, WorkerConfig
from samecommit.errors import CommitUnknown, JobError, PayloadMismatch, UnknownJob, UnknownQueue
from samecommit.job import Enqueued


@pytest.fixture
def app(dsn: str) -> App:
    made = App(dsn)

    @made.task()
    def add(a: int, b: int) -> tuple[int, str]:
        return a + b, "sum"

    @made.task()
    async def fail(how: str) -> None:
        raise Fail("it cannot work") if how == "fail" else Cancel("not wanted")

    @made.task(max_attempts=1)
    def nothing() -> None: ...

    return made


def task(app: App, name: str) -> Any:
    return app._tasks[name]


async def test_a_result_comes_back_as_the_type_that_was_declared(app: App) -> None:
    first = app.enqueue(task(app, "add").job(2, b=40))
    second = await app.enqueue_async(task(app, "nothing").job())
    async with running_worker(app):
        assert await app.result_async(first) == (42, "sum")
        assert await app.result_async(second.id) is None
    assert await asyncio.to_thread(app.result, first.id) == (42, "sum")


async def test_a_job_that_ended_badly_raises_its_reason(app: App) -> None:
    failed = app.enqueue(task(app, "fail").job("fail"))
    cancelled = app.enqueue(task(app, "fail").job("cancel"))
    async with running_worker(app):
        with pytest.raises(JobError, match="it cannot work") as caught:
            await app.result_async(failed)
        assert (caught.value.job_id, caught.value.state) == (failed.id, "failed")
        assert caught.value.reason is not None
        with pytest.raises(JobError, match="was cancelled: not wanted"):
            await app.result_async(cancelled)


async def test_a_job_that_takes_too_long_goes_on(app: App, jobs: Jobs) -> None:
    waiting = app.enqueue(task(app, "nothing").job())
    with pytest.raises(TimeoutError, match=f"job {waiting.id} has not ended within 0.05 s"):
        app.result(waiting, timeout=0.05)
    with pytest.raises(TimeoutError):
        await app.result_async(waiting, timeout=0.05)
    assert jobs.state(waiting.id) == "ready"


async def test_what_is_not_stored_is_unknown(app: App) -> None:
    with pytest.raises(UnknownJob, match="no job 4711"):
        app.result(4711)
    with pytest.raises(UnknownJob, match="no job 4711"):
        await app.result_async(4711)


async def test_a_result_that_fits_no_more_is_said(app: App, conn: psycopg.Connection[Any]) -> None:
    done = app.enqueue(task(app, "add").job(1, 2))
    async with running_worker(app, config=WorkerConfig(concurrency=1)):
        await app.result_async(done)
    conn.execute("""UPDATE samecommit.job_history SET result = '["x", 1]'""")
    with pytest.raises(PayloadMismatch):
        app.result(done)


def test_refusals_pass(app: App, jobs: Jobs) -> None:
    with pytest.raises(UnknownQueue):
        app.enqueue(task(app, "nothing").using(queue="none such").job())
    assert jobs.count() == 0


class Cutting:
    """A proxy in front of the server that cuts the connection when it sees a text, before or after passing it on."""

    def __init__(self, address: str | tuple[str, int], text: bytes, *, before: bool) -> None:
        self._address, self._text, self._before = address, text, before
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.cuts = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            client, _ = self._listening.accept()
            with client, socket.socket(socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET) as server:
                if self._is_closing:
                    return
                server.connect(self._address)
                self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for source in select.select([client, server], [], [])[0]:
                data = source.recv(65536)
                if not data:
                    return
                if source is client and self._text in data:
                    self.cuts += 1
                    if not self._before:
                        server.sendall(data)
                        server.recv(65536)  # it answers when it has committed
                    return
                (server if source is client else client).sendall(data)

    def close(self) -> None:
        self._is_closing = True
        with socket.create_connection(("127.0.0.1", self.port)):
            self._thread.join(10)
        self._listening.close()


@contextmanager
def cutting(dsn: str, text: bytes, *, before: bool) -> Iterator[tuple[Cutting, str]]:
    found = psycopg.conninfo.conninfo_to_dict(dsn)
    host, port = str(found["host"]), int(found.get("port") or 5432)
    proxy = Cutting(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port), text, before=before)
    try:
        yield (
            proxy,
            f"postgresql://{found['user']}@127.0.0.1:{proxy.port}/{found['dbname']}?sslmode=disable&gssencmode=disable",
        )
    finally:
        proxy.close()


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("key", [None, "lead:1"], ids=["without a key", "with a key"])
async def test_a_lost_commit_is_unknown_and_not_repeated(
    app: App, dsn: str, jobs: Jobs, before: bool, key: str | None
) -> None:
    """B30 (a): the error says that it is unknown; with a unique key, doing it again makes exactly one."""
    work = task(app, "nothing")
    job = work.job() if key is None else work.using(unique=key).job()
    with cutting(dsn, b".enqueue(", before=before) as (proxy, address):
        far = App(address)
        with pytest.raises(CommitUnknown, match="may be stored or not"):
            far.enqueue(job)
        with pytest.raises(CommitUnknown, match="may be stored or not"):
            await far.enqueue_async(job)
        assert proxy.cuts == 2
    stored = 0 if before else (2 if key is None else 1)
    assert jobs.count() == stored
    again: Enqueued[None] = app.enqueue(job)
    assert again.created is (before or key is None)
    assert jobs.count() == (1 if key else stored + 1)


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_the_callers_own_commit_is_never_repeated(app: App, dsn: str, jobs: Jobs, before: bool) -> None:
    """B30 (g), and (a) for a batch: the driver's error is the caller's, with their data and ours in one fate."""
    jobs.all("CREATE TABLE lead (id int)")
    work = task(app, "nothing")
    with cutting(dsn, b"COMMIT", before=before) as (proxy, address):
        conn = psycopg.connect(address)
        conn.execute("INSERT INTO lead VALUES (1)")
        work.enqueue(conn)
        app.enqueue_many(conn, [work.job(), work.job()])
        with pytest.raises(psycopg.OperationalError):
            conn.commit()
        conn.close()
        assert proxy.cuts == 1
    assert (jobs.count(), jobs.value("SELECT count(*) FROM lead")) == ((0, 0) if before else (3, 1))
