"""The torture, and builds that are broken on purpose: each must be caught by the check that is for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.faults.arena import Arena
from tests.faults.outcome import judged as judged_run
from tests.faults.storm import SIZES, Plan, campaign, rage

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
SMOKE = Plan(seed=0, jobs=2_000, seconds=20.0, concurrency=60, longest=1.0, kinds=("nap", "effect", "doze", "stumble"))


def judged(plan: Plan, ground: Arena, folder: Path) -> list[str]:
    result = judged_run(rage(plan, ground, folder), plan, folder)
    print(result.text())
    return result.faults


def test_a_short_storm_loses_doubles_and_holds_nothing(ground: Arena, folder: Path, seed: int) -> None:
    assert judged(dataclasses.replace(SMOKE, seed=seed), ground, folder) == []


def test_every_kind_of_fault_in_turn_loses_doubles_and_holds_nothing(ground: Arena, folder: Path, seed: int) -> None:
    assert judged(campaign(seed, **SIZES["short"]), ground, folder) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_half_a_million_jobs_outlive_a_thousand_faults_of_every_kind(
    ground: Arena, folder: Path, seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with capfd.disabled():
        assert judged(campaign(seed, **SIZES["full"]), ground, folder) == []


BROKEN = Plan(
    seed=0, jobs=300, seconds=6.0, workers=3, concurrency=20, longest=2.0, faults=("kill", "stop"), every=1.0, lease=1.5,
    heartbeat=0.5, reap=0.5, grace=1.0, drain_seconds=2.0, stop_seconds=3.0, kinds=("nap", "stumble"),
)  # fmt: skip
"""Small and hurt often: what a broken build does wrong shows within seconds."""
CUT = dataclasses.replace(BROKEN, seconds=7.0, faults=("commit cut after",), every=0.3, longest=0.1, drain_seconds=8.0)
# there must be room for what is in line too early
EARLY = dataclasses.replace(BROKEN, seconds=9.0, jobs=120, longest=0.3, kinds=("stumble",))


@pytest.mark.parametrize(
    ("broken", "check", "plan"),
    [
        ("fence_removed", "C3", BROKEN),
        ("reaper_ignores_lease", "C4", BROKEN),
        ("ack_before_work", "C3", BROKEN),
        ("finish_by_ctid", "C3", BROKEN),
        ("end_without_taking", "C2", BROKEN),
        ("lease_by_worker_clock", "C4", BROKEN),
        ("prunes_by_age", "C1", BROKEN),
        ("naive_backoff", "C5", BROKEN),
        ("swallows_cancellation", "C13", BROKEN),
        ("commits_at_once", "C1", CUT),
        ("retries_unknown", "C6", CUT),
        ("claims_claimed", "C4", BROKEN),
        ("promotes_early", "C12", EARLY),
    ],
)
def test_a_broken_build_is_caught(broken: str, check: str, plan: Plan, ground: Arena, folder: Path, seed: int) -> None:
    """Three storms at most: in one of seconds, chance may spare what the build does wrong."""
    found = set[str]()
    for turn in range(3):
        place = folder / str(turn)
        place.mkdir()
        found |= {
            fault.split()[0]
            for fault in judged(dataclasses.replace(plan, seed=seed + turn, broken=broken), ground, place)
        }
        if check in found:
            return
    pytest.fail(f"{broken} shows as {sorted(found)}, not as {check}")


@pytest.mark.parametrize(
    "plan", [pytest.param(BROKEN, marks=pytest.mark.slow, id="kills and pauses"), pytest.param(CUT, id="cut commits")]
)
def test_a_storm_that_catches_broken_builds_passes_the_whole_one(
    plan: Plan, ground: Arena, folder: Path, seed: int
) -> None:
    patient = dataclasses.replace(plan, seed=seed, drain_seconds=60.0, stop_seconds=30.0)
    assert judged(patient, ground, folder) == []
