"""Events of a SQLAlchemy session, stored in one statement before it commits.

`EventBuffer.emit` checks an event at once and keeps it with the session, plain or asynchronous, without any I/O. Before the
session's transaction commits (or a savepoint is released) what was kept is stored in one statement, behind everything that the
session has flushed. Rolling back, also to a savepoint, forgets the events of what is rolled back::

    events = EventBuffer(app)

    with Session(engine) as session, session.begin():
        session.add(order)
        events.emit(session, OrderPlaced(id=order.id))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import event as hooks
from sqlalchemy.orm import Session, SessionTransaction

from samecommit.outbox.emit import emit_many
from samecommit.storage.connections import perform

if TYPE_CHECKING:
    from typing import Unpack

    from samecommit.app import App
    from samecommit.event import Event
    from samecommit.outbox.verbs import EventOptions


@dataclass(slots=True)
class _Kept:
    """An event of a session: how many savepoints deep it was emitted, and how deep it is stored (None: not yet)."""

    event: Event
    depth: int
    stored_depth: int | None = None


@dataclass(slots=True)
class _State:
    """What one session keeps; `is_committing` from when its events were stored until that transaction has ended."""

    kept: list[_Kept] = field(default_factory=list[_Kept])
    is_committing: bool = False
    has_committed: bool = False


class EventBuffer:
    """Keeps the events of sessions until they commit.

    Args:
        app: whose events, and where they are stored.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    def __repr__(self) -> str:
        return f"<EventBuffer of {self._app!r}>"

    def emit(self, session: Any, event: Any, /, **options: Unpack[EventOptions]) -> None:
        """Keep an event until the session commits; no I/O, never awaited.

        Args:
            session: ``Session``, ``AsyncSession``, or a scoped one.
            event: as for ``app.emit``.
            options: as for ``app.emit``.

        Raises:
            PayloadError, EventRefused: as ``app.emit``, at once.
        """
        made = self._app.new_event(event, **options)
        plain = _plain(session)
        if not plain.in_transaction():
            plain.begin()
        state = self._state(plain)
        if state.is_committing:  # by a hook behind ours: what is kept now would be too late
            self._write(plain, [made])
        else:
            state.kept.append(_Kept(made, _depth(plain.get_nested_transaction())))

    def _state(self, session: Session) -> _State:
        state: _State | None = session.info.get(self)
        if state is None:
            state = session.info[self] = _State()
            hooks.listen(session, "before_commit", self._store)
            hooks.listen(session, "after_commit", self._committed)
            hooks.listen(session, "after_transaction_end", self._ended)
        return state

    def _store(self, session: Session) -> None:
        """Store what is not stored yet: the transaction, or its innermost savepoint, is about to commit."""
        session.flush()  # its hooks may emit, too
        state: _State = session.info[self]
        waiting = [kept for kept in state.kept if kept.stored_depth is None]
        if waiting:
            self._write(session, [kept.event for kept in waiting])
        depth = _depth(session.get_nested_transaction())
        for kept in waiting:
            kept.stored_depth = depth
        state.is_committing = True

    def _write(self, session: Session, events: Sequence[Event]) -> None:
        perform(session, emit_many(events, self._app.schema))

    def _committed(self, session: Session) -> None:
        session.info[self].has_committed = True

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        """Forget what a savepoint or transaction takes with it, or hand what it held to the one around it."""
        if not transaction.nested and transaction.parent is not None:
            return  # one of the session's own, around a flush
        state: _State = session.info[self]
        depth, has_committed = _depth(transaction), state.has_committed
        state.is_committing = state.has_committed = False
        if depth == 0:
            state.kept = []
        elif has_committed:
            for kept in state.kept:
                kept.depth = min(kept.depth, depth - 1)
                kept.stored_depth = None if kept.stored_depth is None else min(kept.stored_depth, depth - 1)
        else:
            state.kept = [kept for kept in state.kept if kept.depth < depth]
            for kept in state.kept:
                if kept.stored_depth is not None and kept.stored_depth >= depth:
                    kept.stored_depth = None


def _plain(session: Any) -> Session:
    """Return the session that is behind a scoped or an asynchronous one."""
    found = session() if hasattr(session, "registry") else session
    plain: Session = getattr(found, "sync_session", found)
    return plain


def _depth(transaction: SessionTransaction | None) -> int:
    """Count the savepoints that a transaction is inside of, itself among them."""
    depth = 0
    while transaction is not None:
        depth += transaction.nested
        transaction = transaction.parent
    return depth
