"""Dataclasses as JSON, flat and nested, by the types of their fields, without a library.

A field may have these types: bool, int, float, str, datetime (a string in ISO 8601), ``Any``, another such dataclass,
lists of these, dicts of these with keys of str, and ``T | None``. Any other type is refused when the serializer is
created, before the first record: pydantic and msgspec support more types, constraints, and classes of attrs.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigurationError

Read = Callable[[Any, str], Any]
"""Converts parsed JSON to a value. The second argument names the place of the value in errors. Raises ValueError."""

_SCALARS: dict[Any, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}
"""The types that ``json.loads`` returns for each of these types."""


def to_plain(value: Any) -> Any:
    """Convert an object to a type that JSON has; for ``json.dumps(default=...)``. Raises TypeError."""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def reader(model: Any) -> Read:
    """Return the function that reads a class. Raises ConfigurationError for a field whose type JSON cannot carry."""
    return _reader(model, model.__name__, {})


def _reader(hint: Any, place: str, begun: dict[Any, Read]) -> Read:
    """Return the function that reads a type. ``begun`` has the readers of classes: a class may contain itself."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value, place: value
    if isinstance(hint, type) and hint in _SCALARS:
        return _scalar_reader(hint)
    if hint is datetime.datetime:
        return _read_time
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if hint not in begun:
            _begin_class(hint, place, begun)
        return lambda value, place: begun[hint](value, place)
    if origin is list and arguments:
        return _list_reader(_reader(arguments[0], place, begun))
    if origin is dict and arguments[:1] == (str,):
        return _dict_reader(_reader(arguments[1], place, begun))
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return _optional_reader(_reader(next(kind for kind in arguments if kind is not type(None)), place, begun))
    raise ConfigurationError(
        f"{place} has the type {hint!r}, which a dataclass without a library cannot read from JSON; use pydantic or"
        " msgspec"
    )


def _begin_class(model: Any, place: str, begun: dict[Any, Read]) -> None:
    try:
        hints = get_type_hints(model)
    except NameError as error:
        raise ConfigurationError(f"the types of {place} cannot be resolved: {error}") from None
    fields = [field for field in dataclasses.fields(model) if field.init]
    readers: dict[str, Read] = {}

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", place)
        arguments = {}
        for field in fields:
            if field.name in value:
                arguments[field.name] = readers[field.name](value[field.name], f"{place}.{field.name}")
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ValueError(f"{place}.{field.name} is missing")
        return model(**arguments)

    begun[model] = read
    readers.update({field.name: _reader(hints[field.name], f"{place}.{field.name}", begun) for field in fields})


def _wrong(value: Any, what: str, place: str) -> ValueError:
    return ValueError(f"{place} must be {what}, got {type(value).__name__}")


def _scalar_reader(hint: type) -> Read:
    def read(value: Any, place: str) -> Any:
        if type(value) not in _SCALARS[hint]:
            raise _wrong(value, hint.__name__, place)
        return float(value) if hint is float else value

    return read


def _read_time(value: Any, place: str) -> datetime.datetime:
    if not isinstance(value, str):
        raise _wrong(value, "a string with a datetime", place)
    try:
        return datetime.datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{place} must be a string with a datetime, got {value!r}") from None


def _list_reader(read_item: Read) -> Read:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(value, "a list", place)
        return [read_item(item, f"{place}[{index}]") for index, item in enumerate(value)]

    return read


def _dict_reader(read_value: Read) -> Read:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", place)
        return {key: read_value(item, f"{place}[{key!r}]") for key, item in value.items()}

    return read


def _optional_reader(read_value: Read) -> Read:
    return lambda value, place: None if value is None else read_value(value, place)
