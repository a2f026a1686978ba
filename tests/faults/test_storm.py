"""The torture, and builds that are broken on purpose: each must be caught by the check that is for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.faults.arena import Arena
from tests.faults.storm import Plan, rage, report, verdicts
from tests.support.history_checks import all_faults

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
SMOKE = Plan(seed=0, jobs=2_000, seconds=20.0, concurrency=60, longest=1.0, kinds=("nap", "effect", "doze", "stumble"))


def judged(plan: Plan, ground: Arena, folder: Path) -> list[str]:
    run = rage(plan, ground, folder)
    found = verdicts(run, plan)
    print(report(run, plan, found))
    return all_faults(found)


def test_a_short_storm_loses_doubles_and_holds_nothing(ground: Arena, folder: Path, seed: int) -> None:
    assert judged(dataclasses.replace(SMOKE, seed=seed), ground, folder) == []


@pytest.mark.slow
def test_twenty_thousand_jobs_outlive_a_minute_of_kills_pauses_and_a_crash(
    ground: Arena, folder: Path, seed: int
) -> None:
    assert judged(Plan(seed=seed), ground, folder) == []


BROKEN = Plan(
    seed=0, jobs=300, seconds=8.0, workers=3, concurrency=20, longest=2.0, crash_at=None, drain_seconds=3.0,
    kinds=("nap", "stumble"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "checks"),
    [
        ("fence_removed", {"C3"}),
        ("reaper_ignores_lease", {"C4"}),
        ("ack_before_work", {"C3"}),
        ("finish_by_ctid", {"C3"}),
        pytest.param("claims_claimed", {"C4"}, marks=pytest.mark.slow),
        pytest.param("promotes_early", {"C12"}, marks=pytest.mark.slow),
    ],
)
def test_a_broken_build_is_caught(broken: str, checks: set[str], ground: Arena, folder: Path, seed: int) -> None:
    plan = dataclasses.replace(BROKEN, seed=seed, broken=broken)
    faults = judged(plan, ground, folder)
    assert checks <= {fault.split()[0] for fault in faults}


@pytest.mark.slow
def test_the_storm_that_catches_broken_builds_passes_the_whole_one(ground: Arena, folder: Path, seed: int) -> None:
    assert judged(dataclasses.replace(BROKEN, seed=seed, drain_seconds=60.0), ground, folder) == []
