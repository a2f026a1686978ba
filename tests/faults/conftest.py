"""A server for faults, an audited database for each test, a folder for its histories, and a seed that repeats it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.arena import Arena, arena
from tests.faults.crew import Crew, crew


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long storms to those who ask for them: ``--full``, or ``-m slow``. The longest test begins first."""
    items.sort(key=lambda item: "every_kind" not in item.name)
    if config.getoption("--full", default=False) or "slow" in config.getoption("-m", default="").replace(
        "not slow", ""
    ):
        return
    long = [item for item in items if item.get_closest_marker("faults") and item.get_closest_marker("slow")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What the test's dice are thrown with: ``--seed``, or a fresh one. It is shown when the test fails."""
    given = request.config.getoption("--seed", default=None) or os.environ.get("SAMECOMMIT_SEED")
    drawn = int(given) if given is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {drawn}: repeat it with --seed {drawn}")
    return drawn


@pytest.fixture(scope="session")
def ground() -> Iterator[Arena]:
    """A server that may be hurt."""
    with arena() as made:
        yield made


@pytest.fixture
def dsn(ground: Arena) -> Iterator[str]:
    """An audited database of the test's own."""
    with ground.fresh() as address:
        yield address


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the histories go."""
    return tmp_path


@pytest.fixture
def workers(dsn: str, folder: Path) -> Iterator[Crew]:
    """Worker processes, none at first."""
    with crew(dsn, folder) as made:
        yield made
