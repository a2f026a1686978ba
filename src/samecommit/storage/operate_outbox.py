"""What an operator asks and does about the outbox, over one plain connection.

Each method runs the statement of its name in ``sql/outbox`` and returns its rows as dictionaries, whose keys are the
statement's columns. What is counted is counted up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from samecommit.clock import Monotonic, monotonic
from samecommit.errors import UnknownDestination
from samecommit.storage.asker import Asker, Row
from samecommit.storage.operate import Until

Verdict: TypeAlias = Literal["delivered", "resend", "dropped"]
_WALK = 50_000
_COUNT_SECONDS, _COUNT_MOST = 10.0, 100_000
_PAGE, _PAGE_BYTES = 500, 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events to send again; None does not restrict.

    Args:
        numbers: their numbers in the log.
        keys: of these keys.
        types: of these types; one may be a beginning, as in ``lead.*``.
        since: emitted at this moment or later; with seconds, so many ago.
        until: emitted before this moment; with seconds, so many ago.
    """

    numbers: Sequence[int] | None = None
    keys: Sequence[str] | None = None
    types: Sequence[str] | None = None
    since: Until | None = None
    until: Until | None = None

    def columns(self) -> dict[str, Any]:
        """Return what ``outbox/replay`` takes."""
        return {
            "numbers": None if self.numbers is None else list(self.numbers),
            "keys": None if self.keys is None else list(self.keys),
            "types": None if self.types is None else list(self.types),
            "since_at": self.since.at if self.since else None,
            "since_seconds": self.since.seconds if self.since else None,
            "until_at": self.until.at if self.until else None,
            "until_seconds": self.until.seconds if self.until else None,
        }


