"""The settings page names every setting with its default."""

from dataclasses import fields
from inspect import signature
from pathlib import Path

from samecommit.app import Tasks
from samecommit.config import WorkerConfig
from samecommit.storage.session import session_settings

PAGE = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text(encoding="utf-8")


def test_every_worker_setting_is_on_the_page() -> None:
    assert [f.name for f in fields(WorkerConfig) if f"| `{f.name}` |" not in PAGE] == []


def test_plain_defaults_on_the_page_are_the_real_ones() -> None:
    config = WorkerConfig()
    for field in fields(WorkerConfig):
        value = getattr(config, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert f"| `{field.name}` | {value:g} |" in PAGE


def test_every_option_of_a_task_is_on_the_page() -> None:
    options = set(signature(Tasks.task).parameters) - {"self"}
    assert [name for name in sorted(options) if f"| `{name}` |" not in PAGE] == []


def test_every_session_setting_is_on_the_page() -> None:
    assert [name for name in session_settings(durable=False) if f"`{name}`" not in PAGE] == []
