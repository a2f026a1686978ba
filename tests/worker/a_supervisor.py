"""A supervisor in a process of its own, for its tests: ``a_supervisor.py GRACE STEADY BEHAVIOUR…``, one child for each."""

import json
import sys
from pathlib import Path

from msgspec.structs import asdict

from samecommit.signals import Signal, Signals
from samecommit.worker.supervisor import Supervisor

CHILD = Path(__file__).with_name("a_child.py")


def say(told: Signal) -> None:
    sys.stdout.write(json.dumps({"signal": type(told).__name__, **asdict(told)}) + "\n")
    sys.stdout.flush()


grace, steady, *behaviours = sys.argv[1:]
signals = Signals()
signals.subscribe(say)
supervisor = Supervisor(
    lambda number: [sys.executable, str(CHILD), *behaviours[number - 1].split()],
    len(behaviours),
    signals,
    grace_seconds=None if grace == "none" else float(grace),
    steady_seconds=float(steady),
)
sys.exit(supervisor.run())
