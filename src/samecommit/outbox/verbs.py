"""What an application and a registry of tasks can say about events: declare types, say where events go, emit."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

from samecommit.storage.connections import AsyncConn, SyncConn, perform

if TYPE_CHECKING:  # an application without events does not pay for them when it is imported
    from typing import Unpack

    from samecommit.event import Event
    from samecommit.outbox.destination import Order, Poison, Start
    from samecommit.outbox.emit import Emitted
    from samecommit.outbox.registry import Declarations
    from samecommit.outbox.sink import Sink

C = TypeVar("C", bound=type[Any])
A = TypeVar("A")


class EventOptions(TypedDict, total=False):
    """What may be said of an event beside itself; see `OutboxVerbs.emit`."""

    type: str | None
    key: str | None
    subject: str | None
    event_id: str | None
    content_type: str | None
    extensions: Mapping[str, str] | None


class OutboxVerbs:
    """The verbs; `samecommit.App` and `samecommit.Tasks` have them."""

    source = "samecommit"

    def __init__(self) -> None:
        self._declared: Declarations | None = None
        self._declares_for: OutboxVerbs | None = None

    @property
    def _outbox(self) -> Declarations:
        """What is declared: an application and its registries share it."""
        if self._declares_for is not None:
            return self._declares_for._outbox  # noqa: SLF001 - the same class
        if self._declared is None:
            from samecommit.outbox.registry import Declarations

            self._declared = Declarations()
        return self._declared

    def _include_outbox(self, other: OutboxVerbs) -> None:
        """Take up what a registry declares, and what it will declare."""
        if other._declared is not None:
            self._outbox.take_up(other._declared)
        other._declares_for, other.source = self, self.source

    def _schema_name(self) -> str:
        raise NotImplementedError

    def event(
        self,
        *,
        type: str,  # noqa: A002 - the attribute's name in CloudEvents
        key: str | None = None,
        subject: str | None = None,
        version: int = 1,
    ) -> Callable[[C], C]:
        """Declare a class as an event type; any dataclass, msgspec struct or pydantic model.

        Args:
            type: what happened, as in ``lead.created``; it does not change when the class is renamed.
            key: the attribute whose value orders events: those of one key arrive in the order of their commits.
            subject: the attribute that says what it is about.
            version: of the data's shape.

        Raises:
            TaskDefinitionError: the class cannot be stored, or lacks that attribute.
        """
        return self._outbox.event(type_=type, key=key, subject=subject, version=version)

    def stream(
        self,
        name: str,
        sink: Sink | Callable[[], Sink],
        *,
        matches: str | Iterable[str] = "*",
        order: Order = "key",
        poison: Poison | None = None,
        shards: int = 1,
        start: Start | datetime = "now",
        retry_for_seconds: float = 86_400.0,
        send_seconds: float = 10.0,
        lease_seconds: float = 30.0,
    ) -> None:
        """Send events to a sink, in batches; see `samecommit.outbox.destination` for orders and policies.

        With several ``shards``, give a function that makes a sink: each shard has a connection and a position of its own.

        Raises:
            ConfigError: the name is taken, or options contradict each other.
        """
        self._outbox.stream(
            name,
            sink,
            matches=matches,
            order=order,
            poison=poison,
            shards=shards,
            start=start,
            retry_for_seconds=retry_for_seconds,
            send_seconds=send_seconds,
            lease_seconds=lease_seconds,
        )

    def destination(
        self,
        name: str,
        *,
        matches: str | Iterable[str] = "*",
        order: Literal["none", "key"] = "none",
        queue: str = "default",
        max_attempts: int | None = None,
        timeout: float = 60.0,
        settle_seconds: float | None = None,
        on_doubt: Literal["hold", "resend"] | None = None,
        doubt_for_seconds: float = 3_600.0,
        start: Start | datetime = "now",
        lease_seconds: float = 30.0,
    ) -> Callable[[A], A]:
        """Declare a class (or object) with ``send`` and, where it can, ``find_existing`` as a destination: one job per event.

        Args:
            name: chosen once; positions and waiting jobs hang on it.
            matches: which event types.
            order: ``key`` begins the next delivery of a key when the one before it has ended.
            queue: where its jobs wait.
            max_attempts: None is the queue's default.
            timeout: the longest attempt, in seconds.
            settle_seconds: how long an effect may be invisible to ``find_existing``; else the adapter's own, else 60.
            on_doubt: without ``find_existing``: hold a doubtful delivery for a person, or send it again; else the adapter's
                own, else ``hold``.
            doubt_for_seconds: how long to look before a person decides.
            start: where a new destination begins.
            lease_seconds: how long the relay that makes its jobs may be silent before another takes its place.

        Raises:
            ConfigError: it has no ``send``, or the name is taken.
        """
        options: dict[str, Any] = {
            "order": order,
            "queue": queue,
            "max_attempts": max_attempts,
            "timeout_seconds": timeout,
            "doubt_for_seconds": doubt_for_seconds,
            "start": start,
            "lease_seconds": lease_seconds,
        }
        own = {"settle_seconds": settle_seconds, "on_doubt": on_doubt}
        options.update({name: value for name, value in own.items() if value is not None})

        def declare(adapter: A) -> A:
            self._outbox.destination(name, adapter, matches=matches, options=options)
            return adapter

        return declare

    @overload
    def emit(
        self,
        conn: AsyncConn,
        event: Any,
        /,
        *,
        type: str | None = ...,
        key: str | None = ...,
        subject: str | None = ...,
        event_id: str | None = ...,
        content_type: str | None = ...,
        extensions: Mapping[str, str] | None = ...,
        own_transaction: bool = ...,
    ) -> Coroutine[Any, Any, Emitted]: ...
    @overload
    def emit(
        self,
        conn: SyncConn,
        event: Any,
        /,
        *,
        type: str | None = ...,
        key: str | None = ...,
        subject: str | None = ...,
        event_id: str | None = ...,
        content_type: str | None = ...,
        extensions: Mapping[str, str] | None = ...,
        own_transaction: bool = ...,
    ) -> Emitted: ...
    def emit(
        self,
        conn: Any,
        event: Any,
        /,
        *,
        type: str | None = None,  # noqa: A002
        key: str | None = None,
        subject: str | None = None,
        event_id: str | None = None,
        content_type: str | None = None,
        extensions: Mapping[str, str] | None = None,
        own_transaction: bool = False,
    ) -> Any:
        """Store an event in the connection's open transaction: it is delivered if and only if that transaction commits.

        Emit after the write that locks what the event is about; then events of a key keep the order of their commits.

        Args:
            conn: as for ``task.enqueue``.
            event: an instance of a declared class; with ``type``, anything that JSON holds, or bytes.
            type: for an event without a class.
            key: in place of the class's key.
            subject: in place of the class's subject.
            event_id: in place of a random UUID; receivers drop repeats by it.
            content_type: of bytes.
            extensions: further CloudEvents attributes; ``traceparent`` is that of OpenTelemetry's current span unless given.
            own_transaction: allow a connection that commits each statement.

        Returns:
            `Emitted`, or a coroutine of it on an asynchronous connection.

        Raises:
            PayloadError: before any SQL; a part that cannot be stored.
            EventRefused: before any SQL; a destination that gets this type could never take it.
            NotInTransaction: the connection would commit by itself.
        """
        from samecommit.outbox.emit import emit

        made = self.new_event(
            event,
            type=type,
            key=key,
            subject=subject,
            event_id=event_id,
            content_type=content_type,
            extensions=extensions,
        )
        return perform(conn, emit(made, self._schema_name(), own_transaction=own_transaction))

    def new_event(self, event: Any, /, **options: Unpack[EventOptions]) -> Event:
        """Check an event and return what `emit` would store, without storing it; options as there.

        Raises:
            PayloadError, EventRefused: as `emit`.
        """
        from samecommit.outbox.emit import new_event

        return new_event(self._outbox, event, source=self.source, **options)
