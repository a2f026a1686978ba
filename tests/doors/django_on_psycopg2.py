"""Django without psycopg 3, in a process of its own: Django takes psycopg2 only where there is no other."""

import json
import sys
from typing import Any

import pytest

from samecommit import App
from samecommit.errors import NotInTransaction, UnknownQueue

app = App()


@app.task()
def work(n: int) -> None: ...


class UndoError(Exception):
    """Rolls back."""


def prepare(setting: dict[str, Any]) -> None:
    """Set Django up as a process would that has psycopg2 alone."""
    sys.modules["psycopg"] = None  # type: ignore[assignment]
    import django
    from django.conf import settings

    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **setting}}, USE_TZ=True)
    django.setup()


def stored(connection: Any) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT (payload ->> 'n')::int FROM samecommit.jobs ORDER BY 1")
        return [row[0] for row in cursor.fetchall()]


def conform() -> None:
    """Commit, roll back to a savepoint, refuse."""
    from django.db import connection, transaction

    def undone() -> None:
        with transaction.atomic():
            work.enqueue(connection, n=4)
            raise UndoError

    with transaction.atomic():
        work.using(tags=["a", "b"], delay=1).enqueue(connection, n=1)
        app.enqueue_many(connection, [work.job(n=n) for n in (2, 3)])
        with pytest.raises(UndoError):
            undone()
    assert type(connection.connection).__module__.startswith("psycopg2"), type(connection.connection)
    assert stored(connection) == [1, 2, 3]
    with pytest.raises(NotInTransaction):
        work.enqueue(connection, n=5)
    with pytest.raises(UnknownQueue, match="none such"), transaction.atomic():
        work.using(queue="none such").enqueue(connection, n=6)
    work.using(own_transaction=True).enqueue(connection, n=7)
    assert stored(connection) == [1, 2, 3, 7]


if __name__ == "__main__":
    prepare(json.loads(sys.argv[1]))
    conform()
    assert not sys.modules.get("psycopg")
    print("all as on psycopg 3")
