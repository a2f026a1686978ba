"""The codecs: a function's arguments, one value, and values without a type."""

from collections.abc import Callable, Mapping
from inspect import Signature
from typing import Any

import msgspec

from samecommit.errors import PayloadError, PayloadMismatch, TaskDefinitionError
from samecommit.payload import signature
from samecommit.payload.compiler import Compiled, Unsupported, read_custom
from samecommit.payload.document import MAX_BYTES, fingerprint, to_text
from samecommit.payload.plain import MAX_DEPTH, lower_plain
from samecommit.payload.refusal import Refusal

_UNSET = msgspec.UNSET


class PayloadCodec:
    """Turns the arguments of one function into JSON text, and the stored text back into arguments.

    Built once, where the task is declared. Safe to use from several threads.

    Attributes:
        parameters: the names that a payload may have, in the order of the signature.
    """

    __slots__ = ("_decoder", "_has_defaults", "_is_verified", "_lowers", "_owner", "_positional", "_rechecked",
                 "_required", "parameters")  # fmt: skip

    def __init__(self, owner: str, arguments: list[signature.Argument]) -> None:
        self._owner = owner
        self.parameters = tuple(argument.name for argument in arguments)
        self._positional = tuple(argument.name for argument in arguments if argument.is_positional)
        self._required = frozenset(argument.name for argument in arguments if argument.is_required)
        self._lowers = {argument.name: argument.compiled.lower for argument in arguments}
        self._rechecked = tuple(argument.name for argument in arguments if argument.compiled.is_rechecked)
        self._is_verified = any(argument.compiled.is_verified for argument in arguments)
        self._has_defaults = len(self._required) < len(arguments)
        fields = [(it.name, it.type) if it.is_required else (it.name, it.type, _UNSET) for it in arguments]
        kind = msgspec.defstruct("Payload", fields, forbid_unknown_fields=True, kw_only=True)
        self._decoder = msgspec.json.Decoder(kind, dec_hook=read_custom)

    @classmethod
    def for_function(cls, fn: Callable[..., Any], *, skip_first: bool, name: str | None = None) -> "PayloadCodec":
        """Build the codec for a function's signature.

        Args:
            fn: the function, with resolvable annotations. What is not annotated takes plain JSON.
            skip_first: its first parameter is the context, which is not stored.
            name: what errors call the task; the function's name if not given.

        Raises:
            TaskDefinitionError: a parameter cannot be stored; names the function, its place and the parameter.
        """
        arguments = signature.arguments_of(fn, skip_first=skip_first)
        try:
            return cls(f"task {name or fn.__name__!r}", arguments)
        except Exception as error:
            raise signature.refusal_of(fn, ", ".join(a.name for a in arguments), str(error)) from error

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> str:
        """Check a call's arguments and write them as a JSON object.

        Arguments that are left out stay out: the function's default of the day it runs is used.

        Raises:
            PayloadError: an argument is missing, unknown, of another type or cannot be stored; `path` says which.
        """
        arguments = self._bound(args, kwargs) if args else kwargs
        lowers = self._lowers
        lowered: dict[str, Any] = {}
        name = ""
        try:
            for name, value in arguments.items():
                if (lower := lowers.get(name)) is None:
                    raise self._unknown(name)
                lowered[name] = lower(value, MAX_DEPTH)
            if len(lowered) < len(lowers):
                self._refuse_missing(lowered)
            name = ""
            text = to_text(lowered, max_bytes)
            if self._is_verified:
                self._verify(text, lowered)
        except Refusal as refusal:
            raise _error(self._owner, refusal.within(name) if name else refusal, "$") from None
        except RecursionError:
            raise _error(self._owner, Refusal("nests too deeply for this program's stack", name), "$") from None
        return text

    def decode(self, text: str | bytes) -> dict[str, Any]:
        """Read a stored payload as keyword arguments of the declared types, without those that were left out.

        Raises:
            PayloadMismatch: the payload no longer fits the signature; says where and why.
        """
        try:
            arguments = msgspec.structs.asdict(self._decoder.decode(text))
            if self._has_defaults:
                arguments = {name: value for name, value in arguments.items() if value is not _UNSET}
            for name in self._rechecked:
                if name in arguments:
                    self._recheck(name, arguments[name])
        except Exception as error:
            raise _mismatch(self._owner, error, "$") from error
        return arguments

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            raise PayloadError(
                f"{self._owner} takes {len(self._positional)} positional arguments, got {len(args)}; {self._usage()}"
            )
        bound = dict(zip(self._positional, args, strict=False))
        if twice := bound.keys() & kwargs.keys():
            name = min(twice)
            raise PayloadError(f"{self._owner} got the argument {name!r} twice, by place and by name", f"$.{name}")
        bound.update(kwargs)
        return bound

    def _refuse_missing(self, lowered: dict[str, Any]) -> None:
        missing = [name for name in self.parameters if name in self._required and name not in lowered]
        if missing:
            names = ", ".join(map(repr, missing))
            raise PayloadError(f"{self._owner} lacks the argument {names}; {self._usage()}", f"$.{missing[0]}")

    def _unknown(self, name: str) -> PayloadError:
        return PayloadError(f"{self._owner} has no argument {name!r}; {self._usage()}", f"$.{name}")

    def _usage(self) -> str:
        return f"it takes {', '.join(self.parameters)}" if self.parameters else "it takes none"

    def _verify(self, text: str, lowered: dict[str, Any]) -> None:
        try:
            back = self.decode(text)
        except PayloadMismatch as error:
            raise Refusal(f"could not be read back: {error}") from error
        again = {name: self._lowers[name](value, MAX_DEPTH) for name, value in back.items()}
        _refuse_changed(again, lowered)

    def _recheck(self, name: str, value: Any) -> None:
        try:
            self._lowers[name](value, MAX_DEPTH)
        except Refusal as refusal:
            raise refusal.within(name) from None


