"""A loop that runs turns, backs off when they fail, and always stops."""

import asyncio
import threading
import time

import pytest
from tests.support.recorder import Recorder
from tests.support.waiting import until, wait_until

from samecommit.runtime.service import Service
from samecommit.runtime.threads import ThreadPool
from samecommit.signals import ServiceFailed, ServiceRecovered, Signals


async def test_turns_follow_one_another_after_the_delay_they_ask_for() -> None:
    turns: list[float] = []

    async def turn() -> float:
        turns.append(time.monotonic())
        return 0.05

    service = Service("x", turn, Signals())
    service.start()
    await until(lambda: len(turns) == 3)
    await service.stop()
    assert turns[2] - turns[0] >= 0.09


async def test_a_sleep_is_cut_short_by_a_wake() -> None:
    turns: list[int] = []

    async def turn() -> float:
        turns.append(1)
        return 60

    service = Service("x", turn, Signals())
    service.start()
    await until(lambda: turns)
    await asyncio.sleep(0)
    service.wake()
    await until(lambda: len(turns) == 2)
    await service.stop()


async def test_a_wake_during_a_turn_is_not_lost() -> None:
    turns: list[int] = []
    go_on = asyncio.Event()

    async def turn() -> float:
        turns.append(1)
        await go_on.wait()
        return 60

    service = Service("x", turn, Signals())
    service.start()
    await until(lambda: turns)
    service.wake()
    go_on.set()
    await until(lambda: len(turns) == 2)
    await service.stop()


async def test_a_failing_turn_is_told_and_tried_again_and_a_good_one_ends_the_trouble() -> None:
    turns: list[int] = []

    async def turn() -> float:
        turns.append(1)
        if len(turns) < 4:
            raise ValueError(f"turn {len(turns)}")
        return 60

    signals = Signals()
    recorder = Recorder(signals)
    service = Service("x", turn, signals)
    service.start()
    recovered = await recorder.one(ServiceRecovered)
    await service.stop()
    assert recovered.failures == 3
    failed = recorder.all(ServiceFailed)
    assert [signal.error for signal in failed] == [f"ValueError: turn {n}" for n in (1, 2, 3)]
    assert all(0.025 * 2**n <= signal.retry_seconds <= 0.05 * 2**n for n, signal in enumerate(failed))


async def test_the_pause_after_failures_has_an_end() -> None:
    service = Service("x", asyncio.Event().wait, Signals())
    pauses = [service._failed("x") for _ in range(2000)]
    assert max(pauses) <= 5


async def test_a_turn_that_was_cancelled_by_somebody_else_does_not_end_the_loop() -> None:
    turns: list[int] = []

    async def turn() -> float:
        turns.append(1)
        if len(turns) == 1:
            raise asyncio.CancelledError
        return 60

    service = Service("x", turn, Signals())
    service.start()
    await until(lambda: len(turns) == 2)
    await service.stop()


async def test_a_stop_waits_for_the_turn_and_cancels_one_that_takes_too_long() -> None:
    ended: list[str] = []

    async def turn() -> float:
        try:
            await asyncio.sleep(0.05)
            ended.append("by itself")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return 0

    service = Service("x", turn, Signals())
    service.start()
    await asyncio.sleep(0)
    await service.stop(0.2)
    assert ended == ["by itself", "cancelled"]
    await service.stop()


async def test_a_service_that_never_started_can_be_stopped() -> None:
    async def turn() -> float:
        raise AssertionError

    await Service("x", turn, Signals()).stop()


# ------------------------------------------------------------------------------------------------------------- threads


def test_threads_are_started_when_needed_and_used_again() -> None:
    pool = ThreadPool(4)
    names: list[str] = []
    done = threading.Semaphore(0)

    def work() -> None:
        names.append(threading.current_thread().name)
        done.release()

    for _ in range(5):
        pool.submit(work)
        assert done.acquire(timeout=5)
        wait_until(lambda: pool._idle > 0)
    assert len(set(names)) == 1
    pool.close()


