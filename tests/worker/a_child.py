"""A child for the tests of the supervisor: how it behaves is its first argument. It says what happens, line by line."""

import json
import os
import signal
import sys
import time
from types import FrameType

from samecommit.worker.supervisor import follow_parent, stop_signals


def say(**told: object) -> None:
    sys.stdout.write(json.dumps({"child": os.getpid(), **told}) + "\n")
    sys.stdout.flush()


def stop(number: int, _frame: FrameType | None) -> None:
    say(heard=signal.Signals(number).name)
    if number != signal.SIGTERM or "slow" not in sys.argv:
        raise SystemExit(0)


def note(number: int, _frame: FrameType | None) -> None:
    say(ignored=signal.Signals(number).name)


behaviour = sys.argv[1]
if behaviour.isdigit():
    say(ends=int(behaviour))
    raise SystemExit(int(behaviour))
if behaviour == "follows":
    follow_parent()
    assert not os.read(0, 1), "what a handler starts would wait for input"
for each in stop_signals():
    signal.signal(each, note if behaviour == "stubborn" else stop)
say(is_ready=True)
while True:
    time.sleep(0.02)  # not signal.pause(): a signal that comes just before it would wait for the next one
