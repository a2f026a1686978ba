"""An event inside a job: everything that is sent, byte for byte, so that the job outlives the log."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from datetime import datetime
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import msgspec

from samecommit.event import StoredEvent

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TEXTS = ("id", "source", "type", "key", "subject", "content_type", "version", "number", "lane", "replay")


def carry(event: StoredEvent, target: str) -> str:
    """Return a delivery job's payload; data that are text stay readable."""
    document: dict[str, Any] = {name: getattr(event, name) for name in _TEXTS}
    document["time"] = event.time
    if event.extensions:
        document["extensions"] = dict(event.extensions)
    try:
        document["text"] = event.data.decode()
        if "\0" in document["text"]:
            raise UnicodeError
    except UnicodeError:
        document.pop("text", None)
        document["base64"] = b64encode(event.data).decode()
    return msgspec.json.encode({"event": document, "target": target}).decode()


def carried(document: dict[str, Any]) -> StoredEvent:
    """Return the event of a delivery job's payload."""
    data = document["text"].encode() if "text" in document else b64decode(document["base64"])
    return StoredEvent(
        **{name: document[name] for name in _TEXTS},
        time=datetime.fromisoformat(document["time"]),
        extensions=document.get("extensions", {}),
        data=data,
    )


def effect_key(event: StoredEvent, destination: str, target: str) -> str:
    """Return what identifies the effect of a delivery: the same for every attempt.

    An id is unique within its source only, a UUID too: emitters choose those of what an event is about. Colons in the source
    are escaped, so that where it ends is certain.
    """
    source = quote(event.source, safe="/")
    return ":".join(part for part in (source, event.dedupe_id, destination, target) if part)


def is_unique(event: StoredEvent) -> bool:
    """Whether an id may be taken for one that no other source has: it is a UUID, as `emit` gives one."""
    return _UUID.fullmatch(event.id) is not None


def marker(key: str) -> str:
    """Return a short text for an effect key, to be written into what is made and to be found again."""
    return f"sc-{blake2b(key.encode(), digest_size=10).hexdigest()}"
