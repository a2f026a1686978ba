"""What every command takes: how to talk, and which database and schema to talk about."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
from rich.console import Console, RenderableType

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a command talks: to people, or to programs with ``--json``."""

    json: bool = False
    debug: bool = False

    def say(self, data: Any, *lines: RenderableType, **more: Any) -> None:
        """Print a result: ``data`` as the machine's form, or the lines as people's.

        The machine's form is one object in one line, ``{"ok": true, "data": …}``, with ``more`` beside the data.
        """
        if self.json:
            sys.stdout.write(json.dumps({"ok": True, "data": data, **more}, default=str, ensure_ascii=False) + "\n")
            return
        console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False, markup=False, emoji=False)
        for line in lines:
            console.print(line)


def common(command: Callable[Concatenate[Manner, P], R]) -> Callable[P, R]:
    """Give a command ``--json`` and ``--debug``, and its function the `Manner`."""

    @click.option("--json", "as_json", is_flag=True, expose_value=False, help="Print JSON for programs, one object.")
    @click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        manner = click.get_current_context().obj
        return command(manner if isinstance(manner, Manner) else Manner(), *args, **kwargs)

    return wrapped


def database(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command ``--dsn`` and ``--schema``."""
    with_schema = click.option(
        "--schema", default="samecommit", show_default=True, metavar="NAME", help="The schema it is installed in."
    )
    return dsn_option(with_schema(command))


def dsn_option(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command ``--dsn``, whose value is checked."""
    return click.option(
        "--dsn",
        metavar="DSN",
        callback=lambda _ctx, _param, value: value if value is None else check_dsn(value, "--dsn"),
        help="The database, as a URI or key=value pairs; else SAMECOMMIT_DSN, else what PGHOST and the other PG* say.",
    )(command)


def resolve_dsn(dsn: str | None) -> str:
    """Return the database to use; the empty string leaves it to libpq and the PG* variables."""
    return dsn if dsn is not None else check_dsn(os.environ.get("SAMECOMMIT_DSN", ""), "SAMECOMMIT_DSN")


def check_dsn(dsn: str, source: str) -> str:
    """Return a connection string that libpq can parse. The refusal does not repeat it: it may hold a password.

    Raises:
        click.UsageError: it cannot be parsed.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(dsn)
    except ProgrammingError:
        message = f"{source} is no connection string: give postgresql://user@host:5432/database or host=… dbname=…"
        raise click.UsageError(message) from None
    return dsn


def describe_dsn(dsn: str) -> str:
    """Name a database without its user or password, as in ``orders on db.example:5432``."""
    from psycopg.conninfo import conninfo_to_dict

    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    database_name = parts.get("dbname") or os.environ.get("PGDATABASE") or parts.get("user") or "the default database"
    host = parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = parts.get("port") or os.environ.get("PGPORT") or "5432"
    return f"{database_name} on {host}" if host.startswith("/") else f"{database_name} on {host}:{port}"
