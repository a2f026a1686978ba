"""Appends each event as a line of JSON to a file, whose own lines say what is there already: effectively once.

The position is that of the last whole line that has one. A line that was cut off by a crash is cut away; the file is locked
while it is open, so that two relays do not write at once. One file for each destination and shard (``{shard}`` in its name).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from io import BufferedRandom
from pathlib import Path

import msgspec

from samecommit.event import Event, Position, StoredEvent
from samecommit.outbox.outcomes import Delivered, DestinationDown, Duplicate, Outcome
from samecommit.outbox.sink import StoredPosition, Target, Traits

_BLOCK = 65_536


class _Attributes(msgspec.Struct):
    sequence: str | None = None


class File:
    """The sink.

    Args:
        path: which file; ``{destination}`` and ``{shard}`` are filled in.
    """

    traits = Traits(idempotency=StoredPosition(), keeps_key_order=True)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._file: BufferedRandom | None = None
        self._position: Position | None = None

    def __repr__(self) -> str:
        return f"<File {self._path!r} at {self._position}>"

    def complaint(self, event: Event) -> str | None:
        """Take every event."""

    async def connect(self, target: Target) -> None:
        """Open and lock the file, cut off half a line, read the last position.

        Raises:
            OSError: it cannot be opened, or another relay has it.
        """
        path = Path(self._path.format(destination=target.destination, shard=target.shard))
        await asyncio.to_thread(self._open, path)

    def _open(self, path: Path) -> None:
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._position = _last_position(file)
        except BaseException:
            file.close()
            raise
        self._file = file

    async def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    async def position(self) -> Position | None:
        """Return the position of the last line that has one."""
        return self._position

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Append what is behind the last position, and fsync."""
        if self._file is None:
            return [DestinationDown("the file is closed")] * len(batch)
        outcomes: list[Outcome] = []
        lines: list[bytes] = []
        for event in batch:
            if event.position is not None and self._position is not None and event.position <= self._position:
                outcomes.append(Duplicate())
                continue
            lines.append(event.line())
            outcomes.append(Delivered())
            self._position = event.position or self._position
        await asyncio.to_thread(_append, self._file, b"".join(lines))
        return outcomes


def _append(file: BufferedRandom, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _last_position(file: BufferedRandom) -> Position | None:
    """Cut off what follows the last line end, and read lines from the end until one has a position."""
    end = file.seek(0, os.SEEK_END)
    tail = b""
    at = end
    while at > 0:
        step = min(_BLOCK, at)
        at -= step
        file.seek(at)
        tail = file.read(step) + tail
        lines = tail.split(b"\n")
        if lines[-1]:
            file.truncate(end - len(lines[-1]))
            end -= len(lines[-1])
            lines[-1] = b""
            tail = b"\n".join(lines)
        for line in reversed(lines[1:] if at else lines):
            if (position := _position(line)) is not None:
                return position
    return None


def _position(line: bytes) -> Position | None:
    """Read what stands before a line's data, which need not be JSON that Python can read; None for what is not of ours."""
    attributes, has_data, _ = line.partition(b',"data":')
    try:
        sequence = msgspec.json.decode(attributes + b"}" if has_data else attributes, type=_Attributes).sequence
        return None if sequence is None else Position.parse(sequence)
    except (ValueError, RecursionError):
        return None
