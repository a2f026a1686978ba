"""Trace context goes from the span in which something is emitted or enqueued to whoever receives it."""

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from tests.support.waiting import until

from samecommit import App
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import Delivery
from samecommit.outbox.outcomes import Delivered, Outcome
from samecommit.tracing import trace_context

TRACEPARENT = "00-0000000000000000000000000000abcd-00000000000000ef-01"
Conn = psycopg.Connection[Any]


@contextmanager
def span(state: str = "") -> Iterator[None]:
    """Be in a span."""
    context = SpanContext(
        0xABCD, 0xEF, is_remote=False, trace_flags=TraceFlags(1), trace_state=TraceState.from_header([state])
    )
    with trace.use_span(NonRecordingSpan(context)):
        yield


def test_the_current_span_is_written_as_the_w3c_says() -> None:
    assert trace_context() == {}
    with span("vendor=x,other=y"):
        assert trace_context() == {"traceparent": TRACEPARENT, "tracestate": "vendor=x,other=y"}


def test_an_event_carries_its_span_unless_another_is_given(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    with conn.transaction(), span():
        app.emit(conn, {}, type="a")
        app.emit(conn, {}, type="b", extensions={"traceparent": "mine", "tenant": "7"})
    with conn.transaction():
        app.emit(conn, {}, type="c")
    rows = conn.execute("SELECT type, extensions FROM samecommit.event ORDER BY number").fetchall()
    assert rows == [("a", {"traceparent": TRACEPARENT}), ("b", {"traceparent": "mine", "tenant": "7"}), ("c", None)]


def test_a_job_carries_its_span_beside_what_else_is_in_meta(dsn: str, conn: Conn) -> None:
    app = App(dsn)

    @app.task()
    def work(n: int) -> None:
        pass

    with conn.transaction():
        with span():
            work.enqueue(conn, n=1)
            work.using(meta={"actor": "ann"}).enqueue(conn, n=2)
            app.enqueue_many(conn, [work.job(n=n) for n in (3, 4)])
            assert work.job(n=5).options is work.job(n=6).options, "jobs of one span share their options"
        work.enqueue(conn, n=7)
    rows = conn.execute("SELECT meta FROM samecommit.job ORDER BY (payload ->> 'n')::int").fetchall()
    here = {"traceparent": TRACEPARENT}
    assert [meta for (meta,) in rows] == [here, {**here, "actor": "ann"}, here, here, None]


async def test_a_delivery_knows_the_span_of_its_event(dsn: str, conn: Conn) -> None:
    app = App(dsn)
    got: list[StoredEvent] = []

    @app.destination("there", start="start")
    @dataclasses.dataclass
    class There:
        async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:
            got.append(event)
            return Delivered()

    with conn.transaction(), span():
        app.emit(conn, {}, type="a")
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await until(lambda: got)
    worker.stop()
    await running
    assert got[0].attributes()["traceparent"] == TRACEPARENT
    assert conn.execute("SELECT meta FROM samecommit.jobs").fetchall() == [({"traceparent": TRACEPARENT},)]


def test_without_opentelemetry_nothing_is_imported_for_it() -> None:
    code = "import sys, samecommit.outbox.emit, samecommit.tracing as t; assert t.trace_context() == {}; assert 'opentelemetry' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
