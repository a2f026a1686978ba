import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from samecommit.demo.child import Child
from samecommit.demo.crm_client import CrmClient
from samecommit.demo.errors import ChildError
from samecommit.demo.http_json import request_json

PARENT = """
from samecommit.demo.child import Child
child = Child("samecommit.demo.model_stub")
print(child.pid, flush=True)
input()
"""


def test_a_stub_runs_as_its_own_process_and_ends_when_told(tmp_path: Path) -> None:
    with Child("samecommit.demo.crm_stub", tmp_path / "crm.sqlite") as child:
        assert CrmClient(base_url=child.url).stats()["contacts"] == 0
        assert child.exit_status is None
    assert child.exit_status == 0


def test_a_killed_child_says_which_signal_ended_it() -> None:
    child = Child("samecommit.demo.naive.broker")
    assert request_json("GET", f"{child.url}/stats").body == {"published": 0, "waiting": 0}
    child.kill()
    assert child.exit_status == -9


def test_a_child_that_cannot_start_is_an_error_at_once() -> None:
    with pytest.raises(ChildError, match="did not become ready"):
        Child("samecommit.demo.crm_stub", "--no-such-option")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits on a foreign process with pidfd, which is Linux")
def test_no_child_outlives_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    watch = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    ended, _, _ = select.select([watch], [], [], 10)
    os.close(watch)
    parent.stdin.close()
    parent.stdout.close()
    assert ended


FAILS = "import sys; sys.exit('no such thing')"
IDLES = """
import signal, sys, time
from samecommit.demo.child import follow_parent
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
follow_parent()
print("ready here", flush=True)
time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Give source text the name of a module that a child can run."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def write(text: str) -> str:
        (tmp_path / "a_child.py").write_text(text)
        return "a_child"

    return write


def test_what_a_child_that_failed_said_last_is_kept(module: Callable[[str], str]) -> None:
    with Child(module(FAILS), announces=False) as child:
        assert child.wait(timeout_seconds=20) == 1
        assert child.last_words == "no such thing"


def test_a_child_that_follows_is_asked_to_end_and_may_do_it_in_order(module: Callable[[str], str]) -> None:
    with Child(module(IDLES)) as child:
        child.dismiss()
        assert child.wait(timeout_seconds=20) == 7


def test_ctrl_c_reaches_the_parent_alone() -> None:
    with Child("samecommit.demo.naive.broker") as child:
        assert os.getpgid(child.pid) == child.pid != os.getpgrp()
