"""Keys and values as objects of a class: pydantic models, msgspec Structs and dataclasses, as JSON.

The attributes of a class show which library made the class. So a library is imported only for its own classes, and no
library is required. Any other kind of class works with an adapter: an object with ``to_json`` and ``from_json``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

from ..arguments import check_methods, must_be
from ..errors import ConfigurationError
from ..extras import extra
from ..types import Header

__all__ = [
    "ModelAdapter",
    "ModelDeserializer",
    "ModelSerializer",
]

T = TypeVar("T")


class ModelAdapter(Protocol[T]):
    """Converts objects of one type to JSON and back."""

    def to_json(self, value: T) -> bytes:
        """Return the object as JSON in UTF-8."""
        ...

    def from_json(self, data: bytes) -> T:
        """Return the object. Raises any exception if the data is not an object of this type."""
        ...


class ModelSerializer(Generic[T]):
    """Writes objects of one class as JSON: ``ModelSerializer(Order)``.

    ``model`` is a pydantic model, a msgspec Struct, a dataclass, or a ``ModelAdapter`` for another type. Objects of
    other classes are refused, and objects with a field that the class does not take: what is written can be read.
    Raises ConfigurationError for any other ``model``.
    """

    def __init__(self, model: type[T] | ModelAdapter[T]) -> None:
        self._type = model if isinstance(model, type) else None
        self._to_json = adapter_of(model).to_json

    def serialize(self, topic: str, data: T, headers: list[Header]) -> bytes:
        """Convert to JSON. Raises TypeError for another class, ValueError for a field of another type."""
        if self._type is not None and not isinstance(data, self._type):
            raise TypeError(f"the type must be {self._type.__name__}")
        return self._to_json(data)


class ModelDeserializer(Generic[T]):
    """Reads JSON as objects of one class: ``ModelDeserializer(Order)``.

    ``model`` is as for ``ModelSerializer``. Pydantic and msgspec validate the data. For dataclasses, the types
    of the fields are checked; ``aiokafka_lite.serialization.plain_models`` lists the allowed types.
    """

    def __init__(self, model: type[T] | ModelAdapter[T]) -> None:
        self._from_json = adapter_of(model).from_json

    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> T:
        """Convert from JSON. Raises the library's exception or ValueError if the data is not an object of the class."""
        return self._from_json(data)


@dataclasses.dataclass(frozen=True, slots=True)
class _Functions(Generic[T]):
    """An adapter made of two functions."""

    to_json: Callable[[T], bytes]
    from_json: Callable[[bytes], T]


def _pydantic_json(value: Any) -> bytes:
    """Return the JSON of an object, with the aliases that pydantic reads. A subclass is written with all its fields.

    Raises ValueError for a field that has another type than the model says: pydantic does not check assignments.
    """
    model = type(value)
    to_json, from_json = model.__pydantic_serializer__.to_json, model.__pydantic_validator__.validate_json
    try:
        data: bytes = to_json(value, by_alias=True, warnings="error")
    except ValueError:
        # The model may take the object in spite of that: a tuple for a list, or the value of a member of an enum. The
        # JSON is that of the object that the model makes of it.
        data = to_json(value, by_alias=True, warnings=False)
        return to_json(from_json(data, strict=True), by_alias=True, warnings="error")  # type: ignore[no-any-return]
    if b"null" in data:  # pydantic writes None for each type, without a warning
        try:
            from_json(data)
        except ValueError as error:
            # Only that: aliases and serializers may write something else on purpose.
            if any(problem["input"] is None for problem in error.errors(include_url=False)):  # type: ignore[attr-defined]
                raise
    return data


def _read_before_sent(to_json: Callable[[T], bytes], from_json: Callable[[bytes], T]) -> Callable[[T], bytes]:
    """Return a ``to_json`` that reads what it has written. Raises ValueError for JSON that the class does not take.

    Nothing checks the fields of an object, so ``Order(id="seven")`` would be a record that no consumer can read.
    """

    def write(value: T) -> bytes:
        data = to_json(value)
        from_json(data)
        return data

    return write


def adapter_of(model: type[T] | ModelAdapter[T]) -> ModelAdapter[T]:
    """Return the adapter for a class, or the given one. Raises ConfigurationError."""
    what = "a pydantic model, a msgspec Struct, a dataclass, or an object with to_json() and from_json()"
    if not isinstance(model, type):
        if not hasattr(model, "to_json"):
            raise ConfigurationError(must_be("model", what, model))
        check_methods("model", model, "to_json", "from_json")
        return model
    if hasattr(model, "__pydantic_validator__"):
        adapter: Any = extra("pydantic", "models").TypeAdapter(model)
        return _Functions(_pydantic_json, adapter.validate_json)
    if hasattr(model, "__struct_fields__"):
        msgspec = extra("msgspec.json", "models")
        decode = msgspec.Decoder(model).decode
        return _Functions(_read_before_sent(msgspec.Encoder().encode, decode), decode)
    if dataclasses.is_dataclass(model):
        from .plain_models import reader, to_plain

        read = reader(model)
        encode = json.JSONEncoder(default=to_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

        def from_json(data: bytes) -> T:
            return cast(T, read(json.loads(data), model.__name__))

        return _Functions(_read_before_sent(lambda value: encode(value).encode(), from_json), from_json)
    raise ConfigurationError(must_be("model", what, model))
