"""How many jobs a worker claims ahead of its slots: what is done while a claim is under way, and no more than a batch."""

import asyncio
from typing import Any

from samecommit.config import WorkerConfig
from samecommit.signals import Signals
from samecommit.worker.executor import Executor


async def _claimed_ahead(claim_seconds: float, ended_per_second: float) -> int:
    unused: Any = None
    executor = Executor(
        WorkerConfig(concurrency=10, batch=500), {}, unused, unused, Signals(), lambda: None, lambda: None
    )
    for _ in range(50):
        executor.note_claim(claim_seconds)
    now = asyncio.get_running_loop().time()
    executor._looked, executor._ended_since = now - 1.0, int(ended_per_second)
    await executor.look()
    return executor.room() - 10


async def test_a_claim_that_takes_long_is_made_for_longer() -> None:
    assert 15 <= await _claimed_ahead(0.001, 1000) <= 20
    assert 150 <= await _claimed_ahead(0.1, 1000) <= 200


async def test_a_slow_worker_takes_nothing_ahead_that_others_could_run() -> None:
    assert await _claimed_ahead(0.1, 3) == 0


async def test_a_batch_is_the_most() -> None:
    assert await _claimed_ahead(5.0, 10_000) == 490  # with the ten slots
