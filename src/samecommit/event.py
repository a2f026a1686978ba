"""What an event is: the attributes of CloudEvents 1.0, its bytes, and its place in the log.

An `Event` is what its emitter said; a `StoredEvent` is that event in the log of one destination. `source` and `id` are its
identity: they never change, also when it is replayed. Its data are the bytes that were stored, sent as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

SPEC_VERSION = "1.0"
JSON = "application/json"


class Position(NamedTuple):
    """A place in the log: the window and, in it, the event's number. Places compare; a later one is delivered later.

    Windows are stored, so an event has the same place after any crash. Its text sorts as it does (CloudEvents' ``sequence``).
    """

    window: int
    id: int

    def __str__(self) -> str:
        return "%016x-%016x" % self  # noqa: UP031 - half the time of an f-string

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read what ``str(position)`` wrote."""
        window, _, number = text.partition("-")
        return cls(int(window, 16), int(number, 16))


START = Position(0, 0)
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event as emitted.

    Args:
        id: unique within its source; a UUID unless the emitter gave another.
        source: who tells it, a URI reference.
        type: what happened, as in ``lead.created``.
        data: the bytes to deliver.
        key: events of one key keep their order; None has no order.
        subject: what it is about, within its source.
        time: when it was emitted (the database's clock).
        content_type: of the data.
        version: of the type's data.
        extensions: further attributes (``traceparent``): names of a-z and 0-9, values are text.
    """

    id: str
    source: str
    type: str
    data: bytes
    key: str | None = None
    subject: str | None = None
    time: datetime
    content_type: str = JSON
    version: int = 1
    extensions: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])

    def attributes(self) -> dict[str, str]:
        """Return the CloudEvents attributes as text, without the content type, which transports carry apart."""
        found = {
            "specversion": SPEC_VERSION,
            "id": self.id,
            "source": self.source,
            "type": self.type,
            "time": _rfc3339(self.time),
            "schemaversion": str(self.version),
            **self.extensions,
        }
        if self.subject is not None:
            found["subject"] = self.subject
        if self.key is not None:
            found["partitionkey"] = self.key
        return found

    def json(self) -> Any:
        """Return the data decoded from JSON."""
        return msgspec.json.decode(self.data)


class StoredEvent(Event, frozen=True, kw_only=True):
    """An event of the log, on its way to one destination.

    Args:
        number: its number in the log.
        lane: 0 to 1023, from its key: events of one key share a lane, and a lane belongs to one shard.
        position: its place in the destination's order; None when it is sent outside of it (a replay, a late retry).
        replay: 0, or which deliberate repeat this is.
        attempt: which attempt at this destination this is, from 1; later ones may repeat what arrived.
    """

    number: int
    lane: int = 0
    position: Position | None = None
    replay: int = 0
    attempt: int = 1

    @property
    def dedupe_id(self) -> str:
        """What to give a destination that drops repeats; a replay has its own, or it would be dropped too."""
        return f"{self.id}:r{self.replay}" if self.replay else self.id

    @property
    def identity(self) -> str:
        """Its `dedupe_id` with its source: ids are unique within a source, and a log may have several."""
        return f"{self.source}\n{self.dedupe_id}"  # a line break is in neither

    def attributes(self) -> dict[str, str]:
        """Return the CloudEvents attributes as text, with the places in the order and what kind of repeat it may be.

        ``sequence`` orders what comes in order; ``lognumber`` orders the events of one key, late ones too.
        """
        found = Event.attributes(self)
        if self.position is not None:
            found["sequence"] = str(self.position)
        found["lognumber"] = str(self.number)
        if self.replay:
            found["replay"] = str(self.replay)
        if self.attempt > 1:
            found["deliveryattempt"] = str(self.attempt)
        return found

    def structured(self) -> bytes:
        """Return the event as one JSON document (``application/cloudevents+json``); data that are not JSON as base64."""
        head: dict[str, Any] = {**self.attributes(), "datacontenttype": self.content_type}
        if is_json(self.content_type):
            return msgspec.json.encode({**head, "data": msgspec.Raw(self.data)})
        return msgspec.json.encode({**head, "data_base64": self.data})

    def line(self) -> bytes:
        """Return `structured` as one line: a raw line break in JSON is white space between its parts, and becomes a space."""
        return self.structured().translate(_BREAKS) + b"\n"


def is_json(content_type: str) -> bool:
    """Whether data of that type are JSON: they stand in a JSON document as they are."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON or kind.endswith("+json")


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
