"""The least that Django needs; the database is the one that SAMECOMMIT_DSN names."""

import os

from psycopg.conninfo import conninfo_to_dict

_place = conninfo_to_dict(os.environ["SAMECOMMIT_DSN"])

SECRET_KEY = "an example has no secrets"  # noqa: S105
INSTALLED_APPS = ["samecommit.integrations.django", "shop"]
SAMECOMMIT_APP = "shop.tasks:app"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _place["dbname"],
        "USER": _place.get("user"),
        "PASSWORD": _place.get("password"),
        "HOST": _place.get("host"),
        "PORT": _place.get("port"),
    }
}
