"""C16: is there an order of what clients asked of one job that fits both its life and the clock?

The search of Wing and Gong: an operation may come first if it began before every other one had ended, and if the job can
answer so in its present state. For short histories only, at most a dozen operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """What was asked, what was answered (None: nobody knows), and between which moments it happened."""

    name: str
    answer: str | None
    began: float
    ended: float


# (operation, state) -> {answer: next state}; what is not here cannot have been answered in that state
_MOVES: dict[tuple[str, str], dict[str, str]] = {
    ("enqueue", "absent"): {"ok": "ready", "fail": "absent"},
    ("claim", "ready"): {"ok": "running"},
    ("claim", "asked"): {"none": "asked"},
    ("finish", "running"): {"ok": "done"},
    ("finish", "asked"): {"ok": "done"},
    ("fail", "running"): {"retry": "ready", "failed": "failed"},
    ("lose", "running"): {"ok": "ready", "held": "held", "failed": "failed"},
    ("lose", "asked"): {"ok": "ready", "cancelled": "cancelled"},
    ("give back", "running"): {"ok": "ready"},
    ("stop", "asked"): {"cancelled": "cancelled"},
    ("cancel", "ready"): {"cancelled": "cancelled"},
    ("cancel", "held"): {"cancelled": "cancelled"},
    ("cancel", "failed"): {"cancelled": "cancelled"},
    ("cancel", "running"): {"asked": "asked"},
    ("cancel", "asked"): {"asked": "asked"},
    ("hold", "ready"): {"held": "held"},
    ("hold", "failed"): {"held": "held"},
    ("hold", "running"): {"running": "running"},
    ("hold", "asked"): {"running": "asked"},
    ("release", "held"): {"released": "ready"},
    ("retry", "failed"): {"retried": "ready"},
    ("retry", "cancelled"): {"retried": "ready"},
}
_FINAL = ("done", "cancelled")
_TOO_LATE = {"cancel": "too late", "hold": "too late"}


def moves(name: str, state: str) -> dict[str, str]:
    """Return what may be answered in a state, and the state after each answer."""
    possible = dict(_MOVES.get((name, state), {}))
    if state in _FINAL and name in _TOO_LATE:
        possible[_TOO_LATE[name]] = state
    if name in {"finish", "fail", "give back", "stop"}:
        possible["refused"] = state
    if name in {"release", "retry"} and not possible:
        possible["running" if state == "asked" else state] = state
    return possible


def can_have_happened(operations: Sequence[Operation], final: str, state: str = "absent") -> bool:
    """Whether some order explains every answer, respects the clock and ends in the state that was found."""
    if not operations:
        return final == state or (final == "running" and state == "asked")
    first_end = min(operation.ended for operation in operations)
    for index, operation in enumerate(operations):
        if operation.began > first_end:
            continue
        rest = [*operations[:index], *operations[index + 1 :]]
        possible = moves(operation.name, state)
        if operation.answer is None:
            if can_have_happened(rest, final, state) or any(
                can_have_happened(rest, final, s) for s in possible.values()
            ):
                return True
        elif operation.answer in possible and can_have_happened(rest, final, possible[operation.answer]):
            return True
    return False
