"""The payload codec: what is stored, what is refused and how it says so."""

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from tests.jsonb import as_jsonb

from samecommit.errors import PayloadError, PayloadMismatch, TaskDefinitionError
from samecommit.payload import MAX_BYTES, MAX_DEPTH, PayloadCodec, ValueCodec, clean_text, encode_plain

T = TypeVar("T")
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


@dataclasses.dataclass
class Item:
    name: str
    price: float = 1.0


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@dataclasses.dataclass
class DearItem(Item):
    reason: str = ""


class Paint(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Model(pydantic.BaseModel):
    name: str
    at: dt.datetime
    price: Decimal = Decimal("1.10")
    tags: frozenset[str] = frozenset()
    share: float = 0.5


def codec(fn: Callable[..., Any], *, skip_first: bool = False) -> PayloadCodec:
    return PayloadCodec.for_function(fn, skip_first=skip_first)


def enrich(ctx: object, lead_id: int, score: float = 0.5, *, note: str | None = None) -> None: ...


def order(items: list[Item], at: dt.datetime, extra: dict[str, Any] | None = None) -> None: ...


def untyped(value, other=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return value, other


# ------------------------------------------------------------------------------------------------- calls and arguments


def test_arguments_are_bound_as_in_a_call_and_come_back_by_name() -> None:
    payload = codec(enrich, skip_first=True)
    assert payload.parameters == ("lead_id", "score", "note")
    text = payload.encode((42,), {"note": "hot"})
    assert json.loads(text) == {"lead_id": 42, "note": "hot"}
    assert payload.decode(as_jsonb(text)) == {"lead_id": 42, "note": "hot"}


def test_a_default_is_left_to_the_function_of_the_day_it_runs() -> None:
    payload = codec(enrich, skip_first=True)
    assert payload.decode('{"lead_id": 1}') == {"lead_id": 1}
    assert payload.decode('{"lead_id": 1, "note": null}') == {"lead_id": 1, "note": None}


def test_a_function_without_parameters_has_an_empty_payload() -> None:
    def nothing() -> None: ...

    assert codec(nothing).encode((), {}) == "{}"
    assert codec(nothing).decode("{}") == {}


@pytest.mark.parametrize(
    ("args", "kwargs", "message", "path"),
    [
        ((), {}, "lacks the argument 'lead_id'; it takes lead_id, score, note", "$.lead_id"),
        ((), {"lead_id": 1, "leadid": 2}, "has no argument 'leadid'", "$.leadid"),
        ((1,), {"lead_id": 1}, "got the argument 'lead_id' twice", "$.lead_id"),
        ((1, 0.5, "x"), {}, "takes 2 positional arguments, got 3", "$"),
        ((), {"lead_id": "42"}, "$.lead_id expects int, got '42' (str)", "$.lead_id"),
        ((), {"lead_id": True}, "$.lead_id expects int, got True (bool)", "$.lead_id"),
        ((), {"lead_id": 1.0}, "$.lead_id expects int, got 1.0 (float)", "$.lead_id"),
        ((), {"lead_id": None}, "$.lead_id expects int, got None", "$.lead_id"),
        ((), {"lead_id": 1, "note": 3}, "$.note expects str | None, got 3 (int)", "$.note"),
    ],
)
def test_a_wrong_call_is_refused_by_task_and_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str, path: str
) -> None:
    with pytest.raises(PayloadError) as caught:
        codec(enrich, skip_first=True).encode(args, kwargs)
    assert str(caught.value).startswith("task 'enrich'")
    assert message in str(caught.value)
    assert caught.value.path == path


def test_the_task_is_called_by_its_own_name_in_errors() -> None:
    payload = PayloadCodec.for_function(enrich, skip_first=True, name="crm.enrich")
    with pytest.raises(PayloadError, match=r"^task 'crm\.enrich' lacks"):
        payload.encode((), {})


# ------------------------------------------------------------------------------------ B01: what JSON cannot hold

BAD_ANYWHERE: list[tuple[Any, str]] = [
    ("x\0y", "contains NUL"),
    ("\ud800", "half of a surrogate pair"),
    ({"\ud800": 1}, "half of a surrogate pair"),
    ({"a\0": 1}, "contains NUL"),
    (math.nan, "no JSON number"),
    (math.inf, "no JSON number"),
    (-math.inf, "no JSON number"),
    ({"n": -(10**4299)}, "more than 4,300 characters"),
    ({"n": 10**4300}, "more than 4,300 characters"),
]
NOT_JSON: list[Any] = [b"x", Decimal("1.10"), NOON, UUID(int=1), (1, 2), {1, 2}, frozenset({1}), {1: "a"}, Item("x"),
                       1j, object(), NOON.date(), NOON.time(), dt.timedelta(1), range(2), print]  # fmt: skip


@pytest.mark.parametrize(("value", "reason"), BAD_ANYWHERE, ids=range(len(BAD_ANYWHERE)))
@pytest.mark.parametrize("encode", [ValueCodec(Any).encode, encode_plain])
def test_b01abc_what_jsonb_refuses_is_refused_with_its_place(
    encode: Callable[[Any], str], value: Any, reason: str
) -> None:
    with pytest.raises(PayloadError, match=reason) as caught:
        encode({"items": [0, 1, {"some key": value}]})
    assert caught.value.path.startswith("$.items[2]['some key']")


@pytest.mark.parametrize("value", NOT_JSON)
def test_b01e_an_untyped_argument_takes_plain_json_only(value: Any) -> None:
    for path, given in [("$.value", value), ("$.value.a[1]", {"a": [None, value]})]:
        with pytest.raises(PayloadError) as caught:
            codec(untyped).encode((given,), {})
        assert caught.value.path == path


def test_b01d_big_integers_and_inexact_floats_come_back_exactly() -> None:
    payload = codec(untyped)
    values = {
        "value": [10**400, 10**4299, -(10**4298), 0.1 + 0.2, 1e22, 1.0, 5e-324, sys.float_info.max],
        "other": 2**70,
    }
    back = payload.decode(as_jsonb(payload.encode((), values)))
    assert back == values
    assert [type(item) for item in back["value"]] == [*[int] * 3, *[float] * 5]


def test_b01i_a_row_inserted_by_sql_with_long_numbers_is_read_exactly() -> None:
    def exact(a: int, b: Decimal, c: Any) -> None: ...

    long = "123456789012345678901234567890"
    back = codec(exact).decode(f'{{"a": {long}, "b": {long}.5, "c": {long}}}')
    assert back == {"a": int(long), "b": Decimal(long + ".5"), "c": int(long)}


def test_b01_a_text_that_only_looks_like_an_escape_is_stored() -> None:
    text = r"\u0000 and \ud800 spelled out"
    assert ValueCodec(str).decode(as_jsonb(ValueCodec(str).encode(text))) == text


def test_b01_bad_text_is_found_in_every_kind_of_declared_container() -> None:
    def many(a: dict[str, str], b: set[str], c: tuple[int, str], d: Item) -> None: ...

    good: dict[str, Any] = {"a": {"k": "v"}, "b": {"x"}, "c": (1, "x"), "d": Item("x")}
    bad = {"a": ({"k": "\0"}, ".k"), "b": ({"\0"}, "[...]"), "c": ((1, "\ud800"), "[1]"), "d": (Item("\0"), ".name")}
    for name, (value, place) in bad.items():
        with pytest.raises(PayloadError) as caught:
            codec(many).encode((), {**good, name: value})
        assert caught.value.path == f"$.{name}{place}"


@pytest.mark.parametrize("value", ["NaN", "sNaN", "Infinity", "-Infinity"])
def test_b01c_a_decimal_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(PayloadError, match=r"^\$\[0\] -?s?\w+ is no number"):
        ValueCodec(list[Decimal]).encode([Decimal(value)])


def test_b01gh_a_result_that_cannot_be_serialised_says_its_type_and_place() -> None:
    def work() -> Any: ...

    class Connection: ...

    with pytest.raises(PayloadError, match=r"^\$\.a\[0\] cannot be stored as JSON: it is a .*\.Connection;"):
        ValueCodec.for_result(work).encode({"a": [Connection()]})


def test_the_path_leads_to_the_value_in_typed_arguments() -> None:
    items = [Item("a", 1.0), Item("b", 2.0), Item("c", 0.5), Item("d", math.nan)]
    with pytest.raises(PayloadError, match=r"^task 'order': \$\.items\[3\]\.price nan is no JSON number") as caught:
        codec(order).encode((items, NOON), {})
    assert caught.value.path == "$.items[3].price"


def test_b01c_a_bad_number_is_found_among_many_good_ones() -> None:
    for type_ in (list[float], tuple[float, ...], list[Any]):
        with pytest.raises(PayloadError, match="nan is no JSON number") as caught:
            ValueCodec(type_).encode((list if type_ != tuple[float, ...] else tuple)([1.0, 2.0, math.nan, 3.0]))
        assert caught.value.path == "$[2]"
    with pytest.raises(PayloadError, match=r"^\$\[\.\.\.\] inf is no JSON number"):
        ValueCodec(set[float]).encode({math.inf})


def test_an_object_that_lost_a_field_is_refused() -> None:
    item = Item("x")
    del item.name
    with pytest.raises(PayloadError, match=r"^\$\.name has no value"):
        ValueCodec(Item).encode(item)


def test_a_union_with_any_takes_plain_json_only() -> None:
    assert ValueCodec(Item | Any).encode([1, "x"]) == '[1,"x"]'
    with pytest.raises(PayloadError, match="which is not JSON"):
        ValueCodec(Item | Any).encode(Item("x"))


def test_a_value_whose_repr_fails_is_still_refused_clearly() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(PayloadError, match=r"expects int, got <Broken instance at .*Broken\)"):
        ValueCodec(int).encode(Broken())


# ------------------------------------------------------------------------------------------- B02: sizes and nesting


def test_b02a_the_limit_is_one_mebibyte_of_json_and_the_error_says_both_sizes() -> None:
    fits = "x" * (MAX_BYTES - 2)
    assert ValueCodec(str).encode(fits) == f'"{fits}"'
    with pytest.raises(PayloadError, match=r"1,048,577 bytes of JSON, the limit is 1,048,576"):
        ValueCodec(str).encode(fits + "x")
    with pytest.raises(PayloadError, match=r"10,000,012 bytes"):
        codec(untyped).encode(("x" * 10_000_000,), {})


def test_b02a_the_limit_counts_utf8_bytes_and_can_be_set() -> None:
    assert codec(untyped).encode(("éé",), {}, max_bytes=16) == '{"value":"éé"}'
    with pytest.raises(PayloadError, match="16 bytes of JSON, the limit is 15"):
        codec(untyped).encode(("éé",), {}, max_bytes=15)
    with pytest.raises(PayloadError, match="the limit is 3"):
        encode_plain([1, 2], max_bytes=3)


def test_b02b_a_hundred_levels_are_stored_and_one_more_is_not() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    for encode in (ValueCodec(Any).encode, encode_plain):
        assert encode(value).startswith("[" * MAX_DEPTH)
        with pytest.raises(PayloadError, match="deeper than 100 levels"):
            encode([value])


def test_b02b_fifty_thousand_levels_are_refused_on_both_sides() -> None:
    deep: Any = []
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(PayloadError, match="deeper than 100 levels"):
        codec(untyped).encode((deep,), {})
    with pytest.raises(PayloadMismatch):
        codec(untyped).decode('{"value":' + "[" * 50_000 + "]" * 50_000 + "}")


def test_a_value_that_contains_itself_is_refused() -> None:
    round_list: list[Any] = []
    round_list.append({"again": round_list})
    round_node = Node([])
    round_node.children.append(round_node)
    for type_, value in [(Any, round_list), (Node, round_node)]:
        with pytest.raises(PayloadError, match="or contains itself"):
            ValueCodec(type_).encode(value)


class Node(msgspec.Struct):
    children: "list[Node]"


# ---------------------------------------------------------------------------------------------- B07: time and zones


def test_b07_a_naive_datetime_is_refused_wherever_it_hides() -> None:
    naive = NOON.replace(tzinfo=None)
    hidden: list[tuple[Any, Any]] = [
        (dt.datetime, naive),
        (list[dt.datetime], [NOON, naive]),
        (Box[dt.datetime], Box(naive)),
        (dict[dt.datetime, int], {naive: 1}),
        (dt.datetime | None, naive),
        (Model, Model(name="x", at=naive)),
    ]
    for type_, value in hidden:
        with pytest.raises(PayloadError, match="has no time zone"):
            ValueCodec(type_).encode(value)
    with pytest.raises(PayloadError, match="has no time zone"):
        encode_plain({"at": naive})


def test_b07_a_naive_datetime_stored_by_sql_is_a_mismatch() -> None:
    with pytest.raises(PayloadMismatch, match="has no time zone") as caught:
        codec(order).decode('{"items": [], "at": "2026-03-01T12:00:00"}')
    assert caught.value.path == "$.at"
    with pytest.raises(PayloadMismatch, match=r"\$\[0\]: the datetime .* has no time zone"):
        ValueCodec(list[dt.datetime]).decode('["2026-03-01T12:00:00"]')


@pytest.mark.parametrize(
    "value",
    [
        NOON.replace(microsecond=1),
        NOON.astimezone(ZoneInfo("Asia/Kathmandu")),
        dt.datetime(1936, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=19, seconds=32))),
        dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ],
)
def test_b07_the_instant_is_kept_to_the_microsecond_in_any_zone(value: dt.datetime) -> None:
    def instant(at: dt.datetime) -> dt.timedelta:
        return at.replace(tzinfo=None) - dt.datetime(2000, 1, 1) - (at.utcoffset() or dt.timedelta())  # noqa: DTZ001

    back = ValueCodec(dt.datetime).decode(as_jsonb(ValueCodec(dt.datetime).encode(value)))
    assert instant(back) == instant(value)


