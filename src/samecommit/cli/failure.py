"""How a command ends when it cannot do what it was asked: one line that names the thing and the way out."""

from __future__ import annotations

import json
import re
import sys
import traceback
from enum import IntEnum

import click

from samecommit.cli.options import Manner
from samecommit.errors import (
    AppNotFound,
    ConfigError,
    PayloadError,
    SamecommitError,
    SchemaError,
    TaskDefinitionError,
    UnknownDestination,
    UnknownJob,
    UnknownQueue,
)

_CHATTER = re.compile(r"^connection (?:failed|is bad): |\s*Is the server running .*?\?", re.DOTALL)


class Exit(IntEnum):
    """The exit statuses of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130


class Refused(SamecommitError):
    """The command was understood and the database says no: not found, or not in that state."""


_STATUSES: tuple[tuple[type[SamecommitError], Exit], ...] = (
    (ConfigError, Exit.USAGE),
    (AppNotFound, Exit.USAGE),
    (TaskDefinitionError, Exit.USAGE),
    (PayloadError, Exit.USAGE),
    (UnknownJob, Exit.REFUSED),
    (UnknownQueue, Exit.REFUSED),
    (UnknownDestination, Exit.REFUSED),
    (Refused, Exit.REFUSED),
    (SchemaError, Exit.UNAVAILABLE),
)
_SECRET = re.compile(r"(://[^\s:/@]*:)[^\s@]+(@)|(password\s*=\s*)('[^']*'|\S+)", re.IGNORECASE)


def tell(error: BaseException, manner: Manner) -> int:
    """Print an error and return the exit status that goes with it."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if manner.debug:
        traceback.print_exception(error)
    kind, message, status = explain(error)
    if manner.json:
        answer = {"ok": False, "error": {"type": kind, "message": message}, "exit": int(status)}
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"samecommit: {message}\n")
    return status


def explain(error: BaseException) -> tuple[str, str, Exit]:
    """Return an error's kind, its one line and its exit status."""
    kind = type(error).__name__
    match error:
        case KeyboardInterrupt() | click.Abort():
            return "Interrupted", "interrupted", Exit.INTERRUPTED
        case click.UsageError():
            return kind, _usage(error), Exit.USAGE
        case click.ClickException():
            return kind, error.format_message(), Exit.FAILED
        case SamecommitError():
            status = next((status for known, status in _STATUSES if isinstance(error, known)), Exit.FAILED)
            return kind, one_line(error), status
        case OSError() if error.filename is not None:
            return kind, f"{error.filename!r}: {error.strerror}", Exit.FAILED
        case _ if _is_database_error(error):
            return kind, *_database(error)
        case _:
            hint = "this is a fault in samecommit or in your code; --debug shows where"
            return kind, f"{kind}: {one_line(error)}; {hint}", Exit.FAILED


def one_line(error: BaseException) -> str:
    """Return an error's message in one line, without a password that a driver may have put there."""
    return mask(" ".join(_CHATTER.sub("", str(error)).split()))


def mask(text: str) -> str:
    """Hide what stands where a password stands in a connection string."""
    return _SECRET.sub(r"\1\3***\2", text)


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:] if not message[:2].isupper() else message
    where = error.ctx.command_path if error.ctx else "samecommit"
    return f"{message} (see {where} --help)"


def _is_database_error(error: BaseException) -> bool:
    root = type(error).__module__.partition(".")[0]
    return root == "psycopg" or type(error).__name__ in ("LinkDown", "LinkBusy")


def _database(error: BaseException) -> tuple[str, Exit]:
    state = getattr(error, "sqlstate", None)
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    said = one_line(error) if primary is None else mask(primary)
    if state is None and type(error).__name__ == "DataError":
        return f"the database's answer cannot be read: {said}; --debug shows where", Exit.FAILED
    if state is None or state[:2] in ("08", "28", "3D", "53", "57"):
        way_out = "check --dsn, SAMECOMMIT_DSN or the PG* variables, and that the server runs"
        return f"no connection to the database: {said}; {way_out}", Exit.UNAVAILABLE
    if state == "42501":
        return (
            f"{said}: this user may not do that; connect as another, or grant it one of the roles of samecommit migrate --roles",
            Exit.REFUSED,
        )
    if state in ("42P01", "3F000", "42883"):
        return f"{said}: the schema does not fit this version; run samecommit migrate", Exit.UNAVAILABLE
    return f"the database refused: {said}", Exit.FAILED
