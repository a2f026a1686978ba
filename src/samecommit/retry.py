"""When a failed attempt is tried again: exponential, capped, with full jitter, and it cannot overflow.

Full jitter (a uniform draw between 0 and the exponential step) spreads the retries of a burst best for the fewest calls:
M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015. Here the draw is between half a step and the
step when ``jitter=0.5``; 1 is full jitter, 0 none.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from samecommit.errors import ConfigError
from samecommit.payload.refusal import shown

MAX_DELAY_SECONDS = 10 * 365.25 * 86_400
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A policy: ``base_seconds * factor ** (attempts - 1)``, at most ``cap_seconds``, less a share drawn by ``jitter``.

    ``attempts`` counts the attempts spent, the one that just ended included: the first retry waits about ``base_seconds``.
    """

    base_seconds: float = 2.0
    factor: float = 2.0
    cap_seconds: float = 3600.0
    jitter: float = 1.0

    def __post_init__(self) -> None:
        limits = {"base_seconds": MAX_DELAY_SECONDS, "cap_seconds": MAX_DELAY_SECONDS, "factor": 1e6, "jitter": 1.0}
        for name, most in limits.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= most:
                msg = f"backoff {name} is {value!r}: give a number from 0 to {most:g}"
                raise ConfigError(msg)

    def step(self, attempts: int) -> float:
        """Return the delay without jitter, in seconds."""
        if self.base_seconds == 0 or self.cap_seconds == 0:
            return 0.0
        power = max(attempts - 1, 0) * math.log(self.factor) if self.factor > 0 else -math.inf
        exponent = math.log(self.base_seconds) + power
        if exponent >= math.log(self.cap_seconds):
            return float(self.cap_seconds)
        if power > _LARGEST_EXPONENT:  # the power alone would overflow, though a tiny base brings it below the cap
            return min(math.exp(exponent), self.cap_seconds)
        return min(self.base_seconds * self.factor ** max(attempts - 1, 0), self.cap_seconds)

    def delay(self, attempts: int, rng: Callable[[], float] = random.random) -> float:
        """Return the delay in seconds, jitter drawn from ``rng`` (a number in [0, 1))."""
        return self.step(attempts) * (1.0 - self.jitter * rng())


RetryPolicy = Backoff | Callable[[int], float | timedelta | None]


def delay_of(policy: RetryPolicy, attempts: int, fallback: Backoff) -> tuple[float, str | None]:
    """Return (seconds, complaint): a custom policy that raises or answers nonsense falls back, and says so.

    The delay is always within [0, ten years].
    """
    if isinstance(policy, Backoff):
        return policy.delay(attempts), None
    try:
        answer = policy(attempts)
        seconds = answer.total_seconds() if isinstance(answer, timedelta) else answer
        if isinstance(seconds, int | float) and 0 <= seconds <= MAX_DELAY_SECONDS:
            return float(seconds), None
        complaint = f"retry policy answered {shown(answer)} for attempt {attempts}: give seconds from 0 to ten years"
    except BaseException as error:  # noqa: BLE001 - a user's policy must not decide whether the failure can be written
        complaint = f"retry policy raised {shown(error)} for attempt {attempts}"
    return fallback.delay(attempts), complaint