def test_what_a_type_would_lose_is_refused() -> None:
    class Nanoseconds(dt.datetime):
        def __eq__(self, other: object) -> bool:
            return type(other) is Nanoseconds and super().__eq__(other)

        __hash__ = dt.datetime.__hash__

    class Zoned(dt.tzinfo):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
            return dt.timedelta(hours=1) if when else None

        def dst(self, when: dt.datetime | None) -> None: ...

        def tzname(self, when: dt.datetime | None) -> None: ...

    lost: list[tuple[Any, Any, str]] = [
        (dt.date, NOON, "expects date"),
        (dt.datetime, NOON.date(), "expects datetime"),
        (dt.datetime, Nanoseconds(2026, 1, 1, tzinfo=dt.UTC), "holds more than a datetime"),
        (dt.time, dt.time(1, tzinfo=Zoned()), "without a fixed offset"),
        (float, 2**53 + 1, "cannot hold 9007199254740993"),
        (float, 10**400, "too large for a float"),
        (list[int], (1, 2), "expects list"),
        (tuple[int, ...], [1, 2], "expects tuple"),
        (tuple[int, str], (1,), "expects 2 items, got 1"),
        (set[int], [1], "expects set"),
        (Sequence[int], (1,), "expects list"),
        (Item, DearItem("x"), "expects Item, got DearItem"),
        (bool, 1, "expects bool"),
        (bytes, "x", "expects bytes"),
        (Literal[1], True, "expects 1, got True"),
        (Paint, "red", "expects Paint"),
        (int | str, True, r"expects int \| str"),
        (Movie, {"title": "x", "year": 1}, "undeclared key 'year'"),
        (Movie, {"stars": 1}, "lacks title"),
        (dict[int, str], {"1": "a"}, "has a key that cannot be stored: expects int"),
    ]
    for type_, value, reason in lost:
        with pytest.raises(PayloadError, match=reason):
            ValueCodec(type_).encode(value)


