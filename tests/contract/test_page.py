"""The page shows the functions as they are, and the guide's examples run as they are written."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.database import missing
from tests.support.jobs import Jobs

from samecommit.storage.roles import FUNCTIONS

pytestmark = pytest.mark.pg15

DOCS = Path(__file__).parents[2] / "docs"
PAGE, GUIDE = DOCS / "reference/sql-contract.md", DOCS / "how-to/enqueue-from-sql.md"
BEGIN, END = "<!-- signatures: begin (made by tests/contract/test_page.py) -->", "<!-- signatures: end -->"
INNER = {"store_event"}  # what the client library calls in place of emit and emit_bytes
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if name == language]


def signatures(conn: psycopg.Connection[Any]) -> str:
    """Return the functions that producers, operators or everybody may call, in the order of the table of rights."""
    lines = []
    for name, roles in FUNCTIONS.items():
        if name not in INNER and ("producer" in roles or "operator" in roles):
            row = conn.execute(
                "SELECT pg_get_function_arguments(p.oid), pg_get_function_result(p.oid) FROM pg_proc AS p "
                "WHERE p.proname = %s AND p.pronamespace = 'samecommit'::regnamespace",
                [name],
            ).fetchone()
            assert row is not None, name
            written = re.sub(r"::[a-z ]+(\[\])?", "", row[0]).replace("timestamp with time zone", "timestamptz")
            arguments = [a for a in re.split(r", (?=(?:OUT )?\w+ \w)", written) if not a.startswith("OUT ")]
            returns = row[1].replace("timestamp with time zone", "timestamptz")
            if returns == "record":
                returns = (
                    "TABLE("
                    + ", ".join(a.removeprefix("OUT ") for a in row[0].split(", ") if a.startswith("OUT "))
                    + ")"
                )
            if returns == "samecommit.stored_event":
                returns = "TABLE(number bigint, id text)"
            call = f"{name}({', '.join(arguments)})"
            lines.append(call if len(call) <= 110 else f"{name}(\n    " + ",\n    ".join(arguments) + ")")
            lines[-1] += f" -> {returns}"
    return "\n```text\n" + "\n".join(lines) + "\n```\n"


def test_the_page_shows_the_functions(conn: psycopg.Connection[Any]) -> None:
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == (made := signatures(conn)), f"put this between the marks:\n{made}"


@pytest.fixture
def guided(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A database in which every SQL example of the guide has run, in their order."""
    conn.execute("SELECT samecommit.create_queue('leads')")
    for text in blocks("postgresql"):
        conn.execute(text.encode())
    return conn


def test_the_examples_in_sql_do_what_they_say(guided: psycopg.Connection[Any], jobs: Jobs) -> None:
    by_kind = dict(jobs.all("SELECT kind, count(*) FROM $.job GROUP BY kind"))
    assert by_kind == {"enrich": 1003, "reindex": 1}
    assert jobs.value("SELECT payload FROM $.jobs ORDER BY id LIMIT 1") == {"lead_id": 1}
    assert jobs.value(
        "SELECT array_agg(unique_key ORDER BY unique_key) FROM $.job WHERE kind = 'enrich' AND unique_key IS NOT NULL"
    ) == [
        "lead:1",
        "lead:2",
    ]
    assert guided.execute("SELECT reindex(7) LIKE 'moved job %'").fetchone() == (True,)
    guided.execute("INSERT INTO lead (email) SELECT 'nobody' WHERE false")
    assert jobs.value("SELECT count(*) FROM $.job") == 1004


def test_the_example_in_psql_runs(guided: psycopg.Connection[Any], dsn: str, jobs: Jobs) -> None:
    psql = shutil.which("psql")
    if psql is None:
        missing("no psql")
        return
    command = [psql, "-X", "-q", "-t", "-v", "ON_ERROR_STOP=1", dsn]
    ran = subprocess.run(command, input=blocks("psql")[0], text=True, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert jobs.value("SELECT count(*) FROM $.job WHERE priority = 10") == 1


@pytest.mark.parametrize("language", ["js", "go"])
def test_the_statements_in_other_languages_run(guided: psycopg.Connection[Any], jobs: Jobs, language: str) -> None:
    (text,) = blocks(language)
    (insert,) = re.findall(r'"(INSERT INTO lead [^"]*)"', text)
    (call,) = re.findall(r"`(SELECT [^`]*samecommit\.enqueue[^`]*)`", text)
    cursor = psycopg.RawCursor(guided)
    before = jobs.value("SELECT max(id) FROM $.job")
    with guided.transaction():
        ((lead_id,),) = cursor.execute(insert.encode(), ["grace@example.org"]).fetchall()
        values = [Jsonb({"lead_id": lead_id}), f"lead:{lead_id}"][: 2 if "$2" in call else 1]
        ((job_id, *_),) = cursor.execute(call.encode(), values).fetchall()
    assert job_id > before
    assert jobs.row(job_id)["payload"] == {"lead_id": lead_id}
