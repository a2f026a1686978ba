"""Events of a Django transaction, stored in one statement before it commits.

`EventBuffer.emit` checks an event at once and keeps it with the transaction that is open, without a query. Before the outermost
``atomic()`` commits, what was kept is stored in one statement. A savepoint that is rolled back takes its events with it::

    events = EventBuffer(app)

    with transaction.atomic():
        order = Order.objects.create(email=email)
        events.emit(OrderPlaced(id=order.pk))

Django itself keeps them, among what it calls ``on_commit``: it knows which ``atomic()`` blocks are rolled back; which of them were
emitted behind a savepoint of ``transaction.savepoint()`` is noted here. So in a test without commits
``captureOnCommitCallbacks(execute=True)`` stores them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

from django.db import connections

from samecommit.errors import NotInTransaction
from samecommit.outbox.emit import emit_many
from samecommit.storage.connections import perform

if TYPE_CHECKING:
    from typing import Unpack

    from samecommit.app import App
    from samecommit.event import Event
    from samecommit.outbox.verbs import EventOptions


_NUMBERS = itertools.count()


class EventBuffer:
    """Keeps the events of transactions until they commit.

    Args:
        app: whose events, and where they are stored.
        using: which of Django's databases.
    """

    def __init__(self, app: App, using: str = "default") -> None:
        self._app, self._using = app, using

    def __repr__(self) -> str:
        return f"<EventBuffer of {self._app!r} on {self._using!r}>"

    def emit(self, event: Any, /, **options: Unpack[EventOptions]) -> None:
        """Keep an event until the transaction commits; no query.

        Args:
            event: as for ``app.emit``.
            options: as for ``app.emit``.

        Raises:
            NotInTransaction: no ``atomic()`` is open.
            PayloadError, EventRefused: as ``app.emit``, at once.
        """
        made = self._app.new_event(event, **options)
        conn = cast("Any", connections[self._using])
        if not conn.in_atomic_block:
            raise NotInTransaction(
                f"event {made.type!r} was emitted outside of atomic(): nothing would be left to commit it with. Open "
                "transaction.atomic() around it and what it tells of"
            )
        _store_before_commits_of(conn)
        conn.on_commit(_Kept(conn, self._app.schema, made))


class _Kept:
    """An event among the transaction's ``on_commit`` functions."""

    def __init__(self, conn: Any, schema: str, event: Event) -> None:
        self.conn, self.schema, self.event = conn, schema, event
        self.is_stored = False
        self.number = next(_NUMBERS)

    def __call__(self) -> None:
        """Store it if that has not been done: a test lets these functions run without a commit."""
        if not self.is_stored:
            _store([self])


def _store(kept: list[_Kept]) -> None:
    for schema in dict.fromkeys(one.schema for one in kept):
        there = [one for one in kept if one.schema == schema]
        perform(there[0].conn, emit_many([one.event for one in there], schema))
        for one in there:
            one.is_stored = True


def _store_before_commits_of(conn: Any) -> None:
    """Let a connection of Django's store what is kept before each of its commits, and forget what is undone. Safe to repeat."""
    commit, savepoint, savepoint_rollback = conn.commit, conn.savepoint, conn.savepoint_rollback
    if getattr(commit, "stores_events", False):
        return
    numbers: dict[str, int] = {}  # of the savepoints that were made when something was kept already

    def store_and_commit() -> None:
        kept = [entry[1] for entry in conn.run_on_commit if isinstance(entry[1], _Kept)]
        try:
            _store([one for one in kept if not one.is_stored])
        except BaseException:
            conn.rollback()  # atomic() would do it for errors of the database only
            raise
        commit()

    def numbered_savepoint() -> Any:
        name = savepoint()
        if any(isinstance(entry[1], _Kept) for entry in conn.run_on_commit):
            numbers[name] = next(_NUMBERS)
        else:
            numbers.clear()
        return name

    def roll_back_and_forget(name: Any) -> None:
        savepoint_rollback(name)  # forgets what was kept in blocks of atomic(), not behind savepoints made by hand
        number = numbers.get(name, -1)
        conn.run_on_commit = [
            entry for entry in conn.run_on_commit if not (isinstance(entry[1], _Kept) and entry[1].number > number)
        ]

    store_and_commit.stores_events = True  # type: ignore[attr-defined]
    conn.commit, conn.savepoint, conn.savepoint_rollback = store_and_commit, numbered_savepoint, roll_back_and_forget
