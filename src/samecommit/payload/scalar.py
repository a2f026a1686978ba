"""Single values: what each type takes, and what is handed to the JSON writer for it.

The writer (msgspec) knows all these types. What it does not do is refuse: it writes NaN as null, lets naive datetimes
and ``Decimal("NaN")`` pass, and rounds the seconds of an old zone's offset. So that is done here.

A *lowering* takes a value and the levels it may still nest. It returns what the writer shall write, most often the
value itself, or raises `Refusal`.
"""

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from samecommit.payload.refusal import Refusal, expected

Lower = Callable[[Any, int], Any]
T = TypeVar("T")


def lower_none(value: Any, _depth: int) -> None:
    """Take None."""
    if value is not None:
        raise expected("None", value)


def lower_bool(value: Any, _depth: int) -> bool:
    """Take True and False, not 1 and 0."""
    if value is True or value is False:
        return value
    raise expected("bool", value)


def lower_int(value: Any, _depth: int) -> int:
    """Take an integer of any size; a bool is refused, since it is hardly ever meant."""
    if type(value) is int:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__add__(value, 0)  # an IntEnum member, say: equal, but written by its number
    raise expected("int", value)


def lower_float(value: Any, _depth: int) -> "float | msgspec.Raw":
    """Take a finite number; an integer if a float holds it exactly."""
    # NaN and infinity fail the comparison too: one test for the common case.
    if type(value) is float and -1e16 < value < 1e16:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Refusal(f"{float.__repr__(value)} is no JSON number; send None or a text instead")
        return _spelled_out(float.__pos__(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return _float_of(value)
    raise expected("float", value)


def _spelled_out(value: float) -> "float | msgspec.Raw":
    # jsonb writes 1e22 as an integer, which an untyped reader would take for one. With a decimal it keeps it.
    return value if abs(value) < 1e16 else msgspec.Raw(b"%.1f" % value)


def _float_of(value: int) -> "float | msgspec.Raw":
    try:
        number = int.__float__(value)
    except OverflowError:
        raise Refusal("the integer is too large for a float; declare int") from None
    if number != value:
        raise Refusal(f"a float cannot hold {value} exactly; declare int or send a float")
    return _spelled_out(number)


def lower_str(value: Any, _depth: int) -> str:
    """Take a text; NUL and surrogates are looked for once, in the finished document."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise expected("str", value)


def lower_decimal(value: Any, _depth: int) -> Decimal:
    """Take a finite Decimal; it is written as text, so 1.10 stays 1.10."""
    if not isinstance(value, Decimal):
        raise expected("Decimal", value)
    if not value.is_finite():
        raise Refusal(f"{Decimal.__str__(value)} is no number that can be stored; send None or a text instead")
    return value if type(value) is Decimal else _same(Decimal(value), value)


def lower_datetime(value: Any, _depth: int) -> dt.datetime:
    """Take a datetime with a time zone; the instant is kept to the microsecond."""
    if not isinstance(value, dt.datetime):
        raise expected("datetime", value)
    offset = value.utcoffset()
    if offset is None:
        raise Refusal(f"the datetime {value} has no time zone; add tzinfo, such as datetime.UTC")
    if type(value) is not dt.datetime:
        # A subclass (pandas.Timestamp) may hold more than a datetime does.
        value = _same(dt.datetime.combine(dt.date(value.year, value.month, value.day), value.timetz()), value)
    return _in_utc(value) if offset.seconds % 60 or offset.microseconds else value


def _in_utc(value: dt.datetime) -> dt.datetime:
    # ISO 8601 offsets end with the minute: Amsterdam before 1937 was at +00:19:32.
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise Refusal(f"the datetime {value} is outside the years 1 to 9999 in UTC") from None


def lower_date(value: Any, _depth: int) -> dt.date:
    """Take a date; a datetime is refused, since its time would be lost."""
    if type(value) is dt.date:
        return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return _same(dt.date(value.year, value.month, value.day), value)
    raise expected("date", value)


def lower_time(value: Any, _depth: int) -> dt.time:
    """Take a time of day, with a fixed offset or without."""
    if type(value) is not dt.time:
        raise expected("time", value)
    if value.tzinfo is None:
        return value
    offset = value.utcoffset()
    if offset is None or offset.seconds % 60 or offset.microseconds:
        raise Refusal(f"the time {value} has a zone without a fixed offset in minutes; send a datetime")
    return value


def lower_timedelta(value: Any, _depth: int) -> dt.timedelta:
    """Take a timedelta, to the microsecond."""
    if type(value) is dt.timedelta:
        return value
    if isinstance(value, dt.timedelta):
        return _same(dt.timedelta(value.days, value.seconds, value.microseconds), value)
    raise expected("timedelta", value)


def lower_uuid(value: Any, _depth: int) -> UUID:
    """Take a UUID."""
    if type(value) is UUID:
        return value
    if isinstance(value, UUID):
        return _same(UUID(int=value.int), value)
    raise expected("UUID", value)


def lower_bytes(value: Any, _depth: int) -> bytes:
    """Take bytes; they are written in base 64."""
    if type(value) is bytes:
        return value
    raise expected("bytes", value)


def lower_bytearray(value: Any, _depth: int) -> bytearray:
    """Take a bytearray; it is written in base 64."""
    if type(value) is bytearray:
        return value
    raise expected("bytearray", value)


def _same(base: T, value: T) -> T:
    """Store an instance of a subclass as its base type, if nothing is lost by that."""
    if base == value:
        return base
    raise Refusal(f"a {type(value).__qualname__} holds more than a {type(base).__name__} can; convert it first")
