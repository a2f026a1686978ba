"""Sends events to an SQS queue as JSON (``application/cloudevents+json``); see `samecommit.outbox.sinks.aws`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from samecommit.event import StoredEvent
from samecommit.outbox.sinks.aws import BatchSink


class SqsQueue(BatchSink):
    """The sink.

    Args:
        url: the queue's; of a FIFO queue it ends in ``.fifo``.
        max_bytes: the queue's ``MaximumMessageSize``.
        options: as for `BatchSink`: ``region``, ``endpoint``, credentials.
    """

    service = "sqs"

    def __init__(self, url: str, *, max_bytes: int = 1_048_576, **options: Any) -> None:
        super().__init__(url, max_bytes=max_bytes, **options)

    async def look_at_it(self, client: Any, name: str) -> None:
        """Ask for the queue."""
        await client.get_queue_attributes(QueueUrl=name, AttributeNames=["QueueArn"])

    async def send_entries(self, client: Any, name: str, entries: list[dict[str, Any]]) -> Mapping[str, Any]:
        """Send a batch."""
        return cast("Mapping[str, Any]", await client.send_message_batch(QueueUrl=name, Entries=entries))

    def entry(self, body: str, event: StoredEvent) -> dict[str, Any]:  # noqa: ARG002 - all is in the body
        """Return an entry without its id."""
        return {"MessageBody": body}
