"""Comparing the log with what a destination holds."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.outbox.support import Clock, Readable, Scripted, Stage, emit

from samecommit.errors import ConfigError
from samecommit.event import StoredEvent
from samecommit.outbox.destination import JobDestination, Matcher, StreamDestination
from samecommit.outbox.log import stored_event
from samecommit.outbox.outcomes import Delivered, Found, Unsure
from samecommit.outbox.reconcile import compare, readable
from samecommit.storage.operate import Until
from samecommit.storage.operate_outbox import EventFilter, OutboxOperator

Conn = psycopg.Connection[Any]
ALL = EventFilter(since=Until(seconds=3600))


def pages(conn: Conn) -> Iterator[list[StoredEvent]]:
    for rows in OutboxOperator(conn, "samecommit").had("there", ALL):
        yield [stored_event(tuple(row.values()), None) for row in rows]


@pytest.mark.pg15
async def test_what_is_not_there_is_told_in_the_order_of_the_log(dsn: str, conn: Conn) -> None:
    numbers = [emit(conn, key)[0] for key in "abcabc"]
    sink = Readable()
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        later = emit(conn, "a")
        sink.there = {*numbers} - {numbers[1], numbers[4]}
        told = await compare(stage.destination, "i", pages(conn))
        assert (told.checked, [event.number for event in told.missing]) == (6, [numbers[1], numbers[4]])
        assert later[0] not in sink.looks[-1], "it has no way to be there yet"
        assert OutboxOperator(conn, "samecommit").replays() == []


async def test_what_came_by_a_replay_is_there(dsn: str, conn: Conn) -> None:
    emit(conn, "a", 3)
    sink = Readable(says=lambda event: Found() if event.replay == 7 and event.number == 2 else None)
    sink.there = {1}
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        told = await compare(stage.destination, "i", pages(conn), [7])
        assert [(event.number, event.replay) for event in told.missing] == [(3, 0)]


async def test_a_destination_that_cannot_tell_is_asked_for_a_while(dsn: str, conn: Conn) -> None:
    emit(conn, "a", 2)
    answers = iter([Unsure("still looking")] * 2)
    sink = Readable(says=lambda event: next(answers, Found()))
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        told = await compare(stage.destination, "i", pages(conn))
        assert (told.missing, told.unsure) == ((), ())
        sink.says = lambda _: Unsure("search is down")
        told = await compare(stage.destination, "i", pages(conn), look_seconds=-1.0, clock=Clock())
        assert (told.missing, [event.number for event in told.unsure], told.reason) == ((), [1, 2], "search is down")


def test_what_cannot_be_compared_says_so() -> None:
    class Crm:
        async def send(self, event: StoredEvent, delivery: Any) -> Delivered:
            return Delivered()

    with pytest.raises(ConfigError, match="a Scripted cannot look for events"):
        readable(StreamDestination(name="there", sink=Scripted()))
    with pytest.raises(ConfigError, match="makes jobs"):
        readable(JobDestination(name="there", adapter=Crm(), matches=Matcher("*")))


async def test_a_long_stretch_is_read_in_pages(dsn: str, conn: Conn) -> None:
    with conn.transaction():
        emit(conn, None, 1_201)
    sink = Readable()
    async with Stage(dsn, sink) as stage:
        await stage.run()
        await stage.later(1.0)
        sink.there = {*range(1, 1_202)} - {1_201}
        found = list(pages(conn))
        assert [len(page) for page in found] == [500, 500, 201]
        told = await compare(stage.destination, "i", found)
        assert (told.checked, [event.number for event in told.missing]) == (1_201, [1_201])
