"""One plain connection of somebody who asks and decides: each statement in a transaction of its own, rows as dictionaries."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Self, TypeAlias

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from samecommit.errors import ConfigError, UnknownDestination, UnknownJob, UnknownQueue
from samecommit.storage.migrate import check_version
from samecommit.storage.moments import register
from samecommit.storage.query import statement

Row: TypeAlias = dict[str, Any]


class Asker:
    """Runs statements by their label.

    Args:
        conn: in autocommit mode; each statement gets a transaction of its own, whose settings end with it.
        schema: the installation.
    """

    def __init__(self, conn: psycopg.Connection[Any], schema: str) -> None:
        self._conn, self._schema = conn, schema

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._schema!r} on {self._conn!r}>"

    @classmethod
    def connect(cls, dsn: str, schema: str) -> Self:
        """Connect; use it in a ``with`` statement.

        Raises:
            SchemaError: the schema is missing or does not fit this code.
            psycopg.OperationalError: the database cannot be reached.
        """
        conn = psycopg.connect(
            dsn, autocommit=True, application_name="samecommit operator", connect_timeout=10, client_encoding="UTF8"
        )
        try:
            register(conn.adapters)
            set_json_loads(partial(json.loads, parse_int=_whole), conn)
            conn.prepare_threshold = None  # a transaction pooler gives every statement another session
            check_version(conn, schema)
        except BaseException:
            conn.close()
            raise
        return cls(conn, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def ask(self, label: str, **values: Any) -> list[Row]:
        """Run the statement of that label and return its rows."""
        query, session = statement(label, self._schema), statement("operate/session", self._schema)
        try:
            with self._conn.transaction():
                self._conn.execute(session.text.encode())
                cursor = psycopg.RawCursor(self._conn, row_factory=dict_row).execute(query.text, query.bind(values))
                return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise _translated(error) from error


def _whole(digits: str) -> int | str:
    """Read a number as far as Python does by itself; a longer one, which only SQL can store, is shown as it is."""
    try:
        return int(digits)
    except ValueError:
        return digits


def _translated(error: psycopg.Error) -> Exception:
    """Return our own error for what the contract refuses, else the driver's."""
    text = "; ".join(part for part in (error.diag.message_primary, error.diag.message_hint) if part)
    match error.sqlstate:
        case "SC001":
            return UnknownQueue(text)
        case "SC002":
            return UnknownJob(text)
        case "SC004":
            return ConfigError(text)
        case "SC006":
            return UnknownDestination(text)
        case _:
            return error
