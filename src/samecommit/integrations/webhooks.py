"""Receives webhooks that Samecommit (or anybody by the Standard Webhooks specification) has signed: an ASGI application.

It answers 2xx only after the handler has returned, so a handler that notes the message in an inbox and stores a job takes
each event once, and is asked again when it could not::

    async def take(received: Received) -> None:
        async with pool.connection() as conn, conn.transaction():
            await inbox.enqueue(conn, received.message, make_invoice.job(received.event["data"]["order_id"]))

    app.mount("/hooks", WebhookReceiver(secrets=["env:HOOK_SECRET"], handle=take))

============  ===========================================================
answer        to
============  ===========================================================
204           a message that the handler took
400           a body that is no JSON object
401           a signature that does not fit, or a time too far from now
405, 413      another method than POST; a body that is too large
500           whatever the handler raised, which is raised on
============  ===========================================================
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from samecommit.errors import PayloadError, SignatureRefused
from samecommit.outbox.inbox import Message
from samecommit.outbox.signatures import TOLERANCE_SECONDS, secret_key, verify
from samecommit.outbox.sinks.endpoints import secret_at

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MOST_BYTES = 2_097_152


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A verified webhook.

    Args:
        id: its ``webhook-id``, the same for every attempt.
        event: the body, decoded.
        body: as it came.
        headers: names in lower case.
        source: what to call the sender when the event does not say.
    """

    id: str
    event: dict[str, Any]
    body: bytes
    headers: Mapping[str, str]
    source: str = "webhook"

    @property
    def message(self) -> Message:
        """What an inbox knows it by: the event's own identity, or the webhook's when it is no CloudEvent.

        Another body may have an ``id`` and a ``source`` as well, which need not be other ones with each message.
        """
        if self.event.get("specversion") is None:
            return Message(source=self.source, id=self.id)
        try:
            return Message.of(self.event)
        except PayloadError:
            return Message(source=self.source, id=self.id)


class WebhookReceiver:
    """The application; mount it where the sender posts to.

    Args:
        secrets: any of them will do: ``whsec_...``, ``env:NAME`` or ``file:/path``; looked up at each request.
        handle: called with each verified webhook; what it raises makes the sender try again.
        source: what to call the sender when its events are no CloudEvents: another name for each sender.
        max_bytes: of a body.
        tolerance_seconds: how far its time may be from now.
        clock: seconds since 1970.

    Raises:
        ConfigError: a secret that is given itself cannot be used.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        handle: Callable[[Received], Awaitable[None]],
        *,
        source: str = "webhook",
        max_bytes: int = _MOST_BYTES,
        tolerance_seconds: float = TOLERANCE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secrets, self._handle, self._source = tuple(secrets), handle, source
        self._most, self._tolerance, self._clock = max_bytes, tolerance_seconds, clock
        for secret in self._secrets:
            if not secret.startswith(("env:", "file:")):
                secret_key(secret)

    def __repr__(self) -> str:
        return f"<WebhookReceiver with {len(self._secrets)} secrets>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["type"] != "http" or scope["method"] != "POST":
            return await _answer(send, 405, "give it a POST")
        body = await self._body(receive)
        if body is None:
            return await _answer(send, 413, f"give at most {self._most:,} bytes")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            known = [secret_at(secret) for secret in self._secrets]
            message_id = verify(headers, body, known, self._clock(), self._tolerance)
            event = msgspec.json.decode(body, type=dict[str, Any])
        except SignatureRefused as error:
            return await _answer(send, 401, str(error))
        except msgspec.DecodeError:
            return await _answer(send, 400, "the body is no JSON object")
        received = Received(id=message_id, event=event, body=body, headers=headers, source=self._source)
        return await self._take(received, send)

    async def _take(self, received: Received, send: Send) -> None:
        try:
            await self._handle(received)
        except Exception:
            await _answer(send, 500, "it could not be taken: send it again")
            raise
        await _answer(send, 204, "")

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the body; None when it is too large, or the sender went away."""
        parts: list[bytes] = []
        size, is_more = 0, True
        while is_more:
            event = await receive()
            if event["type"] != "http.request":
                return None
            part: bytes = event.get("body", b"")
            size += len(part)
            if size > self._most:
                return None
            parts.append(part)
            is_more = event.get("more_body", False)
        return b"".join(parts)


async def _answer(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers if body else []})
    await send({"type": "http.response.body", "body": body})


async def _live(receive: Receive, send: Send) -> None:
    """Be there and be gone, when it runs alone."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
