"""Values without a declared type.

`lower_json` takes what JSON itself has and refuses the rest: such a value is read back without a type, and must come
back as it went in. `lower_plain` also takes what JSON does not have and writes it in the forms that the package's
docstring lists: for what is stored to be looked at.
"""

import dataclasses
import datetime as dt
import math
from collections.abc import Callable, Collection
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from samecommit.payload import models, scalar
from samecommit.payload.refusal import Refusal, class_of, is_a, shown
from samecommit.payload.scalar import Lower, lower_float, lower_int, lower_str

MAX_DEPTH = 100
"""How many lists and objects may be nested in one value."""

_AS_IS: frozenset[type] = frozenset({str, bool, int, type(None)})


def too_deep() -> Refusal:
    """Say that a value nests too deeply; one that contains itself ends here too."""
    return Refusal(f"is nested deeper than {MAX_DEPTH} levels, or contains itself")


def lower_json(value: Any, depth: int) -> Any:
    """Take JSON's own types only."""
    return _lower(value, depth, _refuse)


def lower_plain(value: Any, depth: int) -> Any:
    """Take JSON's types, and write the usual others in their plain form."""
    return _lower(value, depth, _convert)


def _lower(value: Any, depth: int, other: Lower) -> Any:
    kind = class_of(value)
    if kind in _AS_IS:
        return value
    if kind is float:
        return lower_float(value, depth)
    if issubclass(kind, list):
        return _list(value, depth, other)
    if issubclass(kind, dict):
        return _dict(value, depth, other)
    for base, lower in _SUBCLASSED:
        if isinstance(value, base):
            return lower(value, depth)
    return other(value, depth)


_SUBCLASSED: tuple[tuple[type, Lower], ...] = ((str, lower_str), (int, lower_int), (float, lower_float))


def _list(value: list[Any], depth: int, other: Lower) -> list[Any]:
    if depth <= 0:
        raise too_deep()
    kinds = set(map(class_of, value))
    if type(value) is list and (kinds <= _AS_IS or (kinds == {float} and are_ordinary(value))):
        return value
    out: list[Any] = []
    try:
        for item in value:
            out.append(_lower(item, depth - 1, other))  # noqa: PERF401 - its length is the index of what is refused
    except Refusal as refusal:
        raise refusal.within(len(out)) from None
    return out


def are_ordinary(values: Collection[float]) -> bool:
    """Tell whether all these floats can be written as they are."""
    return all(map(math.isfinite, values)) and min(values) > -1e16 and max(values) < 1e16


def _dict(value: dict[Any, Any], depth: int, other: Lower) -> dict[str, Any]:
    if depth <= 0:
        raise too_deep()
    out: dict[str, Any] = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key)
        try:
            out[name] = _lower(item, depth - 1, other)
        except Refusal as refusal:
            raise refusal.within(name) from None
    return out


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    raise Refusal(
        f"has the key {shown(key)}; without a declared type keys are str, or declare dict[int, ...] or the like"
    )


def _refuse(value: Any, _depth: int) -> Any:
    raise Refusal(f"holds {shown(value)}, which is not JSON: declare its type, or convert it first")


def _convert(value: Any, depth: int) -> Any:
    kind = class_of(value)
    for base, lower in _SCALARS.items():
        if isinstance(value, base):
            return lower(value, depth)
    if isinstance(value, Enum):
        return _lower(value.value, depth, _convert)
    if is_a(value, (tuple, set, frozenset)):
        return _array(value, depth)
    fields = _fields(value)
    if fields is None:
        raise Refusal(f"cannot be stored as JSON: it is a {kind.__module__}.{kind.__qualname__}; convert it first")
    return _dict(fields(), depth, _convert)


_SCALARS: dict[type, Lower] = {
    dt.datetime: scalar.lower_datetime,
    dt.date: scalar.lower_date,
    dt.time: scalar.lower_time,
    dt.timedelta: scalar.lower_timedelta,
    UUID: scalar.lower_uuid,
    Decimal: scalar.lower_decimal,
    bytes: scalar.lower_bytes,
    bytearray: scalar.lower_bytearray,
}


def _array(value: Any, depth: int) -> list[Any]:
    items = _list(list(value), depth, _convert)
    return items if is_a(value, tuple) else in_order(items)


def in_order(items: list[Any]) -> list[Any]:
    """Order what was a set by its JSON, so that equal sets give equal text."""
    return sorted(items, key=_sort_key)


def _sort_key(item: Any) -> bytes:
    try:
        return msgspec.json.encode(item, order="deterministic")
    except ValueError:  # a surrogate or too many digits: refused later, with its place
        return b""


def _fields(value: Any) -> Callable[[], dict[str, Any]] | None:
    """Give the way to read an object's fields by name, or None if it is no record."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return lambda: {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return lambda: msgspec.structs.asdict(value)
    if hasattr(value, "__attrs_attrs__"):
        return lambda: {field.name: getattr(value, field.name) for field in value.__attrs_attrs__}
    if models.is_model(type(value)):
        return lambda: models.fields_of(value)
    return None
