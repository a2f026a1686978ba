"""Every example runs as it stands."""

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import psycopg
import pytest
import redis.asyncio
from tests.sinks.servers import nats_server, redis_server
from tests.support.database import Database
from tests.support.waiting import until

from samecommit.testing import drain

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(path: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / path))


def count(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
        assert row is not None
        return int(row[0])


def test_the_script_enqueues_a_job_for_each_line(samecommit_dsn: str) -> None:
    script, lines = EXAMPLES / "script/import_orders.py", "ada@example.com\ngrace@example.com\n"
    subprocess.run([sys.executable, script], input=lines, text=True, check=True, timeout=60)
    assert count(samecommit_dsn, "orders") == count(samecommit_dsn, "samecommit.job") == 2
    assert drain(load("script/import_orders.py")["app"]).done == 2


@pytest.mark.filterwarnings("ignore:Using `httpx`")
def test_fastapi_commits_order_and_job_together_or_neither(samecommit_dsn: str) -> None:
    from fastapi.testclient import TestClient

    shop = load("fastapi_sqlalchemy/shop.py")
    with TestClient(shop["web"]) as client:
        assert client.post("/orders", params={"email": "ada@example.com", "amount": 3}).status_code == 200
        assert client.post("/orders", params={"email": "ada@example.com", "amount": 0}).status_code == 422
    assert count(samecommit_dsn, "shop_order") == count(samecommit_dsn, "samecommit.job") == 1
    assert drain(shop["app"]).done == 1


def test_flask_commits_order_and_job_together_or_neither(samecommit_dsn: str) -> None:
    shop = load("flask_psycopg2/shop.py")
    shop["prepare"]()
    client = shop["web"].test_client()
    assert client.post("/orders", data={"email": "ada@example.com", "amount": 3}).status_code == 200
    assert client.post("/orders", data={"email": "ada@example.com", "amount": 0}).status_code == 422
    assert count(samecommit_dsn, "shop_order") == count(samecommit_dsn, "samecommit.job") == 1
    assert drain(shop["app"]).done == 1


def test_a_trigger_enqueues_for_every_row(samecommit_dsn: str) -> None:
    app = load("script/import_orders.py")["app"]
    app.migrate()
    with psycopg.connect(samecommit_dsn) as conn:
        conn.execute((EXAMPLES / "trigger/orders.sql").read_bytes())
        conn.execute("INSERT INTO orders (email) VALUES ('ada@example.com'), ('grace@example.com')")
    assert drain(app).done == 2


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    servers = []
    for make in (nats_server, redis_server):
        (directory := tmp_path / make.__name__).mkdir()
        servers.append(make(directory))
    at_nats, at_redis = (f"{name}://127.0.0.1:{it.port}" for name, it in zip(("nats", "redis"), servers, strict=True))
    monkeypatch.setenv("NATS_URL", at_nats)
    monkeypatch.setenv("REDIS_URL", at_redis)
    try:
        for server in servers:
            server.start()
        yield at_nats, at_redis
    finally:
        for server in servers:
            server.stop()


async def test_leads_reach_nats_and_redis_and_a_receiver_acts_on_each_once(
    samecommit_dsn: str, server: Database, brokers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leads = load("lead_stream/leads.py")
    await leads["prepare"]()
    with psycopg.connect(samecommit_dsn, autocommit=True) as conn:
        for email in ("ada@example.com", "grace@example.com"):
            leads["score_lead"](conn, leads["create_lead"](conn, email), 50)
        leads["score_lead"](conn, 1, 90)
        relay = leads["app"].relay()
        await relay.start()
        delivered = "SELECT array_agg(delivered ORDER BY destination) FROM samecommit.position"
        await until(lambda: conn.execute(delivered).fetchone() == ([5, 5],))
        await relay.finish()
    with server.fresh() as theirs, psycopg.connect(theirs, autocommit=True) as conn:
        monkeypatch.setenv("RECEIVER_DSN", theirs)
        receiver = load("lead_stream/receiver.py")
        await receiver["receive"](turns=1)
        await repeat_everything(*brokers)
        await receiver["receive"](turns=1)
        welcomed = conn.execute("SELECT lead_id, email FROM welcome ORDER BY 1").fetchall()
        assert welcomed == [(1, "ada@example.com"), (2, "grace@example.com")]
        assert conn.execute("SELECT lead_id, score FROM score ORDER BY 1").fetchall() == [(1, 90), (2, 50)]


async def repeat_everything(at_nats: str, at_redis: str) -> None:
    """Bring every message once more, as a transport may."""
    client = await nats.connect(at_nats)
    stream = client.jetstream()
    for number in range(1, 6):
        message = await stream.get_msg("LEADS", number)
        headers = {name: value for name, value in (message.headers or {}).items() if name.startswith("ce-")}
        await stream.publish(str(message.subject), message.data or b"", headers=headers)
    await client.close()
    other: Any = redis.asyncio.Redis.from_url(at_redis)
    async with other:
        for _, fields in await other.xrange("leads"):
            await other.xadd("leads", fields)


@pytest.fixture
def django_env(samecommit_dsn: str) -> dict[str, str]:
    with psycopg.connect(samecommit_dsn, autocommit=True) as conn:
        conn.execute("DROP SCHEMA samecommit CASCADE")  # manage.py migrate is to bring it
    return {**os.environ, "SAMECOMMIT_DSN": samecommit_dsn, "DJANGO_SETTINGS_MODULE": "settings"}


def manage(env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "manage.py", *arguments]
    folder = EXAMPLES / "django_shop"
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_django_migrates_enqueues_and_works(django_env: dict[str, str]) -> None:
    manage(django_env, "migrate")
    orders = (
        "from shop.services import create_order; create_order('ada@example.com', 3)\n"
        "try: create_order('ada@example.com', 0)\n"
        "except ValueError: print('refused')"
    )
    assert "refused" in manage(django_env, "shell", "-c", orders)
    assert (
        count(django_env["SAMECOMMIT_DSN"], "shop_order") == count(django_env["SAMECOMMIT_DSN"], "samecommit.job") == 1
    )
    drained = "from samecommit.testing import drain; from shop.tasks import app; print(drain(app))"
    assert "done=1" in manage(django_env, "shell", "-c", drained)


def test_djangos_worker_command_stops_when_told(django_env: dict[str, str]) -> None:
    manage(django_env, "migrate")
    command = [sys.executable, "-W", "ignore", "manage.py", "samecommit_worker", "--concurrency", "2"]
    with subprocess.Popen(command, cwd=EXAMPLES / "django_shop", env=django_env) as worker:
        with psycopg.connect(django_env["SAMECOMMIT_DSN"], autocommit=True) as conn:
            for _ in range(3000):
                if conn.execute("SELECT count(*) FROM samecommit.worker").fetchone() == (1,):
                    break
                conn.execute("SELECT pg_sleep(0.01)")
        worker.terminate()
        assert worker.wait(30) == 0
