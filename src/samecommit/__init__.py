"""Jobs and events that commit with your data: a work queue and a transactional outbox on PostgreSQL."""

from typing import TYPE_CHECKING

from samecommit.app import App, Tasks
from samecommit.config import WorkerConfig
from samecommit.context import AsyncContext, Context
from samecommit.job import Enqueued, EnqueuedMany, Job, NewJob
from samecommit.outcome import Cancel, Done, Fail, Hold, RateLimited, Retry, Snooze
from samecommit.retry import Backoff
from samecommit.task import Task

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "App",
    "AsyncContext",
    "Backoff",
    "Cancel",
    "Context",
    "Done",
    "Enqueued",
    "EnqueuedMany",
    "Fail",
    "Hold",
    "Job",
    "NewJob",
    "RateLimited",
    "Retry",
    "Snooze",
    "Task",
    "Tasks",
    "WorkerConfig",
]


def __getattr__(name: str) -> str:
    """Read the version when it is asked for: the metadata costs more to import than the rest of this module."""
    if name == "__version__":
        from importlib.metadata import version

        return version("samecommit")
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
