"""Statements from ``.sql`` files: the schema's name is put in, ``:name`` becomes the driver's placeholder.

A statement is named by its path (``job/finish``), which is also its log label. Files are written for psql: ``:"schema".``
is the quoted schema, ``:'schema'`` its name as a literal, ``:'schema.job'`` a table's qualified name as a literal
(for ``regclass``), and ``:limit::int`` a parameter, always cast. Nothing else is ever put into the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, LiteralString, cast

from samecommit.errors import ConfigError

_FOLDER = Path(__file__).with_name("sql")  # importlib.resources would cost every import 10 ms
_PARAMETER = re.compile(r"(?<![:\w])::?([a-z_][a-z0-9_]*)\b(?!\")|--[^\n]*|'[^']*'")
_MAX_NAME_BYTES = 63


def quote_name(name: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a text for SQL; a backslash makes it an escape string, so that no server setting changes its meaning."""
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def check_schema(name: str) -> str:
    """Return the schema's name, or refuse one that PostgreSQL would cut or cannot hold.

    Raises:
        ConfigError: empty, longer than 63 bytes, or with a NUL.
    """
    if not name or "\0" in name or len(name.encode()) > _MAX_NAME_BYTES or name.startswith("pg_"):
        msg = f"schema {name!r} cannot be used: give 1 to {_MAX_NAME_BYTES} bytes without NUL, not beginning with pg_"
        raise ConfigError(msg)
    return name


def render(text: str, schema: str) -> str:
    """Put the schema's name into a file's text, quoted as its place asks for."""
    home = quote_name(schema)
    text = text.replace(':"schema"', home).replace(":'schema'", quote_literal(schema))
    return re.sub(r":'schema\.([a-z_]+)'", lambda m: quote_literal(f"{home}.{m[1]}"), text)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement for one schema: its label, its text with ``$1`` placeholders, and the parameters in that order."""

    label: str
    text: LiteralString
    parameters: tuple[str, ...]
    unrendered: str
    schema: str

    def bind(self, values: dict[str, Any]) -> tuple[Any, ...]:
        """Return the values in the statement's order."""
        return tuple([values[name] for name in self.parameters])

    def spelled(self, placeholder: Callable[[str], str], escape: Callable[[str], str]) -> tuple[str, tuple[str, ...]]:
        """Return the text as a driver wants it, and the parameters in order of use.

        Args:
            placeholder: how a use of the parameter of that name is written.
            escape: how everything else is written.
        """
        pieces = re.split(r"\$(\d+)", self.unrendered)
        used = tuple(self.parameters[int(number) - 1] for number in pieces[1::2])
        pieces[::2] = [escape(render(piece, self.schema)) for piece in pieces[::2]]
        pieces[1::2] = [placeholder(name) for name in used]
        return "".join(pieces), used

    def with_placeholder(self, placeholder: str = "%s") -> tuple[str, tuple[str, ...]]:
        """Return the text for drivers that write ``%s`` for each use, and the parameters in order of use."""
        return self.spelled(lambda _: placeholder, lambda text: text.replace("%", "%%"))


@cache
def with_percents(query: Statement) -> tuple[str, tuple[str, ...]]:
    """Return a statement with ``%s`` for each use of a parameter, and those; as it is when it has none."""
    return query.with_placeholder() if query.parameters else (query.text, ())


def parse(label: str, text: str, schema: str) -> Statement:
    """Turn ``:name`` into ``$n``, one number per name; comments are dropped, casts and string literals are left alone."""
    names: list[str] = []

    def replace(match: re.Match[str]) -> str:
        whole, name = match[0], match[1]
        if whole.startswith("--"):
            return ""
        if name is None or whole.startswith("::"):
            return whole
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    parsed = _PARAMETER.sub(replace, text).strip()
    # literal as far as drivers care: files of this package and a quoted name, never a value
    return Statement(label, cast("LiteralString", render(parsed, schema)), tuple(names), parsed, schema)  # type: ignore[redundant-cast]


@cache
def statement(label: str, schema: str, given: frozenset[str] | None = None) -> Statement:
    """Read and parse the statement of that path (``claim/claim``).

    Args:
        label: the path.
        schema: the installation's.
        given: leaves out the lines that use any other parameter: one that is not sent costs neither driver nor server.
    """
    text = (_FOLDER / f"{label}.sql").read_text(encoding="utf-8")
    if given is not None:
        text = "\n".join(line for line in text.splitlines() if given.issuperset(_names_in(line)))
    return parse(label, text, schema)


def _names_in(line: str) -> list[str]:
    found = _PARAMETER.finditer(line)
    return [match[1] for match in found if match[1] is not None and not match[0].startswith("::")]


def with_names(label: str, schema: str, **names: str) -> LiteralString:
    """Return a statement without parameters whose ``:"parent"``-like places are filled with quoted identifiers."""
    text = parse(label, (_FOLDER / f"{label}.sql").read_text(encoding="utf-8"), schema).unrendered
    for place, name in names.items():
        text = text.replace(f':"{place}"', quote_name(name))
    return cast("LiteralString", render(text, schema))  # type: ignore[redundant-cast]


def migration_files() -> list[tuple[int, str, str]]:
    """Return (version, name, unrendered text) of every migration, in order."""
    found = [f for f in (_FOLDER / "migrations").iterdir() if f.name.endswith(".sql")]
    return sorted((int(f.name[:4]), f.name[:-4], f.read_text(encoding="utf-8")) for f in found)
