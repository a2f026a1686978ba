"""A stand-in for a model's service: ``POST /v1/chat/completions`` in the form that OpenAI made common.

The label, the confidence and the tokens depend on the message alone, so that two runs classify alike. What it does
badly is what real ones do: after every so many answers it refuses everything for a while (429 with ``Retry-After``),
it takes its time, it wraps some answers in a code fence, and the first answer to some messages is no JSON at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from samecommit.demo.stub import Answer, Request, not_found, serve

WORDS: Mapping[str, re.Pattern[str]] = {
    "hot": re.compile(r"\b(quote|pricing|price|offer|purchase|buy|budget|angebot)\b"),
    "warm": re.compile(r"\b(demo|trial|comparing|show us)\b"),
    "cold": re.compile(r"\b(looking around|student|newsletter|nothing planned)\b"),
    "support": re.compile(r"\b(log in|invoice|broken|error|reset)\b"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the stub thinks of a message; below 0.7 it does not really know."""

    label: str
    confidence: float


def opinion(text: str) -> Opinion:
    """Judge by words: one kind of them is a clear case, several are a doubtful one, none is decided by the hash."""
    chance = _chance(text)
    matches = [label for label, words in WORDS.items() if words.search(text.lower())]
    match matches:
        case [label]:
            return Opinion(label=label, confidence=round(0.78 + 0.21 * chance, 2))
        case []:
            label = list(WORDS)[int(chance * 997) % len(WORDS)]
            return Opinion(label=label, confidence=round(0.60 + 0.08 * chance if chance < 0.04 else 0.74, 2))
        case _:
            label = matches[0]
            return Opinion(label=label, confidence=round(0.41 + 0.24 * chance, 2))


def _chance(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


class ModelStub:
    """The service. It answers ``burst_every`` questions, then refuses all of them for ``burst_seconds``.

    ``clock`` is monotonic seconds. ``GET /stats`` says how often it answered, refused and babbled.
    """

    def __init__(
        self,
        *,
        burst_every: int = 300,
        burst_seconds: float = 1.5,
        latency_seconds: float = 0.03,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst_every = burst_every
        self._burst_seconds = burst_seconds
        self._latency_seconds = latency_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._next_burst = burst_every
        self._busy_until = -math.inf
        self._babbled: set[str] = set()
        self.answered = 0
        self.refused = 0

    def __call__(self, request: Request) -> Answer:
        """Answer one request."""
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                return self._complete(request.body)
            case "GET", "/stats":
                return Answer(body={"answered": self.answered, "refused": self.refused, "babbled": len(self._babbled)})
            case _:
                return not_found(request)

    def _complete(self, body: Any) -> Answer:
        try:
            text = str(body["messages"][-1]["content"])
            model = str(body["model"])
        except (KeyError, IndexError, TypeError):
            return Answer(status=HTTPStatus.BAD_REQUEST, body={"error": {"message": "model and messages are required"}})
        with self._lock:
            if wait := self._wait_seconds():
                return self._refuse(wait)
            self.answered += 1
            babbles = _chance(f"babble {text}") < 0.01 and text not in self._babbled
            if babbles:
                self._babbled.add(text)
        content = "Sure! Happy to help with that lead." if babbles else _content(text)
        prompt_tokens = sum(len(str(message["content"])) for message in body["messages"]) // 4
        delay = self._latency_seconds * (0.5 + 1.5 * _chance(f"latency {text}"))
        return Answer(body=_completion(model, content, prompt_tokens), delay_seconds=delay)

    def _wait_seconds(self) -> float:
        """Return what is left of a burst of refusals, starting one when it is time."""
        now = self._clock()
        if self.answered >= self._next_burst:
            self._next_burst += self._burst_every
            self._busy_until = now + self._burst_seconds
        return max(0.0, self._busy_until - now)

    def _refuse(self, wait: float) -> Answer:
        self.refused += 1
        error = {"message": "rate limit reached for requests", "type": "requests", "code": "rate_limit_exceeded"}
        return Answer(
            status=HTTPStatus.TOO_MANY_REQUESTS,
            body={"error": error},
            headers={"Retry-After": str(math.ceil(wait))},
        )


def _content(text: str) -> str:
    judged = opinion(text)
    answer = json.dumps({"label": judged.label, "confidence": judged.confidence})
    return f"```json\n{answer}\n```" if _chance(f"fence {text}") < 0.05 else answer


def _completion(model: str, content: str, prompt_tokens: int) -> dict[str, Any]:
    completion_tokens = max(1, len(content) // 4)
    return {
        "id": f"chatcmpl-{hashlib.sha256(content.encode()).hexdigest()[:12]}",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def main() -> None:
    """Run the stub as a process of its own."""
    parser = argparse.ArgumentParser(description="a stand-in for a model's service; ends when its input closes")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--burst-every", type=int, default=300, help="answers between two bursts of refusals")
    parser.add_argument("--burst-seconds", type=float, default=1.5)
    parser.add_argument("--latency-seconds", type=float, default=0.03)
    args = parser.parse_args()
    stub = ModelStub(
        burst_every=args.burst_every, burst_seconds=args.burst_seconds, latency_seconds=args.latency_seconds
    )
    serve(stub, port=args.port)


if __name__ == "__main__":
    main()
