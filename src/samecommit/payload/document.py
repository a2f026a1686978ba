"""The finished document: JSON text that a jsonb column takes, of bounded size.

NUL and lone surrogates are looked for here, once, instead of in each text: the JSON writer refuses surrogates by
itself and writes NUL as an escape that one search finds. Only a document that has one is walked for the place.
"""

import datetime as dt
import re
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from samecommit.payload.refusal import Refusal, Step, is_a, shown

MAX_INTEGER = 4300
"""How many characters an integer may have: Python and msgspec read no more back, and msgspec counts the sign."""

_LONG_NEGATIVE = re.compile(rb"-[0-9]{%d}" % MAX_INTEGER)

MAX_BYTES = 1_048_576
"""How large a document may be, in UTF-8, if nothing else is said."""


def to_text(lowered: Any, max_bytes: int) -> str:
    """Write what the lowerings made; raises `Refusal`."""
    try:
        data = _encode(lowered)
    except (ValueError, RecursionError) as error:
        raise _first_bad(lowered) or Refusal(f"cannot be written as JSON: {error}") from error
    is_suspect = b"\\u0000" in data or (len(data) > MAX_INTEGER and _LONG_NEGATIVE.search(data))
    if is_suspect and (refusal := _first_bad(lowered)):
        raise refusal
    if len(data) > max_bytes:
        raise Refusal(
            f"is too large: {len(data):,} bytes of JSON, the limit is {max_bytes:,}; "
            "store it elsewhere and pass a reference, or raise the limit"
        )
    return data.decode()


def fingerprint(lowered: Any) -> bytes:
    """Write equal values as equal bytes."""
    return msgspec.json.encode(lowered, enc_hook=_late, order="deterministic")


def _late(value: Any) -> str:
    # Test tools that freeze the clock put a subclass where `datetime` was.
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    raise TypeError(f"a {type(value).__qualname__} reached the JSON writer")


_encode = msgspec.json.Encoder(enc_hook=_late).encode


def _first_bad(lowered: Any) -> Refusal | None:
    """Find the first text or number that cannot be written; the way to it was already found to be short."""
    if isinstance(lowered, str):
        return _bad_text(lowered)
    if isinstance(lowered, int):
        return _bad_int(lowered)
    for step, item in _items(lowered):
        if isinstance(step, str) and (bad := _bad_text(step)):
            return Refusal(f"has the key {shown(step)}: {bad.reason}")
        if bad := _first_bad(item):
            return bad.within(step)
    return None


def _items(value: Any) -> Iterable[tuple[Step, Any]]:
    if is_a(value, dict):
        return ((key if isinstance(key, str) else str(key), item) for key, item in value.items())
    if is_a(value, (list, tuple)):
        return zip(range(len(value)), value, strict=True)
    if is_a(value, (set, frozenset)):
        return ((None, item) for item in value)
    return ()


def _bad_text(text: str) -> Refusal | None:
    if "\0" in text:
        return Refusal(f"contains NUL, which PostgreSQL cannot store: {shown(text)}; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = ascii(text[error.start])
        return Refusal(f"contains half of a surrogate pair, {bad}, which is no character: {shown(text)}; remove it")
    return None


def _bad_int(number: int) -> Refusal | None:
    limit = min(sys.get_int_max_str_digits() or MAX_INTEGER, MAX_INTEGER)
    if -(10 ** (limit - 1)) < number < 10**limit:
        return None
    return Refusal(f"is an integer of more than {limit:,} characters; send it as text")
