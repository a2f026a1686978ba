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
    """Return the libpq conninfo of one of Django's databases, as its settings name it now: with what libpq knows of ``OPTIONS``.

    Args:
        alias: a key of ``DATABASES``.
    """
    from django.db import connections
    from psycopg.conninfo import make_conninfo
    from psycopg.pq import Conninfo

    settings = cast("dict[str, Any]", cast("Any", connections[alias]).settings_dict)
    named = {"user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    known = {default.keyword.decode() for default in Conninfo.get_defaults()}
    options = cast("dict[str, Any]", settings.get("OPTIONS") or {})
    options = {option: value for option, value in options.items() if option in known}
    name = settings.get("NAME")
    if name is None:  # as Django has it: the database that is always there, whatever a service says
        options.pop("service", None)
        name = "postgres"
    given: dict[str, Any] = {**({"dbname": name} if name else {}), **options}
    given.update((param, settings[key]) for param, key in named.items() if settings.get(key))
    return make_conninfo(**given)
