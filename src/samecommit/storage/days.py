"""Dropping days of partitioned tables: detached without blocking writers, then dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import psycopg

from samecommit.storage.link import AsyncLink, LinkBusy


async def left_days(link: AsyncLink, keep_days: Mapping[str, int]) -> list[str]:
    """Return the days that `drop_days` has detached and, cut off, has not dropped, of tables that keep so many days."""
    rows = await link.fetch("chore/left_days", parents=list(keep_days), days=list(keep_days.values()))
    return [child for (child,) in rows]


async def drop_days(link: AsyncLink, left: Iterable[str], old: Iterable[tuple[str, str, bool]]) -> None:
    """Drop what `left_days` has found, and old days: each its table, its name and whether it is half detached.

    A day that cannot go, since somebody reads it or has built on it, keeps no other from its turn. Behind one that is read no
    other of its table is tried: it may be half detached, and of a table only one can be.

    Raises:
        LinkBusy, psycopg.Error: what kept the first of those that did not go; raised once all had their turn.
    """
    failures: list[Exception] = []
    busy: set[str] = set()
    for child in left:
        try:
            await link.define("chore/drop_day", child=child)
        except LinkBusy as error:
            failures.append(_named(child, error))
        except psycopg.Error as error:
            failures.append(error)
    for parent, child, is_half_detached in old:
        try:
            if parent not in busy:
                await _drop_day(link, parent, child, is_half_detached=is_half_detached)
        except LinkBusy as error:
            busy.add(parent)
            failures.append(_named(child, error))
        except psycopg.Error as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _named(child: str, error: LinkBusy) -> LinkBusy:
    return LinkBusy(f"day {child} is in use: {error}")


async def _drop_day(link: AsyncLink, parent: str, child: str, *, is_half_detached: bool) -> None:
    """Mark, detach and drop: an open report makes this wait for its next turn, and nobody else for long."""
    await link.define("chore/mark_day", child=child)
    if is_half_detached:
        detach = "chore/finish_detach"
    else:
        detach = "chore/detach_day_pooled" if link.is_pooled else "chore/detach_day"
    try:
        await link.define(detach, parent=parent, child=child)
    except (LinkBusy, psycopg.Error):
        # it may stay in its table for long: who takes it out by hand until the next turn wants to keep it
        await link.define("chore/unmark_day", child=child)
        raise
    await link.define("chore/drop_day", child=child)
