"""Puts other text in the place of a statement's file, in this process only; refuses when the file no longer has what is replaced."""

from __future__ import annotations

from typing import Any

from samecommit.storage import query

_FOLDER: Any = query._FOLDER
_texts: dict[str, str] = {}


class _File:
    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self, encoding: str = "utf-8") -> str:
        return self._text


class _Folder:
    def __truediv__(self, name: str) -> Any:
        return _File(_texts[name]) if name in _texts else _FOLDER / name


def replace(label: str, old: str, new: str) -> None:
    """Change a statement."""
    name = f"{label}.sql"
    text = _texts.get(name) or (_FOLDER / name).read_text(encoding="utf-8")
    if old not in text:
        raise AssertionError(f"{label} has no {old!r} any more: this build is not broken")
    add(label, text.replace(old, new))


def add(label: str, text: str) -> None:
    """Add or replace a statement."""
    _texts[f"{label}.sql"] = text
    setattr(query, "_FOLDER", _Folder())  # noqa: B010 - it is no Traversable
    query.statement.cache_clear()
