"""The Django application: installs the schema after Django's own migrations."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate


class SamecommitConfig(AppConfig):  # type: ignore[misc]
    """Installs or upgrades the schema whenever ``migrate`` has run on the database that jobs are stored in."""

    name = "samecommit.integrations.django"
    label = "samecommit_django"
    verbose_name = "Samecommit"

    def ready(self) -> None:
        """Listen for the end of ``migrate``."""
        signal: Any = post_migrate
        signal.connect(install, sender=self, dispatch_uid="samecommit")


def install(*, using: str, **_: Any) -> None:
    """Install or upgrade the schema in the database that was migrated, and make the queues of the named application."""
    if using != getattr(settings, "SAMECOMMIT_DATABASE", "default"):
        return
    from samecommit.integrations.django import django_dsn
    from samecommit.integrations.django.applications import named_application
    from samecommit.storage.migrate import migrate

    application = named_application()
    if application is None:
        migrate(django_dsn(using), getattr(settings, "SAMECOMMIT_SCHEMA", "samecommit"))
    else:
        application.migrate_at(django_dsn(using))
