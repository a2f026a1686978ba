"""Stores an event in the caller's transaction, through the contract's function.

Everything that a destination could refuse for ever is refused here, in the emitter's process, before any SQL: the caller's
transaction stays usable, and an event that was committed can be delivered.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from samecommit.errors import EventRefused, NotInTransaction, PayloadError
from samecommit.event import JSON, Event, is_json
from samecommit.outbox.registry import Declarations
from samecommit.payload import encode_plain
from samecommit.storage.connections import Steps, fetch, in_transaction
from samecommit.storage.query import statement
from samecommit.tracing import trace_context

MAX_BYTES = 1_048_576
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")
_KEY = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")
_EXTENSION = re.compile(r"[a-z0-9]{1,20}")
_OWN = frozenset(
    ("id", "source", "type", "specversion", "subject", "time", "datacontenttype", "dataschema", "data", "partitionkey")
) | {"sequence", "lognumber", "replay", "deliveryattempt", "schemaversion"}


@dataclass(frozen=True, slots=True)
class Emitted:
    """A stored event: its number in the log, and its id for receivers."""

    number: int
    id: str


def new_event(
    declared: Declarations,
    event: Any,
    *,
    source: str,
    type: str | None = None,  # noqa: A002 - the attribute's name in CloudEvents
    key: str | None = None,
    subject: str | None = None,
    event_id: str | None = None,
    content_type: str | None = None,
    extensions: Mapping[str, str] | None = None,
) -> Event:
    """Check an event and return what is to be stored: of a declared class, or with a type plain JSON or bytes.

    Raises:
        PayloadError: a part that cannot be stored; says which.
        EventRefused: a destination that gets this type could never take it.
    """
    version, type_ = 1, type
    if type_ is None:
        kind = declared.type_of(event)
        type_, version = kind.name, kind.version
        key = kind.text_of(event, kind.key) if key is None else key
        subject = kind.text_of(event, kind.subject) if subject is None else subject
        data = kind.codec.encode(event, max_bytes=MAX_BYTES).encode()
    else:
        data, content_type = _plain_data(event, content_type, type_)
    made = Event(
        id=str(uuid4()) if event_id is None else event_id,
        source=source,
        type=type_,
        data=data,
        key=key,
        subject=subject,
        time=datetime.now(UTC),
        content_type=content_type or JSON,
        version=version,
        extensions={**trace_context(), **(extensions or {})},
    )
    _check(made)
    for name, code in declared.complainers(type_):
        if (reason := code.complaint(made)) is not None:
            raise EventRefused(f"destination {name!r} could never take event {type_!r} with key {key!r}: {reason}")
    return made


def _plain_data(event: Any, content_type: str | None, type_: str) -> tuple[bytes, str]:
    """Return an event's data and their type: bytes as they are, anything else as JSON."""
    if not isinstance(event, bytes | bytearray):
        return encode_plain(event, max_bytes=MAX_BYTES).encode(), content_type or JSON
    data, kind = bytes(event), content_type or "application/octet-stream"
    if is_json(kind) and len(data) <= MAX_BYTES:
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PayloadError(
                f"event {type_!r} has content_type {kind!r}, but its {len(data):,} bytes, {data[:40]!r}, are no JSON: {error}. "
                "Give the value itself, or the content type that the bytes have"
            ) from error
    return data, kind


def _check(event: Event) -> None:
    if len(event.data) > MAX_BYTES:
        raise PayloadError(
            f"event {event.type!r} has {len(event.data):,} bytes of data, {MAX_BYTES:,} can be stored: store it elsewhere "
            "and emit where it is"
        )
    if not _TYPE.fullmatch(event.type):
        raise PayloadError(f"event type {event.type!r}: give 1 to 200 letters, digits and . _ - : /")
    if event.key is not None and not _KEY.fullmatch(event.key):
        raise PayloadError(f"event key {event.key!r}: give 1 to 200 characters without control characters, or None")
    texts = {"id": event.id, "source": event.source, "subject": event.subject, "content_type": event.content_type}
    for name, value in texts.items():
        if value is not None and not _is_plain(value):
            raise PayloadError(f"event {name} {value!r}: give 1 to 1,000 characters without control characters")
    for name, value in event.extensions.items():
        if not _EXTENSION.fullmatch(name) or name in _OWN:
            raise PayloadError(
                f"extension {name!r}: give a name of 1 to 20 of a-z and 0-9 that is no attribute of its own"
            )
        if not isinstance(value, str) or not _is_plain(value):
            raise PayloadError(
                f"extension {name!r} is {value!r}: give 1 to 1,000 characters without control characters"
            )


def _is_plain(text: str) -> bool:
    return 1 <= len(text) <= 1000 and all(
        ord(c) >= 32 and ord(c) != 127 and not 0xD800 <= ord(c) < 0xE000 for c in text
    )


def emit(event: Event, schema: str, *, own_transaction: bool = False) -> Steps[Emitted]:
    """Store the event.

    Raises:
        NotInTransaction: the connection would commit by itself.
    """
    if not own_transaction and not (yield from in_transaction()):
        raise _outside(event)
    rows = yield from fetch(statement("event/emit", schema), _values(event))
    return Emitted(*rows[0])


def emit_many(events: Sequence[Event], schema: str) -> Steps[list[Emitted]]:
    """Store events in their order, in one statement.

    Raises:
        NotInTransaction: the connection would commit by itself.
    """
    if not events:
        return []
    if not (yield from in_transaction()):
        raise _outside(events[0])
    values = {"events": msgspec.json.encode([_values(event) for event in events]).decode()}
    rows = yield from fetch(statement("event/emit_many", schema), values)
    return [Emitted(*row) for row in rows]


def _outside(event: Event) -> NotInTransaction:
    return NotInTransaction(
        f"event {event.type!r} was emitted outside a transaction, on a connection that commits each statement: it could "
        "exist without your data. Open a transaction around both, or say own_transaction=True"
    )


def _values(event: Event) -> dict[str, Any]:
    try:
        text, is_base64 = event.data.decode(), b"\0" in event.data
    except UnicodeDecodeError:
        text, is_base64 = "", True
    return {
        "type": event.type,
        "data": b64encode(event.data).decode() if is_base64 else text,
        "is_base64": is_base64,
        "key": event.key,
        "id": event.id,
        "source": event.source,
        "subject": event.subject,
        "content_type": event.content_type,
        "version": event.version,
        "extensions": msgspec.json.encode(event.extensions).decode() if event.extensions else None,
    }
