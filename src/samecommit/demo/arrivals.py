"""Let leads arrive one after another, as from a form, instead of all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from samecommit.demo.intake import Lead


def arrivals(
    leads: Iterable[Lead],
    per_second: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Lead]:
    """Yield the leads at a steady pace; after a pause it catches up, and 0 means without waiting."""
    start = clock()
    for number, lead in enumerate(leads):
        if per_second and (early := start + number / per_second - clock()) > 0:
            sleep(early)
        yield lead
