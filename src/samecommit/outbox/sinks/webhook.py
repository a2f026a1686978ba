"""Sends events as signed webhooks: one job for each endpoint that wants an event, tried for about three days.

Each request has the CloudEvents JSON of the event as its body, and an id that is the same for every attempt, by which the
receiver drops repeats. So what is in doubt is sent again. Redirects are never followed, no proxy is taken from the
environment, and every address is checked when it is connected to (see `samecommit.outbox.sinks.guard`).

===================  ==================================================================
answer               what follows
===================  ==================================================================
2xx                  delivered
410                  the endpoint is disabled, the delivery fails
429, 503             tried again, not before ``Retry-After``
anything else, none  tried again by the schedule; after its end the delivery fails
===================  ==================================================================
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from socket import socket
from typing import Any

from samecommit.event import Event, StoredEvent
from samecommit.outbox.adapter import Closes, Delivery
from samecommit.outbox.carried import is_unique
from samecommit.outbox.outcomes import Delivered, Outcome, Rejected, Retry
from samecommit.outbox.signatures import sign
from samecommit.outbox.sinks.endpoints import Endpoint, Endpoints
from samecommit.outbox.sinks.guard import Forbidden, Guard
from samecommit.outbox.sinks.needed import needed
from samecommit.payload.text import clean_text

# 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h: ten attempts in about three days.
SCHEDULE = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
_GONE, _OK, _MOVED = 410, range(200, 300), range(300, 400)
_READ_BYTES, _LONGEST_WAIT_SECONDS = 16_384, 86_400.0


class Webhooks:
    """The adapter: ``app.destination("hooks", matches="order.*")(Webhooks(endpoints))``.

    Args:
        endpoints: to whom.
        guard: where requests may go; by default anywhere but private networks, with TLS only.
        timeout_seconds: the longest request; shorter than the destination's ``timeout``.
        schedule: the pauses between attempts, in seconds.
        keep_bytes: how much of each answer is kept with the attempt; 0 keeps its status only.
        headers: further ones for every request.
    """

    on_doubt = "resend"

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        guard: Guard | None = None,
        timeout_seconds: float = 20.0,
        schedule: Sequence[float] = SCHEDULE,
        keep_bytes: int = 1_000,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoints, self._guard = endpoints, guard or Guard()
        self._seconds, self._schedule, self._keep = timeout_seconds, tuple(schedule), keep_bytes
        self._headers = {"user-agent": "samecommit", **(headers or {})}
        self._tls: Any = None

    def __repr__(self) -> str:
        return f"<Webhooks {self._endpoints!r}>"

    async def targets(self, event: StoredEvent) -> Sequence[str]:
        """Return the endpoints that want an event."""
        return await self._endpoints.wanting(event)

    def complaint(self, event: Event) -> str | None:
        """Take every event."""

    async def close(self) -> None:
        """Close what the endpoints are read with."""
        if isinstance(self._endpoints, Closes):
            await self._endpoints.close()

    async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:
        """Send the event to one endpoint.

        Raises:
            DependencyMissing: aiohttp is not installed.
            ConfigError: a secret of the endpoint cannot be used.
        """
        endpoint = await self._endpoints.get(delivery.target)
        if endpoint is None:
            return Rejected(f"endpoint {delivery.target!r} does not exist any more")
        if not endpoint.is_enabled:
            return Rejected(f"endpoint {delivery.target!r} is disabled")
        body = event.structured()
        message_id = event.dedupe_id if is_unique(event) else delivery.marker
        signed = sign(message_id, int(time.time()), body, endpoint.keys())
        headers = {**self._headers, "content-type": "application/cloudevents+json", **signed}
        try:
            self._guard.check_url(endpoint.url)
            return await self._post(endpoint, headers, body, delivery)
        except Forbidden as error:
            return Rejected(str(error))

    async def _post(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes, delivery: Delivery) -> Outcome:
        http = needed("aiohttp", "webhooks")
        began = time.monotonic()
        gate = _Gate(self._guard)
        try:
            async with self._session(http, gate) as session:
                request = session.post(endpoint.url, data=body, headers=headers, allow_redirects=False)
                async with request as response:
                    said = await response.content.read(_READ_BYTES) if self._keep else b""
        except (TimeoutError, http.ClientError, OSError, ValueError) as error:
            if gate.refused is not None and not gate.has_opened:
                raise gate.refused from error
            return self._again(_said(error, http), delivery, {"seconds": round(time.monotonic() - began, 3)})
        detail: dict[str, Any] = {"status": response.status, "seconds": round(time.monotonic() - began, 3)}
        if said:
            detail["response"] = clean_text(said.decode(errors="replace"), limit_bytes=self._keep)
        return await self._answered(endpoint, response.status, response.headers, delivery, detail)

    def _session(self, http: Any, gate: _Gate) -> Any:
        """Return a session for one request: no connection and no address outlives it."""
        if self._tls is None:
            import ssl

            self._tls = ssl.create_default_context()
        connector = http.TCPConnector(
            socket_factory=gate, use_dns_cache=False, force_close=True, ssl=self._tls, happy_eyeballs_delay=None
        )
        return http.ClientSession(
            connector=connector,
            trust_env=False,
            timeout=http.ClientTimeout(total=self._seconds),
            cookie_jar=http.DummyCookieJar(),
            auto_decompress=False,
        )

    async def _answered(
        self, endpoint: Endpoint, status: int, headers: Mapping[str, str], delivery: Delivery, detail: dict[str, Any]
    ) -> Outcome:
        if status in _OK:
            return Delivered(str(status), detail)
        if status == _GONE:
            reason = f"endpoint {endpoint.id!r} answered 410: it was disabled"
            await self._endpoints.disable(endpoint.id, reason)
            return Rejected(reason, detail)
        moved = ": redirects are not followed, give the endpoint the URL that it leads to" if status in _MOVED else ""
        return self._again(f"answered {status}{moved}", delivery, detail, _seconds_of(headers.get("Retry-After")))

    def _again(
        self, reason: str, delivery: Delivery, detail: Mapping[str, Any], at_least_seconds: float = 0.0
    ) -> Outcome:
        if delivery.attempt > len(self._schedule):
            return Rejected(f"given up after {delivery.attempt} attempts: {reason}", detail)
        pause = self._schedule[delivery.attempt - 1] * (1.0 + random.random() / 10)
        return Retry(reason, max(pause, at_least_seconds), detail)


class _Gate:
    """Makes the sockets of one request: of a name's addresses one may be forbidden and the next one have failed."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.refused: Forbidden | None = None
        self.has_opened = False

    def __call__(self, info: tuple[Any, ...]) -> socket:
        try:
            made = self._guard.socket(info)
        except Forbidden as error:
            self.refused = error
            raise
        self.has_opened = True
        return made


def _said(error: Any, http: Any) -> str:
    """Say what an attempt failed with, without the URL: its path or query may be a secret, and viewers read the attempts."""
    if isinstance(error, http.ClientResponseError):
        said = f"{error.status}, {error.message}"
    elif isinstance(error, http.InvalidURL):
        said = "the endpoint's URL cannot be read"
    else:
        said = str(error)
    return f"{type(error).__name__}: {said}".removesuffix(": ")


def _seconds_of(retry_after: str | None) -> float:
    """Read ``Retry-After``: seconds or a date; 0 when it says neither."""
    if not retry_after:
        return 0.0
    if retry_after.isascii() and retry_after.isdigit():
        seconds = float(retry_after[:9])
    else:
        try:
            moment = parsedate_to_datetime(retry_after)
        except ValueError:
            return 0.0
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_WAIT_SECONDS)
