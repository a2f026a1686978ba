"""Behind a transaction pooler: everything works but what needs a session, and no session setting leaks to others."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.support.recorder import Recorder
from tests.support.waiting import until

from samecommit import App, AsyncContext, Backoff, Context, WorkerConfig
from samecommit.signals import ServiceFailed

SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
ignore_startup_parameters = {ignored}
logfile = {folder}/log
pidfile = {folder}/pid
"""


@pytest.fixture(params=["extra_float_digits", "extra_float_digits,options"], ids=["refuses options", "ignores options"])
def pooled_dsn(dsn: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    program = shutil.which("pgbouncer")
    if program is None:
        if os.environ.get("SAMECOMMIT_CI"):
            pytest.fail("pgbouncer is not installed")
        pytest.skip("pgbouncer is not installed (on Debian and Ubuntu: apt install pgbouncer)")
    place = conninfo_to_dict(dsn)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = free.getsockname()[1]
    settings = tmp_path / "pgbouncer.ini"
    owner = Path(str(place["host"])).stat()
    settings.write_text(
        SETTINGS.format(
            host=place["host"],
            port=place.get("port", 5432),
            user=place["user"],
            listen=listen,
            folder=tmp_path,
            ignored=request.param,
        )
    )
    as_server = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if os.geteuid() == 0 and folder.stat().st_uid == 0 and folder != Path("/tmp"):
            folder.chmod(0o777)
    with subprocess.Popen([program, "-q", settings], **as_server) as pooler:  # type: ignore[call-overload]
        address = f"postgresql://{place['user']}@127.0.0.1:{listen}/{place['dbname']}"
        for _ in range(500):
            try:
                psycopg.connect(address, connect_timeout=1).close()
                break
            except psycopg.OperationalError:
                time.sleep(0.02)
        yield address
        pooler.terminate()
        pooler.wait(10)


async def test_jobs_run_retry_and_finish_in_transactions_behind_a_pooler(dsn: str, pooled_dsn: str) -> None:
    app = App(pooled_dsn)

    @app.task()
    async def add(a: int) -> int:
        return a + 1

    @app.task(max_attempts=3, backoff=Backoff(base_seconds=0.05))
    async def flaky(ctx: AsyncContext) -> str:
        if ctx.attempt < 3:
            raise ValueError(ctx.attempt)
        return "at last"

    @app.task()
    async def writes(ctx: AsyncContext, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO written VALUES (%s)", (n,))

    @app.task()
    def on_a_thread(ctx: Context) -> None:
        ctx.record(seen=True)

    with psycopg.connect(pooled_dsn, prepare_threshold=None) as conn:
        conn.execute("CREATE TABLE written (n int)")
        for n in range(60):
            add.enqueue(conn, n)
            writes.enqueue(conn, n)
        flaky.enqueue(conn)
        on_a_thread.enqueue(conn)
    recorder = Recorder(app)
    worker = app.worker(
        WorkerConfig(concurrency=20, lease_seconds=5, heartbeat_seconds=0.5, reap_seconds=0.5, grace_seconds=2)
    )
    running = asyncio.create_task(worker.run())
    # looked at directly: a question that waits for one of the pooler's connections would stop the loop that is to free it
    with psycopg.connect(dsn, autocommit=True) as conn:

        def done() -> int:
            row = conn.execute("SELECT count(*) FROM samecommit.job_history WHERE state = 'done'").fetchone()
            return 0 if row is None else int(row[0])

        await until(lambda: done() == 122, 30)
    worker.stop()
    await running
    assert worker.is_pooled
    with psycopg.connect(pooled_dsn, autocommit=True, prepare_threshold=None) as conn:
        assert conn.execute("SELECT count(*) FROM written").fetchone() == (60,)
        assert {conn.execute("SHOW enable_seqscan").fetchone() for _ in range(20)} == {("on",)}
        assert conn.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
    assert list(recorder.all(ServiceFailed)) == []
