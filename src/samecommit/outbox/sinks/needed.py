"""Client libraries are optional: they are imported by the sink that needs them, when it connects."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from samecommit.errors import DependencyMissing


def needed(module: str, extra: str) -> ModuleType:
    """Import a client library.

    Args:
        module: as in an import statement.
        extra: which of our extras brings it.

    Raises:
        DependencyMissing: it is not installed; says what to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise DependencyMissing(f'{module} is not installed: pip install "samecommit[{extra}]"') from error
