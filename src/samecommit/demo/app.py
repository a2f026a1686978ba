"""The demo's application, as a worker loads it: ``samecommit worker samecommit.demo.app:create_app``."""

from __future__ import annotations

import os

from samecommit import App, WorkerConfig
from samecommit.demo.child import follow_parent
from samecommit.demo.tasks import tasks

FOLLOW = "DEMO_FOLLOWS_PARENT"

WORKER = WorkerConfig(
    concurrency=24,
    # A lease of 30 s suits production; here a person waits to see the jobs of a killed worker come back.
    lease_seconds=6.0,
    heartbeat_seconds=1.5,
    reap_seconds=1.0,
)


def create_app() -> App:
    """Make the application over the database in ``SAMECOMMIT_DSN``.

    In a process that the demo started (``DEMO_FOLLOWS_PARENT`` is set) the process ends when the demo does.
    """
    if os.environ.get(FOLLOW):
        follow_parent()
    return App(tasks=[tasks], worker=WORKER)
