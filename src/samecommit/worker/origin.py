"""Where a child process finds the application that a worker runs."""

from __future__ import annotations

import sys
from typing import NamedTuple


class Origin(NamedTuple):
    """What a child process imports.

    Args:
        home: ``module:name`` of the application, or of a function that makes it; None if it is in no module.
        imports: modules beside it that declare tasks.
    """

    home: str | None = None
    imports: tuple[str, ...] = ()


def place_of(thing: object) -> str | None:
    """Return ``module:name`` of something that is an attribute of an imported module, None when it is in none.

    What a script made is in ``__main__``, which only that script can import.
    """
    for name, module in list(sys.modules.items()):
        if name != "__main__":
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if value is thing:
                    return f"{name}:{attribute}"
    return None
