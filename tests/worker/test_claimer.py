"""What a claimer makes of answers that come at odd times; the database is played, its answers are given by hand."""

import asyncio
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
        return []


class Handlers:
    """An executor with nothing to do."""

    is_empty = True
    given_back = 0

    def room(self) -> int:
        return 5

    def ids(self) -> set[int]:
        return set()

    def note_claim(self, seconds: float) -> None: ...

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

    async def turn(self) -> None:
        self.now += 1.1
        await self.claimer.run_once()

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
