"""What a worker and its child processes say to each other: typed, as MessagePack. Payloads and results stay the JSON they are."""

from __future__ import annotations

import msgspec

from samecommit.job import Job
from samecommit.retry import Backoff
from samecommit.worker.verdict import Drop, End, Settle, Verdict


class Hello(msgspec.Struct, frozen=True):
    """The first frame: what a child has to know.

    Args:
        home: where the application is, ``module:name``.
        imports: modules to import beside it.
        path: where modules are looked for.
        fallback: the worker's default for retries.
    """

    home: str
    imports: tuple[str, ...]
    path: tuple[str, ...]
    dsn: str
    schema: str
    installation: str
    fallback: Backoff


class Request(msgspec.Struct, frozen=True):
    """A job to run, under which claim and lease."""

    job: Job
    claim_id: int
    lease_id: int


class Told(msgspec.Struct, frozen=True, tag="told"):
    """What a handler has recorded so far, and its last progress, each as JSON."""

    record: str | None
    progress: str | None


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """How the attempt ended: one of two verdicts, or neither (`Drop`)."""

    end: End | None
    settle: Settle | None
    record: str | None
    is_ended_by_handler: bool

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.end or self.settle or Drop()


hello_decoder = msgspec.msgpack.Decoder(Hello)
request_decoder = msgspec.msgpack.Decoder(Request)
answer_decoder = msgspec.msgpack.Decoder(Told | Ended)
encode = msgspec.msgpack.Encoder().encode
