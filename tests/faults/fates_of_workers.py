"""What may be done to a worker process: ended at each moment, paused, told to stop."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from tests.faults.crew import Member
from tests.faults.fates import Steps, fate
from tests.support.history import Line

if TYPE_CHECKING:
    from tests.faults.storm import Storm

DOOMED = 66
"""What a worker ends with that ends itself at a fault point."""


def _victim(storm: Storm) -> Member | None:
    """Somebody who works, when not everybody else is paused."""
    able = storm.crew.alive
    return storm.rng.choice(able) if len(able) >= 2 else None


@fate("kill")
def kill(storm: Storm, line: Line) -> Steps:
    """SIGKILL, whatever it does."""
    victim = _victim(storm)
    if victim is None:
        return 0
    line["file"] = victim.name
    victim.kill()
    yield 0
    return int(victim.process.returncode == -signal.SIGKILL)


def _ends_itself(storm: Storm, line: Line, place: str) -> Steps:
    member = storm.start(f"{place}=exit:{DOOMED}@{storm.rng.randint(2, 12)}")
    line["file"] = member.name
    yield 0.1
    until = time.monotonic() + 60
    while member.is_alive and time.monotonic() < until:
        yield 0.1
    return int(member.process.poll() == DOOMED)


@fate("dies after a claim")
def dies_after_a_claim(storm: Storm, line: Line) -> Steps:
    """The claim is written, no handler has begun."""
    return (yield from _ends_itself(storm, line, "after claim/claim"))


@fate("dies before an end")
def dies_before_an_end(storm: Storm, line: Line) -> Steps:
    """Handlers have ended, their ends are not written."""
    return (yield from _ends_itself(storm, line, "before job/finish"))


@fate("dies after an end")
def dies_after_an_end(storm: Storm, line: Line) -> Steps:
    """The ends are written, and it never hears so."""
    return (yield from _ends_itself(storm, line, "after job/finish"))


def _pauses(storm: Storm, line: Line, victim: Member, seconds: float) -> Steps:
    line["file"] = victim.name
    yield from _stopped(line, [victim], seconds)
    return 1


def _stopped(line: Line, victims: list[Member], seconds: float) -> Steps:
    """Stop them and let them go on; the judge wants to know who was stopped, and when they were woken."""
    for victim in victims:
        victim.pause()
    yield seconds
    line["stopped"], line["woken"] = [victim.name for victim in victims], time.time()
    for victim in victims:
        if victim.is_alive:
            victim.resume()
    return len(victims)


@fate("stop")
def stop(storm: Storm, line: Line) -> Steps:
    """SIGSTOP past its lease, then SIGCONT: what it writes then must be refused."""
    victim = _victim(storm)
    if victim is None:
        return 0
    return (yield from _pauses(storm, line, victim, storm.plan.lease + 0.5 + storm.rng.random() * 2))


@fate("short stop")
def short_stop(storm: Storm, line: Line) -> Steps:
    """SIGSTOP for less than a lease."""
    victim = _victim(storm)
    if victim is None:
        return 0
    return (yield from _pauses(storm, line, victim, storm.plan.heartbeat * storm.rng.random()))


@fate("stop of the reaper")
def stop_of_the_reaper(storm: Storm, line: Line) -> Steps:
    """SIGSTOP of whoever has the reaper's turn, past its lease."""
    rows = storm.ask(
        "SELECT w.pid FROM samecommit.chore AS c JOIN samecommit.worker AS w ON w.lease_id = c.taken_by WHERE c.name = 'reap'"
    )
    pids = {row[0] for row in rows}
    victim = next((member for member in storm.crew.alive if member.process.pid in pids), None)
    if victim is None or len(storm.crew.alive) < 2:
        return 0
    return (yield from _pauses(storm, line, victim, storm.plan.lease + 1.0))


@fate("stop of all", alone="all", is_rare=True)
def stop_of_all(storm: Storm, line: Line) -> Steps:
    """SIGSTOP of every worker past the lease, then all go on at once."""
    victims = storm.crew.alive
    line["is_down"] = True
    return (yield from _stopped(line, victims, storm.plan.lease + 1.0))


def _told_to_stop(storm: Storm, line: Line, numbers: list[tuple[float, int]]) -> Steps:
    victim = _victim(storm)
    if victim is None:
        return 0
    line["file"] = victim.name
    began = time.monotonic()
    for wait, number in numbers:
        if wait:
            yield wait
        if victim.is_alive:
            victim.send(number)
    while victim.is_alive and time.monotonic() - began < 40:
        yield 0.05
    line["seconds"] = time.monotonic() - began
    if victim.is_alive:
        storm.complain(f"{victim} did not stop within 40 s")
        return 0
    return 1


@fate("SIGTERM")
def sigterm(storm: Storm, line: Line) -> Steps:
    """A deploy."""
    return (yield from _told_to_stop(storm, line, [(0.0, signal.SIGTERM)]))


@fate("second SIGTERM")
def second_sigterm(storm: Storm, line: Line) -> Steps:
    """A deploy in a hurry."""
    pause = 0.01 + storm.rng.random() * 0.5
    return (yield from _told_to_stop(storm, line, [(0.0, signal.SIGTERM), (pause, signal.SIGTERM)]))


@fate("SIGINT")
def sigint(storm: Storm, line: Line) -> Steps:
    """A Ctrl-C."""
    return (yield from _told_to_stop(storm, line, [(0.0, signal.SIGINT)]))


@fate("SIGTERM, then SIGKILL")
def sigterm_then_sigkill(storm: Storm, line: Line) -> Steps:
    """A deploy that loses patience while the worker gives back."""
    pause = 0.01 + storm.rng.random() * 0.2
    return (yield from _told_to_stop(storm, line, [(0.0, signal.SIGTERM), (pause, signal.SIGKILL)]))