class ValueCodec:
    """Turns values of one type into JSON text and back: a result by its annotation, an event by its class.

    Safe to use from several threads.

    Raises:
        TaskDefinitionError: values of this type could not be stored and read back.
    """

    __slots__ = ("_compiled", "_decoder", "_lower")

    def __init__(self, type_: Any) -> None:
        try:
            self._compiled = Compiled(type_)
        except Unsupported as error:
            raise TaskDefinitionError(f"the type {type_!r} cannot be stored: {error}") from error
        self._lower = self._compiled.lower
        self._decoder = msgspec.json.Decoder(type_, dec_hook=read_custom)

    @classmethod
    def for_result(cls, fn: Callable[..., Any]) -> "ValueCodec":
        """Build the codec for what a function returns.

        A function that does not say, or says ``Any`` or ``object``, has its results written in plain form.

        Raises:
            TaskDefinitionError: its results could not be stored; names the function and its place.
        """
        type_ = signature.result_type_of(fn)
        is_plain = type_ in (Signature.empty, Any, object)
        try:
            codec = cls(Any if is_plain else type_)
        except TaskDefinitionError as error:
            raise signature.refusal_of(fn, "return", str(error)) from error
        if is_plain:
            codec._lower = lower_plain
        return codec

    def encode(self, value: Any, where: str = "$", *, max_bytes: int = MAX_BYTES) -> str:
        """Check a value and write it as JSON.

        Args:
            value: an instance of the codec's type.
            where: what its place is called in errors.
            max_bytes: how large the JSON may be, in UTF-8.

        Raises:
            PayloadError: it is of another type or cannot be stored; `path` says which part.
        """
        try:
            lowered = self._lower(value, MAX_DEPTH)
            text = to_text(lowered, max_bytes)
            if self._compiled.is_verified:
                self._verify(text, lowered)
        except Refusal as refusal:
            raise _error("", refusal, where) from None
        except RecursionError:
            raise _error("", Refusal("nests too deeply for this program's stack"), where) from None
        return text

    def decode(self, text: str | bytes, where: str = "$") -> Any:
        """Read what was stored.

        Raises:
            PayloadMismatch: it does not fit the type; says where and why.
        """
        try:
            value = self._decoder.decode(text)
            if self._compiled.is_rechecked:
                self._lower(value, MAX_DEPTH)
        except Exception as error:
            raise _mismatch("", error, where) from error
        return value

    def _verify(self, text: str, lowered: Any) -> None:
        try:
            back = self.decode(text)
        except PayloadMismatch as error:
            raise Refusal(f"could not be read back: {error}") from error
        _refuse_changed(self._lower(back, MAX_DEPTH), lowered)


def encode_plain(value: Any, *, max_bytes: int = MAX_BYTES) -> str:
    """Write a value without a declared type as JSON, in the plain forms that the package's docstring lists.

    Raises:
        PayloadError: some part of it has no plain form or cannot be stored; `path` says which.
    """
    try:
        return to_text(lower_plain(value, MAX_DEPTH), max_bytes)
    except Refusal as refusal:
        raise _error("", refusal, "$") from None
    except RecursionError:
        raise _error("", Refusal("nests too deeply for this program's stack"), "$") from None


def _refuse_changed(again: Any, lowered: Any) -> None:
    if fingerprint(again) != fingerprint(lowered):
        raise Refusal("does not come back as it was: a class changes what it is given when it is made")


def _error(owner: str, refusal: Refusal, root: str) -> PayloadError:
    path = refusal.path(root)
    return PayloadError(f"{owner}: {path} {refusal.reason}" if owner else f"{path} {refusal.reason}", path)


def _mismatch(owner: str, error: Exception, root: str) -> PayloadMismatch:
    if isinstance(error, Refusal):
        path, reason = error.path(root), error.reason
    else:
        reason, _, place = str(error).rpartition(" - at `$") if " - at `$" in str(error) else (str(error), "", "")
        path = root + place.removesuffix("`")
    if not isinstance(error, (Refusal, msgspec.MsgspecError)):
        reason = f"{type(error).__name__}: {reason}"
    return PayloadMismatch(f"{owner or 'the stored value'} no longer fits what is stored, at {path}: {reason}", path)
