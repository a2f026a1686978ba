"""Whatever is given to the codec either comes back as it was, or is refused with a place."""

import dataclasses
import datetime as dt
import enum
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jsonb import as_jsonb

from samecommit.errors import PayloadError, PayloadMismatch
from samecommit.payload import ValueCodec, clean_text, encode_plain

quick = settings(deadline=None, max_examples=150)


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = -1
    LARGE = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    ALL = 3


@dataclasses.dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: Literal["EUR", "USD"] = "EUR"


class Order(msgspec.Struct, frozen=True, rename="camel", tag="order"):
    order_id: int
    placed_at: dt.datetime
    lines: tuple[Money, ...] = ()


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Person(TypedDict, total=False):
    name: str
    born: dt.date


class Tree(msgspec.Struct):
    value: int
    children: "list[Tree]"


OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
ODD_OFFSETS = st.integers(-50000, 50000).map(lambda seconds: dt.timezone(dt.timedelta(seconds=seconds)))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
INTEGERS = st.integers() | st.integers(-(10**400), 10**400)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DATETIMES = st.datetimes(
    dt.datetime(1, 1, 3),  # noqa: DTZ001 - the zone is drawn beside it
    dt.datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=OFFSETS | ODD_OFFSETS | st.timezones(),
)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
MONEY = st.builds(Money, DECIMALS, st.sampled_from(["EUR", "USD"]))
ORDERS = st.builds(Order, INTEGERS, DATETIMES, st.lists(MONEY, max_size=3).map(tuple))
PEOPLE = st.fixed_dictionaries({}, optional={"name": TEXT, "born": st.dates()})
TREES = st.recursive(
    st.builds(Tree, INTEGERS, st.just([])), lambda inner: st.builds(Tree, INTEGERS, st.lists(inner, max_size=3))
)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)

A_LIST: Any = list  # subscripted with what is only known here
A_TUPLE: Any = tuple
A_DICT: Any = dict
A_SET: Any = set
A_FROZENSET: Any = frozenset

Case = tuple[Any, st.SearchStrategy[Any]]
KEYS: list[Case] = [
    (str, TEXT),
    (int, INTEGERS),
    (UUID, st.uuids()),
    (dt.date, st.dates()),
    (dt.datetime, st.datetimes(timezones=OFFSETS)),
    (dt.time, st.times()),
    (dt.timedelta, st.timedeltas()),
    (Decimal, DECIMALS),
    (bytes, st.binary()),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
]
SINGLE: list[Case] = [
    *KEYS,
    (bool, st.booleans()),
    (None, st.none()),
    (float, FLOATS),
    (dt.datetime, DATETIMES),
    (dt.time, st.times(timezones=OFFSETS)),
    (bytearray, st.binary().map(bytearray)),
    (Right, st.sampled_from([Right.READ, Right.WRITE, Right.ALL, Right(0)])),
    (Money, MONEY),
    (Order, ORDERS),
    (Point, st.builds(Point, FLOATS, FLOATS)),
    (Person, PEOPLE),
    (Tree, TREES),
    (Any, JSON),
    (object, JSON),
]
UNIONS: list[Case] = [
    (int | str | None, INTEGERS | TEXT | st.none()),
    (int | float, INTEGERS | FLOATS),
    (bool | int | float | str | None, st.booleans() | INTEGERS | FLOATS | TEXT | st.none()),
    (float | Decimal | list[int], FLOATS | DECIMALS | st.lists(INTEGERS)),
    (dt.datetime | int, DATETIMES | INTEGERS),
    (Order | list[Money] | None, ORDERS | st.lists(MONEY) | st.none()),
    (Literal["a", 1] | None, st.sampled_from(["a", 1, None])),
]


def in_containers(case: Case) -> st.SearchStrategy[Case]:
    type_, values = case
    cases: list[Case] = [
        (type_, values),
        (A_LIST[type_], st.lists(values, max_size=4)),
        (A_TUPLE[type_, ...], st.lists(values, max_size=4).map(tuple)),
        (A_TUPLE[int, type_], st.tuples(INTEGERS, values)),
    ]
    cases.extend((A_DICT[key, type_], st.dictionaries(keys, values, max_size=3)) for key, keys in KEYS)
    return st.sampled_from(cases)


def in_sets(case: Case) -> st.SearchStrategy[Case]:
    type_, values = case
    return st.sampled_from(
        [(A_SET[type_], st.sets(values, max_size=4)), (A_FROZENSET[type_], st.frozensets(values, max_size=4))]
    )


