"""Log lines on standard error: text for people, JSON for collectors.

What every job does is no news (see `news`). A burst is cut: of each kind of line so many in a second are written, the
rest are counted, so that a failed dependency cannot fill a disk or stall the event loop behind a slow pipe.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeAlias

from msgspec.structs import asdict

from samecommit.cli.failure import mask
from samecommit.cli.news import Level, news, shortened
from samecommit.signals import Signal

Format: TypeAlias = Literal["text", "json"]
_LINES_A_SECOND = 20


@dataclass(slots=True)
class Log:
    """Writes lines; safe to use from any thread.

    Args:
        form: of the lines.
        process: this process's name among its siblings, if it has any.
        stream: where to; standard error when None.
        clock: a monotonic clock, in seconds.
    """

    form: Format = "text"
    process: str = ""
    stream: TextIO | None = None
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _second: int = 0

    def write(self, level: Level, event: str, text: str, **fields: Any) -> None:
        """Write one line: the text for people; what happened and its fields besides for programs."""
        with self._lock:
            self._turn_second()
            self._counts[event] = self._counts.get(event, 0) + 1
            if self._counts[event] <= _LINES_A_SECOND:
                self._put(level, event, text, fields)

    def hear(self, signal: Signal) -> None:
        """Write what a signal says, if it is news."""
        if (told := news(signal)) is not None:
            level, text = told
            fields = {name: shortened(value) for name, value in asdict(signal).items()}
            self.write(level, type(signal).__name__, text, **fields)

    def _turn_second(self) -> None:
        if (second := int(self.clock())) == self._second:
            return
        self._second = second
        cut = {event: count - _LINES_A_SECOND for event, count in self._counts.items() if count > _LINES_A_SECOND}
        self._counts.clear()
        for event, count in cut.items():
            self._put(
                "warning", "LinesCut", f"{count} more lines like {event} were left out", {"of": event, "count": count}
            )

    def _put(self, level: Level, event: str, text: str, fields: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.form == "json":
            head = {"at": at, "level": level, "event": event, "message": text}
            process = {"process": self.process} if self.process else {}
            line = json.dumps({**head, **process, **fields}, default=str, ensure_ascii=False)
        else:
            process_name = f"[{self.process}] " if self.process else ""
            line = f"{at} {level:7} {process_name}{text}"
        stream = self.stream or sys.stderr
        stream.write(mask(line) + "\n")
        stream.flush()
