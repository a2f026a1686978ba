"""Finds the application that Django's settings name."""

from __future__ import annotations

from importlib import import_module

import django
from django.conf import settings

from samecommit.app import App
from samecommit.errors import AppNotFound


def named_application() -> App | None:
    """Return the application of ``SAMECOMMIT_APP`` (``module:attribute``), None when the setting is absent.

    Raises:
        AppNotFound: the setting names no application.
    """
    path: str | None = getattr(settings, "SAMECOMMIT_APP", None)
    if path is None:
        return None
    module, _, attribute = path.partition(":")
    found = getattr(import_module(module), attribute or "app", None)
    if not isinstance(found, App):
        msg = f"SAMECOMMIT_APP is {path!r}, which names no application: give 'module:attribute' of an App"
        raise AppNotFound(msg)
    return found


def application_of_a_child() -> App | None:
    """Return the application in a child process of a worker, which begins without Django."""
    django.setup()
    return named_application()
