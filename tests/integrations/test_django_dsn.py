"""The conninfo of a Django database names what Django itself would connect to."""

from typing import Any

import django
import pytest
from psycopg.conninfo import conninfo_to_dict

BASE: dict[str, Any] = {"ENGINE": "django.db.backends.postgresql"}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"NAME": "shop", "USER": "u", "HOST": "h", "PORT": 5433}, {"dbname": "shop", "user": "u", "host": "h", "port": "5433"}),
        ({"OPTIONS": {"service": "shop", "passfile": ".pgpass"}}, {"service": "shop", "passfile": ".pgpass"}),
        (
            {"NAME": "shop", "OPTIONS": {"sslmode": "verify-full", "sslrootcert": "ca.pem", "isolation_level": 3, "pool": True}},
            {"dbname": "shop", "sslmode": "verify-full", "sslrootcert": "ca.pem"},
        ),
        ({"NAME": "shop", "OPTIONS": {"dbname": "other"}}, {"dbname": "other"}),
        ({"NAME": None, "USER": "u", "OPTIONS": {"service": "shop"}}, {"dbname": "postgres", "user": "u"}),
    ],
    ids=["plain", "service", "tls", "options win", "no name"],
)  # fmt: skip
def test_the_options_that_libpq_knows_are_kept(setting: dict[str, Any], expected: dict[str, str]) -> None:
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": BASE}, USE_TZ=True)
        django.setup()
    from django.db import connections

    from samecommit.integrations.django import django_dsn

    connections.settings["default"] = connections.configure_settings({"default": {**BASE, **setting}})["default"]
    if hasattr(connections._connections, "default"):
        del connections["default"]
    try:
        assert conninfo_to_dict(django_dsn()) == expected
    finally:
        del connections["default"]
