from dataclasses import fields

import click
import pytest

from samecommit import Backoff, WorkerConfig
from samecommit.cli.worker import worker
from samecommit.cli.worker_options import OPTIONS, worker_config
from samecommit.errors import ConfigError

GIVEN = {
    "queues": ("a,b", ("a", "b")),
    "concurrency": ("7", 7),
    "threads": ("3", 3),
    "children": ("2", 2),
    "max_jobs_per_child": ("100", 100),
    "max_memory_per_child": ("512", 512),
    "handler_connections": ("3", 3),
    "connect_seconds": ("60", 60.0),
    "lease_seconds": ("12.5", 12.5),
    "heartbeat_seconds": ("2", 2.0),
    "reap_seconds": ("2", 2.0),
    "stall_seconds": ("60", 60.0),
    "timeout_seconds": ("90", 90.0),
    "grace_seconds": ("5", 5.0),
    "poll_seconds": ("0.25", 0.25),
    "batch": ("50", 50),
    "crash_limit": ("2", 2),
    "failed_age_days": ("10", 10),
    "inbox_days": ("3", 3),
    "retention_days": ("1,2,3", (1, 2, 3)),
    "backoff": ("1,3,60,0.5", Backoff(base_seconds=1, factor=3, cap_seconds=60, jitter=0.5)),
}


def parse(*arguments: str) -> WorkerConfig:
    with worker.make_context("worker", list(arguments)) as context:
        given = {name: context.params[name] for name in OPTIONS}
        return worker_config(WorkerConfig(concurrency=9), given)


def test_every_setting_of_a_worker_is_an_option() -> None:
    assert {item.name for item in fields(WorkerConfig)} == set(OPTIONS)


@pytest.mark.parametrize("name", GIVEN)
def test_an_option_sets_its_setting_and_no_other(name: str) -> None:
    text, value = GIVEN[name]
    config, base = parse(f"--{name.replace('_', '-')}", text), WorkerConfig(concurrency=9)
    changed = {item.name for item in fields(config) if getattr(config, item.name) != getattr(base, item.name)}
    assert getattr(config, name) == value and changed == {name}


def test_switches_have_both_ways() -> None:
    assert set(OPTIONS) - set(GIVEN) == {"doorbell", "chores"}
    config = parse("--no-doorbell", "--no-chores")
    assert (config.doorbell, config.chores) == (False, False)
    assert parse("--doorbell").doorbell


def test_what_is_not_given_stays_as_the_application_has_it() -> None:
    assert parse() == WorkerConfig(concurrency=9)


@pytest.mark.parametrize("arguments", [["--backoff", "1,2"], ["--retention-days", "x,1,2"], ["--queues", "a,,b"]])
def test_what_cannot_be_read_is_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(*arguments)


def test_settings_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="must outlast two heartbeats"):
        parse("--lease-seconds", "5")


def test_settings_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMECOMMIT_WORKER_CONCURRENCY", "17")
    with worker.make_context("worker", [], auto_envvar_prefix="SAMECOMMIT_WORKER") as context:
        assert context.params["concurrency"] == 17
