"""Attribute values as message headers: the percent-encoding that CloudEvents' bindings for HTTP and NATS ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

_PLAIN = re.compile(r"[!#$&-~]*").fullmatch  # printable ASCII without space, double quote and percent
_SAFE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")


def percent(value: str) -> str:
    """Encode what a header cannot hold."""
    return value if _PLAIN(value) else quote(value, safe=_SAFE)


def percent_all(values: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Encode all values, and put the prefix before their names. Mostly nothing is to be encoded: one look at all tells."""
    if _PLAIN("".join(values.values())):
        return {prefix + name: value for name, value in values.items()}
    return {prefix + name: percent(value) for name, value in values.items()}
