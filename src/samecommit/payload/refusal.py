"""How a value is refused: with a reason, and with the place where it sits.

A check deep inside a value raises `Refusal` with the reason alone. Each container that it passes on its way out adds
one step, so the path costs nothing while all is well. The codec at the top turns it into the public error.
"""

import re
import reprlib
from collections.abc import Callable
from typing import Any

_NAME = re.compile(r"[^\W\d]\w*")
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlong = 40
_short.maxlevel = 2
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = 3

Step = str | int | None
"""A field or key, an index, or None for a member of a set, which has no place of its own."""


# `type` and `isinstance` as they are, but typed so that a value that is Any stays Any.
class_of: Callable[[Any], type[Any]] = type
is_a: Callable[[Any, Any], bool] = isinstance


class Refusal(Exception):
    """A value that cannot be stored, or a stored one that does not fit; `reason` says why."""

    def __init__(self, reason: str, *steps: Step) -> None:
        super().__init__(reason)
        self.reason = reason
        self._inner_first: list[Step] = list(reversed(steps))

    def within(self, step: Step) -> "Refusal":
        """Add the step that leads from the container to what was refused."""
        self._inner_first.append(step)
        return self

    def path(self, root: str = "$") -> str:
        """Write the way from the root, as in ``$.items[3].price``."""
        return root + "".join(_written(step) for step in reversed(self._inner_first))


def expected(what: str, value: object) -> Refusal:
    """Say that another type was declared."""
    return Refusal(f"expects {what}, got {shown(value)}")


def shown(value: object) -> str:
    """Show a value in an error: cut short, printable, with its type; never raises."""
    try:
        text = _short.repr(value)
    except BaseException:  # noqa: BLE001 - somebody's broken __repr__ must not hide the reason
        text = "a value"
    return "None" if value is None else f"{text} ({type(value).__qualname__})"


def _written(step: Step) -> str:
    match step:
        case None:
            return "[...]"
        case int():
            return f"[{step}]"
        case _ if _NAME.fullmatch(step):
            return f".{step}"
        case _:
            return f"[{ascii(step) if len(step) <= 60 else ascii(step[:57]) + '...'}]"
