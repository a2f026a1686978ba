"""From a declared type to its lowering: built once, when a task is declared.

msgspec takes the type apart and resolves generics and forward references (`msgspec.inspect`); here each part becomes
a small function. A type whose values are not known to come back as they went in is refused, by `Unsupported`.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, cast, get_origin
from uuid import UUID

import msgspec
from msgspec import inspect as mi

from samecommit.payload import containers, models, scalar
from samecommit.payload.containers import Part
from samecommit.payload.plain import lower_json
from samecommit.payload.refusal import class_of
from samecommit.payload.scalar import Lower


class Unsupported(Exception):
    """A type whose values could not be stored and read back."""


class Compiled:
    """What one type needs: how it is written, and what the writing alone does not guarantee.

    Attributes:
        lower: takes a value and the levels left, returns what to write.
        is_verified: the type has constraints or runs code of its own, so what is written is read back at once.
        is_rechecked: the reader takes what we refuse (naive datetimes, ``Decimal("NaN")``), so what it read is
            lowered once more.
    """

    __slots__ = ("is_rechecked", "is_verified", "lower")

    def __init__(self, type_: Any) -> None:
        builder = _Builder()
        self.lower = builder.build(_node_of(type_))
        self.is_verified = builder.is_verified
        self.is_rechecked = builder.is_rechecked


def read_custom(kind: Any, data: Any) -> Any:
    """Read what msgspec knows nothing of (its ``dec_hook``): models, and ``object``."""
    return models.read_model(kind, data) if models.is_model(kind) else data


def _node_of(type_: Any) -> mi.Type:
    try:
        msgspec.json.Decoder(type_, dec_hook=read_custom)
        return mi.type_info(type_)
    except Exception as error:
        raise Unsupported(str(error)) from error


class _Builder:
    """Walks the tree of one type."""

    def __init__(self) -> None:
        self.is_verified = False
        self.is_rechecked = False
        self._records: dict[int, Lower] = {}

    def build(self, node: mi.Type) -> Lower:
        if any(getattr(node, name, None) is not None for name in _CONSTRAINTS):
            self.is_verified = True
        if isinstance(node, _REFUSED_BY_US_ONLY):
            self.is_rechecked = True
        if (known := _SCALARS.get(type(node))) is not None:
            return known
        return _BUILDERS.get(type(node), _Builder.refuse)(self, node)

    def refuse(self, node: Any) -> Lower:
        raise Unsupported(f"{_name(node)} is not supported")

    def datetime(self, node: mi.DateTimeType) -> Lower:
        if node.tz is False:
            raise Unsupported("a datetime without time zone names no instant; declare datetime and pass aware ones")
        return scalar.lower_datetime

    def metadata(self, node: mi.Metadata) -> Lower:
        return self.build(node.type)

    def enum(self, node: mi.EnumType) -> Lower:
        return containers.enum_of(node.cls)

    def literal(self, node: mi.LiteralType) -> Lower:
        return containers.literal_of(node.values)

    def array(self, node: Any) -> Lower:
        uniform = _UNIFORM.get(class_of(node.item_type))
        return containers.array_of(_kinds(node)[0], self.build(node.item_type), uniform)

    def tuple(self, node: mi.TupleType) -> Lower:
        return containers.tuple_of([self.build(item) for item in node.item_types])

    def dict(self, node: mi.DictType) -> Lower:
        key = node.key_type
        if isinstance(key, (mi.AnyType, mi.CustomType)):
            key = mi.StrType()
        if not isinstance(key, _KEYS):
            raise Unsupported(f"a dict with {_name(key)} as key is not supported; JSON's keys are text")
        return containers.dict_of(self.build(key), self.build(node.value_type))

    def named_tuple(self, node: mi.NamedTupleType) -> Lower:
        return self._once(
            node,
            lambda: containers.tuple_of(
                [self.build(field.type) for field in node.fields], _class(node), [field.name for field in node.fields]
            ),
        )

    def typed_dict(self, node: mi.TypedDictType) -> Lower:
        return self._once(node, lambda: containers.typed_dict_of(self._parts(node.fields)))

    def dataclass(self, node: mi.DataclassType) -> Lower:
        return self._once(node, lambda: containers.record_of(_class(node), self._parts(node.fields)))

    def struct(self, node: mi.StructType) -> Lower:
        tag = None if node.tag is None or node.tag_field is None else (node.tag_field, node.tag)
        make = containers.row_of if node.array_like else containers.record_of
        return self._once(node, lambda: make(_class(node), self._parts(node.fields), tag))

    def union(self, node: mi.UnionType) -> Lower:
        if any(_takes_anything(member) for member in node.types):
            return lower_json  # and nothing else: it is read without a type
        members = [(_kinds(member), _name(member), self.build(member)) for member in node.types]
        return containers.union_of(members)

    def custom(self, node: mi.CustomType) -> Lower:
        if _takes_anything(node):
            return lower_json
        if models.is_model(node.cls):
            return models.lower_model(node.cls)
        hint = _INSTEAD.get(_class(node).__name__, _RECORDS)
        raise Unsupported(f"{_name(node)} is not supported; {hint}")

    def _parts(self, fields: Sequence[mi.Field]) -> list[Part]:
        return [Part(field.name, field.encode_name, self.build(field.type), field.required) for field in fields]

    def _once(self, node: Any, make: Callable[[], Lower]) -> Lower:
        """Build a record's lowering once, also when its fields lead back to it."""
        key = id(node)
        if key in self._records:
            return self._records[key]
        self._records[key] = containers.forward_to(lambda: self._records[key])
        if any(hasattr(_class(node), name) for name in _RUNS_CODE):
            self.is_verified = True
        self._records[key] = make()
        return self._records[key]