def test_no_more_than_the_size_run_at_once_and_all_are_run() -> None:
    pool = ThreadPool(3)
    gate, lock = threading.Event(), threading.Lock()
    running, most, ended = 0, 0, 0

    def work() -> None:
        nonlocal running, most, ended
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(10)
        with lock:
            running -= 1
            ended += 1

    for _ in range(20):
        pool.submit(work)
    wait_until(lambda: running == 3)
    gate.set()
    wait_until(lambda: ended == 20)
    assert most == 3
    pool.close()


def test_a_thread_that_is_stuck_after_it_has_submitted_work_is_replaced() -> None:
    pool = ThreadPool(1)
    gate, taken, done = threading.Event(), threading.Event(), threading.Event()

    def hand_on() -> None:
        pool.submit(lambda: None)  # nobody is idle yet, and the one thread takes it when it is

    def stay() -> None:
        taken.set()
        gate.wait(10)

    pool.submit(hand_on)
    wait_until(lambda: pool._idle == 1 and pool._untaken == 0)
    pool.submit(stay)
    assert taken.wait(5)
    pool.abandon()
    pool.submit(done.set)
    assert done.wait(1), "it waits for the thread that is stuck"
    gate.set()
    pool.close()


def test_an_abandoned_thread_leaves_its_place_to_another() -> None:
    pool = ThreadPool(1)
    stuck, done = threading.Event(), threading.Event()

    def stay() -> None:
        stuck.wait(10)

    pool.submit(stay)
    pool.abandon()
    pool.submit(done.set)
    assert done.wait(5)
    stuck.set()
    pool.close()


def test_what_waits_is_run_beside_a_stuck_thread_and_the_surplus_ends_when_that_comes_back() -> None:
    pool = ThreadPool(1)
    stuck, done = threading.Event(), threading.Event()
    pool.submit(lambda: stuck.wait(10))  # its answer, True, says that it was abandoned
    pool.submit(done.set)
    assert not done.wait(0.05)
    pool.abandon()
    assert done.wait(5)
    assert (pool.stuck, pool._alive) == (1, 2)
    stuck.set()
    wait_until(lambda: (pool.stuck, pool._alive) == (0, 1))
    done.clear()
    pool.submit(done.set)
    assert done.wait(5)
    pool.close()


def test_stuck_threads_are_replaced_as_often_as_there_are_threads() -> None:
    pool = ThreadPool(2)
    stuck, late = threading.Event(), threading.Event()
    for _ in range(4):
        assert not pool.is_exhausted
        pool.submit(lambda: stuck.wait(10))
        wait_until(lambda: pool._work.empty())
        pool.abandon()
    assert pool.is_exhausted
    pool.submit(late.set)
    assert not late.wait(0.05)
    stuck.set()
    assert late.wait(5)
    wait_until(lambda: (pool.stuck, pool._alive) == (0, 2))
    pool.close()


def test_a_thread_that_the_system_would_not_give_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPool(1)
    done = threading.Event()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        pool.submit(done.set)
        with pytest.raises(RuntimeError, match="new thread"):
            pool.look()
    pool.look()
    assert done.wait(5)
    pool.close()


def test_threads_do_not_keep_the_process_alive_and_end_when_closed() -> None:
    pool = ThreadPool(2, "closed")
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(5)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("closed-")]
    assert threads and all(thread.daemon for thread in threads)
    pool.close()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize("many", [1, 50])
def test_work_is_run_in_the_order_it_came_on_one_thread(many: int) -> None:
    pool = ThreadPool(1)
    seen: list[int] = []
    done = threading.Event()
    for n in range(many):
        pool.submit(lambda n=n: seen.append(n))  # type: ignore[misc]
    pool.submit(done.set)
    assert done.wait(5)
    assert seen == list(range(many))
    pool.close()
