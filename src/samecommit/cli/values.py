"""Values of options that need reading: moments, JSON, job ids."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import click

from samecommit.storage.operate import Until

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})")
_LARGEST_ID = 2**63 - 1


class Moment(click.ParamType[Until]):
    """A span from now (``90s``, ``30min``, ``2h``, ``1d``) or a time (``2030-01-31T09:00``), local unless it has a zone."""

    name = "WHEN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Until:
        """Return the moment."""
        if isinstance(value, Until):
            return value
        if match := _SPAN.fullmatch(str(value).strip()):
            return Until(seconds=float(match[1]) * _UNITS[match[2]])
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is neither a span (90s, 30min, 2h, 1d) nor a time (2030-01-31T09:00)", param, ctx)
        return Until(at=moment if moment.tzinfo is not None else moment.astimezone())


class Json(click.ParamType[str]):
    """A JSON text; ``@file`` reads it from there, ``-`` from standard input. With ``of=dict`` it has to be an object."""

    name = "JSON"

    def __init__(self, of: type = object) -> None:
        self._of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, checked."""
        text = str(value)
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            with click.open_file(text[1:], encoding="utf-8") as file:
                text = file.read()
        try:
            parsed = json.loads(text)
        except ValueError as error:
            self.fail(f"{text[:80]!r} is no JSON: {error}", param, ctx)
        if not isinstance(parsed, self._of):
            self.fail(f"{text[:80]!r} is no JSON object", param, ctx)
        return text


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= _LARGEST_ID


class Id(click.ParamType[int]):
    """One job id."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the id."""
        if not _is_id(text := str(value)):
            self.fail(f"{text[:80]!r} is no job id: give a whole number", param, ctx)
        return int(text)


class Ids(click.ParamType[tuple[int, ...]]):
    """Job ids parted by commas; ``-`` reads them from standard input, parted by commas or blanks."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the ids."""
        if isinstance(value, tuple):
            return cast("tuple[int, ...]", value)
        text = sys.stdin.read() if value == "-" else str(value)
        parts = text.replace(",", " ").split()
        for part in parts:
            if not _is_id(part):
                self.fail(f"{part!r} is no job id: give whole numbers", param, ctx)
        return tuple(int(part) for part in parts)


def flat(groups: Iterable[tuple[int, ...]]) -> list[int]:
    """Return the ids of all groups, each once, in their order."""
    return list(dict.fromkeys(job_id for group in groups for job_id in group))


def arguments(pairs: Iterable[str], payload: str | None) -> str:
    """Return a payload as JSON: the given object, with ``name=value`` pairs over it.

    A value is JSON; what is no JSON is taken as a text.

    Raises:
        click.UsageError: a pair has no name.
    """
    found: dict[str, Any] = json.loads(payload) if payload is not None else {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise click.UsageError(f"--arg {pair!r} is no pair: give name=value")
        try:
            found[name] = json.loads(text)
        except ValueError:
            if text[:1] in ('"', "{", "["):
                raise click.UsageError(f"--arg {name}: {text[:80]!r} begins like JSON and is none") from None
            found[name] = text
    return json.dumps(found, ensure_ascii=False)