_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
_REFUSED_BY_US_ONLY = (mi.DateTimeType, mi.DecimalType)
_RUNS_CODE = ("__post_init__", "__attrs_attrs__", "__pydantic_validator__")
_RECORDS = "use JSON's types, a dataclass, a msgspec struct or a pydantic model"
_INSTEAD = {
    "OrderedDict": "use dict: jsonb keeps no order of keys",
    "Counter": "use dict",
    "defaultdict": "use dict",
    "deque": "use list",
    "Iterable": "use list",
    "Iterator": "use list",
    "Generator": "use list",
    "range": "use two int",
    "complex": "use two float",
    "Path": "use str",
}

_SCALARS: dict[type[mi.Type], Lower] = {
    mi.AnyType: lower_json,
    mi.NoneType: scalar.lower_none,
    mi.BoolType: scalar.lower_bool,
    mi.IntType: scalar.lower_int,
    mi.FloatType: scalar.lower_float,
    mi.StrType: scalar.lower_str,
    mi.BytesType: scalar.lower_bytes,
    mi.ByteArrayType: scalar.lower_bytearray,
    mi.DateType: scalar.lower_date,
    mi.TimeType: scalar.lower_time,
    mi.TimeDeltaType: scalar.lower_timedelta,
    mi.UUIDType: scalar.lower_uuid,
    mi.DecimalType: scalar.lower_decimal,
}
_BUILDERS: dict[type[mi.Type], Callable[[_Builder, Any], Lower]] = {
    mi.Metadata: _Builder.metadata,
    mi.DateTimeType: _Builder.datetime,
    mi.EnumType: _Builder.enum,
    mi.LiteralType: _Builder.literal,
    mi.ListType: _Builder.array,
    mi.VarTupleType: _Builder.array,
    mi.SetType: _Builder.array,
    mi.FrozenSetType: _Builder.array,
    mi.TupleType: _Builder.tuple,
    mi.DictType: _Builder.dict,
    mi.NamedTupleType: _Builder.named_tuple,
    mi.TypedDictType: _Builder.typed_dict,
    mi.DataclassType: _Builder.dataclass,
    mi.StructType: _Builder.struct,
    mi.UnionType: _Builder.union,
    mi.CustomType: _Builder.custom,
}

_KEYS = (
    mi.StrType,
    mi.IntType,
    mi.UUIDType,
    mi.DateType,
    mi.TimeType,
    mi.DateTimeType,
    mi.TimeDeltaType,
    mi.DecimalType,
    mi.BytesType,
    mi.EnumType,
    mi.LiteralType,
)
_UNIFORM: dict[type[mi.Type], type] = {
    mi.BoolType: bool,
    mi.IntType: int,
    mi.FloatType: float,
    mi.StrType: str,
    mi.BytesType: bytes,
    mi.DateType: dt.date,
    mi.TimeDeltaType: dt.timedelta,
    mi.UUIDType: UUID,
}
_KINDS: dict[type[mi.Type], type] = {
    **_UNIFORM,
    mi.NoneType: type(None),
    mi.ByteArrayType: bytearray,
    mi.DateTimeType: dt.datetime,
    mi.TimeType: dt.time,
    mi.DecimalType: Decimal,
    mi.ListType: list,
    mi.SetType: set,
    mi.FrozenSetType: frozenset,
    mi.TupleType: tuple,
    mi.VarTupleType: tuple,
    mi.DictType: dict,
    mi.TypedDictType: dict,
}


def _takes_anything(node: mi.Type) -> bool:
    return isinstance(node, mi.AnyType) or (isinstance(node, mi.CustomType) and node.cls is object)


def _class(node: Any) -> type:
    """Give the class behind a record, generic or not."""
    return cast("type", get_origin(node.cls) or node.cls)


def _kinds(node: mi.Type) -> Sequence[type]:
    """List the classes that values of this type have."""
    if isinstance(node, mi.Metadata):
        return _kinds(node.type)
    if isinstance(node, mi.LiteralType):
        return [type(value) for value in node.values]
    return [_KINDS.get(type(node)) or _class(node)]


def _name(node: mi.Type) -> str:
    """Name a type as its author would."""
    if isinstance(node, mi.UnionType):
        return " | ".join(map(_name, node.types))
    if isinstance(node, mi.LiteralType):
        return " | ".join(map(repr, node.values))
    if (kind := _KINDS.get(type(node))) is not None:
        return "None" if kind is type(None) else kind.__name__
    cls = getattr(node, "cls", None)
    return cls.__qualname__ if isinstance(cls, type) else type(node).__name__.removesuffix("Type").lower()
