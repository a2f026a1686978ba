"""Finds the application that ``module:app`` names, and says what was found instead when there is none."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from samecommit.app import App, Tasks
from samecommit.errors import AppNotFound, SamecommitError
from samecommit.task import Task

T = TypeVar("T")
FACTORY = "create_app"


def locate(target: str | None) -> App:
    """Import and return the application.

    Args:
        target: ``module:app``, ``module:factory`` (called without arguments), or ``module`` with a single `App` inside;
            None is what SAMECOMMIT_APP says. The current directory is looked in first.

    Raises:
        AppNotFound: nothing was named, imported or found; lists what there is.
    """
    target = target or os.environ.get("SAMECOMMIT_APP")
    if not target:
        raise AppNotFound("no application was named: give MODULE:APP, as in shop.jobs:app, or set SAMECOMMIT_APP")
    name, _, attribute = target.partition(":")
    module = _import(name)
    return _as_app(target, module, _find(module, attribute)) if attribute else _only_app(module)


def _import(name: str) -> ModuleType:
    if "" not in sys.path and (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py") or os.sep in name:
        dotted = name.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise AppNotFound(
            f"{name!r} is a file: name the module, as in {dotted!r}, from the directory it is imported from"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFound(
                f"there is no module {error.name!r} in {Path.cwd()} or on sys.path{_similar(name)}"
            ) from error
        raise _broken(name, error) from error
    except SamecommitError:
        raise
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> AppNotFound:
    """Say which line of the user's code failed: the last one that is not the import machinery's."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename and f.filename != __file__
    ]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return AppNotFound(
        f"module {name!r} cannot be imported: {type(error).__name__}: {error}{place}; --debug shows the traceback"
    )


def _similar(name: str) -> str:
    here = Path.cwd()
    modules = [p.stem for p in here.glob("*.py")] + [p.parent.name for p in here.glob("*/__init__.py")]
    close = difflib.get_close_matches(name.partition(".")[0], modules, n=3)
    known = close or sorted(modules)[:8]
    return f": {'did you mean' if close else 'here are'} {', '.join(map(repr, known))}" if known else ""


def _find(module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppNotFound(f"module {module.__name__!r} has no {attribute!r}; {_inventory(module)}")
        found = getattr(found, part)
    return found


def _as_app(target: str, module: ModuleType, found: Any) -> App:
    if isinstance(found, App):
        return found
    if isinstance(found, Tasks):
        raise AppNotFound(
            f"{target!r} is a Tasks, which has no database: give it to an App(tasks=[...]); {_inventory(module)}"
        )
    if callable(found) and type(found) not in (type, Task):
        made = found()
        if isinstance(made, App):
            made.home = target
            return made
        raise AppNotFound(f"{target!r} returned {type(made).__name__}, not an App; {_inventory(module)}")
    raise AppNotFound(
        f"{target!r} is {type(found).__name__}, not an App or a function that makes one; {_inventory(module)}"
    )


def _only_app(module: ModuleType) -> App:
    apps = _members(module, App)
    if len({id(app) for app in apps.values()}) == 1:
        return min(apps.items())[1]
    if not apps and callable(factory := getattr(module, FACTORY, None)):
        return _as_app(f"{module.__name__}:{FACTORY}", module, factory)
    if apps:
        raise AppNotFound(
            f"module {module.__name__!r} has several applications: say which one, as in "
            f"{module.__name__}:{min(apps)}; {_inventory(module)}"
        )
    raise AppNotFound(f"module {module.__name__!r} has no App; {_inventory(module)}")


def _members(module: ModuleType, cls: type[T]) -> dict[str, T]:
    return {name: value for name, value in vars(module).items() if isinstance(value, cls)}


def _inventory(module: ModuleType) -> str:
    """List what a module has to offer: applications with their kinds, registries, tasks."""
    offers = [f"App {name!r} with {_kinds(app)}" for name, app in _members(module, App).items()]
    offers += [
        f"Tasks {name!r} with {_kinds(t)}" for name, t in _members(module, Tasks).items() if not isinstance(t, App)
    ]
    offers += [f"task {name!r}" for name in _members(module, Task)]
    file = getattr(module, "__file__", None) or "no file"
    return f"imported from {file} were {', '.join(offers) or 'no App, Tasks or task at all'}"


def _kinds(tasks: Tasks) -> str:
    kinds = sorted(tasks.definitions)
    return f"{len(kinds)} kinds ({', '.join(kinds[:8])}{', …' if len(kinds) > 8 else ''})" if kinds else "no kinds"
