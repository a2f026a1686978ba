"""Roles: who may do what in one installation, as one table, and the SQL that makes it so.

Six roles that nobody logs in as; an application's users are granted one (``GRANT samecommit_producer TO app``)::

    owner        owns the schema; migrates
    maintainer   owns the tables that are partitioned by day; makes and drops days
    producer     enqueues and emits through the contract's functions; sees no table
    worker       claims, finishes, does chores, relays; becomes the maintainer for days (SET ROLE)
    operator     retries, cancels, holds, pauses and asks why; reads
    viewer       reads the views

What is not in `ACCESS` belongs to the owner alone, and a test fails until it is put there. A role's names begin with a
prefix, the schema's name unless told otherwise, since roles belong to the whole server.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from time import monotonic, sleep
from typing import Any, Literal, TypeAlias, get_args

import psycopg

from samecommit.errors import ConfigError
from samecommit.storage.link import AsyncLink
from samecommit.storage.query import check_schema, quote_literal, quote_name, render, statement

Role = Literal["owner", "maintainer", "producer", "worker", "operator", "viewer"]
Connection: TypeAlias = psycopg.Connection[Any]
Grants: TypeAlias = Mapping[str, Mapping[Role, str]]
ROLES: tuple[Role, ...] = get_args(Role)
_FOLDER = files("samecommit.storage") / "sql"
_MAX_NAME_BYTES = 63
_LOCK_TIMEOUT, _PATIENCE_SECONDS = "500ms", 60.0
_OPTIONS = "-c search_path=pg_catalog -c lock_timeout=10s -c client_min_messages=warning"

_READ, _WRITE, _RUN = "SELECT", "SELECT, INSERT, UPDATE, DELETE", "EXECUTE"
_FOR_PRODUCERS: Mapping[Role, str] = {"producer": _RUN, "worker": _RUN}
_FOR_WORKERS: Mapping[Role, str] = {"worker": _RUN}
_FOR_OPERATORS: Mapping[Role, str] = {"operator": _RUN}
_FOR_EVERYBODY: Mapping[Role, str] = {role: _RUN for role in ROLES if role != "owner"}
_INTERNAL: Mapping[Role, str] = {}

FUNCTIONS: Grants = {
    "contract_version": _FOR_EVERYBODY,
    "enqueue": _FOR_PRODUCERS,
    "enqueue_many": _FOR_PRODUCERS,
    "emit": _FOR_PRODUCERS,
    "emit_bytes": _FOR_PRODUCERS,
    "store_event": _FOR_PRODUCERS,
    "inbox_once": _FOR_PRODUCERS,
    "inbox_latest": _FOR_PRODUCERS,
    "empty_inbox": _FOR_WORKERS,
    "create_queue": {"worker": _RUN, "operator": _RUN},
    "retry": _FOR_OPERATORS,
    "cancel": _FOR_OPERATORS,
    "hold": _FOR_OPERATORS,
    "release": _FOR_OPERATORS,
    "replay": _FOR_OPERATORS,
    "pause": _FOR_OPERATORS,
    "resume": _FOR_OPERATORS,
    "state_of": _FOR_OPERATORS,
    "why": _FOR_OPERATORS,
    "why_queue": _FOR_OPERATORS,
    "away": {"worker": _RUN, "operator": _RUN, "viewer": _RUN},
    "adopt": _FOR_OPERATORS,
    "horizon_holders": {"operator": _RUN, "viewer": _RUN},
    "resolve": _FOR_OPERATORS,
    "pause_destination": _FOR_OPERATORS,
    "resume_destination": _FOR_OPERATORS,
    "add_destination": {"worker": _RUN, "operator": _RUN},
    "remove_destination": _FOR_OPERATORS,
    **dict.fromkeys(("add_endpoint", "rotate_endpoint", "enable_endpoint", "remove_endpoint"), _FOR_OPERATORS),
    "disable_endpoint": {"worker": _RUN, "operator": _RUN},
    "usable_secret": _INTERNAL,
    "replay_events": {"worker": _RUN, "operator": _RUN},
    "cancel_replay": _FOR_OPERATORS,
    "replay_numbers": {"worker": _RUN, "operator": _RUN},
    "why_destination": _FOR_OPERATORS,
    "why_event": _FOR_OPERATORS,
    "log_begin": _FOR_OPERATORS,
    "log_ends": _FOR_OPERATORS,
    "find_events": _FOR_OPERATORS,
    "ring": _FOR_WORKERS,
    "take_bell": _FOR_WORKERS,
    "make_day": {"maintainer": _RUN, "worker": _RUN},
    "give_back_key": _FOR_WORKERS,
    "make_window": _FOR_WORKERS,
    "events_between": _FOR_WORKERS,
    "rebase_outbox": _FOR_WORKERS,
    **dict.fromkeys(
        (
            "refuse",
            "can_be_extensions",
            "refuse_event",
            "only_json",
            "here",
            "stored_key",
            "take_key",
            "take_keys",
            "acquire_keys",
            "too_late_for_key",
            "retake_key",
            "replace_waiting",
            "place_keyed",
            "check_jobs",
            "check_numbers",
            "check_name",
            "is_name",
            "enqueue_each",
            "said",
            "said_span",
            "said_error",
            "why_line",
            "why_waiting",
            "why_running",
            "why_over",
            "type_matches",
        ),
        _INTERNAL,
    ),
}

VIEWS: Grants = {
    **{name: {"worker": _READ, "operator": _READ, "viewer": _READ} for name in ("jobs", "destinations", "replays")},
    **{
        name: {"operator": _READ, "viewer": _READ}
        for name in ("running", "attempts", "failure_groups", "queues", "endpoints")
    },
}

_WORKED_ON = (
    "attempt",
    "body",
    "unique_key",
    "cancellation",
    "cooldown",
    "death",
    "chore",
    "event",
    "event_window",
    "delivery_turn",
)
_LOOKED_AT = (
    "job_history", "claim", "worker", "destination", "position", "parked", "delivery", "event_replay", "replay_position",
)  # fmt: skip
TABLES: Grants = {
    "job": {"maintainer": _READ, "worker": _WRITE, "operator": _READ},
    **{name: {"worker": _WRITE, "operator": _READ} for name in _LOOKED_AT},
    **{name: {"worker": _WRITE} for name in _WORKED_ON},
    "queue": {"worker": _READ, "operator": _READ},
    "endpoint": {"worker": _READ},
    **dict.fromkeys(("inbox_a", "inbox_b", "inbox_newest"), _INTERNAL),
    "setting": {"worker": _READ},
    "migration": {"worker": _READ, "operator": _READ, "viewer": _READ},
}

SEQUENCES: Grants = {
    **{name: {"worker": "USAGE, SELECT"} for name in ("pos_seq", "job_id_seq", "event_seq")},
    **dict.fromkeys(("queue_id_seq", "event_replay_id_seq"), _INTERNAL),
}

ACCESS: Mapping[str, Grants] = {"function": FUNCTIONS, "view": VIEWS, "table": TABLES, "sequence": SEQUENCES}


def role_names(prefix: str) -> dict[Role, str]:
    """Return the names of an installation's roles.

    Raises:
        ConfigError: they would be too long for PostgreSQL, or of those that it reserves.
    """
    names: dict[Role, str] = {role: f"{prefix}_{role}" for role in ROLES}
    longest = max(len(name.encode()) for name in names.values())
    if not prefix or "\0" in prefix or prefix.startswith("pg_") or longest > _MAX_NAME_BYTES:
        most = _MAX_NAME_BYTES - len("_maintainer")
        msg = f"prefix {prefix!r} cannot be used for roles: give 1 to {most} bytes without NUL, not beginning with pg_"
        raise ConfigError(msg)
    return names


def make_roles(dsn: str, schema: str, prefix: str | None = None) -> dict[Role, str]:
    """Make the roles, hand them what they own and grant what `ACCESS` says, in one transaction. Safe to repeat.

    Connect as whoever owns the installation now and may make roles (CREATEROLE). A later migration gives the roles what is
    new by itself.

    Raises:
        ConfigError: this user may not do it (says what it lacks), or the prefix cannot be used.
    """
    prefix = check_schema(schema) if prefix is None else prefix
    names = role_names(prefix)
    with psycopg.connect(dsn, autocommit=True, application_name="samecommit roles", options=_OPTIONS) as conn:
        try:
            _apply_in_turn(conn, schema, prefix)
        except psycopg.errors.InsufficientPrivilege as error:
            reason = str(error).splitlines()[0]
            msg = (
                f"user {conn.info.user!r} may not make the roles of schema {schema!r} ({reason}): connect as a user that "
                "owns the schema and has CREATEROLE, or give what `samecommit migrate --roles --sql` prints to one"
            )
            raise ConfigError(msg) from error
    return names


def _apply_in_turn(conn: Connection, schema: str, prefix: str) -> None:
    """Apply; where it has to wait for a lock it steps back: claims would wait behind it, and for what it has locked."""
    until = monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with conn.transaction():
                conn.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'".encode())
                _apply(conn, schema, prefix)
                return
        except psycopg.errors.LockNotAvailable:
            if monotonic() > until:
                raise
        sleep(random.uniform(1.0, 2.0))


def keep_roles(conn: Connection, schema: str) -> None:
    """Give the roles what a migration has added, if there are roles."""
    row = _fetch(conn, schema, "roles/noted").fetchone()
    if row is not None:
        _apply(conn, schema, row[0])


def roles_script(schema: str, prefix: str | None = None) -> str:
    """Return what `make_roles` runs as a psql script, for whoever administers the server; needs no database."""
    prefix = check_schema(schema) if prefix is None else prefix
    names = role_names(prefix)
    grants = _grants(schema, names, [(kind, name) for kind, declared in ACCESS.items() for name in declared])
    note = statement("roles/note", schema).text.replace("$1", quote_literal(prefix))
    begin = ["BEGIN;", f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}';"]
    return "\n".join([*begin, *(f"{text.rstrip()};" for text in (*_scripts(schema, names), *grants, note)), "COMMIT;"])


@asynccontextmanager
async def as_keeper(link: AsyncLink) -> AsyncGenerator[None, None]:
    """Be the role that owns the days for a while, where that is another one: only an owner may detach and drop.

    Raises:
        ConfigError: this user may not become it.
    """
    keeper, may_become = (await link.fetch("roles/keeper"))[0]
    if keeper is None:
        yield
        return
    if not may_become:
        msg = f"the days belong to role {keeper!r}, which this user may not become: grant it the worker role"
        raise ConfigError(msg)
    if link.is_pooled:  # a role of the session would be everybody's
        link.keeper = keeper
    else:
        await link.define("roles/become", keeper=keeper)
    try:
        yield
    finally:
        if link.is_pooled:
            link.keeper = None
        elif link.is_open:  # a connection that was lost took the role with it
            await link.define("roles/step_back")


def _apply(conn: Connection, schema: str, prefix: str) -> None:
    names = role_names(prefix)
    for text in _scripts(schema, names):
        conn.execute(text.encode())
    there = _fetch(conn, schema, "roles/objects").fetchall()
    for text in _grants(schema, names, there):
        conn.execute(text.encode())
    _fetch(conn, schema, "roles/note", prefix=prefix)


def _scripts(schema: str, names: Mapping[Role, str]) -> Iterator[str]:
    for label in ("roles/make", "roles/own"):
        text = render((_FOLDER / f"{label}.sql").read_text(encoding="utf-8"), schema)
        for role, name in names.items():
            text = text.replace(f":'{role}'", quote_literal(name))
        yield text


def _grants(schema: str, names: Mapping[Role, str], there: list[Any]) -> Iterator[str]:
    home = quote_name(schema)
    granted = [quote_name(names[role]) for role in ROLES if role not in ("owner", "maintainer")]
    everybody = ", ".join(granted)
    for kinds in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        yield f"REVOKE ALL ON ALL {kinds} IN SCHEMA {home} FROM PUBLIC, {everybody}"
    yield f"GRANT USAGE ON SCHEMA {home} TO {everybody}"
    for kind, name in there:
        for role, verbs in ACCESS[kind].get(name, _INTERNAL).items():
            what = "TABLE" if kind == "view" else kind.upper()
            yield f"GRANT {verbs} ON {what} {home}.{quote_name(name)} TO {quote_name(names[role])}"


def _fetch(conn: Connection, schema: str, label: str, **values: Any) -> psycopg.RawCursor[Any]:
    query = statement(label, schema)
    return psycopg.RawCursor(conn).execute(query.text, query.bind(values))
