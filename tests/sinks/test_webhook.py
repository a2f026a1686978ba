"""What a webhook looks like on the wire, and what follows each answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from tests.sinks.receiver import Receiver
from tests.sinks.test_signatures import new_secret
from tests.support.jobs import Jobs

from samecommit import App
from samecommit.config import WorkerConfig
from samecommit.errors import ConfigError, SignatureRefused
from samecommit.event import Position, StoredEvent
from samecommit.outbox.adapter import Delivery
from samecommit.outbox.destination import Matcher
from samecommit.outbox.outcomes import Delivered, Outcome, Rejected, Retry
from samecommit.outbox.signatures import verify
from samecommit.outbox.sinks.endpoints import Endpoint, FixedEndpoints, StoredEndpoints
from samecommit.outbox.sinks.guard import Guard
from samecommit.outbox.sinks.webhook import SCHEDULE, Webhooks

SECRET = new_secret()
HERE = Guard(allow=["127.0.0.0/8"], ports=None, allow_http=True)
EVENT = StoredEvent(
    id="e1", source="/shop", type="order.placed", data=b'{"n": 1}', key="7", time=datetime.now(UTC), number=5
)


def delivery(attempt: int = 1) -> Delivery:
    return Delivery(
        destination="hooks", target="shop", marker="sc-1", attempt=attempt, first_at=datetime.now(UTC), last_at=None
    )


def hooks(url: str, *, guard: Guard | None = HERE, secrets: tuple[str, ...] = (SECRET,), **options: Any) -> Webhooks:
    endpoint = Endpoint(id="shop", url=url, secrets=secrets)
    return Webhooks(FixedEndpoints([endpoint]), guard=guard, **options)


async def answered(*answers: tuple[int, dict[str, str], str] | None, attempt: int = 1, **options: Any) -> Outcome:
    async with Receiver(list(answers)) as receiver:
        return await hooks(receiver.url, **options).send(EVENT, delivery(attempt))


async def test_a_webhook_is_signed_json_and_its_answer_is_kept() -> None:
    async with Receiver([(200, {}, "thank you\0")]) as receiver:
        outcome = await hooks(receiver.url).send(EVENT, delivery())
        ((headers, body),) = receiver.got
    assert verify(headers, body, [SECRET], time.time()) == "sc-1"
    assert headers["content-type"] == "application/cloudevents+json"
    sent = json.loads(body)
    assert (sent["id"], sent["type"], sent["partitionkey"], sent["data"]) == ("e1", "order.placed", "7", {"n": 1})
    assert isinstance(outcome, Delivered)
    assert outcome.detail is not None
    assert (outcome.detail["status"], outcome.detail["response"]) == (200, "thank you\\x00")


@pytest.mark.parametrize(
    ("event_id", "sent"),
    [
        ("0b0f7a9e-5a3c-4b6d-8d7e-2f1c3a4b5d6e", "0b0f7a9e-5a3c-4b6d-8d7e-2f1c3a4b5d6e"),
        ("order-1", "sc-1"),  # another source may have an order-1 as well
        ("e.1", "sc-1"),  # and this one could not be signed
    ],
)
async def test_a_webhook_is_known_by_its_events_id_only_where_no_other_source_can_have_it(
    event_id: str, sent: str
) -> None:
    async with Receiver() as receiver:
        event = StoredEvent(id=event_id, source="/", type="x", data=b"{}", time=datetime.now(UTC), number=1)
        assert isinstance(await hooks(receiver.url).send(event, delivery()), Delivered)
        assert receiver.got[0][0]["webhook-id"] == sent


async def test_the_pauses_follow_the_schedule_and_end() -> None:
    for attempt, pause in enumerate(SCHEDULE, 1):
        outcome = await answered((500, {}, "oops"), attempt=attempt)
        assert isinstance(outcome, Retry)
        assert outcome.after is not None
        assert pause <= outcome.after <= pause * 1.1
    last = await answered((500, {}, "oops"), attempt=len(SCHEDULE) + 1)
    assert isinstance(last, Rejected)
    assert last.reason == "given up after 10 attempts: answered 500"
    assert sum(SCHEDULE) == pytest.approx(75.6 * 3600, rel=0.01)


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("120", 120, 120),
        (format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True), 3000, 3600),
        ("99999999999999", 86_400, 86_400),
        ("soon", 5, 6),
        ("-5", 5, 6),
    ],
    ids=["seconds", "a date", "far too long", "no number", "negative"],
)
async def test_a_receiver_may_ask_for_a_longer_pause(said: str, least: float, most: float) -> None:
    outcome = await answered((429, {"Retry-After": said}, ""))
    assert isinstance(outcome, Retry)
    assert outcome.after is not None
    assert least <= outcome.after <= most


async def test_410_disables_the_endpoint() -> None:
    async with Receiver([(410, {}, "")]) as receiver:
        sending = hooks(receiver.url)
        assert isinstance(await sending.send(EVENT, delivery()), Rejected)
        again = await sending.send(EVENT, delivery(2))
        assert again == Rejected("endpoint 'shop' is disabled")
        assert len(receiver.got) == 1
        assert await sending.targets(EVENT) == []


async def test_a_deleted_endpoint_fails_its_deliveries() -> None:
    outcome = await Webhooks(FixedEndpoints([])).send(EVENT, delivery())
    assert outcome == Rejected("endpoint 'shop' does not exist any more")


async def test_a_redirect_is_a_failure_and_not_followed() -> None:
    async with Receiver() as elsewhere, Receiver([(307, {"Location": elsewhere.url}, "")]) as receiver:
        outcome = await hooks(receiver.url).send(EVENT, delivery())
        assert isinstance(outcome, Retry)
        assert outcome.reason == "answered 307: redirects are not followed, give the endpoint the URL that it leads to"
        assert elsewhere.got == []


async def test_a_receiver_that_hangs_up_or_is_slow_or_away_is_tried_again() -> None:
    assert isinstance(await answered(None), Retry)
    async with Receiver(delay=5.0) as slow:
        outcome = await hooks(slow.url, timeout_seconds=0.2).send(EVENT, delivery())
    assert isinstance(outcome, Retry)
    assert "Timeout" in outcome.reason
    gone = await hooks(slow.url).send(EVENT, delivery())
    assert isinstance(gone, Retry)


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    outcome = await answered((200, {}, "x" * 5_000_000), keep_bytes=100)
    assert isinstance(outcome, Delivered)
    assert outcome.detail is not None
    assert len(outcome.detail["response"].encode()) <= 130
    bare = await answered((200, {}, "secret"), keep_bytes=0)
    assert isinstance(bare, Delivered)
    assert bare.detail is not None
    assert "response" not in bare.detail


# --------------------------------------------------------------------------------------------------------- where it may go


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "[::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"]
)
async def test_a_private_address_is_refused_when_it_is_connected_to(host: str) -> None:
    async with Receiver() as receiver:
        guard = Guard(ports=None, allow_http=True)
        outcome = await hooks(f"http://{host}:{receiver.port}/", guard=guard).send(EVENT, delivery())
        assert isinstance(outcome, Rejected), outcome
        assert "private or reserved" in outcome.reason
        assert receiver.got == []


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f.1"])
async def test_an_address_in_disguise_reaches_nobody(host: str) -> None:
    async with Receiver() as receiver:
        guard = Guard(ports=None, allow_http=True)
        outcome = await hooks(f"http://{host}:{receiver.port}/", guard=guard).send(EVENT, delivery())
        assert isinstance(outcome, Rejected | Retry)
        assert receiver.got == []


async def test_a_name_that_leads_elsewhere_the_next_time_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    leads_to = ["127.0.0.1", "127.0.0.2"]

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", (leads_to[0] if len(leads_to) == 1 else leads_to.pop(0), port))]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    async with Receiver() as receiver:
        guard = Guard(allow=["127.0.0.1/32"], ports=None, allow_http=True)
        sending = hooks(f"http://rebinding.example:{receiver.port}/", guard=guard)
        assert isinstance(await sending.send(EVENT, delivery()), Delivered)
        second = await sending.send(EVENT, delivery(2))
        assert isinstance(second, Rejected)
        assert "127.0.0.2" in second.reason
        assert len(receiver.got) == 1


async def test_a_forbidden_address_beside_one_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(10, 1, 6, "", ("64:ff9b::1", port, 0, 0)), (2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with Receiver([None, (204, {}, "")]) as receiver:
        guard = Guard(allow=["127.0.0.1/32"], ports=None, allow_http=True)
        sending = hooks(f"http://both.example:{receiver.port}/", guard=guard)
        assert isinstance(await sending.send(EVENT, delivery()), Retry)
        assert isinstance(await sending.send(EVENT, delivery(2)), Delivered)
    gone = await sending.send(EVENT, delivery(3))
    assert isinstance(gone, Retry)
    assert "Connect" in gone.reason
    nowhere = await hooks("http://both.example/", guard=Guard(allow_http=True)).send(EVENT, delivery())
    assert isinstance(nowhere, Rejected)


async def test_the_environments_proxy_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as receiver, Receiver() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        assert isinstance(await hooks(receiver.url).send(EVENT, delivery()), Delivered)
        assert proxy.got == []


# ------------------------------------------------------------------------------------------------------------------ secrets


def test_secrets_are_looked_up_and_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    other = new_secret()
    (tmp_path / "old").write_text(f"{other}\n")
    endpoint = Endpoint(
        id="shop", url="https://example.com/?token=hidden", secrets=("env:HOOK_SECRET", f"file:{tmp_path}/old")
    )
    assert endpoint.keys() == [SECRET, other]
    assert "hidden" not in repr(endpoint)
    assert "HOOK_SECRET" not in repr(endpoint)
    with pytest.raises(ConfigError, match="env:NOT_THERE"):
        Endpoint(id="x", url="https://example.com", secrets=("env:NOT_THERE",)).keys()


async def test_an_answer_that_is_no_http_is_told_without_the_url() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 9000 + b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        outcome = await hooks(f"http://127.0.0.1:{port}/p4th?token=s3cret").send(EVENT, delivery())
    assert isinstance(outcome, Retry)
    assert "400" in outcome.reason
    assert "s3cret" not in outcome.reason
    assert "p4th" not in outcome.reason


@pytest.mark.parametrize("host", ["a\\b", "\xad", "a..b", "nowhere.invalid"])
async def test_a_url_that_leads_nowhere_is_not_repeated(host: str) -> None:
    outcome = await hooks(f"http://{host}/p4th?token=s3cret").send(EVENT, delivery())
    assert isinstance(outcome, Retry)
    assert "Error: " in outcome.reason
    assert "s3cret" not in outcome.reason
    assert "p4th" not in outcome.reason


async def test_an_endpoint_gets_the_types_it_wants() -> None:
    endpoints = FixedEndpoints(
        [
            Endpoint(id="all", url="https://example.com/a", secrets=(SECRET,)),
            Endpoint(id="leads", url="https://example.com/b", secrets=(SECRET,), matches=Matcher("lead.*")),
            Endpoint(id="off", url="https://example.com/c", secrets=(SECRET,), is_enabled=False),
        ]
    )
    assert await Webhooks(endpoints).targets(EVENT) == ["all"]


# ------------------------------------------------------------------------------------------------------- in the whole engine


async def test_an_event_becomes_a_job_for_each_endpoint_and_arrives_once(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    async with Receiver() as one, Receiver([(500, {}, ""), (204, {}, "")]) as two:
        endpoints = FixedEndpoints(
            [Endpoint(id=name, url=r.url, secrets=(SECRET,)) for name, r in (("one", one), ("two", two))]
        )
        app = App(dsn, source="/shop")
        app.destination("hooks", matches="order.*", start="start")(
            Webhooks(endpoints, guard=HERE, schedule=(0.01, 0.01))
        )
        destination = app._outbox.destinations[0]
        assert getattr(destination, "on_doubt", None) == "resend"
        with conn.transaction():
            app.emit(conn, {"n": 1}, type="order.placed", key="7")
        worker = app.worker(WorkerConfig())
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(30):
            while not (one.got and len(two.got) >= 2):
                await asyncio.sleep(0.01)
        worker.stop()
        await running
        assert (len(one.got), len(two.got)) == (1, 2)
        assert two.got[0][0]["webhook-id"] == two.got[1][0]["webhook-id"] == one.got[0][0]["webhook-id"]
    rows = conn.execute("SELECT state, kind FROM samecommit.jobs").fetchall()
    assert rows == [("done", "deliver:hooks")] * 2


# ----------------------------------------------------------------------------------------------------- endpoints in a table


@asynccontextmanager
async def stored(dsn: str) -> AsyncIterator[StoredEndpoints]:
    endpoints = StoredEndpoints(dsn)
    try:
        yield endpoints
    finally:
        await endpoints.close()


@pytest.mark.pg15
async def test_an_endpoint_that_answers_410_stays_disabled_over_a_restart(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with Receiver([(410, {}, ""), (200, {}, "")]) as receiver:
        async with stored(dsn) as endpoints:
            await endpoints.add("shop", receiver.url, secret=SECRET)
            assert isinstance(await Webhooks(endpoints, guard=HERE).send(EVENT, delivery()), Rejected)
        async with stored(dsn) as again:
            sending = Webhooks(again, guard=HERE)
            assert await sending.targets(EVENT) == []
            assert await sending.send(EVENT, delivery()) == Rejected("endpoint 'shop' is disabled")
            row = conn.execute(
                "SELECT disabled_at > now() - interval '1 minute', disabled_reason, host FROM samecommit.endpoints"
            )
            assert row.fetchone() == (
                True,
                "endpoint 'shop' answered 410: it was disabled",
                f"127.0.0.1:{receiver.port}",
            )
            await again.disable("shop", "once more")
            assert conn.execute("SELECT disabled_reason FROM samecommit.endpoints").fetchone() != ("once more",)
            assert await again.enable("shop")
            assert isinstance(await sending.send(EVENT, delivery()), Delivered)
        assert len(receiver.got) == 2


async def test_a_secret_is_made_and_replaced_with_both_signing_for_a_while(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with stored(dsn) as endpoints, Receiver() as receiver:
        first = await endpoints.add("shop", receiver.url)
        assert await endpoints.add("shop", receiver.url, matches="order.*") == first, "another URL keeps the secret"
        second = await endpoints.rotate("shop")
        sending = Webhooks(endpoints, guard=HERE)
        await sending.send(EVENT, delivery())
        conn.execute("UPDATE samecommit.endpoint SET old_until_at = clock_timestamp()")
        await sending.send(EVENT, delivery())
        (early, body), (late, _) = receiver.got
        for secret in (first, second):
            assert verify(early, body, [secret], time.time()) == "sc-1"
        assert verify(late, body, [second], time.time()) == "sc-1"
        with pytest.raises(SignatureRefused):
            verify(late, body, [first], time.time())
        third = await endpoints.rotate("shop", keep_seconds=0)
        assert (await endpoints.get("shop") or hooks).keys() == [third]  # type: ignore[union-attr]
        assert len({first, second, third}) == 3
        assert await endpoints.remove("shop")
        assert not await endpoints.remove("shop")
        assert await endpoints.get("shop") is None


async def test_what_no_endpoint_can_be_is_refused(dsn: str, conn: psycopg.Connection[Any]) -> None:
    async with stored(dsn) as endpoints:
        await endpoints.add("there", "https://example.com/", secret=SECRET)
        with pytest.raises(ConfigError, match="'there' has another secret: change it with rotate_endpoint"):
            await endpoints.add("there", "https://example.com/", secret=new_secret())
        with pytest.raises(ConfigError, match="no endpoint 'nobody'"):
            await endpoints.rotate("nobody")
        for given, complaint in (
            (("a b", "https://example.com/"), "endpoint 'a b'"),
            (("x", "ftp://example.com/"), "URL of endpoint 'x'"),
            (("x", "https://exa mple.com/"), "URL of endpoint 'x'"),
        ):
            with pytest.raises(ConfigError, match=complaint):
                await endpoints.add(*given)
        with pytest.raises(ConfigError, match="the secret cannot be used"):
            await endpoints.add("x", "https://example.com/", secret="hunter2")
    with pytest.raises(psycopg.Error, match="endpoint 'x' matches"):
        conn.execute("SELECT samecommit.add_endpoint('x', 'https://example.com', '{or*der}')")
    assert conn.execute("SELECT id FROM samecommit.endpoint").fetchall() == [("there",)]


def stored_event(window: int, type_: str = "order.placed") -> StoredEvent:
    return replace(EVENT, position=Position(window, 1), type=type_)


async def test_an_endpoint_gets_what_comes_after_it_was_added(dsn: str, conn: psycopg.Connection[Any]) -> None:
    """What was read for a window of the log says nothing of a later one."""
    async with stored(dsn) as endpoints:
        await endpoints.add("all", "https://example.com/a")
        assert await endpoints.wanting(stored_event(3)) == ["all"]
        conn.execute(
            "SELECT samecommit.add_endpoint('orders', 'https://user:pass@example.com:8443/?token=x', '{order.*}')"
        )
        assert await endpoints.wanting(stored_event(3)) == ["all"]
        assert await endpoints.wanting(stored_event(4)) == ["all", "orders"]
        assert await endpoints.wanting(stored_event(4, "lead.created")) == ["all"]
        assert await endpoints.wanting(EVENT) == ["all", "orders"]
    host = conn.execute("SELECT host FROM samecommit.endpoints WHERE id = 'orders'").fetchone()
    assert host == ("example.com:8443",)


@pytest.mark.parametrize("relay", [True, False])
async def test_a_worker_closes_what_its_adapters_hold(dsn: str, relay: bool) -> None:
    closed: list[bool] = []

    class Holding(FixedEndpoints):
        async def close(self) -> None:
            closed.append(True)

    app = App(dsn)
    app.destination("hooks")(Webhooks(Holding([])))
    worker = app.worker(relay=relay)
    running = asyncio.create_task(worker.run())
    await worker.started()
    assert not closed
    worker.stop()
    await running
    assert closed == [True]
