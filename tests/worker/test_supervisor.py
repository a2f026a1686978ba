"""Real processes: what a supervisor does when its children end, when it is told to stop, and when it is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import wait_until

from samecommit.signals import Signals
from samecommit.worker.supervisor import TOGETHER_SECONDS, Child, Supervisor

SCRIPT = Path(__file__).with_name("a_supervisor.py")


class Run:
    """A supervisor process and all that it and its children have said."""

    def __init__(self, *behaviours: str, grace: str = "20", steady: float = 0.0, wrapper: Sequence[str] = ()) -> None:
        self.lines: list[dict[str, Any]] = []
        command = [*wrapper, sys.executable, str(SCRIPT), grace, str(steady), *behaviours]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def said(self, **wanted: Any) -> list[dict[str, Any]]:
        return [line for line in self.lines if wanted.items() <= line.items()]

    def wait_for(self, count: int = 1, **wanted: Any) -> list[dict[str, Any]]:
        wait_until(lambda: len(self.said(**wanted)) >= count, what=f"{count} of {wanted}")
        return self.said(**wanted)

    def end(self) -> int:
        status = self.process.wait(20)
        self._reader.join(20)
        return status

    def pids(self) -> list[int]:
        return [line["pid"] for line in self.said(signal="ChildStarted")]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(20)
        for pid in self.pids():
            if is_child(pid):
                os.kill(pid, signal.SIGKILL)
        self._reader.join(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


def is_child(pid: int) -> bool:
    """Whether a process of that id is alive and one of ours."""
    try:
        return b"a_child.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    made: list[Run] = []
    yield made
    for run in made:
        run.close()


def start(runs: list[Run], *behaviours: str, **options: Any) -> Run:
    runs.append(Run(*behaviours, **options))
    return runs[-1]


def test_a_child_that_dies_is_replaced_and_its_siblings_live_on(runs: list[Run]) -> None:
    run = start(runs, "waits", "waits")
    first, second = (line["child"] for line in run.wait_for(2, is_ready=True))
    os.kill(first, signal.SIGKILL)
    (ended,) = run.wait_for(signal="ChildEnded")
    third = run.wait_for(3, is_ready=True)[-1]["child"]
    assert (ended["pid"], ended["status"], ended["restart_seconds"]) == (first, -signal.SIGKILL, 0.0)
    assert is_child(second) and third not in (first, second)


def test_the_first_signal_is_passed_on_as_a_graceful_stop(runs: list[Run]) -> None:
    run = start(runs, "waits", "waits")
    run.wait_for(2, is_ready=True)
    run.process.terminate()
    assert run.end() == 0
    assert len(run.said(heard="SIGTERM")) == 2
    assert [line["restart_seconds"] for line in run.said(signal="ChildEnded")] == [None, None]


def test_the_second_signal_stops_children_at_once(runs: list[Run]) -> None:
    run = start(runs, "waits slow")
    run.wait_for(is_ready=True)
    run.process.send_signal(signal.SIGINT)
    run.wait_for(heard="SIGTERM")
    again_until(run, signal.SIGINT, heard="SIGINT")
    assert run.end() == 0


def again_until(run: Run, number: signal.Signals, **wanted: Any) -> None:
    """Send a signal until it counts: one that comes together with the last one is the same."""

    def sent() -> bool:
        if not run.said(**wanted) and run.process.poll() is None:
            run.process.send_signal(number)
            threading.Event().wait(TOGETHER_SECONDS)
        return bool(run.said(**wanted))

    wait_until(sent)


def test_signals_that_come_together_are_one(runs: list[Run]) -> None:
    run = start(runs, "waits slow")
    run.wait_for(is_ready=True)
    # stopped, so that they are delivered together however busy this machine is
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT):
        run.process.send_signal(number)
    run.wait_for(heard="SIGTERM")
    run.process.send_signal(signal.SIGHUP)
    assert [line["times"] for line in run.wait_for(signal="StopPassedOn")] == [1]
    assert not run.said(heard="SIGINT")


def test_the_third_signal_kills(runs: list[Run]) -> None:
    run = start(runs, "stubborn")
    run.wait_for(is_ready=True)
    run.process.terminate()
    run.wait_for(ignored="SIGTERM")
    again_until(run, signal.SIGTERM, ignored="SIGINT")
    again_until(run, signal.SIGTERM, signal="ChildKilled")
    assert run.end() == 1
    assert run.said(signal="ChildEnded")[0]["status"] == -signal.SIGKILL


def test_a_child_that_outlives_its_grace_is_killed(runs: list[Run]) -> None:
    run = start(runs, "stubborn", grace="-14.5")  # the margin is 15 s, which no test should wait
    run.wait_for(is_ready=True)
    run.process.terminate()
    assert run.end() == 1
    assert run.said(signal="ChildKilled") and run.said(ignored="SIGTERM")


def test_a_child_that_is_wrongly_used_is_not_started_again(runs: list[Run]) -> None:
    run = start(runs, "2", "2")
    assert run.end() == 2
    assert len(run.said(signal="ChildStarted")) == 2


def test_a_crash_loop_slows_down(runs: list[Run]) -> None:
    run = start(runs, "1", "waits", steady=3600)
    ends = run.wait_for(3, signal="ChildEnded")
    assert (
        0.3 < ends[0]["restart_seconds"] <= 0.5 < ends[1]["restart_seconds"] <= 1.0 < ends[2]["restart_seconds"] <= 2.0
    )
    run.process.terminate()
    assert run.end() == 0


def test_pauses_are_bounded_and_end_with_a_steady_life() -> None:
    supervisor, child = Supervisor(lambda _: [], 1, Signals(), grace_seconds=1, steady_seconds=10), Child(number=1)
    pauses = [supervisor._pause(child, 1.0) for _ in range(50)]
    assert pauses == sorted(pauses[:7]) + pauses[7:] and max(pauses) <= 30.0
    assert supervisor._pause(child, 10.0) == 0.0
    assert supervisor._pause(child, 1.0) <= 0.5


def test_a_command_that_cannot_be_started_is_tried_again_and_stops(tmp_path: Path) -> None:
    supervisor = Supervisor(lambda _: [str(tmp_path / "missing")], 1, Signals(), grace_seconds=1)
    supervisor._start(supervisor.children[0])
    assert supervisor.children[0].restart_at is not None
    supervisor._stop(signal.SIGTERM)
    assert supervisor._is_over


@pytest.mark.skipif(not Path("/proc").exists(), reason="sees processes through /proc")
def test_children_end_when_their_supervisor_is_killed(runs: list[Run]) -> None:
    run = start(runs, "follows", "follows")
    children = [line["child"] for line in run.wait_for(2, is_ready=True)]
    run.process.kill()
    wait_until(lambda: not any(is_child(pid) for pid in children))
    run.process.wait(20)


@pytest.mark.skipif(not Path("/proc").exists(), reason="sees processes through /proc")
def test_under_nohup_a_terminal_that_closes_stops_nobody(runs: list[Run]) -> None:
    run = start(runs, "follows", wrapper=["nohup"])
    (child,) = (line["child"] for line in run.wait_for(is_ready=True))
    run.process.send_signal(signal.SIGHUP)
    os.kill(child, signal.SIGKILL)
    replaced = run.wait_for(2, is_ready=True)[-1]["child"]
    assert not run.said(signal="StopPassedOn")
    run.process.kill()
    wait_until(lambda: not is_child(replaced))
    run.process.wait(20)


@pytest.mark.skipif(not Path("/proc").exists(), reason="sees processes through /proc")
def test_children_end_by_their_input_alone() -> None:
    # what happens where the kernel tells nobody of a parent's death
    child = subprocess.Popen(
        [sys.executable, str(SCRIPT.with_name("a_child.py")), "follows"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdin is not None
    assert json.loads(child.stdout.readline())["is_ready"]
    child.stdin.close()
    assert json.loads(child.stdout.readline())["heard"] == "SIGHUP"
    assert child.wait(20) == 0
    child.stdout.close()


def test_children_have_process_groups_of_their_own(runs: list[Run]) -> None:
    run = start(runs, "waits", "waits")
    groups = {os.getpgid(line["child"]) for line in run.wait_for(2, is_ready=True)}
    assert len(groups) == 2 and os.getpgid(run.process.pid) not in groups
