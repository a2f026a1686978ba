"""How an idle worker hears of new work at once, without a NOTIFY for every insert.

A NOTIFY in each commit cuts the commit rate to a third, since notifying commits queue up behind one lock. So producers
notify only when somebody sleeps, and find that out from an advisory lock::

    producer   try-lock(slot), shared, held to the commit;  refused -> NOTIFY
    worker     idle: lock(slot), exclusive, waiting at most a second (a waiter already makes producers' try-locks fail)
               claim once after asking, once when granted (every silent producer has committed by then), then sleep
               busy again: unlock

A queue rings slot ``id % 64`` of its installation, the outbox slot 64. A worker whose queues share no slot asks for them in ascending order and
waits on the first that is refused. Other idle workers queue for the lock: the lock manager is the hand-over, also when the
holder dies. Polling always works alone; behind a transaction pooler it is all there is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from samecommit.storage.link import AsyncLink

SLOTS = 64
_CHECK_SECONDS = 5.0


class Doorbell:
    """The bell of one worker: it asks while the worker is idle and gives the bell up when it is busy.

    Args:
        link: a connection of its own; its session holds the locks.
        on_grant: called when the last lock was granted: look once more, then sleep.
    """

    def __init__(self, link: AsyncLink, on_grant: Callable[[], None]) -> None:
        self._link = link
        self._on_grant = on_grant
        self._wanted: tuple[int, ...] = ()
        self._held: set[int] = set()
        self._asked: set[int] = set()  # and not granted when the wait for it was over
        self._is_idle = False
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Doorbell {'idle' if self._is_idle else 'busy'}, holds {sorted(self._held)}>"

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that this worker's queues ring."""
        return self._wanted

    @property
    def is_idle(self) -> bool:
        """Whether the bell is wanted."""
        return self._is_idle

    @property
    def is_held(self) -> bool:
        """Whether every commit from now on is heard."""
        return self._is_idle and bool(self._wanted) and self._held.issuperset(self._wanted)

    @property
    def is_heard(self) -> bool:
        """Whether commits are heard: their slots are held here, or asked for while somebody else holds or asks."""
        return self.is_held or (
            self._is_idle and self._link.is_open and self._held.union(self._asked).issuperset(self._wanted)
        )

    def watch(self, queue_ids: Iterable[int]) -> None:
        """Set which queues to hear."""
        self.watch_slots(queue_id % SLOTS for queue_id in queue_ids)

    def watch_slots(self, slots: Iterable[int]) -> None:
        """Set which slots to hear."""
        self._wanted = tuple(sorted(set(slots)))

    def set_idle(self, is_idle: bool) -> None:
        """Begin to ask for the bell, or give it up."""
        if is_idle != self._is_idle:
            self._is_idle = is_idle
            self._changed.set()

    async def run_once(self) -> float:
        """Hold or release what the worker's state asks for, then wait until that changes; one turn."""
        self._changed.clear()
        if not self._link.is_open:
            self._held.clear()
            self._asked.clear()
        if not self._is_idle:
            self._asked.clear()
            await self._release()
        elif missing := [slot for slot in self._wanted if slot not in self._held]:
            return await self._take(missing[0])
        elif self._held:
            await self._link.fetch("worker/ping")
        await self._until_changed()
        return 0.0

    async def _take(self, slot: int) -> float:
        granted = (await self._link.fetch("worker/take_bell", slot=slot))[0][0]
        if not granted:
            self._asked = {slot}
            return random.uniform(0.001, 0.02)
        self._asked.clear()
        self._held.add(slot)
        if self.is_held:
            self._on_grant()
        return 0.0

    async def _until_changed(self) -> None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _release(self) -> None:
        if self._held:
            self._held.clear()
            await self._link.fetch("worker/leave_bells")
