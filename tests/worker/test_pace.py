"""A trickle of ends shares its commits, and nothing waits that need not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from samecommit.signals import Signals
from samecommit.worker.completer import Completer


class Recorder:
    """Stands in for the connection: every row that is to end comes back as ended."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    async def fetch(self, label: str, **values: Any) -> list[tuple[Any, ...]]:
        self.labels.append(label)
        return [(int(number),) for number in values["ids"].strip("{}").split(",")] if label == "job/finish" else []


def _completer(link: Any) -> Completer:
    return Completer(
        link,
        Signals(),
        lease=lambda: 1,
        wake=lambda: None,
        on_cancel=lambda job_id, reason: None,
        on_cool=lambda kind, seconds: None,
        running_ids=list,
    )


def _end(completer: Completer, job_id: int) -> None:
    completer.claimed(job_id, 1)
    completer.done(SimpleNamespace(id=job_id, claim_id=job_id))  # type: ignore[arg-type]


async def test_the_first_end_is_written_at_once_and_the_next_waits_for_its_fellows() -> None:
    link = Recorder()
    completer = _completer(link)
    _end(completer, 1)
    await completer.run_once()
    assert link.labels.count("job/finish") == 1
    _end(completer, 2)
    assert 0 < await completer.run_once() <= 0.005
    assert link.labels.count("job/finish") == 1


async def test_many_ends_do_not_wait() -> None:
    link = Recorder()
    completer = _completer(link)
    _end(completer, 1)
    await completer.run_once()
    for job_id in range(2, 70):
        _end(completer, job_id)
    await completer.run_once()
    assert completer.written == 69


async def test_a_worker_that_stops_writes_everything_and_leaves_no_claim() -> None:
    link = Recorder()
    completer = _completer(link)
    _end(completer, 1)
    await completer.run_once()
    _end(completer, 2)
    completer.is_closing = True
    before = completer.is_empty
    await completer.run_once()
    assert (before, completer.is_empty) == (False, True)
    assert (completer.written, link.labels[-1]) == (2, "claim/forget")
