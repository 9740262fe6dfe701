"""Dataclasses and classes of attrs as JSON, by the types of their fields, without a library.

A field may have these types: None, bool, int, float, str, datetime, date, time, UUID, Decimal, Enum, ``Literal``,
``Any``, lists, tuples, sets and dicts with keys of str, unions of these, and other such classes. A datetime, date or
time is a string in ISO 8601. A type that is not in the list is refused when the serializer is created, before the first
record.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigurationError
from ..extras import extra

Read = Callable[[Any, str], Any]
"""Converts parsed JSON to a value. The second argument names the place of the value in errors. Raises ValueError."""

_FROM_TEXT: dict[type, Callable[[str], Any]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    uuid.UUID: uuid.UUID,
    decimal.Decimal: decimal.Decimal,
}


_SCALARS: dict[Any, tuple[type, ...]] = {
    None: (type(None),),
    type(None): (type(None),),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
}
"""The types that ``json.loads`` returns for each of these types."""


def to_plain(value: Any) -> Any:
    """Convert an object to a type that JSON has; for ``json.dumps(default=...)``. Raises TypeError."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    if isinstance(value, set | frozenset):
        return list(value)
    if not isinstance(value, type) and _is_class(type(value)):
        return {field.name: getattr(value, field.name) for field in _fields(type(value))}
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def reader(model: Any) -> Read:
    """Return the function that reads a class. Raises ConfigurationError for a field whose type JSON cannot carry."""
    return _reader(model, model.__name__, {})


def _is_class(model: Any) -> bool:
    return isinstance(model, type) and (dataclasses.is_dataclass(model) or hasattr(model, "__attrs_attrs__"))


class _Field(NamedTuple):
    """A field that the constructor takes. ``argument`` is its name there; attrs may use another name."""

    name: str
    argument: str
    is_required: bool


def _fields(model: Any) -> list[_Field]:
    if dataclasses.is_dataclass(model):
        missing = dataclasses.MISSING
        return [
            _Field(field.name, field.name, field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(model)
            if field.init
        ]
    nothing = extra("attr", "models").NOTHING
    return [_Field(each.name, each.alias, each.default is nothing) for each in model.__attrs_attrs__ if each.init]


def _reader(hint: Any, place: str, begun: dict[Any, Read]) -> Read:
    """Return the function that reads a type. ``begun`` has the readers of classes, because a class may contain
    itself."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:  # checked first, because an annotation may not be hashable
        return _reader(arguments[0], place, begun)
    if hint in begun:
        return lambda value, place: begun[hint](value, place)
    if _is_class(hint):
        begun[hint] = _unfinished
        begun[hint] = read = _class_reader(hint, place, begun)
        return read
    if origin is Literal:
        return _choice_reader(arguments)
    if origin in (Union, types.UnionType):
        return _union_reader([_reader(argument, place, begun) for argument in arguments])
    if origin in (list, tuple, set, frozenset) or hint in (list, tuple, set, frozenset):
        return _sequence_reader(origin or hint, arguments, place, begun)
    if origin is dict or hint is dict:
        if arguments and arguments[0] is not str:
            raise _unsupported(hint, place)
        return _dict_reader(_reader(arguments[1] if arguments else Any, place, begun))
    return _scalar_reader(hint, place)


def _unfinished(value: Any, place: str) -> Any:
    raise AssertionError("a class is read before its reader is finished")


def _unsupported(hint: Any, place: str) -> ConfigurationError:
    return ConfigurationError(f"{place} has the type {hint!r}, which JSON cannot carry; use pydantic or msgspec")


def _wrong(value: Any, what: str, place: str) -> ValueError:
    return ValueError(f"{place} must be {what}, got {type(value).__name__}")


def _class_reader(model: Any, place: str, begun: dict[Any, Read]) -> Read:
    try:
        hints = get_type_hints(model, include_extras=True)
    except NameError as error:
        raise ConfigurationError(f"the types of {place} cannot be resolved: {error}") from None
    fields = [(field, _reader(hints.get(field.name, Any), f"{place}.{field.name}", begun)) for field in _fields(model)]

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", place)
        given = {}
        for field, read_field in fields:
            if field.name in value:
                given[field.argument] = read_field(value[field.name], f"{place}.{field.name}")
            elif field.is_required:
                raise ValueError(f"{place}.{field.name} is missing")
        return model(**given)

    return read


def _choice_reader(choices: tuple[Any, ...]) -> Read:
    def read(value: Any, place: str) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError(f"{place} must be one of {', '.join(map(repr, choices))}, got {value!r:.80}")
        return value

    return read


def _union_reader(readers: list[Read]) -> Read:
    def read(value: Any, place: str) -> Any:
        errors = []
        for reader in readers:
            try:
                return reader(value, place)
            except ValueError as error:
                errors.append(str(error))
        raise ValueError("; or ".join(errors))

    return read


def _sequence_reader(kind: Any, arguments: tuple[Any, ...], place: str, begun: dict[Any, Read]) -> Read:
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        readers = [_reader(argument, place, begun) for argument in arguments]

        def read_each(value: Any, place: str) -> Any:
            if not isinstance(value, list) or len(value) != len(readers):
                raise _wrong(value, f"a list of {len(readers)} items", place)
            return tuple(read(each, f"{place}[{index}]") for index, (read, each) in enumerate(zip(readers, value)))

        return read_each
    read_item = _reader(arguments[0] if arguments else Any, place, begun)

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(value, "a list", place)
        return kind(read_item(each, f"{place}[{index}]") for index, each in enumerate(value))

    return read


def _dict_reader(read_value: Read) -> Read:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", place)
        return {key: read_value(each, f"{place}[{key!r}]") for key, each in value.items()}

    return read


def _scalar_reader(hint: Any, place: str) -> Read:
    if hint is Any or hint is object:
        return lambda value, place: value
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _converting(hint, object, f"a value of {hint.__name__}")
    if hint in _FROM_TEXT:
        return _converting(_FROM_TEXT[hint], str, f"a string with a {hint.__name__}")
    wanted = _SCALARS.get(hint)
    if wanted is None:
        raise _unsupported(hint, place)
    what = "null" if hint in (None, type(None)) else hint.__name__

    def read(value: Any, place: str) -> Any:
        if type(value) not in wanted:
            raise _wrong(value, what, place)
        return float(value) if hint is float else value

    return read


def _converting(convert: Callable[[Any], Any], wanted: type, what: str) -> Read:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, wanted):
            raise _wrong(value, what, place)
        try:
            return convert(value)
        except (ValueError, ArithmeticError):
            raise ValueError(f"{place} must be {what}, got {value!r}") from None

    return read
