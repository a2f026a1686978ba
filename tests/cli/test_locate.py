import sys
from pathlib import Path

import pytest

from samecommit.cli.locate import locate
from samecommit.errors import AppNotFound, TaskDefinitionError


def test_an_application_is_found_by_each_of_its_names(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = locate(f"{shop}:app")
    assert sorted(app.definitions) == ["boom", "greet"]
    assert locate(shop) is app
    assert locate(f"{shop}:make_app") is app
    monkeypatch.setenv("SAMECOMMIT_APP", shop)
    assert locate(None) is app


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("ap", ["has no 'ap'", "App 'app' with 2 kinds (boom, greet)", "Tasks 'extra' with 1 kinds (lonely)"]),
        ("extra", ["is a Tasks", "App(tasks=[...])"]),
        ("greet", ["is Task, not an App", "task 'greet'"]),
        ("make_nothing", ["returned NoneType, not an App"]),
        ("App", ["is type, not an App"]),
        ("app.worker", ["returned Worker"]),
    ],
)
def test_what_is_no_application_is_refused_with_what_there_is(shop: str, attribute: str, says: list[str]) -> None:
    with pytest.raises(AppNotFound) as refused:
        locate(f"{shop}:{attribute}")
    for part in (*says, f"{shop}.py"):
        assert part in str(refused.value)


def write(name: str, text: str) -> str:
    Path(f"{name}.py").write_text(text)
    sys.modules.pop(name, None)
    return name


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "two_apps",
            "from samecommit import App\na = App()\nb = App()",
            "several applications: say which one, as in two_apps:a",
        ),
        ("no_app", "x = 1", "no App, Tasks or task at all"),
        ("broken_app", "import json\n1 / 0", r"ZeroDivisionError: division by zero .*broken_app.py:2\)"),
        ("needy_app", "import not_installed_here", "ModuleNotFoundError: No module named 'not_installed_here'"),
        ("typo_app", "def x(:", "SyntaxError"),
    ],
)
def test_a_module_without_one_application_says_why(shop: str, name: str, text: str, says: str) -> None:
    with pytest.raises(AppNotFound, match=says):
        locate(write(name, text))


def test_a_factory_will_do(shop: str) -> None:
    assert locate(write("made_app", "from samecommit import App\ndef create_app():\n    return App()")).schema


def test_one_application_under_two_names_is_one(shop: str) -> None:
    assert locate(write("same_app", "from samecommit import App\na = b = App()")).schema


def test_a_task_that_cannot_be_one_keeps_its_own_error(shop: str) -> None:
    text = "from samecommit import App\napp = App()\n@app.task()\ndef f(*args): ..."
    with pytest.raises(TaskDefinitionError, match="cannot be a task"):
        locate(write("bad_task", text))


def test_a_missing_module_names_the_directory_and_what_is_near(shop: str) -> None:
    with pytest.raises(AppNotFound, match=r"there is no module 'nowhere' in .*here are 'shop_"):
        locate("nowhere.jobs:app")
    write("orders", "")
    with pytest.raises(AppNotFound, match=r"there is no module 'order' in .*did you mean 'orders'"):
        locate("order")


def test_a_file_name_is_answered_with_the_module(shop: str) -> None:
    with pytest.raises(AppNotFound, match=r"is a file: name the module, as in 'shop\.jobs'"):
        locate("./shop/jobs.py")


def test_nothing_named_is_answered_with_an_example(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAMECOMMIT_APP", raising=False)
    with pytest.raises(AppNotFound, match="give MODULE:APP"):
        locate(None)
