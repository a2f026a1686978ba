"""A relay that carries events to a broker while something goes wrong, and what must be true afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import psycopg
from tests.outbox.support import Stage
from tests.sinks.broker import Broker, Got

from samecommit.outbox.outcomes import Delivered, Duplicate, Outcome
from samecommit.outbox.sink import Sink, Target

TARGET = Target(installation="test", destination="there")


async def renewed() -> None:
    """Hold the lease."""


def emit(conn: psycopg.Connection[Any], key: str | None, data: Any = None, type_: str = "thing.done") -> str:
    """Emit an event in a transaction of its own; its id."""
    row = conn.execute(
        "SELECT id FROM samecommit.emit(%s, %s::jsonb, %s)", [type_, json.dumps(data or {}), key]
    ).fetchone()
    assert row is not None
    return str(row[0])


def emit_many(conn: psycopg.Connection[Any], count: int) -> list[tuple[str, str | None]]:
    """Emit events of five keys and of none, interleaved; their ids and keys in the order of the log."""
    keys = ["a", "b", "c", "d", "e", None]
    with conn.transaction():
        return [(emit(conn, keys[n % 6], {"n": n}), keys[n % 6]) for n in range(count)]


def stage(dsn: str, sink: Sink, **options: Any) -> Stage:
    """Return a relay for a sink."""
    timing = {"send_seconds": 2.0, "lease_seconds": 30.0, **options}
    return Stage(dsn, cast("Any", sink), **timing)


async def carry(relaying: Stage, broker: Broker, wanted: Sequence[str]) -> list[Got]:
    """Let the relay turn, an hour at most by its own clock, until everything is there; what has arrived."""
    for _ in range(60):
        await relaying.run()
        got = await broker.received()
        if {event.id for event in got} >= set(wanted):
            await relaying.later(1.0)
            return await broker.received()
        relaying.clock.now += 61.0
    missing = set(wanted) - {event.id for event in await broker.received()}
    raise AssertionError(f"{len(missing)} of {len(wanted)} events never arrived")


def check(got: Sequence[Got], emitted: Sequence[tuple[str, str | None]], *, may_repeat: bool) -> None:
    """Nothing is missing, nothing was made up, keys are in order, and nothing is there twice unless it may be."""
    assert {event.id for event in got} == {id_ for id_, _ in emitted}
    for key in {key for _, key in emitted if key is not None}:
        first = list(dict.fromkeys(event.id for event in got if event.key == key))
        assert first == [id_ for id_, its in emitted if its == key], f"key {key} is out of order"
    if not may_repeat:
        assert len(got) == len({event.id for event in got}), "an event is there twice"


def is_success(outcome: Outcome) -> bool:
    """Whether the relay would go on."""
    return isinstance(outcome, Delivered | Duplicate)
