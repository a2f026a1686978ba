"""A stand-in for a CRM that offers no idempotency, with a SQLite file of its own.

``POST /contacts`` creates a contact each time it is asked: the same address twice makes two contacts. It is slow,
sometimes answers 500 without having done anything, and sometimes creates the contact and then drops the connection:
the two look alike from outside. ``GET /contacts?email=`` finds contacts, new ones only after a while if its index lags;
``GET /contacts?after=ID&limit=N`` pages through all of them, ``GET /stats`` counts. Addresses at ``do-not-contact.example`` are refused for good (422).
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, TypeAlias

from samecommit.demo.stub import Answer, Request, not_found, serve

Fault: TypeAlias = Literal["none", "500", "dropped"]

REFUSED_DOMAIN = "do-not-contact.example"
FIELDS = ("email", "name", "company", "label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moods:
    """How badly the CRM behaves: chances from 0 to 1 per request, seconds that an answer takes and that its index lags."""

    error: float = 0.05
    dropped: float = 0.05
    search_error: float = 0.02
    latency_seconds: float = 0.04
    index_lag_seconds: float = 0.0


class CrmStub:
    """The service, over the SQLite file at ``path``; the same seed gives the same sequence of faults."""

    def __init__(self, path: Path | str, *, moods: Moods | None = None, seed: int = 7) -> None:
        self._moods = moods or Moods()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._faults: dict[str, int] = {"500": 0, "dropped": 0}
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = WAL;"
            "CREATE TABLE IF NOT EXISTS contact ("
            " id INTEGER PRIMARY KEY, email TEXT NOT NULL, name TEXT, company TEXT, label TEXT, created REAL NOT NULL);"
            "CREATE INDEX IF NOT EXISTS contact_email ON contact (email);"
        )

    def __call__(self, request: Request) -> Answer:
        """Answer one request."""
        match request.method, request.path:
            case "POST", "/contacts":
                return self._create(request.body)
            case "GET", "/contacts" if "email" in request.query:
                return self._find(request.query["email"])
            case "GET", "/contacts":
                return self._page(int(request.query.get("after", 0)), int(request.query.get("limit", 500)))
            case "GET", "/stats":
                return Answer(body=self.stats())
            case _:
                return not_found(request)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def stats(self) -> dict[str, int]:
        """Count the contacts, those that are one too many, and the faults so far."""
        rows = self._query("SELECT count(*) AS contacts, count(*) - count(DISTINCT email) AS duplicates FROM contact")
        return {**rows[0], **self._faults}

    def _create(self, body: Any) -> Answer:
        if not isinstance(body, dict) or "@" not in str(body.get("email", "")):  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            return _refusal("email is required")
        values = [str(body.get(name) or "") for name in FIELDS]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if values[0].endswith(f"@{REFUSED_DOMAIN}"):
            return _refusal("contact is on the do-not-contact list")
        fault, delay = self._decide(error=self._moods.error, dropped=self._moods.dropped)
        if fault == "500":
            return Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body={"error": "try later"}, delay_seconds=delay)
        with self._lock:
            cursor = self._database.execute(
                "INSERT INTO contact (email, name, company, label, created) VALUES (?, ?, ?, ?, ?)",
                (*values, time.time()),
            )
        created = {"id": cursor.lastrowid, **dict(zip(FIELDS, values, strict=True))}
        return Answer(status=HTTPStatus.CREATED, body=created, delay_seconds=delay, is_dropped=fault == "dropped")

    def _find(self, email: str) -> Answer:
        fault, delay = self._decide(error=self._moods.search_error, dropped=0.0)
        if fault == "500":
            return Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body={"error": "try later"}, delay_seconds=delay)
        sql = "SELECT id, email, name, company, label FROM contact WHERE email = ? AND created <= ? ORDER BY id"
        found = self._query(sql, email, time.time() - self._moods.index_lag_seconds)
        return Answer(body={"contacts": found}, delay_seconds=delay / 4)

    def _page(self, after: int, limit: int) -> Answer:
        sql = "SELECT id, email, name, company, label FROM contact WHERE id > ? ORDER BY id LIMIT ?"
        return Answer(body={"contacts": self._query(sql, after, limit)})

    def _decide(self, *, error: float, dropped: float) -> tuple[Fault, float]:
        with self._lock:
            roll, slow = self._random.random(), self._random.random()
            fault: Fault = "500" if roll < error else "dropped" if roll < error + dropped else "none"
            if fault != "none":
                self._faults[fault] += 1
        return fault, self._moods.latency_seconds * (0.5 + 2.5 * slow**3)

    def _query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            cursor = self._database.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


def _refusal(reason: str) -> Answer:
    return Answer(status=HTTPStatus.UNPROCESSABLE_ENTITY, body={"error": reason})


def main() -> None:
    """Run the stub as a process of its own."""
    parser = argparse.ArgumentParser(description="a stand-in for a CRM; ends when its input closes")
    parser.add_argument("file", type=Path, help="the SQLite file; made if it is not there")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=7, help="of the faults")
    parser.add_argument("--error", type=float, default=Moods().error, help="chance of a 500 that did nothing")
    parser.add_argument("--dropped", type=float, default=Moods().dropped, help="chance of created, then dropped")
    parser.add_argument("--search-error", type=float, default=Moods().search_error, help="chance of a 500 to a search")
    parser.add_argument("--latency-seconds", type=float, default=Moods().latency_seconds)
    parser.add_argument("--index-lag-seconds", type=float, default=0.0, help="until a search finds what was created")
    args = parser.parse_args()
    moods = Moods(
        error=args.error,
        dropped=args.dropped,
        search_error=args.search_error,
        latency_seconds=args.latency_seconds,
        index_lag_seconds=args.index_lag_seconds,
    )
    serve(CrmStub(args.file, moods=moods, seed=args.seed), port=args.port)


if __name__ == "__main__":
    main()
