"""What every command takes: how to talk, and which database and schema to talk about."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from samecommit.app import App
    from samecommit.storage.operate import Operator

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a command talks: to people, or to programs with ``--json``."""

    json: bool = False
    debug: bool = False
    arguments: tuple[str, ...] = ()

    def say(self, data: Any, *lines: RenderableType, **more: Any) -> None:
        """Print a result: ``data`` as the machine's form, or the lines as people's.

        The machine's form is one object in one line, ``{"ok": true, "data": …}``, with ``more`` beside the data.
        """
        if self.json:
            sys.stdout.write(json.dumps({"ok": True, "data": data, **more}, default=_plain, ensure_ascii=False) + "\n")
            return
        # what is piped has no width: a table must not be cut for a terminal that is not there
        width = None if sys.stdout.isatty() else 240
        console = Console(width=width, highlight=False, markup=False, emoji=False)
        for line in lines:
            is_text = isinstance(line, str)
            if not is_text:  # squeezed columns would hide what they say: let the terminal wrap what is too wide for it
                needed = console.measure(line, options=console.options.update(max_width=10_000))
                console.width = max(console.width, min(needed.minimum + 16, needed.maximum))
            console.print(line, soft_wrap=is_text)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--json`` and ``--debug``, and its function the `Manner` as first argument."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        manner = click.get_current_context().obj
        return command(manner if isinstance(manner, Manner) else Manner(), *args, **kwargs)

    for flag, text in (("--debug", "Show the traceback of an error."), ("--json", "Print JSON for programs.")):
        wrapped = click.option(flag, is_flag=True, expose_value=False, help=text)(wrapped)
    return wrapped


def database(command: Command) -> Command:
    """Give a command ``--dsn`` and ``--schema``; a group's are those of its commands, unless they have their own."""
    return dsn_option(
        click.option(
            "--schema",
            default=None,
            metavar="NAME",
            callback=_chosen_schema,
            help="The schema it is installed in; else SAMECOMMIT_SCHEMA, else samecommit.",
        )(command)
    )


def dsn_option(command: Command) -> Command:
    """Give a command ``--dsn``, whose value is checked."""
    return click.option(
        "--dsn",
        metavar="DSN",
        callback=checked_dsn,
        help="The database, as a URI or key=value pairs; else SAMECOMMIT_DSN, else what the PG* variables say.",
    )(command)


def _chosen_schema(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    from samecommit.storage.query import check_schema

    chosen = _own_or_groups(ctx, "schema", value)
    return check_schema(_usual_schema() if chosen is None else chosen)


def _usual_schema() -> str:
    return os.environ.get("SAMECOMMIT_SCHEMA") or "samecommit"


def checked_dsn(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Return the command's or its group's DSN, checked: the callback of an option."""
    value = _own_or_groups(ctx, "dsn", value)
    return value if value is None else check_dsn(value, "--dsn")


def _own_or_groups(ctx: click.Context, name: str, value: str | None) -> str | None:
    return value if value is not None or ctx.parent is None else ctx.parent.params.get(name)


def operator(dsn: str | None, schema: str) -> Operator:
    """Connect as an operator.

    Raises:
        SchemaError: the schema is missing or does not fit this version.
    """
    from samecommit.storage.operate import Operator

    return Operator.connect(resolve_dsn(dsn), schema)


def resolve_dsn(dsn: str | None) -> str:
    """Return the database to use; the empty string leaves it to libpq and the PG* variables."""
    return dsn if dsn is not None else check_dsn(os.environ.get("SAMECOMMIT_DSN", ""), "SAMECOMMIT_DSN")


def of_app(app: App, dsn: str | None, schema: str) -> tuple[str, str]:
    """Return the database and the schema of an application; ``--dsn`` goes over its own.

    Raises:
        click.UsageError: ``--schema`` names another one, or its DSN cannot be parsed.
    """
    if schema not in (_usual_schema(), app.schema):
        raise click.UsageError(f"--schema {schema!r} is not that of the application, {app.schema!r}: leave it out")
    return dsn if dsn is not None else check_dsn(app.dsn, "the application's DSN"), app.schema


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