class OutboxOperator(Asker):
    """Runs an operator's statements about destinations, events put aside and replays."""

    def status(self) -> list[Row]:
        """List the positions: one per destination and shard (the view ``destinations``)."""
        return self.ask("outbox/status")

    def why(self, destination: str, event: int | None = None) -> list[Row]:
        """Return why a destination gets nothing, or an event has not arrived there: state, code, sentence, until_at.

        Args:
            destination: its name.
            event: the event's number in the log, as ``emit`` returns it.
        """
        if event is None:
            return self.ask("outbox/why", destination=destination)
        return self.ask("outbox/why_event", destination=destination, number=event)

    def log(self) -> Row:
        """Return the log's ``oldest`` and ``newest`` number, when it ``begins_at``, and whether days are gone (``is_cut``)."""
        return self.ask("outbox/log")[0]

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the numbers of events by their ids, looked for from the newest back; those not in the log are left out.

        No index knows ids, so this walks the log, 50,000 numbers at a time, until all are found.
        """
        ends, found = self.log(), dict[str, int]()
        upto = ends["newest"]
        while upto >= (ends["oldest"] or upto + 1) and len(found) < len(set(ids)):
            rows = self.ask("outbox/find", ids=list(ids), after=upto - _WALK, upto=upto)
            found.update((row["id"], row["number"]) for row in rows)
            upto -= _WALK
        return found

    def pause(self, destination: str, reason: str | None = None) -> None:
        """Stop a destination until it is resumed; what is in flight ends.

        Raises:
            UnknownDestination: there is none of that name.
        """
        self._on("outbox/pause", destination, reason=reason)

    def resume(self, destination: str) -> None:
        """Let a destination go on.

        Raises:
            UnknownDestination: there is none of that name.
        """
        self._on("outbox/resume", destination)

    def remove(self, destination: str) -> None:
        """Forget a destination: its positions, what is put aside there and its replays. Its jobs stay.

        Raises:
            UnknownDestination: there is none of that name.
        """
        self._on("outbox/remove", destination)

    def _on(self, label: str, destination: str, **values: Any) -> None:
        if not self.ask(label, destination=destination, **values)[0]["is_done"]:
            raise _unknown(destination)

    def add(self, columns: Mapping[str, Any]) -> bool:
        """Add a destination (``event/add_destination``), or take up its changed configuration; whether it is new.

        Args:
            columns: what `samecommit.outbox.relays.destination_row` returns.

        Raises:
            ConfigError: it exists as another kind, or with another number of shards.
        """
        return bool(self.ask("event/add_destination", **columns)[0]["add_destination"])

    def parked(self, destination: str | None = None, *, state: str | None = None, limit: int = 50) -> list[Row]:
        """List what is put aside, in the order of the log.

        Args:
            destination: of this one only.
            state: ``due``, ``waiting``, ``dead``, ``decision`` or ``settled``.
            limit: how many.

        Raises:
            UnknownDestination: there is none of that name.
        """
        rows = self.ask("outbox/parked", destination=destination, state=state, room=limit)
        if destination is not None and not rows:
            self.mode(destination)
        return rows

    def doubts(self, destination: str | None = None, *, limit: int = 50) -> list[Row]:
        """List what was sent, may have arrived or not, and waits for a person: events of streams, and held jobs.

        Raises:
            UnknownDestination: there is none of that name.
        """
        rows = self.ask("outbox/doubts", destination=destination, room=limit)
        if destination is not None and not rows:
            self.mode(destination)
        return rows

    def mode(self, destination: str) -> str:
        """Return ``stream`` or ``jobs``.

        Raises:
            UnknownDestination: there is none of that name.
        """
        modes = self.ask("outbox/mode", destination=destination)
        if not modes:
            raise _unknown(destination)
        return str(modes[0]["mode"])

    def resolve(self, destination: str, item: int, verdict: Verdict, reference: str | None = None) -> str:
        """Decide about an event that is put aside, or a held delivery.

        Args:
            destination: its name.
            item: the event's number; for a job destination the job's id.
            verdict: ``delivered``, ``resend`` or ``dropped``.
            reference: what the destination calls it.

        Returns:
            ``resolved``, or what it is instead: its state, or ``not found``.

        Raises:
            UnknownDestination: there is none of that name.
        """
        modes = self.ask("outbox/mode", destination=destination)
        label = "outbox/resolve" if modes and modes[0]["mode"] == "stream" else "outbox/resolve_job"
        rows = self.ask(label, destination=destination, id=item, verdict=verdict, reference=reference)
        if not modes and not rows:  # the jobs of one that was removed stay
            raise _unknown(destination)
        outcome = str(rows[0]["outcome"]) if rows else "not found"
        return "resolved" if outcome == "released" else outcome

    def replay(
        self, destination: str, chosen: EventFilter, *, per_second: float | None = None, note: str | None = None
    ) -> Row:
        """Ask for events to be sent again, and return the replay (the view ``replays``); a relay carries it out.

        What the destination has not got yet is left out, as it comes by itself; so is what is put aside.

        Args:
            destination: its name.
            chosen: which events; those emitted later than now are none of them.
            per_second: at most so many a second.
            note: for whoever wonders.

        Raises:
            UnknownDestination: there is none of that name.
            ConfigError: nothing restricts which events, or all of them are gone.
        """
        made = self.ask("outbox/replay", destination=destination, per_second=per_second, note=note, **chosen.columns())[
            0
        ]
        return self.replays(replay=made["id"])[0]

    def count_replay(self, destination: str, chosen: EventFilter, *, clock: Monotonic = monotonic) -> Row:
        """Count what a replay would send: ``events``, the ``first`` five of them, and whether that ``is_cut``.

        It is counted for 10 s or up to 100,000 events; ``upto`` is the last number looked at, of ``to_number``. Nothing
        is changed.

        Raises:
            UnknownDestination, ConfigError: as `replay`.
        """
        with self._conn.transaction(force_rollback=True):
            made = self.replay(destination, chosen)
            began, after, events, first = clock(), made["from_number"], 0, list[Row]()
            while after < made["to_number"] and events < _COUNT_MOST and clock() - began < _COUNT_SECONDS:
                upto = min(after + _WALK, made["to_number"])
                row = self.ask("outbox/count_replay", replay=made["id"], after=after, upto=upto)[0]
                events, first, after = events + row["events"], [*first, *row["first"]][:5], upto
        is_cut = after < made["to_number"]
        return {
            "events": events,
            "is_cut": is_cut,
            "first": first,
            "upto": after,
            "to_number": made["to_number"],
            "since_at": made["since_at"],
        }

    def installation(self) -> str:
        """Return the name under which sinks keep what is this installation's (``worker/place``)."""
        return str(next(iter(self.ask("worker/place")[0].values())))

    def had(self, destination: str, chosen: EventFilter) -> Iterator[list[Row]]:
        """Yield the events that a replay would send, as rows of the log (``replay/read``), in the order of their numbers.

        Each stretch is read in a transaction of its own, which changes nothing: no snapshot is held in between.

        Raises:
            UnknownDestination, ConfigError: as `replay`.
        """
        after, to_number = -1, 0
        while after < to_number:
            with self._conn.transaction(force_rollback=True):
                made = self.replay(destination, chosen)
                to_number, after = made["to_number"], max(after, made["from_number"])
                upto = min(after + _WALK, to_number)
                values = {"replay": made["id"], "shard": None, "after": after, "upto": upto}
                rows = self.ask("replay/read", **values, room=_PAGE, max_bytes=_PAGE_BYTES)
            is_cut = len(rows) >= _PAGE or sum(len(row["data"]) for row in rows) >= _PAGE_BYTES
            after = rows[-1]["number"] if is_cut else upto
            if rows:
                yield rows

    def replays(self, *, limit: int = 50, replay: int | None = None) -> list[Row]:
        """List the replays that were asked for, the newest first."""
        return self.ask("outbox/replays", room=limit, replay=replay)

    def cancel_replay(self, replay: int) -> bool:
        """End a replay where it is; whether it was open."""
        return bool(self.ask("outbox/cancel_replay", replay=replay)[0]["is_done"])


def _unknown(destination: str) -> UnknownDestination:
    return UnknownDestination(f"there is no destination {destination!r}: samecommit outbox status lists them")