class Movie(TypedDict):
    title: str
    stars: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class Shape(msgspec.Struct, tag_field="kind", tag=str.lower):
    pass


class Circle(Shape):
    radius: float


class Square(Shape, array_like=False, rename="camel"):
    side_length: float | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True, tag=True):
    number: int
    at: dt.datetime


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        (Decimal, Decimal("1.10"), "1.10"),
        (float, 3, 3.0),
        (dt.timedelta, dt.timedelta(days=-1, microseconds=1), "-PT86399.999999S"),
        (bytes, b"\0\xff", "AP8="),
        (dict[int, str], {1: "a", 10**30: "b"}, {"1": "a", str(10**30): "b"}),
        (Pair, Pair(1, "x"), [1, "x"]),
        (Movie, {"title": "x"}, {"title": "x"}),
        (Circle | Square, Circle(1.5), {"kind": "circle", "radius": 1.5}),
        (Circle | Square, Square(2.0), {"kind": "square", "sideLength": 2.0}),
        (Circle | Square, Square(), {"kind": "square"}),
        (Row, Row(1, NOON), ["Row", 1, "2026-03-01T12:00:00Z"]),
        (Box[Box[int]], Box(Box(1)), {"content": {"content": 1}}),
        (tuple[()], (), []),
        (dict[str, list[Item]], {"a": [Item("x")]}, {"a": [{"name": "x", "price": 1.0}]}),
        (Annotated[int, msgspec.Meta(ge=0)], 3, 3),
        (list[Paint], [Paint.RED], ["red"]),
        (set[Level], {Level.LOW}, [1]),
        (None, None, None),
    ],
)
def test_the_stored_form_is_plain_json_and_comes_back(type_: Any, value: Any, stored: Any) -> None:
    text = ValueCodec(type_).encode(value)
    assert json.loads(text) == stored
    back = ValueCodec(type_).decode(as_jsonb(text))
    assert back == value
    assert type(back) is (float if type_ is float else type(value))


