"""Runs attempts in child processes, for tasks with ``executor="process"``: each in a child that can be killed without harm.

A timeout, a cancel, a lost lease and the end of the grace period cancel the run here; the child is then told to stop and
killed after a grace, before the attempt's end is written. A child that dies is the end of that attempt and of no other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from samecommit.config import WorkerConfig
from samecommit.errors import ChildDied
from samecommit.runtime.children import Children
from samecommit.worker.attempt import Attempt, Host
from samecommit.worker.origin import Origin
from samecommit.worker.verdict import Verdict, child_died
from samecommit.worker.wire import Ended, Hello, Request, Told, answer_decoder, encode

_COMMAND = (sys.executable, "-P", "-m", "samecommit.worker.child")


class Apart:
    """The children of one worker.

    Args:
        origin: where a child finds the application.
        host: the worker: which installation, and where recorded facts go.
    """

    def __init__(
        self,
        config: WorkerConfig,
        host: Host,
        *,
        dsn: str,
        origin: Origin,
    ) -> None:
        self._config, self._host = config, host

        def hello() -> bytes:
            return encode(
                Hello(
                    home=origin.home or "",
                    imports=origin.imports,
                    path=tuple(sys.path),
                    dsn=dsn,
                    schema=host.schema,
                    installation=host.installation,
                    fallback=config.backoff,
                )
            )

        self._children = Children(
            _COMMAND,
            config.child_count,
            hello,
            max_jobs=config.max_jobs_per_child,
            max_memory_mb=config.max_memory_per_child,
        )

    def __repr__(self) -> str:
        return f"<Apart {self._children}>"

    async def run(self, attempt: Attempt, begin: Callable[[Attempt], None]) -> Verdict:
        """Run an attempt when a child is free, and judge it; ``begin`` is called when it has one."""
        request = encode(Request(attempt.job, attempt.claim_id, self._host.lease_id))
        try:
            async with self._children.borrow() as child:
                begin(attempt)
                ended = await child.run(request, lambda data: self._hear(attempt, data))
        except ChildDied as error:
            return child_died(
                error, attempt.job, attempt.definition, self._config.backoff, crash_limit=self._config.crash_limit
            )
        attempt.is_ended_by_handler = ended.is_ended_by_handler
        return ended.verdict

    def _hear(self, attempt: Attempt, data: bytes) -> Ended | None:
        try:
            told = answer_decoder.decode(data)
            if told.record is not None:
                msgspec.json.decode(told.record, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ChildDied(f"its child process said what no child says ({error}) and was killed") from error
        attempt.record_json = told.record or attempt.record_json
        if isinstance(told, Told):
            attempt.progress_json = told.progress
            self._host.mark_dirty(attempt)
            return None
        return told

    async def close(self) -> None:
        """End the children."""
        await self._children.close()
