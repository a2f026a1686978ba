"""Dropping a day of a partitioned table: detached without blocking writers, then dropped."""

from __future__ import annotations

from samecommit.storage.link import AsyncLink


async def drop_day(link: AsyncLink, parent: str, child: str, *, is_half_detached: bool) -> None:
    """Detach and drop: an open report makes this wait for its next turn, and nobody else for long.

    Raises:
        LinkBusy: somebody reads the day; a detach that got half-way is finished by the next call.
    """
    if is_half_detached:
        detach = "chore/finish_detach"
    else:
        detach = "chore/detach_day_pooled" if link.is_pooled else "chore/detach_day"
    await link.define(detach, parent=parent, child=child)
    await link.define("chore/drop_day", child=child)
