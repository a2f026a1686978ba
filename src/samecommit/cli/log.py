"""Signals as log lines on standard error: text for people, JSON for collectors.

What every job does is no news; a failure, a lost lease, a loop in trouble and the process's own start and end are. A
burst is cut: of each kind of line so many in a second are written, the rest are counted.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, TextIO

from samecommit.cli.failure import mask
from samecommit.signals import (
    JobFailed,
    JobsEnded,
    LeasesReaped,
    LeaseWasLost,
    PolicyBroken,
    ServiceFailed,
    ServiceRecovered,
    Signal,
    WorkerStarted,
    WorkerStopped,
)

Format = Literal["text", "json"]
Level = Literal["info", "warning", "error"]
_LINES_A_SECOND = 20
_ERROR_LENGTH = 300


@dataclass(slots=True)
class Log:
    """Writes lines; safe to use from any thread.

    Args:
        form: of the lines.
        stream: where to; standard error when None.
        clock: a monotonic clock, in seconds.
    """

    form: Format = "text"
    stream: TextIO | None = None
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _second: int = 0

    def write(self, level: Level, name: str, text: str, **fields: Any) -> None:
        """Write one line: a text for people, the name and the fields for programs."""
        with self._lock:
            self._turn_second()
            self._counts[name] = self._counts.get(name, 0) + 1
            if self._counts[name] <= _LINES_A_SECOND:
                self._put(level, name, text, fields)

    def _turn_second(self) -> None:
        if (second := int(self.clock())) != self._second:
            for name, count in self._counts.items():
                if (cut := count - _LINES_A_SECOND) > 0:
                    self._put(
                        "warning",
                        "LinesCut",
                        f"{cut} more lines like {name} were not written",
                        {"of": name, "count": cut},
                    )
            self._second = second
            self._counts.clear()

    def _put(self, level: Level, name: str, text: str, fields: dict[str, Any]) -> None:
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.form == "json":
            line = json.dumps({"at": at, "level": level, "name": name, "message": mask(text), **fields}, default=str)
        else:
            line = f"{at} {level:7} {mask(text)}"
        stream = self.stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()

    def hear(self, signal: Signal) -> None:
        """Write what a signal says, if it is news."""
        if (news := describe(signal)) is not None:
            level, text = news
            self.write(level, type(signal).__name__, text, **{k: _short(v) for k, v in asdict(signal).items()})


def describe(signal: Signal) -> tuple[Level, str] | None:
    """Return a signal's level and text, None when it is no news."""
    match signal:
        case WorkerStarted():
            queues = "every queue" if signal.queues is None else f"queues {', '.join(signal.queues)}"
            return "info", f"working on {queues} as lease {signal.lease_id}; kinds: {', '.join(signal.kinds)}"
        case WorkerStopped():
            return "info", f"stopped; {signal.given_back} jobs given back to the line"
        case JobFailed():
            verb = "will be tried again" if signal.will_retry else "has failed for good"
            first = _short(signal.error.strip().splitlines()[-1] if signal.error.strip() else "no reason")
            level: Level = "warning" if signal.will_retry else "error"
            return level, f"job {signal.job_id} ({signal.kind}) {verb} after attempt {signal.attempts}: {first}"
        case LeaseWasLost():
            return "error", f"lease {signal.lease_id} was lost and {signal.running} jobs stopped: {signal.reason}"
        case JobsEnded(refused=refused) if refused:
            return "warning", f"{refused} ends were refused: their jobs belong to another worker now"
        case LeasesReaped():
            return "warning", f"{signal.leases} dead leases ended, {signal.jobs} jobs given back, {signal.held} held"
        case ServiceFailed():
            error = _short(" ".join(signal.error.split()))
            return "warning", f"{signal.service} failed, next try in {signal.retry_seconds:.1f} s: {error}"
        case ServiceRecovered():
            return "info", f"{signal.service} works again after {signal.failures} failures"
        case PolicyBroken():
            return "warning", f"the retry policy of {signal.kind} was not used: {signal.complaint}"
        case _:
            return None


def _short(value: Any) -> Any:
    return value[: _ERROR_LENGTH - 1] + "…" if isinstance(value, str) and len(value) > _ERROR_LENGTH else value
