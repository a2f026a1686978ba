"""Publishes events to an SNS topic as JSON (``application/cloudevents+json``); see `samecommit.outbox.sinks.aws`.

The event's type goes along as the attribute ``type``, for subscriptions that filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from samecommit.event import StoredEvent
from samecommit.outbox.sinks.aws import BatchSink


class SnsTopic(BatchSink):
    """The sink.

    Args:
        arn: the topic's; of a FIFO topic it ends in ``.fifo``.
        max_bytes: of a message.
        options: as for `BatchSink`: ``region``, ``endpoint``, credentials.
    """

    service = "sns"

    def __init__(self, arn: str, *, max_bytes: int = 262_144, **options: Any) -> None:
        super().__init__(arn, max_bytes=max_bytes, **options)

    async def look_at_it(self, client: Any, name: str) -> None:
        """Ask for the topic."""
        await client.get_topic_attributes(TopicArn=name)

    async def send_entries(self, client: Any, name: str, entries: list[dict[str, Any]]) -> Mapping[str, Any]:
        """Publish a batch."""
        return cast("Mapping[str, Any]", await client.publish_batch(TopicArn=name, PublishBatchRequestEntries=entries))

    def entry(self, body: str, event: StoredEvent) -> dict[str, Any]:
        """Return an entry without its id."""
        kind = {"DataType": "String", "StringValue": event.type}
        return {"Message": body, "MessageAttributes": {"type": kind}}
