"""Dataclasses that are cheap to declare: methods are shared, and the constructor is compiled with the first object.

``dataclasses.dataclass`` compiles up to six methods for each class when it is declared, a fifth of a millisecond for a
frozen one. A module of thirty events pays that at import in each process, for the few that it will ever make. What is
made here behaves as what ``dataclass(frozen=True, slots=True)`` makes, and has its fields, so that ``replace`` works.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def fact(cls: type[T]) -> type[T]:
    """Make a class of annotated fields a frozen, slotted dataclass."""
    shared: dict[str, object] = {
        "__init__": _first_init,
        "__repr__": _repr,
        "__eq__": _equal,
        "__hash__": _hash,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__reduce__": _reduce,
    }
    for name, method in shared.items():
        setattr(cls, name, method)
    return dataclasses.dataclass(slots=True, repr=False, eq=False, init=False)(cls)


def compiled_init(cls: type[Any], *, keywords_only: bool, assign: str) -> Callable[..., None]:
    """The ``__init__`` that dataclass would have written.

    ``assign`` is the statement that sets a field ``{name}`` to ``{value}``; ``set_{name}`` is its slot's own setter.
    """
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    parameters, lines = ["self", *("*" for _ in fields[:1] if keywords_only)], ["    pass\n"]
    for each in fields:
        name, value = each.name, each.name
        scope[f"set_{name}"] = getattr(cls, name).__set__
        if each.default_factory is not dataclasses.MISSING:
            scope[f"make_{name}"] = each.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"make_{name}() if {name} is MISSING else {name}"
        elif each.default is not dataclasses.MISSING:
            scope[f"default_{name}"] = each.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        lines.append(f"    {assign.format(name=name, value=value)}\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines)}", scope)
    made = cast("Callable[..., None]", scope["__init__"])
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _first_init(self: Any, *values: object, **named: object) -> None:
    cls = type(self)
    # Past the class's own ``__setattr__``, which refuses.
    made = compiled_init(cls, keywords_only=False, assign="set_{name}(self, {value})")
    cls.__init__ = made
    made(self, *values, **named)


def _values(fact: Any) -> tuple[object, ...]:
    return tuple(getattr(fact, name) for name in fact.__match_args__)


def _repr(self: Any) -> str:
    pairs = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({pairs})"


def _equal(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _refuse(self: object, name: str, *value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


def _reduce(self: object) -> tuple[object, ...]:
    return type(self), _values(self)
