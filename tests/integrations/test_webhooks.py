"""The receiver of webhooks: takes what is signed, once, and nothing else."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import psycopg
import pytest
from tests.sinks.test_signatures import new_secret

from samecommit.errors import ConfigError
from samecommit.event import StoredEvent
from samecommit.integrations.webhooks import Received, WebhookReceiver
from samecommit.outbox.inbox import Inbox, Message
from samecommit.outbox.signatures import sign

SECRET = new_secret()
EVENT = StoredEvent(
    id="e1", source="/shop", type="order.placed", data=b'{"n": 1}', key="7", time=datetime.now(UTC), number=5
)


async def posted(receiver: WebhookReceiver, body: bytes, headers: dict[str, str], method: str = "POST") -> int:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(receiver, raise_app_exceptions=False), base_url="http://receiver"
    ) as client:
        return (await client.request(method, "/", content=body, headers=headers)).status_code


def signed(body: bytes, secret: str = SECRET, timestamp: float | None = None) -> dict[str, str]:
    return sign("m1", int(timestamp or time.time()), body, [secret])


class Taking:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Received] = []

    async def __call__(self, received: Received) -> None:
        self.got.append(received)


async def test_what_is_signed_reaches_the_handler() -> None:
    take, body = Taking(), EVENT.structured()
    assert await posted(WebhookReceiver([SECRET], take), body, signed(body)) == 204
    (received,) = take.got
    assert received.event["data"] == {"n": 1}
    assert received.message == Message(source="/shop", id="e1", key="7", number=5)


async def test_what_is_no_cloudevent_is_known_by_the_webhooks_id() -> None:
    take = Taking()
    assert await posted(WebhookReceiver([SECRET], take), b'{"hello": 1}', signed(b'{"hello": 1}')) == 204
    assert take.got[0].message == Message(source="webhook", id="m1")


async def test_what_has_an_id_and_a_source_but_is_no_cloudevent_is_known_by_the_webhooks_id() -> None:
    take, known = Taking(), list[Message]()
    for number, status in enumerate(("paid", "refunded")):
        body = b'{"id": 42, "source": "checkout", "status": "%s"}' % status.encode()
        headers = sign(f"m{number}", int(time.time()), body, [SECRET])
        assert await posted(WebhookReceiver([SECRET], take, source="shop"), body, headers) == 204
        known.append(take.got[-1].message)
    assert known == [Message(source="shop", id="m0"), Message(source="shop", id="m1")]


@pytest.mark.parametrize(
    ("body", "sign_it", "method", "status"),
    [
        pytest.param(b"{}", lambda body: {}, "POST", 401, id="not signed"),
        pytest.param(b"{}", lambda body: signed(body, new_secret()), "POST", 401, id="another secret"),
        pytest.param(b"{ }", lambda body: signed(b"{}"), "POST", 401, id="another body"),
        pytest.param(b"{}", lambda body: signed(body, timestamp=time.time() - 10_000), "POST", 401, id="long ago"),
        pytest.param(b"[]", signed, "POST", 400, id="no object"),
        pytest.param(b"\xff", signed, "POST", 400, id="no text"),
        pytest.param(b"x" * 101, signed, "POST", 413, id="too large"),
        pytest.param(b"{}", signed, "GET", 405, id="another method"),
    ],
)
async def test_anything_else_is_refused(
    body: bytes, sign_it: Callable[[bytes], dict[str, str]], method: str, status: int
) -> None:
    take = Taking()
    assert await posted(WebhookReceiver([SECRET], take, max_bytes=100), body, sign_it(body), method) == status
    assert take.got == []


async def test_while_a_secret_is_replaced_either_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    new = new_secret()
    monkeypatch.setenv("NEW_SECRET", new)
    receiver = WebhookReceiver(["env:NEW_SECRET", SECRET], Taking())
    for secret in (new, SECRET):
        assert await posted(receiver, b"{}", signed(b"{}", secret)) == 204


def test_a_secret_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        WebhookReceiver(["hunter2"], Taking())


async def test_a_handler_that_fails_is_asked_again_and_takes_it_once(dsn: str) -> None:
    inbox, effects, fails = Inbox("billing"), 0, [True, False, False]

    async def take(received: Received) -> None:
        nonlocal effects
        async with await psycopg.AsyncConnection.connect(dsn) as conn, conn.transaction():
            if await inbox.once(conn, received.message):
                if fails.pop(0):
                    raise RuntimeError("the disk is full")
                effects += 1

    receiver, body = WebhookReceiver([SECRET], take), EVENT.structured()
    statuses = [await posted(receiver, body, signed(body)) for _ in range(3)]
    assert (statuses, effects) == ([500, 204, 204], 1)


async def test_it_lives_and_ends_when_it_runs_alone() -> None:
    coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: list[dict[str, Any]] = []

    async def send(event: Any) -> None:
        sent.append(event)

    for name in ("lifespan.startup", "lifespan.shutdown"):
        coming.put_nowait({"type": name})
    await WebhookReceiver([SECRET], Taking())({"type": "lifespan"}, coming.get, send)
    assert [event["type"] for event in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
