"""Places where a test makes a worker sleep, raise, end or stop. Off, each costs one look at a constant.

Every statement of a worker is two places, before it is sent and after its answer, named by its label. What is to happen
there is read once from ``SAMECOMMIT_FAULTS``, when this is imported: ``place=action[:argument][@hit]``, separated by
commas. The actions are ``sleep:SECONDS``, ``raise``, ``exit[:STATUS]`` (at once: nothing is written any more) and ``stop``
(SIGSTOP). ``@3`` acts at the third time only; without it, at each. ``after claim/claim=exit@2,before worker/beat=sleep:4``.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from samecommit.errors import ConfigError, InjectedFault

_FORM = re.compile(
    r"(?P<place>(?:before|after) [a-z_]+/[a-z_]+)=(?P<action>sleep|raise|exit|stop)(?::(?P<argument>[\d.]+))?(?:@(?P<at>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do at one place."""

    action: str
    argument: float
    at: int


def parse(text: str) -> Mapping[str, Fault]:
    """Read the form of ``SAMECOMMIT_FAULTS``.

    Raises:
        ConfigError: a part of it names no place or no action.
    """
    faults: dict[str, Fault] = {}
    for part in filter(None, text.split(",")):
        found = _FORM.fullmatch(part.strip())
        if found is None:
            msg = (
                f"SAMECOMMIT_FAULTS has {part!r}: give place=action[:argument][@hit], as in 'after claim/claim=exit@2'"
            )
            raise ConfigError(msg)
        faults[found["place"]] = Fault(found["action"], float(found["argument"] or 0), int(found["at"] or 0))
    return MappingProxyType(faults)


FAULTS = parse(os.environ.get("SAMECOMMIT_FAULTS", ""))
_hits: Counter[str] = Counter()
_lock = threading.Lock()


def hit(place: str) -> None:
    """Do what was asked for at this place, if anything.

    Raises:
        InjectedFault: that was what was asked for.
    """
    fault = FAULTS.get(place)
    if fault is None:
        return
    with _lock:
        _hits[place] += 1
        if fault.at not in (0, _hits[place]):
            return
    _act(place, fault)


def _act(place: str, fault: Fault) -> None:
    match fault.action:
        case "sleep":
            time.sleep(fault.argument)
        case "exit":
            os._exit(int(fault.argument))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case _:
            raise InjectedFault(f"a fault was asked for {place}")
