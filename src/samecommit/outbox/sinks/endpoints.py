"""To whom webhooks go: endpoints with a URL and secrets, from a list or from wherever an application keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import psycopg

from samecommit.errors import ConfigError
from samecommit.event import Event, StoredEvent
from samecommit.outbox.destination import Matcher
from samecommit.outbox.log import SharedLink
from samecommit.storage.link import AsyncLink
from samecommit.storage.query import check_schema


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


class StoredEndpoints:
    """Endpoints in a table of the installation: shared by all processes, kept over restarts.

    The verbs are functions in SQL, too, for whoever changes endpoints in a transaction of its own (``add_endpoint`` and so on).

    Args:
        dsn: the installation's database.
        schema: its schema.
    """

    def __init__(self, dsn: str, schema: str = "samecommit") -> None:
        self._link = SharedLink(AsyncLink(dsn, check_schema(schema), "endpoints"))
        self._window = -1
        self._wanting: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        return f"<StoredEndpoints in {self._link.link.schema!r}>"

    async def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        await self._link.link.close()

    async def add(
        self, endpoint_id: str, url: str, *, matches: Iterable[str] = ("*",), secret: str | None = None
    ) -> str:
        """Add an endpoint, or give it another URL and other types; its secret, which its receiver needs.

        Args:
            endpoint_id: chosen once: 1 to 100 letters, digits and ``_``, ``.``, ``-``.
            url: where it listens.
            matches: which event types.
            secret: ``whsec_...``, ``env:NAME`` or ``file:/path``; None makes a new one.

        Raises:
            ConfigError: one of these cannot be used; says which. Or it is there with another secret.
        """
        return await self._changed(
            "add", id=endpoint_id, url=url, matches=list(Matcher(matches).patterns), secret=secret
        )

    async def rotate(self, endpoint_id: str, secret: str | None = None, *, keep_seconds: float = 86_400.0) -> str:
        """Give an endpoint a new secret, and return it; for so long requests are signed with the one before, too.

        Raises:
            ConfigError: there is no such endpoint, or the secret cannot be used.
        """
        return await self._changed("rotate", id=endpoint_id, secret=secret, keep_seconds=keep_seconds)

    async def disable(self, endpoint_id: str, reason: str) -> None:
        """Send nothing more to an endpoint; what it has not got by then fails."""
        await self._link.fetch("endpoint/disable", id=endpoint_id, reason=reason)

    async def enable(self, endpoint_id: str) -> bool:
        """Send to an endpoint again what comes from now on; whether it is there."""
        return bool((await self._link.fetch("endpoint/enable", id=endpoint_id))[0][0])

    async def remove(self, endpoint_id: str) -> bool:
        """Forget an endpoint; whether it was there."""
        return bool((await self._link.fetch("endpoint/remove", id=endpoint_id))[0][0])

    async def get(self, endpoint_id: str) -> Endpoint | None:
        """Return one of them as it is now."""
        rows = await self._link.fetch("endpoint/get", id=endpoint_id)
        if not rows:
            return None
        url, secrets, matches, is_enabled = rows[0]
        return Endpoint(id=endpoint_id, url=url, secrets=secrets, matches=Matcher(matches), is_enabled=is_enabled)

    async def wanting(self, event: Event) -> Sequence[str]:
        """Return the ids of those that want an event.

        What was read is good for all events of the same window of the log, and of those before: they were there by then.
        """
        position = event.position if isinstance(event, StoredEvent) else None
        if position is None or position.window > self._window:
            self._wanting.clear()
            self._window = -1 if position is None else position.window
        known = self._wanting.get(event.type)
        if known is None:
            rows = await self._link.fetch("endpoint/wanting", type=event.type)
            known = self._wanting[event.type] = [row[0] for row in rows]
        return known

    async def _changed(self, verb: str, **values: object) -> str:
        try:
            return str((await self._link.fetch(f"endpoint/{verb}", **values))[0][0])
        except psycopg.Error as error:
            if error.sqlstate != "SC004":
                raise
            raise ConfigError(f"{error.diag.message_primary}: {error.diag.message_hint}") from error


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
