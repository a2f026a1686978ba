"""The places where a test can hurt a worker."""

import os
import subprocess
import sys
import time

import pytest

from samecommit import faultpoints
from samecommit.errors import ConfigError, InjectedFault
from samecommit.faultpoints import Fault, hit, parse


def test_places_actions_and_hits_are_read() -> None:
    assert dict(parse("after claim/claim=exit@2, before worker/beat=sleep:0.5")) == {
        "after claim/claim": Fault("exit", 0.0, 2),
        "before worker/beat": Fault("sleep", 0.5, 0),
    }
    assert not parse("")


@pytest.mark.parametrize("text", ["claim=exit", "before claim/claim=explode", "during claim/claim=exit", "nonsense"])
def test_what_names_no_place_or_action_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="SAMECOMMIT_FAULTS has"):
        parse(text)


def test_a_place_acts_at_its_hit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faultpoints, "FAULTS", parse("before a/b=raise@2,after a/b=sleep:0.05"))
    hit("before a/b")
    with pytest.raises(InjectedFault, match="before a/b"):
        hit("before a/b")
    hit("before a/b")
    began = time.monotonic()
    hit("after a/b")
    assert time.monotonic() - began >= 0.05
    hit("somewhere else")


def test_a_process_can_be_ended_at_a_place() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from samecommit.faultpoints import hit; hit('before a/b'); print('not reached')"],
        env={**os.environ, "SAMECOMMIT_FAULTS": "before a/b=exit:7"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (7, b"")


def test_there_are_no_faults_unless_they_are_asked_for() -> None:
    assert "SAMECOMMIT_FAULTS" in os.environ or not faultpoints.FAULTS
