"""Installs and upgrades the schema: numbered SQL files, each once, each in its own transaction, one migrator at a time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, TypeAlias

import psycopg

from samecommit.errors import ConfigError, SchemaMissing, SchemaTooNew, SchemaTooOld
from samecommit.storage.link import AsyncLink
from samecommit.storage.query import check_schema, migration_files, quote_literal, quote_name, render, statement
from samecommit.storage.roles import keep_roles
from samecommit.storage.session import as_writer

Connection: TypeAlias = psycopg.Connection[Any]
_LOCK_SECONDS, _PATIENCE_SECONDS = 0.5, 60.0
_OPTIONS = "-c search_path=pg_catalog -c lock_timeout=60s -c client_min_messages=warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step: its number, its name and its SQL for one schema."""

    version: int
    name: str
    text: str


def migrations(schema: str) -> list[Migration]:
    """Return every migration that this code knows, oldest first, rendered for the schema."""
    check_schema(schema)
    return [Migration(version=v, name=n, text=render(t, schema)) for v, n, t in migration_files()]


def script(schema: str) -> str:
    """Return what `migrate` runs where nothing is installed, as a psql script for whoever administers the server."""
    steps = [_as_script(schema, step) for step in migrations(schema)]
    make = statement("migrate/make_schema", schema).text.replace("CREATE SCHEMA", "CREATE SCHEMA IF NOT EXISTS")
    table = statement("migrate/make_table", schema).text
    return "\n".join(["BEGIN;", "SET LOCAL search_path = pg_catalog;", f"{make};", f"{table};", *steps, "COMMIT;"])


def _as_script(schema: str, step: Migration) -> str:
    note = statement("migrate/note", schema).text
    for placeholder, value in (("$1", str(step.version)), ("$2", quote_literal(step.name))):
        note = note.replace(placeholder, value)
    closed = statement("migrate/close_functions", schema).text
    return f"-- migration {step.name}\n{step.text.rstrip()}\n{closed};\n{note};"


def newest_version() -> int:
    """Return the schema version that this code needs."""
    return migration_files()[-1][0]


def installed_version(conn: Connection, schema: str) -> int:
    """Return the newest migration applied in that schema, 0 when nothing is installed."""
    return int(_ask(conn, schema, "migrate/installed")) if _ask(conn, schema, "migrate/table_exists") else 0


def check_version(conn: Connection, schema: str) -> None:
    """Refuse a schema that is missing, older than this code needs or newer than it knows.

    Raises:
        SchemaMissing, SchemaTooOld, SchemaTooNew: each says what to run.
    """
    _check(installed_version(conn, schema), schema, conn.info.dbname)


async def check_version_on(link: AsyncLink) -> None:
    """Do as `check_version`, for a worker.

    Raises:
        SchemaMissing, SchemaTooOld, SchemaTooNew: each says what to run.
        LinkDown: the database cannot be reached.
    """
    is_there = (await link.fetch("migrate/table_exists"))[0][0]
    installed = (await link.fetch("migrate/installed"))[0][0] if is_there else 0
    _check(installed, link.schema, (await link.connection()).info.dbname)


def _check(installed: int, schema: str, database: str) -> None:
    needed = newest_version()
    _refuse_newer(installed, schema)
    if installed == 0:
        msg = (
            f"nothing is installed in schema {schema!r} of database {database!r}: run samecommit migrate, or name the "
            "schema that it is in"
        )
        raise SchemaMissing(msg)
    if installed < needed:
        msg = f"schema {schema!r} has version {installed} and this code needs {needed}: run samecommit migrate"
        raise SchemaTooOld(msg)


def pending(conn: Connection, schema: str) -> list[Migration]:
    """Return the migrations that are still to be applied.

    Raises:
        SchemaTooNew: the schema was made by a newer version.
    """
    installed = installed_version(conn, schema)
    _refuse_newer(installed, schema)
    return [m for m in migrations(schema) if m.version > installed]