HASHABLE = [case for case in SINGLE if case[0] not in (bytearray, Order, Person, Tree, Any, object)]
TYPED = (
    st.sampled_from(SINGLE + UNIONS).flatmap(in_containers).flatmap(in_containers)
    | st.sampled_from(HASHABLE).flatmap(in_sets)
).flatmap(lambda case: st.tuples(st.just(case[0]), case[1]))


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are equal with all their types; instants count, not zones."""
    return type(left) is type(right) and _equal(left, right)


def _equal(left: Any, right: Any) -> bool:
    match left:
        case dt.datetime():
            return bool(left.astimezone(dt.UTC) == right.astimezone(dt.UTC))
        case Decimal():
            return str(left) == str(right)
        case dict():
            return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
        case list() | tuple():
            return len(left) == len(right) and all(map(same, left, right))
        case set() | frozenset():
            return in_utc(left) == in_utc(right)
        case msgspec.Struct():
            return same(msgspec.structs.astuple(left), msgspec.structs.astuple(right))
        case Money():
            return same(dataclasses.astuple(left), dataclasses.astuple(right))
        case _:
            return bool(left == right)


def in_utc(values: Any) -> set[Any]:
    return {value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for value in values}


@given(TYPED)
@settings(deadline=None, max_examples=800)
def test_every_supported_type_comes_back_through_jsonb_as_it_was(case: tuple[Any, Any]) -> None:
    type_, value = case
    codec = ValueCodec(type_)
    assert same(value, codec.decode(as_jsonb(codec.encode(value))))


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]))
    | st.datetimes()
    | DATETIMES
    | st.decimals()
    | st.binary()
    | st.uuids()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.complex_numbers()
    | st.sampled_from([Colour.RED, Size.LARGE, Right.ALL, object(), int, len, math, range(3)])
    | st.just(5000).map(lambda digits: 10**digits)
    | st.builds(Money, st.decimals())
    | st.builds(Point, st.floats())
    | st.builds(Tree, st.text(), st.just(3)),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans(), inner)
        | st.builds(Money, inner)
        | st.builds(Tree, inner, inner)
        | st.sets(st.integers() | st.text() | st.floats())
    ),
    max_leaves=8,
)
EVERY_TYPE = st.sampled_from(
    [case[0] for case in SINGLE + UNIONS] + [list, dict, list[float], tuple, set, list[Any], dict[str, Any]]
)


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """Return what the call returns, or the error that it may raise; any other fails the test."""
    try:
        return call(*args)
    except (PayloadError, PayloadMismatch) as error:
        str(error).encode()
        return error


@given(EVERY_TYPE, JUNK)
@settings(deadline=None, max_examples=800)
def test_a_value_of_any_other_type_is_refused_or_comes_back_equal(type_: Any, value: Any) -> None:
    codec = ValueCodec(type_)
    text = attempt(codec.encode, value)
    if isinstance(text, PayloadError):
        assert text.path.startswith("$")
    else:
        back = codec.decode(as_jsonb(text))
        assert codec.encode(back) == text or back == value


@given(EVERY_TYPE, st.text() | st.binary() | JSON.map(json.dumps))
@quick
def test_any_stored_text_is_read_or_refused_as_a_mismatch(type_: Any, stored: str | bytes) -> None:
    value = attempt(ValueCodec(type_).decode, stored)
    if isinstance(value, PayloadMismatch):
        assert value.path.startswith("$")


@given(JUNK)
@quick
def test_a_plain_value_is_written_as_jsonb_takes_it_or_refused(value: Any) -> None:
    text = attempt(encode_plain, value)
    if isinstance(text, PayloadError):
        assert text.path.startswith("$")
    else:
        as_jsonb(text)


@given(JSON)
@quick
def test_what_is_json_already_comes_back_from_its_plain_form(value: Any) -> None:
    assert same(value, ValueCodec(Any).decode(as_jsonb(encode_plain(value))))


@given(st.text(st.characters(exclude_categories=[])), st.integers(-1, 200))
@quick
def test_a_cleaned_text_fits_and_is_valid(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit_bytes=limit)
    assert "\0" not in cleaned
    assert len(cleaned.encode()) <= max(limit, 0)


@given(st.integers(101, 2000), st.sampled_from([lambda inner: [inner], lambda inner: {"a": inner}]))
@settings(deadline=None, max_examples=20)
def test_what_nests_too_deeply_is_refused_at_any_depth(depth: int, wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    for encode in (ValueCodec(Any).encode, encode_plain):
        assert "deeper than 100 levels" in str(attempt(encode, value))
