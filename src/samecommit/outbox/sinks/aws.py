"""What SQS and SNS share: batches of ten, an answer for each entry, JSON since ten attributes are too few for an event's.

A destination whose name ends in ``.fifo`` drops a repeated deduplication id for 5 minutes and keeps the order of a group: the
event's key. Others may deliver an event twice or out of order by themselves.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any

import msgspec

from samecommit.event import Event, StoredEvent, is_json
from samecommit.outbox.outcomes import Delivered, DestinationDown, Doubt, Outcome, Rejected, Retry, Throttled
from samecommit.outbox.sink import DropsRepeats, NoIdempotency, Target, Traits
from samecommit.outbox.sinks.needed import needed

_ENTRIES, _LANES = 10, 8
# What comes to an event by the way: its places, which repeat it is, and SNS's attribute.
_ENVELOPE, _DEDUPE_SECONDS = 512, 300.0
_NAME = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_THROTTLES = ("Throttl", "RequestLimit", "OverLimit", "TooManyRequests", "SlowDown", "KMSThrottl")


class BatchSink:
    """The sink without its service.

    Args:
        name: the queue's URL or the topic's ARN.
        max_bytes: of a message and of a batch.
        region: where it is; None is what the environment says.
        endpoint: another address of the service (an emulator).
        options: further ones for aiobotocore's ``create_client``.
    """

    service = ""

    def __init__(
        self, name: str, *, max_bytes: int, region: str | None = None, endpoint: str | None = None, **options: Any
    ) -> None:
        self._name, self._max_bytes = name, max_bytes
        self._options = {"region_name": region, "endpoint_url": endpoint, **options}
        self.is_fifo = name.endswith(".fifo")
        way = DropsRepeats(_DEDUPE_SECONDS) if self.is_fifo else NoIdempotency()
        self.traits = Traits(idempotency=way, batch=_ENTRIES * _LANES)
        self._descriptions: Any = None
        self._stack: AsyncExitStack | None = None
        self._client: Any = None
        self._errors: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name.rpartition('/')[2]!r}>"

    def complaint(self, event: Event) -> str | None:
        """Refuse what is too large as JSON, and characters that the service's XML cannot hold."""
        has_json = is_json(event.content_type)
        head = msgspec.json.encode({**event.attributes(), "datacontenttype": event.content_type})
        size = len(head) + (len(event.data) if has_json else (len(event.data) + 2) // 3 * 4) + _ENVELOPE
        if size > self._max_bytes:
            return f"as JSON it has about {size:,} bytes, which do not fit into {self._max_bytes:,}"
        if _NO_XML.search(head.decode()):
            return "its attributes have characters that are not allowed in XML 1.0"
        if has_json and _NO_XML.search(event.data.decode(errors="replace")):
            return "its data have characters that are not allowed in XML 1.0"
        return None

    async def connect(self, target: Target) -> None:  # noqa: ARG002 - it keeps nothing under the target's name
        """Make a client and see that queue or topic is there.

        Raises:
            DependencyMissing: aiobotocore is not installed.
            botocore.exceptions.ClientError, BotoCoreError: it is not there or may not be used.
        """
        session = needed("aiobotocore.session", "sqs").get_session()  # a new one asks for credentials again
        if self._descriptions is None:  # of the services: read once
            self._descriptions = session.get_component("data_loader")
        session.register_component("data_loader", self._descriptions)
        self._errors = needed("botocore.exceptions", "sqs")
        config = needed("aiobotocore.config", "sqs").AioConfig(
            retries={"total_max_attempts": 1}, connect_timeout=5, max_pool_connections=_LANES
        )
        self._stack = AsyncExitStack()
        self._client = await self._stack.enter_async_context(
            session.create_client(self.service, **{"config": config, **self._options})
        )
        await self.look_at_it(self._client, self._name)

    async def look_at_it(self, client: Any, name: str) -> None:
        """Ask for queue or topic."""
        raise NotImplementedError

    async def send_entries(self, client: Any, name: str, entries: list[dict[str, Any]]) -> Mapping[str, Any]:
        """Send a batch; the service's answer."""
        raise NotImplementedError

    def entry(self, body: str, event: StoredEvent) -> dict[str, Any]:
        """Return an entry without its id."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections."""
        stack, self._stack, self._client = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Send in batches of ten: some at a time, those of one key one after another."""
        if self._client is None:
            return [DestinationDown("the connection is closed")] * len(batch)
        outcomes: dict[int, Outcome] = {}
        lanes: dict[int, list[tuple[int, StoredEvent]]] = {}
        for index, event in enumerate(batch):
            lanes.setdefault(event.lane % _LANES, []).append((index, event))
        await asyncio.gather(*(self._lane(events, outcomes) for events in lanes.values()))
        return [outcomes[index] for index in range(len(batch))]

    async def _lane(self, events: list[tuple[int, StoredEvent]], outcomes: dict[int, Outcome]) -> None:
        for part in self._parts(events, outcomes):
            outcomes.update(await self._send_part(part))

    def _parts(
        self, events: list[tuple[int, StoredEvent]], outcomes: dict[int, Outcome]
    ) -> Iterator[dict[int, dict[str, Any]]]:
        """Yield entries by index, ten at most and within the limit of bytes."""
        part: dict[int, dict[str, Any]] = {}
        size = 0
        for index, event in events:
            body = event.structured().decode()
            length = len(body.encode())
            if length > self._max_bytes:
                outcomes[index] = Rejected(
                    f"as JSON it has {length:,} bytes, which do not fit into {self._max_bytes:,}"
                )
                continue
            if part and (len(part) == _ENTRIES or size + length > self._max_bytes):
                yield part
                part, size = {}, 0
            part[index] = {"Id": str(index), **self.entry(body, event), **self._order(event)}
            size += length
        if part:
            yield part

    def _order(self, event: StoredEvent) -> dict[str, str]:
        if not self.is_fifo:
            return {}
        group = f"#{event.number}" if event.key is None else event.key
        return {"MessageGroupId": legal(group), "MessageDeduplicationId": legal(event.identity)}

    async def _send_part(self, part: Mapping[int, dict[str, Any]]) -> dict[int, Outcome]:
        try:
            answer = await self.send_entries(self._client, self._name, list(part.values()))
        except self._errors.ClientError as error:
            if _is_too_long(error.response):
                return await self._in_halves(part, str(error))
            return dict.fromkeys(part, self._refused(error.response))
        except (self._errors.EndpointConnectionError, self._errors.ConnectTimeoutError) as error:
            return dict.fromkeys(part, DestinationDown(str(error)))
        except (self._errors.BotoCoreError, OSError) as error:
            return dict.fromkeys(part, Doubt(f"{type(error).__name__}: {error}"))
        told: dict[int, Outcome] = {int(it["Id"]): _delivered(it) for it in answer.get("Successful", ())}
        told.update({int(it["Id"]): _failed(it) for it in answer.get("Failed", ())})
        return {index: told.get(index, Doubt("the answer says nothing of this entry")) for index in part}

    async def _in_halves(self, part: Mapping[int, dict[str, Any]], reason: str) -> dict[int, Outcome]:
        """Send in two what is too long at once; an event that is too long alone is so for ever."""
        if len(part) == 1:
            return dict.fromkeys(part, Rejected(reason))
        entries = list(part.items())
        middle = len(entries) // 2
        first = await self._send_part(dict(entries[:middle]))
        return first | await self._send_part(dict(entries[middle:]))

    @staticmethod
    def _refused(response: Mapping[str, Any]) -> Outcome:
        error = response.get("Error", {})
        reason = f"{error.get('Code')}: {error.get('Message')}"
        if _is_throttle(str(error.get("Code"))):
            return Throttled(None, reason)
        if response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
            return Doubt(reason)
        return DestinationDown(reason)


def legal(text: str) -> str:
    """Return a text as a group's or deduplication id: as it is when it may be one, else its hash."""
    return text if _NAME.fullmatch(text) else sha256(text.encode()).hexdigest()


def _is_throttle(code: str) -> bool:
    return any(word in code for word in _THROTTLES)


def _is_too_long(response: Mapping[str, Any]) -> bool:
    return str(response.get("Error", {}).get("Code")).endswith("BatchRequestTooLong")


def _delivered(entry: Mapping[str, Any]) -> Outcome:
    return Delivered(entry.get("SequenceNumber") or entry.get("MessageId"))


def _failed(entry: Mapping[str, Any]) -> Outcome:
    reason = f"{entry.get('Code')}: {entry.get('Message')}"
    if _is_throttle(str(entry.get("Code"))):
        return Throttled(None, reason)
    return Rejected(reason) if entry.get("SenderFault") else Retry(reason)
