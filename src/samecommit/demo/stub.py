"""What the demo's servers share: decide first, then do.

A service is a function from a :class:`Request` to an :class:`Answer`; it changes its own state and says what is to be
sent, how late, and whether the connection is dropped instead. :func:`serve` does the sending, on 127.0.0.1 and a free
port, prints ``ready http://127.0.0.1:PORT``, and ends when its standard input closes, so that no server outlives the
demo that started it, however that one ended.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

READY = "ready "


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as a service sees it; ``body`` is the decoded JSON, None where there is none."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent back after ``delay_seconds``; a dropped one closes the connection without a word."""

    status: HTTPStatus = HTTPStatus.OK
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay_seconds: float = 0.0
    is_dropped: bool = False


Service: TypeAlias = Callable[[Request], Answer]


class Server(ThreadingHTTPServer):
    """A server on this machine only; ``url`` is where it listens."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, service: Service, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), partial(_Handler, service))

    @property
    def url(self) -> str:
        """The address to call, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave in one packet

    def __init__(self, service: Service, *args: Any) -> None:
        self._service = service
        super().__init__(*args)  # handles the connection, so the service has to be there before

    def handle_one_request(self) -> None:
        """Read one request; a client that was killed in the middle of it is no error of ours."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        pass

    def _answer(self) -> None:
        answer = self._service(self._request())
        time.sleep(answer.delay_seconds)
        if answer.is_dropped:
            self.close_connection = True
            return
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Type": "application/json", "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def _request(self) -> Request:
        url = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        return Request(method=self.command, path=url.path, query=query, body=json.loads(data) if data else None)


def not_found(request: Request) -> Answer:
    """Answer a path that the service does not have."""
    return Answer(status=HTTPStatus.NOT_FOUND, body={"error": f"no {request.method} {request.path} here"})


def serve(service: Service, *, port: int = 0) -> None:
    """Serve until standard input closes."""
    with Server(service, port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"{READY}{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()
