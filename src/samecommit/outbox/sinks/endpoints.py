"""To whom webhooks go: endpoints with a URL and secrets, from a list or from wherever an application keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from samecommit.errors import ConfigError
from samecommit.event import Event
from samecommit.outbox.destination import Matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one receiver wants its events.

    Args:
        id: chosen once; jobs that wait name it.
        url: not shown.
        secrets: the newest first; while one is replaced, the old one behind it. A secret (``whsec_...``), or where it is:
            ``env:NAME`` or ``file:/path``. Not shown.
        matches: which event types.
        is_enabled: False sends nothing more.
    """

    id: str
    url: str = field(repr=False)
    secrets: Sequence[str] = field(repr=False)
    matches: Matcher = field(default_factory=lambda: Matcher("*"))
    is_enabled: bool = True

    def keys(self) -> list[str]:
        """Return the secrets themselves.

        Raises:
            ConfigError: one is not where it should be; says where that is.
        """
        return [secret_at(text) for text in self.secrets]


class Endpoints(Protocol):
    """Where endpoints are kept."""

    async def wanting(self, event: Event) -> Sequence[str]:
        """Return the ids of those that want an event, when it is expanded into jobs."""
        ...

    async def get(self, endpoint_id: str) -> Endpoint | None:
        """Return one of them as it is now, None when it is gone; asked before each attempt."""
        ...

    async def disable(self, endpoint_id: str, reason: str) -> None:
        """Send nothing more to one of them: its receiver said so."""
        ...


class FixedEndpoints:
    """Endpoints that are known from the start; which of them are disabled is forgotten with the process."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = {endpoint.id: endpoint for endpoint in endpoints}

    def __repr__(self) -> str:
        return f"<FixedEndpoints {', '.join(self._endpoints)}>"

    async def wanting(self, event: Event) -> Sequence[str]:
        """Return the ids of those that want an event."""
        return [it.id for it in self._endpoints.values() if it.is_enabled and it.matches(event.type)]

    async def get(self, endpoint_id: str) -> Endpoint | None:
        """Return one of them."""
        return self._endpoints.get(endpoint_id)

    async def disable(self, endpoint_id: str, reason: str) -> None:  # noqa: ARG002 - there is no place for the reason
        """Send nothing more to one of them."""
        self._endpoints[endpoint_id] = replace(self._endpoints[endpoint_id], is_enabled=False)


def secret_at(text: str) -> str:
    """Return a secret that is given itself, or looked up at ``env:NAME`` or ``file:/path``.

    Raises:
        ConfigError: it is not there.
    """
    kind, _, place = text.partition(":")
    try:
        match kind:
            case "env":
                return os.environ[place]
            case "file":
                return Path(place).read_text(encoding="utf-8").strip()
            case _:
                return text
    except (KeyError, OSError) as error:
        raise ConfigError(f"the secret at {text!r} is not there: {type(error).__name__}") from error
