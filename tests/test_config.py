"""Settings are checked when they are made."""

from typing import Any

import pytest

from samecommit import Backoff, WorkerConfig
from samecommit.errors import ConfigError


def test_the_defaults_are_those_that_were_decided() -> None:
    config = WorkerConfig()
    shown = (
        config.lease_seconds,
        config.heartbeat_seconds,
        config.reap_seconds,
        config.stall_seconds,
        config.timeout_seconds,
        config.grace_seconds,
        config.crash_limit,
        config.failed_age_days,
        config.retention_days,
        config.backoff,
    )
    assert shown == (
        30,
        5,
        5,
        120,
        3600,
        30,
        3,
        30,
        (1, 7, 90),
        Backoff(base_seconds=2, factor=2, cap_seconds=3600, jitter=1),
    )


@pytest.mark.parametrize(
    "name",
    [
        "concurrency",
        "threads",
        "lease_seconds",
        "heartbeat_seconds",
        "stall_seconds",
        "timeout_seconds",
        "batch",
        "crash_limit",
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_nothing_may_be_zero_or_less(name: str, value: float) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=rf"{name} is {value}: give a number above 0"):
        WorkerConfig(**options)


@pytest.mark.parametrize("days", [(1, 7), (1, 7, 90, 365), (0, 7, 90), (1, 7, -90), (1, float("nan"), 90)])
def test_the_history_keeps_each_of_three_classes_for_a_day_or_more(days: Any) -> None:
    with pytest.raises(ConfigError, match=r"retention_days is \(.*: give three numbers of days"):
        WorkerConfig(retention_days=days)


def test_a_single_name_is_no_tuple_of_queues() -> None:
    with pytest.raises(ConfigError, match=r"queues is 'leads'.*give a tuple, as in \('leads',\)"):
        WorkerConfig(queues="leads")  # type: ignore[arg-type]


def test_a_lease_outlasts_two_heartbeats() -> None:
    WorkerConfig(lease_seconds=11, heartbeat_seconds=5)
    with pytest.raises(ConfigError, match="must outlast two heartbeats"):
        WorkerConfig(lease_seconds=10, heartbeat_seconds=5)


@pytest.mark.parametrize(("options", "threads"), [({}, 64), ({"concurrency": 5}, 5), ({"threads": 3}, 3)])
def test_there_are_as_many_threads_as_handlers_up_to_a_limit(options: dict[str, Any], threads: int) -> None:
    assert WorkerConfig(**options).thread_count == threads


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        WorkerConfig().concurrency = 5  # type: ignore[misc]
