"""The sinks for development: what they write, and that a file and a table know where they stand."""

import asyncio
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from tests.sinks.story import renewed

from samecommit.event import Position, StoredEvent
from samecommit.outbox.courier import Courier
from samecommit.outbox.outcomes import Delivered, DestinationDown, Duplicate, Found, NotFound, Rejected, Retry
from samecommit.outbox.sink import Target
from samecommit.outbox.sinks.file import File
from samecommit.outbox.sinks.stdout import Stdout
from samecommit.outbox.sinks.table import Table
from samecommit.storage.link import AsyncLink

TARGET = Target(installation="i", destination="there")


def event(number: int, *, is_late: bool = False, **fields: Any) -> StoredEvent:
    values: dict[str, Any] = {
        "id": f"id {number}",
        "source": "/shop",
        "type": "lead.created",
        "key": "k",
        "data": b'{"a":1}',
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "number": number,
        "position": None if is_late else Position(1, number),
        **fields,
    }
    return StoredEvent(**values)


async def test_stdout_writes_cloudevents_one_a_line() -> None:
    stream = io.StringIO()
    sink = Stdout(stream)
    assert await sink.send(
        [event(1), event(2, data=b"\x00", content_type="image/png", extensions={"traceparent": "t"})]
    ) == [
        Delivered(),
        Delivered(),
    ]
    first, second = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    assert first == {
        "specversion": "1.0",
        "id": "id 1",
        "source": "/shop",
        "type": "lead.created",
        "time": "2026-01-02T03:04:05Z",
        "partitionkey": "k",
        "schemaversion": "1",
        "sequence": "0000000000000001-0000000000000001",
        "lognumber": "1",
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }
    assert (second["data_base64"], second["traceparent"]) == ("AA==", "t")


MULTILINE = b'{\r\n"a": "x\\n"\n}\n'


async def test_json_with_line_breaks_is_one_line_all_the_same(tmp_path: Path) -> None:
    stream = io.StringIO()
    await Stdout(stream).send([event(1, data=MULTILINE)])
    file = File(tmp_path / "file")
    await file.connect(TARGET)
    await file.send([event(1, data=MULTILINE)])
    await file.close()
    for written in (stream.getvalue().encode(), (tmp_path / "file").read_bytes()):
        assert (written.count(b"\n"), written.count(b"\r")) == (1, 0)
        assert msgspec.json.decode(written)["data"] == {"a": "x\n"}


@pytest.mark.parametrize(
    "data",
    [MULTILINE, b"9" * 5000, b'{"x": 1e5000}', b'"\\ud800"', b"[" * 5000 + b"]" * 5000, b'{"sequence": 1,"data": 2}'],
    ids=["line breaks", "many digits", "large exponent", "half a pair", "deep", "attributes in data"],
)
async def test_whatever_json_the_last_event_has_a_file_takes_nothing_twice(tmp_path: Path, data: bytes) -> None:
    sink = File(tmp_path / "file")
    await sink.connect(TARGET)
    await sink.send([event(1), event(2, data=data)])
    await sink.close()
    await sink.connect(TARGET)
    assert await sink.send([event(2, data=data), event(3)]) == [Duplicate(), Delivered()]
    await sink.close()


@pytest.mark.parametrize("line", [b"}", b"\xff", b"[]", b'{"sequence":7}', b'{"sequence":"x"}', b"[" * 5000, b""])
async def test_a_line_of_somebody_elses_has_no_position(tmp_path: Path, line: bytes) -> None:
    sink = File(tmp_path / "file")
    await sink.connect(TARGET)
    await sink.send([event(1)])
    await sink.close()
    with (tmp_path / "file").open("ab") as file:
        file.write(line + b"\n")
    await sink.connect(TARGET)
    assert await sink.position() == Position(1, 1)
    await sink.close()


async def test_a_file_takes_nothing_twice_and_cuts_off_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "there-0.jsonl"
    sink = File(tmp_path / "{destination}-{shard}.jsonl")
    await sink.connect(TARGET)
    assert await sink.position() is None
    await sink.send([event(1), event(2), event(1, is_late=True)])
    await sink.close()
    with path.open("ab") as file:
        file.write(b'{"half')
    await sink.connect(TARGET)
    assert await sink.position() == Position(1, 2)
    assert await sink.send([event(2), event(3)]) == [Duplicate(), Delivered()]
    await sink.close()
    ids = [msgspec.json.decode(line)["id"] for line in path.read_bytes().splitlines()]
    assert ids == ["id 1", "id 2", "id 1", "id 3"]


