"""Every example runs as it stands."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

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
