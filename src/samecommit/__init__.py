"""Jobs and events that commit with your data."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Read the version when it is asked for: the metadata costs more to import than the rest of this module."""
    if name == "__version__":
        from importlib.metadata import version

        return version("samecommit")
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
