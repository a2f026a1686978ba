"""For receivers: a message takes effect once, or only if it is newer, in the transaction of its effects.

A destination that cannot tell repeats may bring an event twice, and any transport may by itself. A receiver on PostgreSQL
notes the message in the transaction in which it acts on it: both commit, or neither.

- ``once``: act on each message once;
- ``latest``: act on it only if no later one of its key was acted on: for receivers that keep the newest state;
- ``enqueue``: make a job of it, once: then the message can be acknowledged, and the job brings the retries.

A message is remembered for at least the time that `WorkerConfig.inbox_days` says, by the workers of the installation.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload
from urllib.parse import unquote

import msgspec

from samecommit.errors import NotInTransaction, PayloadError
from samecommit.job import Enqueued, NewJob
from samecommit.storage.connections import AsyncConn, Steps, SyncConn, fetch, in_transaction, perform
from samecommit.storage.enqueue import enqueue
from samecommit.storage.query import check_schema, statement

R = TypeVar("R")
_HEADER = "ce-"
_PREFIXES = (_HEADER, "ce_", "cloudevents_", "cloudevents:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What identifies a received event.

    Args:
        source: who tells it.
        id: unique within the source.
        key: what `Inbox.latest` compares it by: the event's key.
        number: its place among the events of its key; later ones are larger.
        replay: 0, or which deliberate repeat it is: those count as messages of their own.
    """

    source: str
    id: str
    key: str | None = None
    number: int | None = None
    replay: int = 0

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Message:
        """Read the attributes of a CloudEvent.

        Args:
            attributes: by name, also with the prefix that a transport gives them (``ce_id``, ``ce-id``, ``cloudEvents_id``);
                values are text or bytes, and None is as if it were not there. Others may be among them. Those of ``ce-…`` are
                percent-encoded, as the bindings for NATS and HTTP ask for, and are decoded.

        Raises:
            PayloadError: source or id is missing.
        """
        # those with a prefix last: beside them a plain "id" is the transport's or the application's own
        given = sorted(attributes.items(), key=lambda item: _plain(item[0]) != item[0].lower())
        found = {_plain(name): _text(name, value) for name, value in given if value is not None}
        for name in ("source", "id"):
            if not found.get(name):
                raise PayloadError(f"the message has no attribute {name!r}, so it is no CloudEvent", f"$.{name}")
        number = found.get("lognumber", "")
        replay = found.get("replay", "")
        return cls(
            source=found["source"],
            id=found["id"],
            key=found.get("partitionkey") or None,
            number=int(number) if number.isdecimal() else None,
            replay=int(replay) if replay.isdecimal() else 0,
        )

    @classmethod
    def of_json(cls, document: bytes | str) -> Message:
        """Read an event as one JSON document (``application/cloudevents+json``): SQS, SNS, webhooks.

        Raises:
            PayloadError: it is none.
        """
        try:
            return cls.of(msgspec.json.decode(document, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise PayloadError(f"the message is no JSON object: {error}") from error


class Inbox:
    """The messages that one consumer has taken.

    Args:
        consumer: who acts on them; two consumers of one database take the same message each.
        schema: where Samecommit is installed.
    """

    def __init__(self, consumer: str, schema: str = "samecommit") -> None:
        self._consumer, self._schema = consumer, check_schema(schema)

    def __repr__(self) -> str:
        return f"<Inbox of {self._consumer!r}>"

    @overload
    def once(self, conn: AsyncConn, message: Message, /) -> Coroutine[Any, Any, bool]: ...
    @overload
    def once(self, conn: SyncConn, message: Message, /) -> bool: ...
    def once(self, conn: Any, message: Message, /) -> Any:
        """Note the message in the connection's open transaction; False when it was taken already: do nothing then.

        Waits while another transaction with the same message is open.

        Raises:
            NotInTransaction: the connection would commit by itself, before the effects.
        """
        return perform(conn, self._once(message))

    @overload
    def latest(self, conn: AsyncConn, message: Message, /) -> Coroutine[Any, Any, bool]: ...
    @overload
    def latest(self, conn: SyncConn, message: Message, /) -> bool: ...
    def latest(self, conn: Any, message: Message, /) -> Any:
        """Note the message's number in the open transaction; False when its key has that or a later one already.

        Raises:
            NotInTransaction: the connection would commit by itself, before the effects.
            PayloadError: the message has no key or no number to compare.
        """
        return perform(conn, self._latest(message))

    @overload
    def enqueue(
        self, conn: AsyncConn, message: Message, job: NewJob[R], /
    ) -> Coroutine[Any, Any, Enqueued[R] | None]: ...
    @overload
    def enqueue(self, conn: SyncConn, message: Message, job: NewJob[R], /) -> Enqueued[R] | None: ...
    def enqueue(self, conn: Any, message: Message, job: NewJob[R], /) -> Any:
        """Note the message and store a job for it in the open transaction; None when it was taken already.

        Acknowledge the message after the commit.

        Raises:
            NotInTransaction: the connection would commit by itself.
        """
        return perform(conn, self._enqueue(message, job))

    def _once(self, message: Message) -> Steps[bool]:
        yield from self._in_transaction()
        known_as = f"{message.id}:r{message.replay}" if message.replay else message.id
        values = {"consumer": self._consumer, "source": message.source, "id": known_as}
        rows = yield from fetch(statement("inbox/once", self._schema), values)
        return bool(rows[0][0])

    def _latest(self, message: Message) -> Steps[bool]:
        if message.key is None or message.number is None:
            raise PayloadError(
                f"message {message.id!r} has no key or no number, so none is later than another: use once"
            )
        yield from self._in_transaction()
        values = {
            "consumer": self._consumer,
            "source": message.source,
            "key": message.key,
            "number": message.number,
        }
        rows = yield from fetch(statement("inbox/latest", self._schema), values)
        return bool(rows[0][0])

    def _enqueue(self, message: Message, job: NewJob[R]) -> Steps[Enqueued[R] | None]:
        is_new = yield from self._once(message)
        if not is_new:
            return None
        stored = yield from enqueue(job, self._schema)
        return stored

    def _in_transaction(self) -> Steps[None]:
        is_open = yield from in_transaction()
        if not is_open:
            raise NotInTransaction(
                f"inbox {self._consumer!r} was asked outside a transaction, on a connection that commits each statement: the "
                "message would count as taken before it has had its effects. Open a transaction around both"
            )


def _plain(name: str) -> str:
    lower = name.lower()
    return next((lower[len(prefix) :] for prefix in _PREFIXES if lower.startswith(prefix)), lower)


def _text(name: str, value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return unquote(text) if name.lower().startswith(_HEADER) else text
