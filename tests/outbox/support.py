"""What the outbox's tests share: a sink that answers as it is told, and a relay that is driven turn by turn."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg
from tests.support.recorder import Recorder

from samecommit import App
from samecommit.event import Event, Position, StoredEvent
from samecommit.outbox.destination import Matcher, StreamDestination
from samecommit.outbox.log import Log, SharedLink
from samecommit.outbox.outcomes import Delivered, Found, Lookup, NotFound, Outcome
from samecommit.outbox.relay import Relay
from samecommit.outbox.sink import Idempotency, NoIdempotency, Target, Traits
from samecommit.signals import Signals
from samecommit.storage.link import AsyncLink

Answer = Callable[[StoredEvent], Outcome]


class Clock:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Scripted:
    """Answers each event by `answer`; keeps what it took."""

    answer: Answer = lambda _: Delivered()
    idempotency: Idempotency = field(default_factory=NoIdempotency)
    keeps_key_order: bool = False
    batches: list[list[StoredEvent]] = field(default_factory=list)
    taken: list[StoredEvent] = field(default_factory=list)
    connects: int = 0
    size_limit: int | None = None

    @property
    def traits(self) -> Traits:
        return Traits(idempotency=self.idempotency, keeps_key_order=self.keeps_key_order)

    def complaint(self, event: Event) -> str | None:
        is_large = self.size_limit is not None and len(event.data) > self.size_limit
        return f"it takes {self.size_limit} bytes" if is_large else None

    async def connect(self, target: Target) -> None:
        self.connects += 1

    async def close(self) -> None:
        pass

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        self.batches.append(list(batch))
        outcomes = [self.answer(event) for event in batch]
        self.taken += [e for e, o in zip(batch, outcomes, strict=True) if isinstance(o, Delivered)]
        return outcomes

    @property
    def numbers(self) -> list[int]:
        return [event.number for event in self.taken]


@dataclass
class Readable(Scripted):
    """A destination that can be read: what `there` holds is found."""

    there: set[int] = field(default_factory=set)
    looks: list[list[int]] = field(default_factory=list)
    says: Callable[[StoredEvent], Lookup | None] = lambda _: None

    async def find_existing(self, batch: Sequence[StoredEvent]) -> Sequence[Lookup]:
        self.looks.append([event.number for event in batch])
        return [
            self.says(event) or (Found(str(event.number)) if event.number in self.there else NotFound())
            for event in batch
        ]


@dataclass
class Placed(Scripted):
    """A destination that keeps the position, and refuses what is not behind it."""

    stored: Position | None = None

    async def position(self) -> Position | None:
        return self.stored


class Stage:
    """One relay on its own connections, driven by hand."""

    def __init__(self, dsn: str, sink: Scripted, *, name: str = "there", matches: str = "*", **options: Any) -> None:
        self.dsn, self.clock, self.signals = dsn, Clock(), Signals()
        self.recorder = Recorder(self.signals)
        self.destination = StreamDestination(name=name, sink=sink, matches=Matcher(matches), **options)
        self.link = SharedLink(AsyncLink(dsn, "samecommit", "test"))
        self.log = Log(self.link)
        self.relay = self.another()

    def another(self, holder: int = 1) -> Relay:
        """Return a further relay for the same position."""
        return Relay(
            self.destination, 0, self.log, self.link, self.signals, holder=holder, installation="i", clock=self.clock
        )

    async def __aenter__(self) -> Self:
        await self.link.fetch(
            "event/add_destination",
            name=self.destination.name,
            mode="stream",
            shards=self.destination.shards,
            matches=["*"],
            sink=None,
            ordering=None,
            from_start=True,
            start_at=None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.relay.stop()
        await self.link.link.close()

    async def tick(self) -> None:
        """Make a window."""
        self.log.newest_n = (await self.link.fetch("event/make_window"))[0][0]

    async def run(self, turns: int = 30, relay: Relay | None = None) -> float:
        """Make a window and run turns until one wants to wait; the delay that it asked for."""
        await self.tick()
        delay = 0.0
        for _ in range(turns):
            delay = await (relay or self.relay).run_once()
            if delay > 0:
                break
        return delay

    async def later(self, seconds: float) -> float:
        """Move the local clock ahead and run."""
        self.clock.now += seconds
        return await self.run()


def emit(conn: psycopg.Connection[Any], key: str | None, count: int = 1, type_: str = "thing.done") -> list[int]:
    """Emit events of a key, each in a transaction of its own; their numbers."""
    query = "SELECT number FROM samecommit.emit(%s, '{}', %s)"
    rows = [conn.execute(query, [type_, key]).fetchone() for _ in range(count)]
    return [row[0] for row in rows if row is not None]


def last_window(conn: psycopg.Connection[Any]) -> int:
    """Return the number of the newest window."""
    (n,) = conn.execute("SELECT max(n) FROM samecommit.event_window").fetchone() or (0,)
    return int(n)


def set_back(conn: psycopg.Connection[Any], n: int, number: int) -> None:
    """Lose what came behind a window and a number, as a failover to an asynchronous standby does; fences are as they were."""
    conn.execute("DELETE FROM samecommit.event_window WHERE n > %s", [n])
    conn.execute("DELETE FROM samecommit.event WHERE number > %s", [number])
    conn.execute("SELECT setval('samecommit.event_seq', %s)", [number])
    conn.execute("UPDATE samecommit.position SET window_n = %s, after = 0 WHERE window_n >= %s", [n, n])
    conn.execute("""UPDATE samecommit.setting SET value = value || '{"timeline": 0}' WHERE name = 'outbox_line'""")


def parked(conn: psycopg.Connection[Any], destination: str = "there") -> dict[int, str]:
    """Return what is parked, by number."""
    query = "SELECT number, state FROM samecommit.parked WHERE destination = %s ORDER BY number"
    return dict(conn.execute(query, [destination]).fetchall())


def make_due(conn: psycopg.Connection[Any]) -> None:
    """Let everything parked be due now."""
    conn.execute("UPDATE samecommit.parked SET due_at = clock_timestamp() - interval '1 second'")


def declared(dsn: str) -> tuple[App, type[Any]]:
    """Return an application with one event type."""
    app = App(dsn, source="/shop")

    @app.event(type="lead.created", key="id", subject="name")
    @dataclasses.dataclass
    class LeadCreated:
        id: int
        name: str

    return app, LeadCreated
