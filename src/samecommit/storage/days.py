"""Dropping a day of a partitioned table: detached without blocking writers, then dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samecommit.storage.link import AsyncLink, LinkBusy


async def left_days(link: AsyncLink, keep_days: Mapping[str, int]) -> list[str]:
    """Return the days that `drop_day` has detached and, cut off, has not dropped, of tables that keep so many days."""
    rows = await link.fetch("chore/left_days", parents=list(keep_days), days=list(keep_days.values()))
    return [child for (child,) in rows]


async def drop_left_days(link: AsyncLink, children: Iterable[str]) -> None:
    """Drop what `left_days` has found.

    Raises:
        LinkBusy: somebody reads one.
    """
    for child in children:
        await link.define("chore/drop_day", child=child)


async def drop_day(link: AsyncLink, parent: str, child: str, *, is_half_detached: bool) -> None:
    """Mark, detach and drop: an open report makes this wait for its next turn, and nobody else for long.

    Raises:
        LinkBusy: somebody reads the day; a detach that got half-way is finished by the next call.
    """
    await link.define("chore/mark_day", child=child)
    if is_half_detached:
        detach = "chore/finish_detach"
    else:
        detach = "chore/detach_day_pooled" if link.is_pooled else "chore/detach_day"
    try:
        await link.define(detach, parent=parent, child=child)
    except LinkBusy:
        # it may stay in its table for long: who takes it out by hand until the next turn wants to keep it
        await link.define("chore/unmark_day", child=child)
        raise
    await link.define("chore/drop_day", child=child)