def test_a_subclass_that_equals_its_base_is_stored_as_its_base() -> None:
    class Safe(str):
        __slots__ = ()

    equal: list[tuple[Any, Any, type]] = [
        (str, Safe("x"), str),
        (str, Paint.RED, str),
        (int, Level.LOW, int),
        (Any, Paint.RED, str),
        (Any, collections.OrderedDict(a=1), dict),
        (dict[str, int], collections.defaultdict(int, a=1), dict),
    ]
    for type_, value, base in equal:
        back = ValueCodec(type_).decode(as_jsonb(ValueCodec(type_).encode(value)))
        assert back == value
        assert type(back) is base


def test_a_frozen_clock_does_not_stop_the_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeDatetime(dt.datetime):
        pass

    monkeypatch.setattr(dt, "datetime", FakeDatetime)
    value = FakeDatetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    assert encode_plain(value) == '"2026-03-01T12:00:00+00:00"'


# ------------------------------------------------------------------------------------- B17: stored payloads that no longer fit


@pytest.mark.parametrize(
    ("stored", "path", "reason"),
    [
        ('{"lead_id": "42"}', "$.lead_id", "Expected `int`, got `str`"),
        ('{"lead_id": 1, "gone": 2}', "$", "unknown field `gone`"),
        ("{}", "$", "missing required field `lead_id`"),
        ("[]", "$", "Expected `object`, got `array`"),
        ("{", "$", "truncated"),
        ("null", "$", "Expected `object`, got `null`"),
        ('{"lead_id": 1e400}', "$", ""),
        ("\ud800", "$", "surrogates"),
        (b"\xff", "$", ""),
    ],
)
def test_b17bc_a_payload_that_no_longer_fits_says_where_and_why(stored: str | bytes, path: str, reason: str) -> None:
    with pytest.raises(PayloadMismatch) as caught:
        codec(enrich, skip_first=True).decode(stored)
    assert caught.value.path == path or not reason
    assert reason in str(caught.value)
    assert "task 'enrich'" in str(caught.value)


