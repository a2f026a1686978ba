"""Pydantic models, for those who use them: this module never imports pydantic.

A model decides by itself how it looks in JSON, and a serializer or a validator may lose something. So what is written
is read back at once and compared, and a model that does not come back equal is refused.
"""

import dataclasses
import datetime as dt
import math
import sys
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from samecommit.payload.refusal import Refusal, Step, expected, is_a
from samecommit.payload.scalar import Lower


def is_model(kind: Any) -> bool:
    """Tell whether this is a pydantic model's class."""
    pydantic = sys.modules.get("pydantic")  # a model can only exist where it is loaded
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def fields_of(model: Any) -> dict[str, Any]:
    """Read a model's fields, with those it was not declared with."""
    return {**vars(model), **(model.__pydantic_extra__ or {})}


def lower_model(kind: Any) -> Lower:
    """Make the lowering of one class of model."""

    def lower(value: Any, depth: int) -> Any:
        if type(value) is not kind:
            raise expected(kind.__qualname__, value)
        _look_inside(value, depth)
        try:
            dumped = value.model_dump(mode="json", by_alias=True, round_trip=True)
            same = bool(read_model(kind, dumped) == value)
        except Exception as error:
            raise Refusal(f"the model {kind.__qualname__} cannot be written and read back: {error}") from error
        if not same:
            raise Refusal(f"the model {kind.__qualname__} does not come back equal from its own JSON")
        return dumped

    return lower


def read_model(kind: Any, data: Any) -> Any:
    """Validate what was stored; from JSON, so that strict models read their dates as well."""
    return kind.model_validate_json(msgspec.json.encode(data))


def _look_inside(value: Any, depth: int) -> None:
    """Refuse what pydantic would write without a word: naive datetimes and numbers that JSON has not."""
    if isinstance(value, dt.datetime):
        if value.utcoffset() is None:
            raise Refusal(f"the datetime {value} has no time zone; add tzinfo, such as datetime.UTC")
        return
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            raise Refusal(f"{value} is no JSON number; send None or a text instead")
        return
    if depth <= 0:
        raise Refusal("is nested too deeply, or contains itself")
    for step, item in _parts(value):
        try:
            _look_inside(item, depth - 1)
        except Refusal as refusal:
            raise refusal.within(step) from None


def _parts(value: Any) -> Iterable[tuple[Step, Any]]:
    if is_model(type(value)):
        return fields_of(value).items()
    if is_a(value, dict):
        return [(str(key), item) for key, item in value.items()]
    if is_a(value, (list, tuple)):
        return zip(range(len(value)), value, strict=True)
    if is_a(value, (set, frozenset)):
        return [(None, item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return vars(value).items() if hasattr(value, "__dict__") else ()
    return ()
