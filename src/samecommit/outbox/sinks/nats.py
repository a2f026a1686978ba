"""Publishes events to a NATS JetStream stream.

Two ways, by who writes to the stream:

- **shared** (default): each message has a ``Nats-Msg-Id``, so the server drops repeats within the stream's duplicate window
  (2 minutes unless set); whatever is in doubt, also after a crash, is looked for in the stream before it is sent again.
- **owned** (``owns_stream=True``): only this destination (and this shard) writes to the stream. Each message names the
  sequence number that it must follow and carries the position, so a message that was sent by somebody else in the meantime
  stops the batch: effectively once, without a window.

The server acknowledges before it syncs to disk unless ``sync_interval: always`` is set; after a power loss it may lack what
it acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from samecommit.event import Event, Position, StoredEvent
from samecommit.outbox.outcomes import Delivered, DestinationDown, Duplicate, Lookup, Outcome, Rejected, Retry
from samecommit.outbox.sink import ReadBack, StoredPosition, Target, Traits
from samecommit.outbox.sinks.headers import percent, percent_all
from samecommit.outbox.sinks.nats_look import Look, identity
from samecommit.outbox.sinks.needed import needed

_POSITION, _TARGET = "Samecommit-Position", "Samecommit-Target"
_HEADER_ROOM, _VALUE_ROOM = 4_096, 12_100  # a value has up to 1,000 characters, 12 bytes each when encoded
_TOO_LARGE, _WRONG_SEQUENCE, _OTHER_STREAM = 10054, (10071, 10070), 10060
_FLUSH_EVENTS = 32
_ALONE = Retry("not sent, since one before it was not taken")


class NatsStream:
    """The sink.

    Args:
        servers: one URL or several.
        stream: which stream; it must exist. ``{destination}`` and ``{shard}`` are filled in.
        subject: of each message; ``{type}`` is the event's type, and what is filled into ``stream``.
        owns_stream: nobody else writes to the stream.
        max_bytes: the server's ``max_payload``, so that a larger event is refused when it is emitted.
        options: further ones for nats-py's ``connect``.
    """

    def __init__(
        self,
        servers: str | list[str],
        stream: str,
        *,
        subject: str = "{type}",
        owns_stream: bool = False,
        max_bytes: int = 1_048_576,
        **options: Any,
    ) -> None:
        self._servers, self._options = servers, options
        self._stream_form, self._subject_form = stream, subject
        self._owns, self._max_bytes = owns_stream, max_bytes
        way = StoredPosition() if owns_stream else ReadBack(settle_seconds=1.0)
        self.traits = Traits(idempotency=way, keeps_key_order=owns_stream)
        self._client: Any = None
        self._target: Target | None = None
        self._stream, self._inbox, self._count = "", "", 0
        self._answers: dict[int, Any] = {}
        self._expected, self._all_there = 0, asyncio.Event()
        self._subjects: dict[str, str] = {}
        self._last_sequence = 0
        self._position: Position | None = None
        self._look: Look | None = None

    def __repr__(self) -> str:
        return f"<NatsStream {self._stream_form!r}{' owned' if self._owns else ''}>"

    def complaint(self, event: Event) -> str | None:
        """Refuse what is larger than the server takes, and types that make no subject."""
        if len(event.data) + _HEADER_ROOM > self._max_bytes:
            return f"{len(event.data):,} bytes of data and its headers do not fit into {self._max_bytes:,}"
        subject = self._subject_form.replace("{type}", event.type)
        if "" in subject.split("."):
            return f"{subject!r} is no subject, since a part between dots is empty"
        return None

    async def connect(self, target: Target) -> None:
        """Connect, and see that the stream is there.

        Raises:
            DependencyMissing: nats-py is not installed.
            nats.errors.Error, OSError: no server can be reached, or the stream is missing.
            RuntimeError: the stream should be owned, and somebody else has written to it; or it drops what was read.
        """
        self._target = target
        self._stream, self._subjects = self._filled(self._stream_form), {}
        options = {"connect_timeout": 5, "allow_reconnect": False, **self._options}
        self._client = needed("nats", "nats").NATS()
        await self._client.connect(
            self._servers, error_cb=_quiet, closed_cb=self._lost, disconnected_cb=self._lost, **options
        )
        self._inbox = f"{self._client.new_inbox()}."
        await self._client.subscribe(f"{self._inbox}*", cb=self._answered)
        await self._find_end()

    def _filled(self, form: str) -> str:
        assert self._target is not None
        return form.replace("{destination}", self._target.destination).replace("{shard}", str(self._target.shard))

    async def _find_end(self) -> None:
        stream = self._client.jetstream()
        info = await stream.stream_info(self._stream)
        if info.config.retention not in (None, "limits"):
            raise RuntimeError(
                f"stream {self._stream!r} has retention {info.config.retention!r}: what its readers have taken is gone, so "
                "nobody can tell whether a message arrived. Give it retention 'limits', and let the other stream source it"
            )
        self._last_sequence = info.state.last_seq
        self._position = None
        if not self._owns or not self._last_sequence:
            return
        try:
            last = await stream.get_msg(self._stream, self._last_sequence)
        except needed("nats.js.errors", "nats").NotFoundError:
            return  # it was deleted or has aged out
        headers: dict[str, str] = last.headers or {}
        if headers.get(_TARGET) != self._name:
            raise RuntimeError(
                f"stream {self._stream!r} has messages of {headers.get(_TARGET)!r}, so it is not owned by {self._name!r}: "
                "give the destination a stream of its own, or say owns_stream=False"
            )
        self._position = Position.parse(headers[_POSITION]) if headers.get(_POSITION) else None

    @property
    def _name(self) -> str:
        return self._target.name if self._target is not None else ""

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await self._lost()

    async def position(self) -> Position | None:
        """Return the position that the last message carries."""
        return self._position

    # -------------------------------------------------------------------------------------------------------------- send

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Publish without waiting in between, then wait for every acknowledgement."""
        if self._client is None:
            return [DestinationDown("the connection is closed")] * len(batch)
        self._answers, self._expected, self._all_there = {}, 0, asyncio.Event()
        sent: list[Outcome | int] = []
        sequence, position = self._last_sequence, self._position
        for n, event in enumerate(batch):
            if n % _FLUSH_EVENTS == _FLUSH_EVENTS - 1:
                await asyncio.sleep(0)  # the client writes when the loop turns: the server works while the rest is made
            if self._owns and event.position is not None and position is not None and event.position <= position:
                sent.append(Duplicate())
                continue
            position = event.position or position
            headers = self._headers(event, sequence, position)
            if self._is_too_large(event, headers):
                sent.append(Rejected(f"with its headers it is larger than {self._client.max_payload:,} bytes"))
                if self._owns:
                    break
                continue
            sequence += 1
            sent.append(await self._publish(event, headers))
        await self._wait(sum(isinstance(it, int) for it in sent))
        outcomes = [await self._outcome(it, event) for it, event in zip(sent, batch, strict=False)]
        return outcomes + [_ALONE] * (len(batch) - len(outcomes))

    async def _wait(self, count: int) -> None:
        self._expected = count
        if len(self._answers) < count:
            await self._all_there.wait()
        if len(self._answers) < count:
            raise ConnectionError("the connection to NATS was lost")

    def _is_too_large(self, event: StoredEvent, headers: dict[str, str]) -> bool:
        room: int = self._client.max_payload - len(event.data)
        return room < _VALUE_ROOM * len(headers) and room < _size(headers)

    def _headers(self, event: StoredEvent, sequence: int, position: Position | None) -> dict[str, str]:
        headers = percent_all({**event.attributes(), "datacontenttype": event.content_type}, "ce-")
        headers["Nats-Expected-Stream"] = self._stream
        headers[_TARGET] = self._name
        if self._owns:
            headers["Nats-Expected-Last-Sequence"] = str(sequence)
            headers[_POSITION] = str(position or "")
        if not self._owns or event.position is None:
            headers["Nats-Msg-Id"] = identity(self._name, headers["ce-source"], headers["ce-id"], event.replay)
        return headers

    async def _publish(self, event: StoredEvent, headers: dict[str, str]) -> int:
        self._count += 1
        subject = self._subjects.get(event.type)
        if subject is None:
            subject = self._filled(self._subject_form).replace("{type}", event.type)
            self._subjects[event.type] = subject
        await self._client.publish(subject, event.data, reply=f"{self._inbox}{self._count}", headers=headers)
        return self._count

    async def _answered(self, message: Any) -> None:
        no_responders = message.headers is not None and message.headers.get("Status") == "503"
        answer = None if no_responders else msgspec.json.decode(message.data)
        self._answers[int(message.subject[len(self._inbox) :])] = answer
        if len(self._answers) == self._expected:
            self._all_there.set()

    async def _lost(self) -> None:
        self._all_there.set()

    async def _outcome(self, sent: Outcome | int, event: StoredEvent) -> Outcome:
        if not isinstance(sent, int):
            return sent
        answer = self._answers[sent]
        if answer is None:
            return await self._unheard()
        if (error := answer.get("error")) is not None:
            return self._refused(error)
        self._last_sequence = max(self._last_sequence, answer["seq"])
        self._position = event.position or self._position
        ref = f"{answer['stream']}:{answer['seq']}"
        return Duplicate(ref) if answer.get("duplicate") else Delivered(ref)

    def _refused(self, error: dict[str, Any]) -> Outcome:
        reason = f"{error.get('description')} ({error.get('err_code')})"
        code = error.get("err_code")
        if code == _TOO_LARGE:
            return Rejected(reason)
        if code == _OTHER_STREAM:
            return Retry(f"its subject belongs to another stream than {self._stream!r}")
        if code in _WRONG_SEQUENCE:  # the relay connects again, and the end of the stream is looked at
            return DestinationDown(
                f"somebody else has written to the stream, or one before it was refused: {reason}", 0.0
            )
        return DestinationDown(reason)

    async def _unheard(self) -> Outcome:
        info = await self._client.jetstream().stream_info(self._stream)
        return Retry(
            f"stream {self._stream!r} takes {', '.join(info.config.subjects or ())}, which its subject is not among"
        )

    # -------------------------------------------------------------------------------------------------------------- look

    async def find_existing(self, batch: Sequence[StoredEvent]) -> Sequence[Lookup]:
        """Look for events in the stream, from the time at which the oldest was emitted on."""
        wanted = {
            identity(self._name, percent(event.source), percent(event.id), event.replay): event for event in batch
        }
        if self._look is None or not self._look.covers(wanted):
            self._look = Look(self._name, wanted)
        is_done = await self._look.go_on(self._client.jetstream(), self._stream)
        found = [self._look.lookup(name) for name in wanted]
        if is_done:
            self._look = None
        return found


def _size(headers: dict[str, str]) -> int:
    return 16 + sum(len(name) + len(value) + 4 for name, value in headers.items())


async def _quiet(_error: Exception) -> None:
    """Say nothing: what fails is told by what is awaited."""
