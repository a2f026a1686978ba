"""What the outbox's measurements make of what they find."""

from typing import Any, cast

import pytest

from samecommit.bench import outbox
from samecommit.bench.report import Report


def test_what_emits_look_at_is_no_part_of_what_destinations_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {0: 10.0, 1: 11.0, 50: 60.0}

    def blocks(_place: object, _seconds: float, destinations: int) -> float:
        return found[destinations]

    monkeypatch.setattr(outbox, "_blocks_for_an_event", blocks)
    report = Report()
    outbox.fan_out(cast("Any", None), report)
    row = report.rows[-1]
    assert (row.value, row.is_reached) == (50.0, False)
