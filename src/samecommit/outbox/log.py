"""Reading the log: windows, and pages of events in the order of delivery.

A page is the same for every destination at the same place, so it is read once for all that stand there: fifty destinations
at the end of the log cost one read. What a destination does not want it leaves out by itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from samecommit.errors import SamecommitError
from samecommit.event import Position, StoredEvent
from samecommit.storage.link import AsyncLink, Row

_WINDOWS = 200
_PAGES = 8
_WALK = 100_000  # numbers that one statement passes at most: a tenth of a second


class Place(NamedTuple):
    """How far a destination is: window ``window_n`` is done, and of the one behind it every number up to ``after``."""

    window_n: int
    after: int


class Window(NamedTuple):
    """A stored snapshot, its events counted, with the first and the last of their numbers."""

    n: int
    snapshot: str
    events: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some events in the order of delivery, and where they end; ``windows`` are theirs, with the one before them."""

    events: tuple[StoredEvent, ...]
    end: Place
    windows: tuple[int, ...] = ()

    def place_before(self, event: StoredEvent) -> Place:
        """Return the place at which this event is the first that is not done."""
        assert event.position is not None
        window_n = event.position.window
        return Place(max(n for n in self.windows if n < window_n), event.number - 1)


class WindowGone(SamecommitError):
    """A window at which somebody stands is not there: the server was set back, or the table was edited."""

    def __init__(self, n: int) -> None:
        super().__init__(
            f"window {n} is gone, though a position stands at it: the table event_window was edited; "
            "remove the destination's position and add it again at a moment before"
        )
        self.n = n


class SharedLink:
    """One connection for several services: statements take turns."""

    def __init__(self, link: AsyncLink) -> None:
        self.link = link
        self._turn = asyncio.Lock()

    async def fetch(self, label: str, **values: Any) -> list[Row]:
        """Run the statement of that label, as `AsyncLink.fetch`."""
        async with self._turn:
            return await self.link.fetch(label, **values)


class Log:
    """Reads pages and keeps the last few, for other destinations at the same place.

    Args:
        link: where to read.
        room: most events in a page.
        max_bytes: a page ends with the event that passes this.
    """

    def __init__(self, link: SharedLink, *, room: int = 1000, max_bytes: int = 4_194_304) -> None:
        self._link, self._room, self._max_bytes = link, room, max_bytes
        self._pages: OrderedDict[Place, asyncio.Task[Page]] = OrderedDict()
        self.newest_n = 0

    async def page(self, place: Place) -> Page:
        """Return the events behind a place; without windows at the end of the log."""
        page = await asyncio.shield(self._reading(place))
        if not page.windows and place.window_n < self.newest_n:
            return await asyncio.shield(self._reading(place))  # it was read before the newest window was there
        return page

    def forget(self) -> None:
        """Drop what was read: a position is lost, perhaps since the server was set back."""
        self._pages.clear()
        self.newest_n = 0

    def expect(self, place: Place) -> None:
        """Begin to read what will be asked for next, if there is something."""
        if place.window_n < self.newest_n:
            self._reading(place)

    def _reading(self, place: Place) -> asyncio.Task[Page]:
        found = self._pages.get(place)
        if found is None:
            found = self._pages[place] = asyncio.ensure_future(self._read(place))
            found.add_done_callback(lambda task: self._forget_empty(place, task))
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        return found

    def _forget_empty(self, place: Place, task: asyncio.Task[Page]) -> None:
        if (task.cancelled() or task.exception() is not None or not task.result().windows) and (
            self._pages.get(place) is task
        ):
            del self._pages[place]

    async def _read(self, place: Place) -> Page:
        windows = [
            Window(*row) for row in await self._link.fetch("event/windows", window_n=place.window_n, room=_WINDOWS)
        ]
        if not windows or windows[0].n != place.window_n:
            raise WindowGone(place.window_n)
        if len(windows) == 1:
            return Page((), place)
        if windows[1].events > self._room or windows[1].n > windows[0].n + 1:
            return await self._read_large(place, windows[0], windows[1])
        return await self._read_small(place, windows)

    async def _read_small(self, place: Place, windows: list[Window]) -> Page:
        some, events = [windows[0]], 0
        for window in windows[1:]:
            events += window.events
            if events > self._room and len(some) > 1:
                break
            some.append(window)
        rows = await self._link.fetch(
            "event/read",
            ns=[w.n for w in some[1:]],
            earlier=[w.snapshot for w in some[:-1]],
            snapshots=[w.snapshot for w in some[1:]],
            first_n=some[1].n,
            after=place.after,
            max_bytes=self._max_bytes,
            room=self._room,
        )
        return self._paged(rows, some, is_whole=len(rows) < self._room and _bytes(rows) < self._max_bytes)

    async def _read_large(self, place: Place, before: Window, window: Window) -> Page:
        after, upto, rows = max(place.after, window.first - 1), 0, list[Row]()
        while not rows and upto < window.last:  # a short page is the last only at the end, and no statement walks far
            upto = min(after + _WALK, window.last)
            rows = await self._link.fetch(
                "event/read_large",
                n=window.n,
                before=before.snapshot,
                snapshot=window.snapshot,
                after=after,
                upto=upto,
                max_bytes=self._max_bytes,
                room=self._room,
            )
            after = upto
        is_cut = len(rows) >= self._room or _bytes(rows) >= self._max_bytes
        is_at_end = rows[-1][1] >= window.last if is_cut else upto >= window.last
        return self._paged(rows, [before, window], is_whole=is_at_end)

    def _paged(self, rows: list[Row], windows: list[Window], *, is_whole: bool) -> Page:
        events = tuple([stored_event(row[1:], Position(row[0], row[1])) for row in rows])
        numbers = tuple([window.n for window in windows])
        if is_whole:
            return Page(events, Place(numbers[-1], 0), numbers)
        page = Page(events, Place(0, 0), numbers)
        return Page(events, Place(page.place_before(events[-1]).window_n, events[-1].number), numbers)


def _bytes(rows: list[Row]) -> int:
    return sum(len(row[12]) for row in rows)


def stored_event(row: Row, position: Position | None, attempt: int = 1) -> StoredEvent:
    """Make an event of a row of the log, in the column order of ``event/read.sql`` from its number on."""
    number, lane, version, id_, source, type_, key, subject, content_type, time, extensions, data = row[:12]
    return StoredEvent(
        number=number,
        lane=lane,
        version=version,
        id=id_,
        source=source,
        type=type_,
        key=key,
        subject=subject,
        content_type=content_type,
        time=time,
        extensions={} if extensions is None else msgspec.json.decode(extensions),
        data=bytes(data),
        position=position,
        attempt=attempt,
    )