def test_b17b_the_place_of_a_mismatch_is_deep() -> None:
    with pytest.raises(PayloadMismatch) as caught:
        codec(order).decode('{"items": [{"name": "a"}, {"name": 3}], "at": "2026-03-01T12:00:00Z"}')
    assert caught.value.path == "$.items[1].name"


def test_b17d_a_class_that_raises_while_read_is_a_mismatch() -> None:
    with pytest.raises(PayloadMismatch, match="ZeroDivisionError"):
        ValueCodec(Explosive).decode('{"fuse": 0}')


@dataclasses.dataclass
class Explosive:
    fuse: int

    def __post_init__(self) -> None:
        self.fuse = 12 // self.fuse


@dataclasses.dataclass
class Doubling:
    value: int

    def __post_init__(self) -> None:
        self.value *= 2


def test_a_class_that_changes_what_it_is_given_is_refused_at_enqueue() -> None:
    with pytest.raises(PayloadError, match="does not come back as it was"):
        ValueCodec(Doubling).encode(Doubling(1))
    with pytest.raises(PayloadError, match="could not be read back"):
        ValueCodec(Explosive).encode(Explosive(13))


def test_a_declared_constraint_is_checked_at_enqueue() -> None:
    def limited(count: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    assert codec(limited).encode((1,), {}) == '{"count":1}'
    with pytest.raises(PayloadError, match=r"`int` >= 1"):
        codec(limited).encode((0,), {})


# ---------------------------------------------------------------------------------------------------- pydantic and attrs


def test_pydantic_models_come_back_equal() -> None:
    def take(model: Model, more: list[Model]) -> None: ...

    model = Model(name="x", at=NOON, price=Decimal("2.50"), tags=frozenset({"a", "b"}))
    back = codec(take).decode(as_jsonb(codec(take).encode((model, [model]), {})))
    assert back == {"model": model, "more": [model]}


def test_a_pydantic_model_that_cannot_come_back_is_refused_with_its_place() -> None:
    class Secret(pydantic.BaseModel):
        password: pydantic.SecretStr

    with pytest.raises(PayloadError, match="does not come back equal"):
        ValueCodec(Secret).encode(Secret(password=pydantic.SecretStr("x")))
    with pytest.raises(PayloadError, match="no JSON number") as caught:
        ValueCodec(list[Model]).encode([Model(name="x", at=NOON, share=math.nan)])
    assert caught.value.path == "$[0].share"
    with pytest.raises(PayloadError, match="expects Model, got"):
        ValueCodec(Model).encode({"name": "x"})


def test_a_stored_model_that_no_longer_fits_is_a_mismatch() -> None:
    with pytest.raises(PayloadMismatch, match="Field required") as caught:
        ValueCodec(list[Model]).decode('[{"name": "x"}]')
    assert caught.value.path == "$[0]"


def test_pydantic_is_never_imported_by_the_codec() -> None:
    code = "import sys, samecommit.payload as p; p.encode_plain({'a': (1,)}); assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_attrs_classes_come_back_equal() -> None:
    attrs = pytest.importorskip("attrs")
    kind = attrs.make_class("Lead", {"name": attrs.field(type=str), "at": attrs.field(type=dt.datetime)})
    value = kind(name="x", at=NOON)
    assert ValueCodec(kind).decode(as_jsonb(ValueCodec(kind).encode(value))) == value
    assert json.loads(encode_plain(value)) == {"name": "x", "at": "2026-03-01T12:00:00Z"}


# ------------------------------------------------------------------------------------------------------- declarations


def variadic(*args: int) -> None: ...
def keyworded(**kwargs: int) -> None: ...
def positional(value: int, /) -> None: ...
def ambiguous(value: dt.datetime | str) -> None: ...
def two_arrays(value: list[int] | set[int]) -> None: ...
def unknown_name(value: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def tuple_keys(value: dict[tuple[int, int], str]) -> None: ...
def union_keys(value: dict[int | str, str]) -> None: ...
def float_keys(value: dict[float, str]) -> None: ...
def custom(value: subprocess.Popen[bytes]) -> None: ...
def number(value: complex) -> None: ...
def ordered(value: collections.OrderedDict[str, int]) -> None: ...
def lazy(value: Iterable[int]) -> None: ...
def zoneless(value: Annotated[dt.datetime, msgspec.Meta(tz=False)]) -> None: ...
def view(value: memoryview) -> None: ...
def deep_inside(value: list[dict[str, Box[complex]]]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (variadic, "instead of *args"),
        (keyworded, "instead of **kwargs"),
        (positional, "remove the `/`"),
        (ambiguous, "more than one str-like type"),
        (two_arrays, "more than one array-like"),
        (unknown_name, "name 'Missing' is not defined"),
        (tuple_keys, "a dict with tuple as key"),
        (union_keys, "a dict with int | str as key"),
        (float_keys, "a dict with float as key"),
        (custom, "Popen is not supported; use JSON's types"),
        (number, "use two float"),
        (ordered, "use dict"),
        (lazy, "use list"),
        (zoneless, "names no instant"),
        (view, "memoryview is not supported"),
        (deep_inside, "complex is not supported"),
    ],
)
def test_what_cannot_be_stored_is_refused_where_the_task_is_declared(fn: Callable[..., Any], reason: str) -> None:
    with pytest.raises(TaskDefinitionError) as caught:
        codec(fn)
    message = str(caught.value)
    name = next(iter(fn.__annotations__))
    assert message.startswith(f"{fn.__name__} ({__file__}:{fn.__code__.co_firstlineno}) cannot be a task: ")
    assert f"its parameter {name!r}" in message
    assert reason in message


def test_the_context_need_not_be_resolvable() -> None:
    def work(ctx: "OnlyForTypeCheckers", lead_id: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert codec(work, skip_first=True).encode((1,), {}) == '{"lead_id":1}'


def test_annotations_may_be_texts() -> None:
    def work(at: "dt.datetime", node: "Node | None" = None) -> "list[Item]":
        return []

    assert codec(work).decode(codec(work).encode((NOON,), {})) == {"at": NOON}
    assert ValueCodec.for_result(work).encode([Item("x")]) == '[{"name":"x","price":1.0}]'


# ------------------------------------------------------------------------------------------------------------- values


def test_a_result_is_typed_by_the_return_annotation_or_written_plainly() -> None:
    def nothing() -> None: ...
    def some() -> tuple[int, ...]:
        return ()

    assert ValueCodec.for_result(nothing).encode(None) == "null"
    with pytest.raises(PayloadError, match="expects None, got 1"):
        ValueCodec.for_result(nothing).encode(1)
    assert ValueCodec.for_result(some).decode("[1, 2]") == (1, 2)
    assert ValueCodec.for_result(untyped).encode({"at": NOON}) == '{"at":"2026-03-01T12:00:00Z"}'


def test_a_result_that_could_not_be_stored_is_refused_with_the_function() -> None:
    def work() -> complex:
        return 1j

    with pytest.raises(TaskDefinitionError, match=r"work \(.*\) cannot be a task: its return type: .*complex"):
        ValueCodec.for_result(work)


def test_the_root_of_a_value_can_be_named() -> None:
    with pytest.raises(PayloadError, match=r"^result\[0\] expects int") as caught:
        ValueCodec(list[int]).encode(["x"], "result")
    assert caught.value.path == "result[0]"
    with pytest.raises(PayloadMismatch) as mismatch:
        ValueCodec(list[int]).decode('["x"]', "result")
    assert mismatch.value.path == "result[0]"


def test_the_plain_forms_are_the_documented_ones() -> None:
    value = {
        "at": NOON,
        "day": NOON.date(),
        "time": dt.time(1, 2),
        "span": dt.timedelta(seconds=90),
        "id": UUID(int=1),
        "price": Decimal("1.10"),
        "raw": b"\0\xff",
        "paint": Paint.RED,
        "level": Level.LOW,
        "item": Item("x", 2.0),
        "pair": (1, Pair(2, "y")),
        "set": {3, 1, 2},
        "struct": Circle(1.5),
        "model": Model(name="m", at=NOON),
        "big": 10**30,
    }
    assert json.loads(encode_plain(value)) == {
        "at": "2026-03-01T12:00:00Z",
        "day": "2026-03-01",
        "time": "01:02:00",
        "span": "PT90S",
        "id": "00000000-0000-0000-0000-000000000001",
        "price": "1.10",
        "raw": "AP8=",
        "paint": "red",
        "level": 1,
        "item": {"name": "x", "price": 2.0},
        "pair": [1, [2, "y"]],
        "set": [1, 2, 3],
        "struct": {"radius": 1.5},
        "model": {"name": "m", "at": "2026-03-01T12:00:00Z", "price": "1.10", "tags": [], "share": 0.5},
        "big": 10**30,
    }


# --------------------------------------------------------------------------------------------------------- error texts


def test_a_text_with_nul_and_surrogates_shows_them() -> None:
    assert clean_text("a\0b\ud800é", limit_bytes=100) == r"a\x00b\ud800é"


def test_b02d_a_long_text_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = "head" + "x" * 10_000_000 + "tail"
    cleaned = clean_text(text, limit_bytes=1000)
    head, marker, tail = cleaned.split("\n")
    assert head.startswith("headx")
    assert tail.endswith("xtail")
    assert len(cleaned) <= 1000
    assert marker == f"[... {len(text) - len(head) - len(tail):,} bytes cut ...]"


def test_a_cut_never_splits_a_character() -> None:
    for limit in range(40, 80):
        cleaned = clean_text("€🙂" * 100, limit_bytes=limit)
        assert len(cleaned.encode()) <= limit
        assert set(cleaned.split("\n")[0] + cleaned.split("\n")[2]) <= {"€", "🙂"}


def test_a_limit_too_small_for_the_marker_cuts_plainly() -> None:
    assert clean_text("€" * 100, limit_bytes=7) == "€€"
    assert clean_text("€", limit_bytes=0) == ""
