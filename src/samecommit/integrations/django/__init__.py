"""Django: ``manage.py migrate`` installs the schema, also in test databases; ``manage.py samecommit_worker`` runs a worker.

Add ``"samecommit.integrations.django"`` to ``INSTALLED_APPS`` and name the application in ``SAMECOMMIT_APP = "shop.tasks:app"``. Give that
application `django_dsn` as its place, so that it follows Django's settings::

    app = App(django_dsn())

Jobs are enqueued on Django's own connection, inside ``transaction.atomic()``::

    from django.db import connection
    send_receipt.enqueue(connection, order_id=order.pk)
"""

from __future__ import annotations

from typing import Any, cast


def django_dsn(alias: str = "default") -> str:
    """Return the libpq conninfo of one of Django's databases, as its settings name it now.

    Args:
        alias: a key of ``DATABASES``.
    """
    from django.db import connections
    from psycopg.conninfo import make_conninfo

    settings = cast("dict[str, Any]", cast("Any", connections[alias]).settings_dict)
    named = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    given = {name: settings[key] for name, key in named.items() if settings.get(key)}
    return make_conninfo(**given)
