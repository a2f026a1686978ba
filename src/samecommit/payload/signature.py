"""What a function's signature says about its payload."""

import inspect
import sys
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from samecommit.errors import TaskDefinitionError
from samecommit.payload.compiler import Compiled, Unsupported


class Argument(NamedTuple):
    """One parameter that the payload holds."""

    name: str
    type: Any
    compiled: Compiled
    is_required: bool
    is_positional: bool


def arguments_of(fn: Callable[..., Any], *, skip_first: bool) -> list[Argument]:
    """Read the parameters of `fn` that a payload holds; `skip_first` leaves out the context.

    Raises:
        TaskDefinitionError: a parameter cannot be stored; the message names function, place and parameter.
    """
    parameters = list(_signature(fn).parameters.values())
    return [_argument(fn, parameter) for parameter in parameters[1 if skip_first else 0 :]]


def result_type_of(fn: Callable[..., Any]) -> Any:
    """Read what `fn` returns; `inspect.Parameter.empty` if it does not say."""
    annotation = _signature(fn).return_annotation
    return _resolve(fn, "return", annotation) if annotation is not inspect.Signature.empty else annotation


def refusal_of(fn: Callable[..., Any], name: str, reason: str) -> TaskDefinitionError:
    """Say what is wrong with a function, where it is."""
    what = "its return type" if name == "return" else f"its parameter {name!r}"
    return TaskDefinitionError(
        f"{getattr(fn, '__qualname__', repr(fn))} ({_place(fn)}) cannot be a task: {what}: {reason}"
    )


def _argument(fn: Callable[..., Any], parameter: inspect.Parameter) -> Argument:
    name = parameter.name
    if reason := _KINDS_REFUSED.get(parameter.kind):
        raise refusal_of(fn, name, reason)
    empty = inspect.Parameter.empty
    annotation = Any if parameter.annotation is empty else _resolve(fn, name, parameter.annotation)
    try:
        compiled = Compiled(annotation)
    except Unsupported as error:
        raise refusal_of(fn, name, str(error)) from error
    is_positional = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    return Argument(name, annotation, compiled, parameter.default is empty, is_positional)


_KINDS_REFUSED: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "a payload has names, not positions; declare a list parameter instead of *args",
    inspect.Parameter.VAR_KEYWORD: "a payload is checked against names; declare a dict parameter instead of **kwargs",
    inspect.Parameter.POSITIONAL_ONLY: "a payload is passed by name; remove the `/` from the signature",
}


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    # Newer Pythons evaluate annotations late, and that of the context may exist for type checkers only.
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _resolve(fn: Callable[..., Any], name: str, annotation: Any) -> Any:
    names = getattr(inspect.unwrap(fn), "__globals__", {})
    holder = SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)[name]
    except Exception as error:
        reason = f"the annotation {annotation!r} cannot be resolved ({error}); import what it names at run time"
        raise refusal_of(fn, name, reason) from error


def _place(fn: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "no source"
