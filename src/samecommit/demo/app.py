"""The demo's application, as a worker loads it: ``samecommit worker samecommit.demo.app:create_app``."""

from __future__ import annotations

import os

from samecommit import App
from samecommit.demo.child import follow_parent
from samecommit.demo.tasks import tasks

FOLLOW = "DEMO_FOLLOWS_PARENT"


def create_app() -> App:
    """Make the application over the database in ``SAMECOMMIT_DSN``.

    In a process that the demo started (``DEMO_FOLLOWS_PARENT`` is set) the process ends when the demo does.
    """
    if os.environ.get(FOLLOW):
        follow_parent()
    return App(tasks=[tasks])
