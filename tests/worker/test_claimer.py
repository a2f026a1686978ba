"""What a claimer makes of answers that come at odd times; the database is played, its answers are given by hand."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from samecommit.config import WorkerConfig
from samecommit.runtime.doorbell import Doorbell
from samecommit.signals import Signals
from samecommit.storage.link import AsyncLink
from samecommit.worker.claimer import Claimer
from samecommit.worker.executor import Executor


class Database:
    """Answers claims when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()
        self.suspects: int | None = None
        self.starts: list[str] = []
        self.labels: list[str] = []
        self.places, self.has_backlog = count(21), False
        self.on_claim: Callable[[], None] = lambda: None

    async def fetch(self, label: str, **values: Any) -> list[Any]:
        self.labels.append(label)
        match label:
            case "worker/view":
                return [('{"1": "default"}', "{}", self.suspects)]
            case "claim/horizon":
                xid = 1000 * len(self.labels)
                return [(xid, xid, xid, 20, [])]
            case "claim/claim":
                self.starts.append(values["starts"])
                self.asked.set()
                await self.answers.wait()
                self.on_claim()
                if self.has_backlog:
                    places = [next(self.places) for _ in range(values["room"])]
                    return [(place, place, 1, 0, *[None] * 16, "{}") for place in places]
        return []

    @property
    def is_forward(self) -> bool:
        return "," not in self.starts[-1]  # every other look has the head of the line beside it


class Handlers:
    """An executor with nothing to do."""

    is_empty = True
    free_slots = 5
    given_back = 0

    def room(self) -> int:
        return 5

    def ids(self) -> set[int]:
        return set()

    def note_claim(self, seconds: float) -> None: ...

    def take(self, claim_id: int, rows: Any, *, starts: bool) -> None: ...

    def give_back_waiting(self) -> None:
        self.given_back += 1


class Bell:
    is_idle = is_held = is_heard = False

    def set_idle(self, is_idle: bool) -> None: ...

    def watch(self, queue_ids: Any) -> None: ...


class Turns:
    """A claimer, and what it sees of the world."""

    def __init__(self) -> None:
        self.database, self.handlers, self.lease, self.now = Database(), Handlers(), 1, 100.0
        self.claimer = Claimer(
            WorkerConfig(),
            cast("AsyncLink", self.database),
            cast("Doorbell", Bell()),
            cast("Executor", self.handlers),
            Signals(),
            kinds=("work",),
            lease=lambda: self.lease,
            claimed=lambda *_: None,
            known=list,
            sleep=asyncio.sleep,
            clock=lambda: self.now,
        )

    async def turn(self, seconds: float = 1.1) -> None:
        self.now += seconds
        async with asyncio.timeout(10):
            await self.claimer.run_once()

    def takes(self, *, forward: float, other: float) -> None:
        """Let a claim take so many seconds."""

        def pass_by() -> None:
            self.now += forward if self.database.is_forward else other

        self.database.on_claim = pass_by

    def low(self) -> int:
        return self.claimer._marks.lanes[1, 0].low


async def test_the_answer_to_a_claim_of_a_lost_lease_raises_no_mark() -> None:
    turns = Turns()
    for _ in range(5):
        await turns.turn()
    assert turns.low() == 20, "without it, nothing is shown"
    turns.database.answers.clear()
    turns.database.asked.clear()
    running = asyncio.create_task(turns.turn())
    await turns.database.asked.wait()
    turns.lease = 2
    turns.claimer.reset()
    turns.database.answers.set()
    await running
    assert turns.low() == 0, "the jobs that the dead lease was not given are still there"


async def test_the_patience_for_one_suspect_is_not_used_up_by_an_earlier_one() -> None:
    turns = Turns()
    turns.handlers.is_empty = False
    turns.database.suspects = 2
    await turns.turn()
    assert turns.handlers.given_back == 1
    turns.database.suspects = None  # somebody else took it
    await turns.turn()
    turns.now += 60
    turns.database.suspects = 2
    await turns.turn()
    assert turns.handlers.given_back == 2
    assert "claim/claim_suspects" not in turns.database.labels
    turns.now += 30
    await turns.turn()
    assert "claim/claim_suspects" in turns.database.labels


async def test_a_suspect_that_nobody_gets_keeps_nobody_from_other_work() -> None:
    turns = Turns()
    turns.database.suspects = 2
    for _ in range(10):
        await turns.turn(0.05)
    assert turns.database.labels.count("claim/claim_suspects") == 1
    assert "claim/claim" in turns.database.labels
    await turns.turn()
    assert turns.database.labels.count("claim/claim_suspects") == 2


async def test_a_worker_without_a_free_slot_takes_no_suspect_and_keeps_the_next_slot_for_it() -> None:
    turns = Turns()
    turns.handlers.is_empty, turns.handlers.free_slots = False, 0
    turns.database.suspects = 2
    for _ in range(60):
        await turns.turn()
    assert {"claim/claim", "claim/claim_suspects"}.isdisjoint(turns.database.labels)
    turns.handlers.free_slots = 1
    await turns.turn()
    assert "claim/claim_suspects" in turns.database.labels


async def test_one_claim_that_met_a_stall_makes_no_look_cheap() -> None:
    turns = Turns()
    for _ in range(5):
        await turns.turn()
    turns.database.has_backlog = True
    for forward_seconds in (0.001, 5.0):
        turns.takes(forward=forward_seconds, other=0.001)
        turns.database.starts.append("a look,")
        while not turns.database.is_forward:
            await turns.turn(0.001)
    turns.database.has_backlog = False
    turns.takes(forward=0.001, other=0.3)
    turns.database.starts.clear()
    begun = turns.now
    for _ in range(100):
        await turns.turn()
    full = [starts for starts in turns.database.starts if starts.endswith(",0}")]
    assert len(turns.database.starts) > 50 and len(full) * 0.3 < 0.015 * (turns.now - begun), "a hundredth of the time"
