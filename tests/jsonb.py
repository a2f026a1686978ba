"""What a jsonb column gives back as text, without a server."""

import json
from decimal import Decimal
from typing import Any

MAX_SCALE = 16383


def as_jsonb(text: str) -> str:
    """Write JSON text as ``text::jsonb::text`` would: keys in its order, numbers as numeric, no NUL, no surrogates."""
    written = _written(json.loads(text, parse_float=Decimal, parse_constant=_no_number))
    written.encode()  # a lone surrogate fails here, as it does in the server
    assert "\0" not in written
    return written


def _no_number(word: str) -> None:
    raise AssertionError(f"jsonb has no {word}")


def _written(value: Any) -> str:
    match value:
        case dict():
            items = sorted(value.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
            return "{" + ", ".join(f"{_written(key)}: {_written(item)}" for key, item in items) + "}"
        case list():
            return "[" + ", ".join(map(_written, value)) + "]"
        case Decimal():
            number = format(value, "f")
            return number.removeprefix("-") if value == 0 else number
        case _:
            return json.dumps(value, ensure_ascii=False)
