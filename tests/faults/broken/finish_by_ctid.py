"""A finish by the place in the table that the claim saw: the slot may hold another job by then."""

from __future__ import annotations

from typing import Any

from tests.faults.broken import overlay

from samecommit.storage.link import AsyncLink

_CTIDS = """-- Where these jobs are. No locks.
SELECT j.id, j.ctid::text
FROM :"schema".job AS j
WHERE j.id = ANY (:ids::bigint[])
"""


def apply() -> None:
    """Break the build."""
    overlay.add("broken/ctids", _CTIDS)
    overlay.replace("job/finish", "FROM unnest(:ids::bigint[],", "FROM unnest(:ctids::tid[], :ids::bigint[],")
    overlay.replace("job/finish", "AS wanted (id,", "AS wanted (place, id,")
    overlay.replace(
        "job/finish", "WHERE job.id = wanted.id AND job.claim_id = wanted.claim_id", "WHERE job.ctid = wanted.place"
    )
    fetch: Any = AsyncLink.fetch
    places: dict[int, str] = {}

    async def remember(self: AsyncLink, label: str, **values: Any) -> list[Any]:
        if label == "job/finish":
            ids = values["ids"]
            numbers = [int(n) for n in ids.strip("{}").split(",")] if isinstance(ids, str) else ids
            values["ctids"] = [places[number] for number in numbers]
        rows: list[Any] = await fetch(self, label, **values)
        if label in {"claim/claim", "claim/claim_suspects"} and rows:
            places.update(dict(await fetch(self, "broken/ctids", ids=[row[0] for row in rows])))
        return rows

    AsyncLink.fetch = remember  # type: ignore[method-assign]
