"""B04e: objects of the caller that bear the names of ours, earlier in the path, are never met by what runs as the owner."""

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.roles.conftest import Site

pytestmark = pytest.mark.pg15

FUNCTIONS = {
    "clock_timestamp()": "timestamptz",
    "now()": "timestamptz",
    "nextval(regclass)": "bigint",
    "pg_notify(text, text)": "void",
    "hashoid(oid)": "int",
    "pg_column_size(jsonb)": "int",
    "pg_try_advisory_xact_lock_shared(int, int)": "boolean",
    "octet_length(text)": "int",
    "btrim(text)": "text",
    "left(text, int)": "text",
    "format(text, text)": "text",
    "format(text, bigint)": "text",
    "current_setting(text, boolean)": "text",
    "to_jsonb(text)": "jsonb",
    "jsonb_typeof(jsonb)": "text",
    "pg_current_xact_id()": "xid8",
}
OPERATORS = [("=", "text"), ("=", "bigint"), ("=", "int"), ("<>", "text"), ("<=", "timestamptz"), (">", "timestamptz")]
TABLES = ["job", "queue", "unique_key", "job_history", "cancellation", "setting", "body", "claim", "worker"]

CALLS: list[tuple[str, list[Any]]] = [
    ("SELECT samecommit.enqueue('work')", []),
    ("SELECT samecommit.enqueue('work', %s, unique_key => 'k', on_conflict => 'replace')", [Jsonb({"a": "b" * 5000})]),
    ("SELECT samecommit.enqueue('work', unique_key => 'k', on_conflict => 'replace')", []),
    ("SELECT samecommit.enqueue_many(%s)", [Jsonb([{"kind": "work"}, {"kind": "work", "unique_key": "m"}])]),
    ("SELECT samecommit.enqueue_many(%s)", [Jsonb([{"kind": "work", "unique_key": "m", "on_conflict": "replace"}])]),
    ("SELECT samecommit.emit('lead.created', '{}')", []),
    ("SELECT samecommit.create_queue('mail')", []),
    ("SELECT samecommit.hold(1, 'look')", []),
    ("SELECT samecommit.release(1)", []),
    ("SELECT samecommit.why(1)", []),
    ("SELECT samecommit.why_queue('default')", []),
    ("SELECT samecommit.state_of(1)", []),
    ("SELECT samecommit.cancel(1)", []),
    ("SELECT samecommit.retry(1)", []),
    ("SELECT samecommit.replay(ARRAY[1, 2]::bigint[])", []),
    ("SELECT samecommit.pause('default', 'why')", []),
    ("SELECT samecommit.resume('default')", []),
    ("SELECT samecommit.make_day('samecommit.body', '2020-01-01')", []),
    ("SELECT count(*) FROM samecommit.jobs", []),
    ("SELECT count(*) FROM samecommit.queues", []),
]


def set_trap(conn: psycopg.Connection[Any]) -> None:
    """Make look-alikes that note who ran them, and put them first in the path."""
    conn.execute("CREATE SCHEMA evil")
    conn.execute("GRANT ALL ON SCHEMA evil TO PUBLIC")
    conn.execute("CREATE TABLE evil.caught (who name, what text)")
    conn.execute("GRANT ALL ON evil.caught TO PUBLIC")
    for signature, returns in FUNCTIONS.items():
        note = f"INSERT INTO evil.caught VALUES (current_user, '{signature}')"
        conn.execute(
            f"CREATE FUNCTION evil.{signature} RETURNS {returns} LANGUAGE plpgsql AS $$ BEGIN {note}; "
            f"{'' if returns == 'void' else 'RETURN NULL;'} END $$".encode()
        )
    for number, (operator, of) in enumerate(OPERATORS):
        note = f"INSERT INTO evil.caught VALUES (current_user, '{operator} of {of}')"
        conn.execute(
            f"CREATE FUNCTION evil.compare{number}({of}, {of}) RETURNS boolean LANGUAGE plpgsql "
            f"AS $$ BEGIN {note}; RETURN true; END $$".encode()
        )
        conn.execute(
            f"CREATE OPERATOR evil.{operator} (LEFTARG = {of}, RIGHTARG = {of}, FUNCTION = evil.compare{number})".encode()
        )
    for table in TABLES:
        conn.execute(f"CREATE TABLE evil.{table} (id int)".encode())
        conn.execute(f"CREATE TEMPORARY TABLE {table} (id int)".encode())
        conn.execute(f"GRANT ALL ON evil.{table}, pg_temp.{table} TO PUBLIC".encode())
    conn.execute("SET search_path = evil, pg_temp, pg_catalog")


@pytest.fixture
def caller(site: Site) -> Any:
    """A user with every role that calls functions, whose path is full of traps."""
    with site.connect() as dba:
        database = dba.info.dbname
        dba.execute(f"GRANT CREATE ON DATABASE {database} TO {site.user('producer')}".encode())
        dba.execute(f'GRANT "{site.prefix}_operator", "{site.prefix}_worker" TO {site.user("producer")}'.encode())
        dba.execute(
            "CREATE FUNCTION samecommit.careless() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS "
            "$$ BEGIN PERFORM clock_timestamp() FROM queue; RETURN 1; END $$"
        )
    with site.connect("producer") as conn:
        conn.execute("SELECT samecommit.enqueue('work')")
        set_trap(conn)
        yield conn


def caught(conn: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    """Return what was run by somebody else than the caller."""
    text = "SELECT DISTINCT who::text, what FROM evil.caught WHERE who::text OPERATOR(pg_catalog.<>) current_user::text"
    return conn.execute(text.encode()).fetchall()


def test_no_object_of_the_caller_runs_as_the_owner(caller: psycopg.Connection[Any]) -> None:
    for text, values in CALLS:
        caller.execute(text.encode(), values)
    assert caught(caller) == []
    for table in TABLES:
        for place in ("evil", "pg_temp"):
            assert caller.execute(f"SELECT pg_catalog.count(*) FROM {place}.{table}".encode()).fetchone() == (0,)


def test_the_trap_catches_a_careless_function(caller: psycopg.Connection[Any]) -> None:
    caller.execute("INSERT INTO pg_temp.queue VALUES (1)")
    caller.execute("INSERT INTO evil.queue VALUES (1)")
    caller.execute("SELECT samecommit.careless()")
    assert [what for _, what in caught(caller)] == ["clock_timestamp()"]


def test_whatever_a_definers_rights_reach_has_its_names_bound(site: Site) -> None:
    with site.connect() as conn:
        loose = conn.execute(
            "SELECT p.proname FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang "
            "WHERE p.pronamespace = 'samecommit'::regnamespace AND p.prosqlbody IS NULL "
            "AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)"
        ).fetchall()
    assert loose == []
