"""Looks for records in a topic by reading what was stored since the oldest of them was emitted.

A long topic is read in several calls: each goes on where the last one ended, and answers *unsure* until the end is reached.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from samecommit.event import StoredEvent
from samecommit.outbox.outcomes import Found, Lookup, NotFound, Unsure

TARGET_HEADER = "samecommit_target"

_Identity: TypeAlias = tuple[bytes, bytes, bytes]  # source, id and replay

# How far the clocks of database and producer may be apart.
_SKEW = timedelta(minutes=10)
_SECONDS, _WAIT_SECONDS, _ROOM = 3.0, 0.05, 1_000


class KafkaLook:
    """One look for some events.

    Args:
        topic: where.
        target: whose records count.
        events: which.
    """

    def __init__(self, topic: str, target: str, events: Sequence[StoredEvent]) -> None:
        self._topic, self._target = topic, target.encode()
        self._wanted = frozenset(map(_identity, events))
        self._since = min(event.time for event in events) - _SKEW
        self._is_placed = False
        self._next: dict[int, int] = {}
        self._found: dict[_Identity, str] = {}
        self._is_done = False

    def covers(self, events: Sequence[StoredEvent]) -> bool:
        """Whether this look is for those events and not at its end."""
        return not self._is_done and self._wanted.issuperset(map(_identity, events))

    def lookup(self, event: StoredEvent) -> Lookup:
        """Return what is known of one event."""
        if (ref := self._found.get(_identity(event))) is not None:
            return Found(ref)
        return NotFound() if self._is_done else Unsure("the topic is long: still looking")

    def go_on(self, reader: Any, kafka: Any) -> None:
        """Read on for a few seconds, at most to where the topic ended when that began. Blocks."""
        until = time.monotonic() + _SECONDS
        ends = self._open(reader, kafka)
        try:
            while self._is_behind(ends) and time.monotonic() < until:
                for record in reader.consume(_ROOM, _WAIT_SECONDS):
                    if record.error() is None:
                        self._see(record)
                for place in reader.position([kafka.TopicPartition(self._topic, n) for n in ends]):
                    if place.offset >= 0:  # passes over the marks of transactions, which are no records
                        self._next[place.partition] = max(self._next[place.partition], place.offset)
        finally:
            reader.unassign()
        self._is_done = not self._is_behind(ends)

    def _open(self, reader: Any, kafka: Any) -> dict[int, int]:
        """Place the reader; where each partition ends."""
        partitions = reader.list_topics(self._topic, _SECONDS).topics[self._topic].partitions
        ends: dict[int, int] = {}
        for number in partitions:
            low, ends[number] = reader.get_watermark_offsets(kafka.TopicPartition(self._topic, number), _SECONDS)
            self._next.setdefault(number, low)
            self._next[number] = max(self._next[number], low)
        if not self._is_placed:
            self._skip_old(reader, kafka, ends)
            self._is_placed = True
        reader.assign([kafka.TopicPartition(self._topic, number, self._next[number]) for number in ends])
        return ends

    def _skip_old(self, reader: Any, kafka: Any, ends: dict[int, int]) -> None:
        """Begin at the first record that is not older than the events."""
        moment = int(self._since.timestamp() * 1000)
        asked = [kafka.TopicPartition(self._topic, number, moment) for number in ends]
        for place in reader.offsets_for_times(asked, _SECONDS):
            if place.error is None:
                self._next[place.partition] = place.offset if place.offset >= 0 else ends[place.partition]

    def _is_behind(self, ends: dict[int, int]) -> bool:
        return any(self._next[number] < end for number, end in ends.items())

    def _see(self, record: Any) -> None:
        headers: dict[str, bytes] = dict(record.headers() or ())
        if headers.get(TARGET_HEADER) == self._target:
            known_as = (headers.get("ce_source", b""), headers.get("ce_id", b""), headers.get("ce_replay", b"0"))
            if known_as in self._wanted:
                self._found[known_as] = f"{record.topic()}[{record.partition()}]@{record.offset()}"
        self._next[record.partition()] = record.offset() + 1


def _identity(event: StoredEvent) -> _Identity:
    return event.source.encode(), event.id.encode(), str(event.replay).encode()
