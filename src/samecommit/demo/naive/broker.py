"""An in-memory broker: a list that is gone with its process, and a message that is gone when a worker has it.

That is what the common brokers do by default (a list popped in Redis, a message acknowledged on receipt).
``POST /publish`` appends, ``POST /take`` waits up to a second for messages, ``POST /close`` tells the workers to end when
the list is empty.
"""

from __future__ import annotations

import threading
from collections import deque

from samecommit.demo.stub import Answer, Request, not_found, serve


class Broker:
    """The service; a message is the lead's id."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: deque[int] = deque()
        self._closed = False
        self.published = 0

    def __call__(self, request: Request) -> Answer:
        """Answer one request."""
        match request.method, request.path:
            case "POST", "/publish":
                return self._publish(int(request.body["lead_id"]))
            case "POST", "/take":
                return self._take(int(request.body["most"]))
            case "POST", "/close":
                return self._close()
            case "GET", "/stats":
                return Answer(body={"published": self.published, "waiting": len(self._messages)})
            case _:
                return not_found(request)

    def _publish(self, lead_id: int) -> Answer:
        with self._changed:
            self._messages.append(lead_id)
            self.published += 1
            self._changed.notify()
        return Answer(body={})

    def _take(self, most: int, *, wait_seconds: float = 1.0) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._closed, timeout=wait_seconds)
            taken = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
            return Answer(body={"messages": taken, "is_over": self._closed and not self._messages})

    def _close(self) -> Answer:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return Answer(body={})


if __name__ == "__main__":
    serve(Broker())
