"""Writes the ends of attempts in groups that grow with the load: what arrives while one write is under way is the next.

An idle worker writes at once, a trickle waits for the rest of 5 ms, and a busy one writes hundreds of rows a statement. Every row is fenced by (id, claim_id). Rows
that do not come back are looked at: still ours means locked by somebody (tried again, alone), else it was fenced off.
A group that fails as a whole is written row by row, so that one bad row fails alone; a failure that cannot be written as it
is, is written as a mark.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import errors as pg

from samecommit.signals import JobsEnded, Signals
from samecommit.storage.link import AsyncLink, LinkBusy, LinkDown, bigints
from samecommit.worker.attempt import Attempt
from samecommit.worker.verdict import Drop, End, Settle, Verdict

_MOST_ROWS = 1000
_IDLE_SECONDS = 0.25
_FORGET_AT = 256
_PACE_SECONDS = 0.005
_FULL_ROWS = 64


class EndRow(NamedTuple):
    """One row of ``job/finish``."""

    id: int
    claim_id: int
    state: str = "done"
    result: str | None = None
    error: str | None = None
    record: str | None = None


class SettleRow(NamedTuple):
    """One row of ``job/settle``."""

    id: int
    claim_id: int
    verdict: Settle
    record: str | None = None


class Completer:
    """The writer of one worker.

    Args:
        link: a durable connection of its own.
        lease: gives the current lease for the attempt rows.
        wake: starts the next write at once.
        on_cool: called with (kind, seconds) as soon as a dependency refuses.
        on_cancel: called with (job id, reason) for running jobs that somebody wants stopped.
        running_ids: gives the ids to look for in the cancellations.
    """

    def __init__(
        self,
        link: AsyncLink,
        signals: Signals,
        *,
        lease: Callable[[], int],
        wake: Callable[[], None],
        on_cancel: Callable[[int, str | None], None],
        on_cool: Callable[[str, float], None],
        running_ids: Callable[[], list[int]],
    ) -> None:
        self._link, self._signals = link, signals
        self._lease, self._wake, self._running_ids = lease, wake, running_ids
        self._on_cancel, self._on_cool = on_cancel, on_cool
        self._done_ids: list[int] = []
        self._done_claims: list[int] = []
        self._ends: list[EndRow] = []
        self._settles: list[SettleRow] = []
        self._verify: list[SettleRow] = []
        self._cools: dict[str, tuple[float, str]] = {}
        self._dirty: set[Attempt] = set()
        self._left: Counter[int] = Counter()
        self._forget: list[int] = []
        self._told: list[int] = []
        self._generation = 0
        self._looked_for_cancels = 0.0
        self._wrote = -1e9
        self.is_closing = False
        self.refused = 0
        self.written = 0

    def __repr__(self) -> str:
        return f"<Completer {len(self._ends)} ends, {len(self._settles)} settles, written {self.written}, refused {self.refused}>"

    @property
    def is_empty(self) -> bool:
        """Whether everything is written."""
        return not (self._done_ids or self._ends or self._settles or self._verify or (self.is_closing and self._forget))

    def claimed(self, claim_id: int, count: int) -> None:
        """Count a claim's jobs, so that its row goes when the last one has ended."""
        self._left[claim_id] = count

    def known(self) -> list[int]:
        """Return the claims that have jobs whose end is not written."""
        return list(self._left)

    def done(self, attempt: Attempt) -> None:
        """End a job as done, with nothing to tell. The shortest way."""
        self._done_ids.append(attempt.id)
        self._done_claims.append(attempt.claim_id)
        if len(self._done_ids) == 1:
            self._wake()

    def add(self, attempt: Attempt, verdict: Verdict) -> None:
        """End an attempt by its verdict."""
        self._dirty.discard(attempt)
        job_id, claim_id = attempt.id, attempt.claim_id
        if attempt.stop_reason == "cancel":
            self._told.append(job_id)
        match verdict:
            case Drop() if attempt.stop_reason == "lost":
                self._count_down(claim_id)
                return
            case Drop():
                # refused by a finish of its own: fenced off, or only locked by somebody and still ours
                self._verify.append(SettleRow(job_id, claim_id, _uncommitted(attempt)))
            case End() if attempt.is_ended_by_handler:
                self._verify.append(SettleRow(job_id, claim_id, _uncommitted(attempt)))
            case End(state=state, result=result, error=error):
                self._ends.append(EndRow(job_id, claim_id, state, result, error, attempt.record_json))
            case Settle():
                self._settles.append(SettleRow(job_id, claim_id, verdict, attempt.record_json))
                if verdict.cools_seconds > 0:
                    self._cools[attempt.job.kind] = (verdict.cools_seconds, verdict.error or "")
                    self._on_cool(attempt.job.kind, verdict.cools_seconds)
        self._wake()

    def mark_dirty(self, attempt: Attempt) -> None:
        """Note that a running attempt has something to keep."""
        self._dirty.add(attempt)

    def drop(self) -> None:
        """Forget everything: the lease is lost, and whatever ran belongs to somebody else."""
        self._generation += 1
        self.refused += len(self._done_ids) + len(self._ends) + len(self._settles)
        self._done_ids, self._done_claims = [], []
        self._ends, self._settles, self._verify = [], [], []
        self._dirty.clear()
        self._left.clear()
        self._forget.clear()

    async def run_once(self) -> float:
        """Write what there is; one turn."""
        if (wait := self._pause()) > 0:
            return wait
        if self._done_ids:
            await self._write_done()
        if self._ends:
            await self._write_ends()
        if self._settles or self._cools:
            await self._write_settles()
        if self._verify:
            await self._verify_ends()
        if len(self._forget) >= _FORGET_AT or self.is_closing:
            await self._forget_claims()
        await self._look_around()
        return 0.0 if not self.is_empty else _IDLE_SECONDS

    def _pause(self) -> float:
        """Seconds to wait before the next write: a trickle of ends, each of which could be a commit, shares a few of them."""
        now = asyncio.get_running_loop().time()
        waiting = len(self._done_ids) + len(self._ends) + len(self._settles)
        if not waiting:
            return 0.0
        wait = self._wrote + _PACE_SECONDS - now
        if wait > 0 and waiting < _FULL_ROWS and not self.is_closing:
            return wait
        self._wrote = now
        return 0.0

    async def _forget_claims(self) -> None:
        if self._forget:
            forget = list(self._forget)
            await self._link.fetch("claim/forget", claim_ids=forget)
            del self._forget[: len(forget)]

    def ask_for_cancels(self) -> None:
        """Look for cancellations at once."""
        self._looked_for_cancels = 0.0
        self._wake()

    async def _look_around(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked_for_cancels < _IDLE_SECONDS:
            return
        self._looked_for_cancels = now
        await self._forget_claims()
        if self._dirty:
            await self._write_records()
        if self._told:
            told, self._told = self._told, []
            await self._link.fetch("worker/forget_cancellations", ids=told)
        if ids := self._running_ids():
            for job_id, reason in await self._link.fetch("worker/cancellations", ids=bigints(ids)):
                self._on_cancel(job_id, reason)

    async def _write_done(self) -> None:
        ids, self._done_ids = self._done_ids[:_MOST_ROWS], self._done_ids[_MOST_ROWS:]
        claims, self._done_claims = self._done_claims[:_MOST_ROWS], self._done_claims[_MOST_ROWS:]
        generation = self._generation
        try:
            returned = await self._fetch_making_days("job/finish", self._finish_values(ids, claims))
        except (LinkDown, LinkBusy):
            if generation == self._generation:
                self._done_ids += ids
                self._done_claims += claims
            raise
        except psycopg.Error:
            returned = []
        if len(returned) == len(ids):
            self._account_all(claims)
        else:  # some are locked, lost or cannot be written: look at each
            got = {row[0] for row in returned}
            rest = [EndRow(*pair) for pair in zip(ids, claims, strict=True) if pair[0] not in got]
            self._account_all([claim for job, claim in zip(ids, claims, strict=True) if job in got])
            self._put_back(rest, [], generation)

    def _account_all(self, claims: list[int]) -> None:
        self.written += len(claims)
        for claim_id, count in Counter(claims).items():
            self._count_down(claim_id, count)
        self._signals.emit(JobsEnded(done=len(claims), settled=0, refused=0))

    async def _write_ends(self) -> None:
        rows, self._ends = self._ends[:_MOST_ROWS], self._ends[_MOST_ROWS:]
        generation = self._generation
        with self._kept(rows, [], generation):
            try:
                returned = await self._finish(rows)
            except psycopg.Error as error:
                returned = await self._one_by_one(rows, error)
            await self._account(rows, returned, generation)

    @contextmanager
    def _kept(self, ends: list[EndRow], settles: list[SettleRow], generation: int) -> Generator[None]:
        """Put rows back when writing them fails, whatever the failure; the fence refuses those that were written after all."""
        try:
            yield
        except Exception:
            self._put_back(ends, settles, generation)
            raise

    async def _finish(self, rows: list[EndRow]) -> list[int]:
        values = self._finish_values([row.id for row in rows], [row.claim_id for row in rows])
        values["states"] = [row.state for row in rows]
        values["results"] = [row.result for row in rows]
        values["errors"] = [row.error for row in rows]
        values["records"] = [row.record for row in rows]
        return [row[0] for row in await self._fetch_making_days("job/finish", values)]

    def _finish_values(self, ids: list[int], claims: list[int]) -> dict[str, Any]:
        return {
            "ids": bigints(ids),
            "claim_ids": bigints(claims),
            "states": None,
            "results": None,
            "errors": None,
            "records": None,
            "lease_id": self._lease(),
        }

    async def _fetch_making_days(self, label: str, values: dict[str, Any]) -> list[Any]:
        try:
            return await self._link.fetch(label, **values)
        except pg.CheckViolation as error:
            if "no partition" not in str(error):
                raise
            moments = await self._link.fetch("chore/moments", ids=values["ids"])
            for (moment,) in moments:
                await self._link.fetch("chore/make_past_day", moment=moment)
            return await self._link.fetch(label, **values)

    async def _one_by_one(self, rows: list[EndRow], why: psycopg.Error) -> list[int]:
        if len(rows) == 1:
            await self._mark_failed(rows[0], why)
            return [rows[0].id]
        returned: list[int] = []
        for row in rows:
            try:
                returned += await self._finish([row])
            except psycopg.Error as error:
                await self._mark_failed(row, error)
                returned.append(row.id)
        return returned

    async def _write_settles(self) -> None:
        for kind, (seconds, reason) in list(self._cools.items()):
            await self._link.fetch("worker/cool", kind=kind, seconds=seconds, reason=reason)
            self._cools.pop(kind, None)
        rows, self._settles = self._settles[:_MOST_ROWS], self._settles[_MOST_ROWS:]
        if not rows:
            return
        generation = self._generation
        with self._kept([], rows, generation):
            try:
                returned = await self._settle(rows)
            except psycopg.Error:
                returned = list[int]()
                for row in rows:
                    try:
                        returned += await self._settle([row])
                    except psycopg.Error as error:
                        await self._mark_failed(row, error)
                        returned.append(row.id)
            await self._account(rows, returned, generation)

    async def _settle(self, rows: list[SettleRow]) -> list[int]:
        verdicts = [row.verdict for row in rows]
        values: dict[str, Any] = {
            "ids": [row.id for row in rows],
            "claim_ids": [row.claim_id for row in rows],
            "outcomes": [v.outcome for v in verdicts],
            "states": [v.state for v in verdicts],
            "delays": [v.delay_seconds for v in verdicts],
            "run_ats": [v.run_at for v in verdicts],
            "spends": [v.spends for v in verdicts],
            "errors": [v.error for v in verdicts],
            "hold_datas": [v.hold_data for v in verdicts],
            "hold_untils": [v.hold_until for v in verdicts],
            "records": [row.record for row in rows],
            "firsts": [v.is_first for v in verdicts],
            "lease_id": self._lease(),
        }
        return [row[0] for row in await self._fetch_making_days("job/settle", values)]

    async def _mark_failed(self, row: EndRow | SettleRow, why: psycopg.Error) -> None:
        text = f"its end could not be written ({type(why).__name__}, SQLSTATE {why.sqlstate}); what it did may have happened"
        await self._link.fetch("job/mark_failed", id=row.id, claim_id=row.claim_id, error=text)

    async def _account(self, rows: list[Any], returned: list[int], generation: int) -> None:
        missing: list[Any] = []
        if len(returned) < len(rows):
            got = set(returned)
            missing = [row for row in rows if row.id not in got]
            owned = {
                row[0]
                for row in await self._link.fetch(
                    "claim/owned", ids=[r.id for r in missing], claim_ids=[r.claim_id for r in missing]
                )
            }
            locked = [row for row in missing if row.id in owned]
            self._put_back(
                [r for r in locked if isinstance(r, EndRow)],
                [r for r in locked if isinstance(r, SettleRow)],
                generation,
            )
            missing = [row for row in missing if row.id not in owned]
            if locked and not returned:
                await asyncio.sleep(0.02)
            rows = [row for row in rows if row.id not in owned]
        self.refused += len(missing)
        self.written += len(returned)
        for row in rows:
            self._count_down(row.claim_id)
        is_end = bool(rows) and isinstance(rows[0], EndRow)
        self._signals.emit(
            JobsEnded(done=len(returned) if is_end else 0, settled=0 if is_end else len(returned), refused=len(missing))
        )

    def _put_back(self, ends: list[EndRow], settles: list[SettleRow], generation: int) -> None:
        if generation == self._generation:
            self._ends += ends
            self._settles += settles

    async def _verify_ends(self) -> None:
        rows, self._verify = self._verify, []
        generation = self._generation
        ids, claim_ids = [row.id for row in rows], [row.claim_id for row in rows]
        try:
            owned = {row[0] for row in await self._link.fetch("claim/owned", ids=ids, claim_ids=claim_ids)}
        except (LinkDown, LinkBusy):
            self._verify += rows if generation == self._generation else []
            raise
        self._put_back([], [row for row in rows if row.id in owned], generation)
        for row in rows:
            if row.id not in owned:
                self._count_down(row.claim_id)
        self.written += len(rows) - len(owned)

    def _count_down(self, claim_id: int, count: int = 1) -> None:
        left = self._left.get(claim_id)
        if left is None:
            return
        if left <= count:
            del self._left[claim_id]
            self._forget.append(claim_id)
        else:
            self._left[claim_id] = left - count

    async def _write_records(self) -> None:
        dirty, self._dirty = list(self._dirty), set()
        values: dict[str, Any] = {
            "ids": [a.id for a in dirty],
            "claim_ids": [a.claim_id for a in dirty],
            "records": [a.record_json for a in dirty],
            "progresses": [a.progress_json for a in dirty],
            "lease_id": self._lease(),
        }
        try:
            await self._fetch_making_days("attempt/record", values)
        except (LinkDown, LinkBusy):
            self._dirty.update(dirty)
            raise


def _uncommitted(attempt: Attempt) -> Settle:
    """What becomes of a job that its handler ended, should it turn out to be still there."""
    error = "ctx.finish was called, but its transaction was not committed"
    state = "failed" if attempt.job.is_last_attempt else "ready"
    return Settle("error", state, delay_seconds=5.0, spends=True, error=error)
