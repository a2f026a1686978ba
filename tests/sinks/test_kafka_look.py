"""How a topic is read to find records, where a test's broker is too young to show it: a topic that retention has trimmed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.sinks.test_conformance import events

from samecommit.outbox.outcomes import NotFound
from samecommit.outbox.sinks.kafka_look import KafkaLook


class Place(SimpleNamespace):
    """A partition, and an offset or a moment in it."""

    def __init__(self, topic: str, partition: int, offset: int = -1001) -> None:
        super().__init__(topic=topic, partition=partition, offset=offset, error=None)


class TrimmedTopic:
    """A reader of two partitions: retention has taken their beginnings, and the last hour begins at 900."""

    low, end, recent = 100, 1_000, 900

    def __init__(self) -> None:
        self.assigned: list[int] = []

    def list_topics(self, topic: str, _seconds: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

    def get_watermark_offsets(self, _place: Place, _seconds: float) -> tuple[int, int]:
        return self.low, self.end

    def offsets_for_times(self, places: list[Place], _seconds: float) -> list[Place]:
        return [Place(place.topic, place.partition, self.recent) for place in places]

    def assign(self, places: list[Place]) -> None:
        self.assigned += [place.offset for place in places]

    def consume(self, _room: int, _seconds: float) -> list[Any]:
        return []

    def position(self, places: list[Place]) -> list[Place]:
        return [Place(place.topic, place.partition, self.end) for place in places]

    def unassign(self) -> None:
        pass


def test_a_look_begins_with_the_time_of_the_event_also_where_old_records_are_gone() -> None:
    reader, (event,) = TrimmedTopic(), events(1)
    look = KafkaLook("t", "there", [event])
    look.go_on(reader, SimpleNamespace(TopicPartition=Place))
    assert reader.assigned == [TrimmedTopic.recent] * 2
    assert look.lookup(event) == NotFound()
