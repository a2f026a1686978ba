"""Values made of values: lists, dicts, records and unions of declared types.

Each function makes the lowering for one declared container from the lowerings of its parts (`scalar` says what a
lowering is). Where all items are plain and of the declared type, the container itself is written: that is one pass in
C, and a list of 100,000 numbers costs a millisecond.
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from samecommit.payload.plain import are_ordinary, in_order, too_deep
from samecommit.payload.refusal import Refusal, class_of, expected, is_a, shown
from samecommit.payload.scalar import Lower, lower_int, lower_str

UNSET = msgspec.UNSET


class Part(NamedTuple):
    """One field of a record: how Python names it, how JSON does, and how its value is lowered."""

    name: str
    key: str
    lower: Lower
    is_required: bool


def array_of(kind: type, lower_item: Lower, uniform: type | None) -> Lower:
    """Lower a list, tuple, set or frozenset; items of exactly the type `uniform` need no look one by one."""
    is_ordered = kind in (list, tuple)

    def lower(value: Any, depth: int) -> Any:
        if not is_a(value, kind):
            raise expected(kind.__name__, value)
        if depth <= 0:
            raise too_deep()
        if uniform is not None and class_of(value) is kind and _is_uniform(value, uniform):
            return value
        out = _each(value, lower_item, depth - 1, is_ordered=is_ordered)
        return out if is_ordered else in_order(out)

    return lower


def _is_uniform(values: Collection[Any], kind: type) -> bool:
    if not values:
        return True
    return set(map(type, values)) == {kind} and (kind is not float or are_ordinary(values))


def _each(values: Collection[Any], lower: Lower, depth: int, *, is_ordered: bool) -> list[Any]:
    out: list[Any] = []
    try:
        for item in values:
            out.append(lower(item, depth))  # noqa: PERF401 - its length is the index of what is refused
    except Refusal as refusal:
        raise refusal.within(len(out) if is_ordered else None) from None
    return out


def tuple_of(lowers: Sequence[Lower], kind: type = tuple, names: Sequence[str] = ()) -> Lower:
    """Lower a tuple of fixed length, or a NamedTuple whose fields are called `names`."""

    def lower(value: Any, depth: int) -> list[Any]:
        if not (is_a(value, kind) if kind is tuple else type(value) is kind):
            raise expected(kind.__qualname__, value)
        if depth <= 0:
            raise too_deep()
        if len(value) != len(lowers):
            raise Refusal(f"expects {len(lowers)} items, got {len(value)}")
        out: list[Any] = []
        try:
            for lower_item, item in zip(lowers, value, strict=True):
                out.append(lower_item(item, depth - 1))
        except Refusal as refusal:
            raise refusal.within(names[len(out)] if names else len(out)) from None
        return out

    return lower


def dict_of(lower_key: Lower, lower_item: Lower) -> Lower:
    """Lower a dict; the JSON writer turns its keys to text."""

    def lower(value: Any, depth: int) -> dict[Any, Any]:
        if not is_a(value, dict):
            raise expected("dict", value)
        if depth <= 0:
            raise too_deep()
        out: dict[Any, Any] = {}
        for key, item in value.items():
            name = _lowered_key(key, lower_key)
            try:
                out[name] = lower_item(item, depth - 1)
            except Refusal as refusal:
                raise refusal.within(str(name)) from None
        return out

    return lower


def _lowered_key(key: Any, lower: Lower) -> Any:
    try:
        return lower(key, 1)
    except Refusal as refusal:
        raise Refusal(f"has a key that cannot be stored: {refusal.reason}") from None


def record_of(kind: type, parts: Sequence[Part], tag: tuple[str, str | int] | None = None) -> Lower:
    """Lower a dataclass, attrs class or msgspec struct to an object."""
    start: dict[str, Any] = dict([tag]) if tag else {}

    def lower(value: Any, depth: int) -> dict[str, Any]:
        out = start.copy()
        for part, item in _fields_of(value, kind, parts, depth):
            if item is not UNSET:
                out[part.key] = _lowered(part, item, depth - 1)
        return out

    return lower


def row_of(kind: type, parts: Sequence[Part], tag: tuple[str, str | int] | None = None) -> Lower:
    """Lower a struct that is declared ``array_like`` to an array."""
    start: list[Any] = [tag[1]] if tag else []

    def lower(value: Any, depth: int) -> list[Any]:
        return start + [_lowered(part, item, depth - 1) for part, item in _fields_of(value, kind, parts, depth)]

    return lower


def _fields_of(value: Any, kind: type, parts: Sequence[Part], depth: int) -> list[tuple[Part, Any]]:
    if type(value) is not kind:
        # An instance of a subclass would come back as its base class.
        raise expected(kind.__qualname__, value)
    if depth <= 0:
        raise too_deep()
    fields = [(part, getattr(value, part.name, UNSET)) for part in parts]
    for part, item in fields:
        if item is UNSET and part.is_required:
            raise Refusal("has no value", part.name)
    return fields


def _lowered(part: Part, item: Any, depth: int) -> Any:
    try:
        return part.lower(item, depth)
    except Refusal as refusal:
        raise refusal.within(part.name) from None


def typed_dict_of(parts: Sequence[Part]) -> Lower:
    """Lower a TypedDict; a key that it does not declare is refused, since it would not come back."""
    known = {part.name: part for part in parts}
    required = {part.name for part in parts if part.is_required}

    def lower(value: Any, depth: int) -> dict[str, Any]:
        if not is_a(value, dict):
            raise expected("dict", value)
        if depth <= 0:
            raise too_deep()
        for key in value:
            if key not in known:
                raise Refusal(f"has the undeclared key {shown(key)}")
        if missing := required - value.keys():
            raise Refusal(f"lacks {', '.join(sorted(missing))}")
        return {known[key].key: _lowered(known[key], item, depth - 1) for key, item in value.items()}

    return lower


def enum_of(kind: type[Enum]) -> Lower:
    """Lower a member to its value."""

    def lower(value: Any, _depth: int) -> Any:
        if type(value) is not kind or not _comes_back(value, kind):
            raise expected(kind.__qualname__, value)
        raw = value.value
        return lower_str(raw, 0) if isinstance(raw, str) else lower_int(raw, 0)

    return lower


def _comes_back(member: Enum, kind: type[Enum]) -> bool:
    """Tell whether the value leads back to the member: not so for some combinations of flags."""
    try:
        return bool(kind(member.value) == member)
    except ValueError:
        return False


def literal_of(values: Collection[Any]) -> Lower:
    """Lower one of some stated values."""
    allowed: set[tuple[type, Any]] = {(type(item), item) for item in values}
    what = " or ".join(repr(item) for item in values)

    def lower(value: Any, _depth: int) -> Any:
        if type(value) not in (str, int, bool, type(None)) or (type(value), value) not in allowed:
            raise expected(what, value)
        return value

    return lower


def union_of(members: Sequence[tuple[Collection[type], str, Lower]]) -> Lower:
    """Lower by the member that fits; each comes with the classes of its values, its name and its lowering."""
    exact: dict[type, list[Lower]] = {}
    for kinds, _, member in members:
        for kind in kinds:
            exact.setdefault(kind, []).append(member)
    everyone = [member for _, _, member in members]
    what = " | ".join(name for _, name, _ in members)

    def lower(value: Any, depth: int) -> Any:
        kind = class_of(value)
        candidates = exact.get(kind, everyone)
        if len(candidates) == 1:
            return candidates[0](value, depth)
        for candidate in candidates:
            try:
                return candidate(value, depth)
            except Refusal:
                continue
        raise expected(what, value)

    return lower


def forward_to(find: Callable[[], Lower]) -> Lower:
    """Lower a type that contains itself: its lowering exists only once it has been built."""

    def lower(value: Any, depth: int) -> Any:
        return find()(value, depth)

    return lower
