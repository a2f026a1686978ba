"""One HTTP request with a JSON body and a JSON answer, by the standard library alone."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from samecommit.demo.errors import NoAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer; ``body`` is the decoded JSON, or the text where it is none."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


def request_json(
    method: str,
    url: str,
    *,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 10.0,
) -> Response:
    """Send one request on a connection of its own.

    Header names of the response are in lower case.

    Raises:
        NoAnswer: the connection failed, was dropped or stayed silent; whether the request was carried out is unknown.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    sent = {"Accept": "application/json", "Content-Type": "application/json", "Connection": "close", **(headers or {})}
    data = None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, target, body=data, headers=sent)
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"no answer to {method} {parts.path!r}: {type(error).__name__} {error}") from error
    finally:
        connection.close()
    received = {name.lower(): value for name, value in response.getheaders()}
    return Response(status=response.status, headers=received, body=_decode(text))


def _decode(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
