"""Unique keys: at most one live job for a key, however often and from wherever it is enqueued.

A key belongs to a scope: the task's name, unless ``unique_scope`` names another that several tasks share. It is held by a
job from its enqueue on::

    waiting, running, held      the key is held
    done                        free, or held until its window (``unique_for``, counted from the enqueue) is over
    failed, cancelled           free; `retry` takes it again, or answers 'duplicate' if another job has it by then

What an enqueue does that finds its key held is ``on_conflict``:

    existing    returns the job that holds it
    replace     gives that job the new arguments, time and priority if it waits; leaves it alone if it runs or is held
    reject      raises `UniqueConflict`
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, get_args

from samecommit.errors import ConfigError, PayloadError, UniqueConflict

OnConflict = Literal["existing", "replace", "reject"]
_POLICIES: tuple[str, ...] = get_args(OnConflict)
_SCOPE_LENGTH = 200
_SHOWN = 100


def unique_values(
    unique: str | None,
    *,
    scope: str | None = None,
    window: timedelta | float | None = None,
    on_conflict: OnConflict = "existing",
) -> dict[str, Any]:
    """Check the options of a unique key and return the statement's parameters for them.

    Raises:
        ConfigError: an option is out of range, or there is no key that it could belong to.
        PayloadError: the key or the scope cannot be stored.
    """
    if on_conflict not in _POLICIES:
        msg = f"on_conflict is {on_conflict!r}: give one of {', '.join(_POLICIES)}"
        raise ConfigError(msg)
    if unique is None and (scope is not None or window is not None or on_conflict != "existing"):
        msg = "unique_scope, unique_for or on_conflict is given, but no unique=...: name the key that they are about"
        raise ConfigError(msg)
    return {
        "unique_key": None if unique is None else _checked("unique", unique),
        "unique_scope": None if scope is None else _checked("unique_scope", scope, _SCOPE_LENGTH),
        "unique_seconds": None if window is None else _seconds(window),
        # a rejected duplicate is found by its answer: an SQL error would end the caller's transaction
        "on_conflict": "existing" if on_conflict == "reject" else on_conflict,
    }


def conflict(key: str, scope: str, job_id: int) -> UniqueConflict:
    """Return the error for a key that is held."""
    msg = (
        f"unique key {key[:_SHOWN]!r} of {scope!r} is held by job {job_id}: nothing was stored, and the transaction can go "
        "on. on_conflict='existing' returns that job instead"
    )
    return UniqueConflict(msg, key=key, scope=scope, job_id=job_id)


def _checked(name: str, text: object, longest: int | None = None) -> str:
    if not isinstance(text, str) or not text or "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        shown = repr(text)[:_SHOWN]
        msg = f"{name} is {shown}: give a text that is not empty, without NUL or lone surrogates, such as 'lead:42'"
        raise PayloadError(msg, name)
    if longest is not None and len(text) > longest:
        msg = f"{name} has {len(text)} characters: give {longest} at most"
        raise PayloadError(msg, name)
    return text


def _seconds(window: timedelta | float) -> float:
    seconds = window.total_seconds() if isinstance(window, timedelta) else window
    if not 0 < seconds < 100 * 365.25 * 86_400:
        msg = f"unique_for is {window!r}: give more than 0 seconds and less than a hundred years"
        raise ConfigError(msg)
    return float(seconds)
