"""SQS and SNS as ministack emulates them. It is not Amazon's service."""

from __future__ import annotations

import base64
import json
from contextlib import AsyncExitStack
from typing import Any

from aiobotocore.session import get_session
from tests.sinks.broker import Broker, Got
from tests.sinks.servers import Server

from samecommit.outbox.sinks.sns import SnsTopic
from samecommit.outbox.sinks.sqs import SqsQueue

SESSION = get_session()
ACCESS = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}


class SqsBroker(Broker):
    suffix = ""
    shows_repeats = True

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.name += self.suffix
        self._got: list[Got] = []
        self._clients: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    @property
    def through(self) -> dict[str, Any]:
        """What leads a sink through the proxy."""
        keys = {name: value for name, value in ACCESS.items() if name.startswith("aws")}
        return {"endpoint": f"http://127.0.0.1:{self.proxy.port}", "region": ACCESS["region_name"], **keys}

    async def client(self, service: str = "sqs") -> Any:
        """Return a client past the proxy, kept until the end of the test."""
        if service not in self._clients:
            made = SESSION.create_client(service, endpoint_url=f"http://127.0.0.1:{self.server.port}", **ACCESS)
            self._clients[service] = await self._stack.enter_async_context(made)
        return self._clients[service]

    async def close(self) -> None:
        await self._stack.aclose()
        await super().close()

    async def make(self) -> None:
        client = await self.client()
        attributes = {"FifoQueue": "true"} if self.suffix else {}
        answer = await client.create_queue(QueueName=self.name, Attributes=attributes)
        self.url: str = answer["QueueUrl"]

    def sink(self) -> SqsQueue | SnsTopic:
        return SqsQueue(self.url, **self.through)

    async def received(self) -> list[Got]:
        client = await self.client()
        while messages := (await client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10)).get("Messages"):
            self._got += [_got(self.body(message)) for message in messages]
            entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
            await client.delete_message_batch(QueueUrl=self.url, Entries=entries)
        return list(self._got)

    def body(self, message: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(message["Body"])
        return found


class SqsFifoBroker(SqsBroker):
    suffix = ".fifo"
    shows_repeats = False


class SnsBroker(SqsBroker):
    """A topic to which a queue is subscribed."""

    async def make(self) -> None:
        await super().make()
        queues, topics = await self.client(), await self.client("sns")
        attributes = {"FifoTopic": "true"} if self.suffix else {}
        self.arn: str = (await topics.create_topic(Name=self.name, Attributes=attributes))["TopicArn"]
        told = await queues.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        await topics.subscribe(TopicArn=self.arn, Protocol="sqs", Endpoint=told["Attributes"]["QueueArn"])

    def sink(self) -> SnsTopic:
        return SnsTopic(self.arn, **self.through)

    def body(self, message: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.loads(message["Body"])["Message"])
        return found


class SnsFifoBroker(SnsBroker):
    suffix = ".fifo"
    shows_repeats = False


def _got(event: dict[str, Any]) -> Got:
    data = (
        base64.b64decode(event.pop("data_base64")) if "data_base64" in event else json.dumps(event.pop("data")).encode()
    )
    return Got(id=event["id"], key=event.get("partitionkey"), data=data, attributes=event)