async def test_a_long_file_is_read_from_its_end(tmp_path: Path) -> None:
    sink = File(tmp_path / "long")
    await sink.connect(TARGET)
    await sink.send([event(n, data=msgspec.json.encode("x" * 500)) for n in range(1, 301)])
    await sink.send([event(1, is_late=True, data=msgspec.json.encode("x" * 200_000))])
    await sink.close()
    await sink.connect(TARGET)
    assert await sink.position() == Position(1, 300)
    await sink.close()


async def test_one_file_has_one_writer(tmp_path: Path) -> None:
    first, second = File(tmp_path / "one"), File(tmp_path / "one")
    await first.connect(TARGET)
    with pytest.raises(BlockingIOError):
        await second.connect(TARGET)
    await first.close()
    await second.connect(TARGET)
    await second.close()


@pytest.mark.pg15
async def test_a_table_takes_nothing_twice(dsn: str, conn: psycopg.Connection[Any]) -> None:
    first, second = Table(dsn), Table(dsn)
    await first.connect(TARGET)
    await second.connect(TARGET)
    assert await first.position() is None
    assert await first.send([event(1), event(2), event(3)]) == [Delivered()] * 3
    assert await second.send([event(2), event(3), event(4)]) == [Duplicate(), Duplicate(), Delivered()]
    assert await second.position() == Position(1, 4)
    assert await first.send([event(9, is_late=True), event(1, is_late=True)]) == [Delivered(), Duplicate()]
    assert await first.position() == Position(1, 4)
    assert await first.send([event(1, is_late=True, replay=1)]) == [Delivered()]
    await asyncio.gather(first.close(), second.close())
    rows = conn.execute("SELECT id, replay, attributes ->> 'source' FROM copied.event ORDER BY arrival").fetchall()
    assert [row[:2] for row in rows] == [("id 1", 0), ("id 2", 0), ("id 3", 0), ("id 4", 0), ("id 9", 0), ("id 1", 1)]
    assert {row[2] for row in rows} == {"/shop"}


@pytest.mark.pg15
async def test_a_table_refuses_the_event_that_a_constraint_refuses_and_no_other(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    sink = Table(dsn)
    await sink.connect(TARGET)
    conn.execute("ALTER TABLE copied.event ADD CHECK (id <> 'id 3')")
    outcomes = await sink.send([event(n) for n in range(1, 6)])
    assert [type(outcome) for outcome in outcomes] == [Delivered, Delivered, Rejected, Retry, Retry]
    assert "event_id_check" in str(outcomes[2]) and "Failing row" not in str(outcomes[2])
    assert await sink.position() == Position(1, 2), "the third is put aside before the position passes it"
    assert await sink.send([event(4), event(5)]) == [Delivered()] * 2
    await sink.close()
    assert conn.execute("SELECT count(*) FROM copied.event").fetchone() == (4,)


async def test_tables_that_are_there_are_not_made_again(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user may lack the right to make them, which PostgreSQL asks for even if they are there."""
    first, second = Table(dsn), Table(dsn)
    await first.connect(TARGET)
    labels, fetch = list[str](), AsyncLink.fetch

    async def listed(self: AsyncLink, label: str, **values: Any) -> Any:
        labels.append(label)
        return await fetch(self, label, **values)

    monkeypatch.setattr(AsyncLink, "fetch", listed)
    await second.connect(TARGET)
    assert "copy/is_made" in labels and not [label for label in labels if label.startswith("copy/make_")]
    await asyncio.gather(first.close(), second.close())


@pytest.mark.pg15
async def test_a_table_takes_events_of_one_id_from_several_sources(dsn: str, conn: psycopg.Connection[Any]) -> None:
    sink = Table(dsn)
    await sink.connect(TARGET)
    batch = [event(1, id="7"), event(2, id="7", source="/billing")]
    assert await sink.send(batch) == [Delivered(), Delivered()]
    found = await sink.find_existing([*batch, event(3, id="7", source="/parcels")])
    assert found == [Found("7"), Found("7"), NotFound()]
    await sink.close()
    assert conn.execute("SELECT source FROM copied.event ORDER BY arrival").fetchall() == [("/shop",), ("/billing",)]


@pytest.mark.pg15
async def test_a_table_whose_position_was_removed_does_not_say_that_it_has_an_event(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    courier = Courier(Table(dsn), TARGET, 5.0)
    assert await courier.send([event(1)], renewed) == [Delivered()]
    conn.execute("TRUNCATE copied.event, copied.position")
    assert [type(it) for it in await courier.send([event(2)], renewed)] == [DestinationDown]
    assert await courier.send([event(2)], renewed) == [Delivered()]
    await courier.close()
    assert conn.execute("SELECT id FROM copied.event").fetchall() == [("id 2",)]
