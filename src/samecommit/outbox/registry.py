"""What an application declares of its outbox: its event types and where events go. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from uuid import UUID

from samecommit.errors import ConfigError, PayloadError, TaskDefinitionError
from samecommit.outbox.adapter import Adapter, Complains
from samecommit.outbox.destination import Destination, JobDestination, Matcher, StreamDestination
from samecommit.outbox.sink import Sink
from samecommit.payload import ValueCodec

C = TypeVar("C", bound=type[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """A declared event: its class, its type's name, and which attribute is its key."""

    name: str
    cls: type[Any]
    key: str | None
    subject: str | None
    version: int
    codec: ValueCodec

    def text_of(self, event: Any, attribute: str | None) -> str | None:
        """Return an attribute as text.

        Raises:
            PayloadError: it is neither text, a whole number nor a UUID.
        """
        if attribute is None:
            return None
        value = getattr(event, attribute)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int | UUID) and not isinstance(value, bool):
            return str(value)
        msg = f"event {self.name!r}: {attribute} is {value!r}, which is no key: give text, a whole number or a UUID"
        raise PayloadError(msg, f"$.{attribute}")


class Declarations:
    """Event types and destinations, in the order in which they were declared."""

    def __init__(self) -> None:
        self._types: dict[type[Any], EventType] = {}
        self._destinations: dict[str, Destination] = {}

    def __repr__(self) -> str:
        return f"<Declarations {[t.name for t in self._types.values()]} to {sorted(self._destinations)}>"

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """Where events go."""
        return tuple(self._destinations.values())

    def chosen(self, only: Iterable[str] | None) -> list[Destination]:
        """Return the destinations of these names, None is all of them.

        Raises:
            ConfigError: there are none at all, or none of a name.
        """
        known = self._destinations
        if not known:
            msg = "this application has no destinations, so a relay would do nothing: declare some, or name their modules in imports="
            raise ConfigError(msg)
        names = list(known if only is None else only)
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"no destination is named {unknown[0]!r}: there are {', '.join(map(repr, known))}")
        return [known[name] for name in names]

    def take_up(self, other: Declarations) -> None:
        """Add what a registry declares.

        Raises:
            ConfigError, TaskDefinitionError: a name is taken.
        """
        for kind in other._types.values():
            self._add_type(kind)
        for destination in other.destinations:
            self.add(destination)

    def event(
        self, *, type_: str, key: str | None = None, subject: str | None = None, version: int = 1
    ) -> Callable[[C], C]:
        """Return the decorator that declares a class as an event type."""

        def declare(cls: C) -> C:
            for attribute in (key, subject):
                if attribute is not None and attribute not in _attributes(cls):
                    msg = f"event class {cls.__qualname__} has no attribute {attribute!r} to be its key or subject"
                    raise TaskDefinitionError(msg)
            codec = ValueCodec(cls)
            self._add_type(EventType(name=type_, cls=cls, key=key, subject=subject, version=version, codec=codec))
            return cls

        return declare

    def _add_type(self, kind: EventType) -> None:
        if kind.cls in self._types:
            raise TaskDefinitionError(f"class {kind.cls.__qualname__} is declared as an event twice")
        self._types[kind.cls] = kind

    def type_of(self, event: Any) -> EventType:
        """Return how an object is emitted.

        Raises:
            PayloadError: its class was not declared.
        """
        cls: type[Any] = event.__class__
        kind = self._types.get(cls)
        if kind is None:
            msg = (
                f"{cls.__qualname__} is not declared as an event: put @app.event(type=..., key=...) on its class, "
                "or give type=... to emit plain JSON"
            )
            raise PayloadError(msg)
        return kind

    def add(self, destination: Destination) -> None:
        """Add a destination.

        Raises:
            ConfigError: its name is taken.
        """
        if destination.name in self._destinations:
            raise ConfigError(f"two destinations are named {destination.name!r}: give one of them another name")
        self._destinations[destination.name] = destination

    def stream(
        self, name: str, sink: Sink | Callable[[], Sink], *, matches: str | Iterable[str], shards: int, **options: Any
    ) -> None:
        """Add a destination that takes batches; a function makes a sink for each shard."""
        first, *more = [sink() for _ in range(max(shards, 1))] if callable(sink) else [sink]
        made = StreamDestination(
            name=name, sink=first, more_sinks=tuple(more), matches=Matcher(matches), shards=shards, **options
        )
        self.add(made)

    def destination(self, name: str, adapter: Any, *, matches: str | Iterable[str], options: Mapping[str, Any]) -> None:
        """Add a destination whose events become jobs; an adapter class is made without arguments."""
        made = cast("Adapter", adapter() if isinstance(adapter, type) else adapter)
        if not callable(getattr(made, "send", None)):
            raise ConfigError(f"destination {name!r}: {adapter!r} has no method send(event, delivery)")
        own = {option: getattr(made, option) for option in ("settle_seconds", "on_doubt") if hasattr(made, option)}
        self.add(JobDestination(name=name, adapter=made, matches=Matcher(matches), **{**own, **options}))

    def complainers(self, type_: str) -> Iterator[tuple[str, Sink | Complains]]:
        """Yield the destinations that get a type and can refuse an event, with their code."""
        for destination in self._destinations.values():
            if destination.matches(type_):
                code = destination.sink if isinstance(destination, StreamDestination) else destination.adapter
                if isinstance(code, Complains):
                    yield destination.name, code


def _attributes(cls: type[Any]) -> set[str]:
    names = set(dir(cls))
    for base in cls.__mro__:
        names.update(getattr(base, "__annotations__", ()))
    return names
