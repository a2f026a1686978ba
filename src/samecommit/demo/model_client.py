"""Ask a model what a lead is worth, at any service that speaks OpenAI's chat completions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from samecommit.demo.errors import ModelBusy, ModelError
from samecommit.demo.http_json import Response, request_json

PROMPT_VERSION = "lead-triage/3"
LABELS = ("hot", "warm", "cold", "support")
PROMPT = (
    "You sort incoming leads for a sales team. Labels: hot (wants to buy now), warm (wants to see or try it), "
    "cold (no plan to buy), support (an existing customer needs help). Answer with JSON only: "
    '{"label": "...", "confidence": 0.0 to 1.0}. A low confidence means that a person should look.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """The model's answer, with what an audit wants to know of it."""

    label: str
    confidence: float
    model: str
    prompt_version: str
    prompt_tokens: int
    completion_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of the question and the answer."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClient:
    """Where the model is; ``base_url`` ends in ``/v1`` as usual."""

    base_url: str
    api_key: str
    model: str
    timeout_seconds: float = 20.0

    @classmethod
    def from_environment(cls) -> ModelClient:
        """Read ``OPENAI_BASE_URL``, ``OPENAI_API_KEY`` and ``OPENAI_MODEL``."""
        return cls(
            base_url=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/"),
            api_key=os.environ.get("OPENAI_API_KEY", "none"),
            model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        )

    def classify(self, lead: Mapping[str, Any]) -> Classification:
        """Classify one lead, given as the facts that the model may see.

        Raises:
            ModelBusy: 429 or 503; carries how long to wait.
            ModelError: another status, or an answer that is no classification.
            NoAnswer: the connection failed or timed out. Asking again is safe: a classification changes nothing.
        """
        response = request_json(
            "POST",
            f"{self.base_url}/chat/completions",
            body={
                "model": self.model,
                "temperature": 0,
                "response_format": {"type": "json_object"},
                "messages": [
                    {"role": "system", "content": PROMPT},
                    {"role": "user", "content": json.dumps(dict(lead), ensure_ascii=False)},
                ],
            },
            headers={"Authorization": f"Bearer {self.api_key}"},
            timeout_seconds=self.timeout_seconds,
        )
        if response.status in {429, 503}:
            raise ModelBusy(retry_after_seconds(response.headers))
        if not response.is_success:
            raise ModelError(f"the model's service answered {response.status}: {_excerpt(response.body)}")
        return self._read(response)

    def _read(self, response: Response) -> Classification:
        try:
            content = str(response.body["choices"][0]["message"]["content"])
            usage: Any = response.body["usage"]
            answer = json.loads(re.sub(r"^```(?:json)?\s*|\s*```$", "", content.strip()))
            label, confidence = str(answer["label"]).lower(), float(answer["confidence"])
            prompt_tokens, completion_tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the model's answer is no classification: {_excerpt(response.body)}") from error
        if label not in LABELS:
            raise ModelError(f"the model's label is {label!r}: expected one of {', '.join(LABELS)}")
        return Classification(
            label=label,
            confidence=confidence,
            model=str(response.body.get("model", self.model)),
            prompt_version=PROMPT_VERSION,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )


def retry_after_seconds(headers: Mapping[str, str], *, default: float = 1.0, limit: float = 300.0) -> float:
    """Read ``Retry-After`` (RFC 9110, section 10.2.3): seconds or a date; ``default`` where it is absent or garbage."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return default
    return min(max(seconds, 0.0), limit) if seconds == seconds else default  # noqa: PLR0124 - NaN


def _excerpt(body: Any) -> str:
    return repr(body)[:200]