def migrate(dsn: str, schema: str) -> list[Migration]:
    """Apply what is pending and return it; safe to repeat and to run from several processes at once.

    Raises:
        SchemaTooNew: the schema was made by a newer version.
        ConfigError: the server is a standby, or sessions in the database are read-only unless they ask otherwise.
    """
    check_schema(schema)
    try:
        return _migrate(dsn, schema)
    except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction) as error:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or "read-only" in str(error):
            _refuse_read_only(dsn, schema, error)
        raise


def _migrate(dsn: str, schema: str) -> list[Migration]:
    name = "samecommit migrate"
    with psycopg.connect(dsn, autocommit=True, application_name=name, options=_OPTIONS, **as_writer(dsn)) as conn:
        _ask(conn, schema, "migrate/lock")
        if not _ask(conn, schema, "migrate/schema_exists"):
            _run(conn, schema, "migrate/make_schema")
        _run(conn, schema, "migrate/make_table")
        _follow_rename(conn, schema)
        steps = pending(conn, schema)
        for step in steps:
            _apply(conn, schema, step)
        return steps


def _refuse_read_only(dsn: str, schema: str, cause: psycopg.Error) -> None:
    """Say why the database takes no writes: libpq tells a standby and a default apart as little as the server's refusal does."""
    with psycopg.connect(dsn, autocommit=True, target_session_attrs="any", connect_timeout=10) as conn:
        is_standby, is_default = _run(conn, schema, "migrate/read_only").fetchone() or (False, False)
        database, user = conn.info.dbname, conn.info.user
    if is_standby:
        msg = f"database {database!r} is on a standby, which takes no writes: give the primary's address"
        raise ConfigError(msg) from cause
    if is_default:
        msg = (
            f"sessions of {user!r} in database {database!r} begin read-only (default_transaction_read_only = on): migrate as a role "
            "for which that is off (ALTER ROLE ... SET), or take it back where it was set (ALTER DATABASE ... RESET)"
        )
        raise ConfigError(msg) from cause


def _follow_rename(conn: Connection, schema: str) -> None:
    """Make the functions anew whose text still has the name from before an ``ALTER SCHEMA ... RENAME``."""
    if installed_version(conn, schema) == 0 or (known := _ask(conn, schema, "migrate/named")) in (schema, None):
        return
    before, after = (f"{quote_name(name)}." for name in (known, schema))
    with conn.transaction():
        for (definition,) in _run(conn, schema, "migrate/bodies").fetchall():
            conn.execute(definition.replace(before, after).encode())
        _run(conn, schema, "migrate/name")


def _apply(conn: Connection, schema: str, step: Migration) -> None:
    """Apply one step; where it has to wait for a lock it steps back, since everything that comes after it waits behind it."""
    until = monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return _try(conn, schema, step)
        except psycopg.errors.LockNotAvailable:
            if monotonic() > until:
                raise
        sleep(random.uniform(1.0, 2.0))


def _try(conn: Connection, schema: str, step: Migration) -> None:
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
        conn.execute(step.text.encode())
        _run(conn, schema, "migrate/close_functions")
        keep_roles(conn, schema)  # with the step: what it has changed may call what it has added, as the owner
        _run(conn, schema, "migrate/note", version=step.version, name=step.name)


def _refuse_newer(installed: int, schema: str) -> None:
    if installed > (known := newest_version()):
        msg = (
            f"schema {schema!r} has version {installed} and this code knows versions up to {known}: "
            "upgrade the samecommit package on this machine"
        )
        raise SchemaTooNew(msg)


def _run(conn: Connection, schema: str, label: str, **values: Any) -> psycopg.RawCursor[Any]:
    wanted = statement(label, schema)
    return psycopg.RawCursor(conn).execute(wanted.text, wanted.bind(values))


def _ask(conn: Connection, schema: str, label: str) -> Any:
    row = _run(conn, schema, label).fetchone()
    return row[0] if row else None
