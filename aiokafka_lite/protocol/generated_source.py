"""The source of a generated encoder or decoder, and what the schema determines for both.

``put_struct`` (``encoders``) and ``get_struct`` (``decoders``) walk the fields of a class. They collect neighbouring
numbers in ``run``, often with the length of the next string or array, and one ``struct`` call writes or reads the run.
The names in generated code: ``out`` is the buffer to write, ``data`` the buffer to read and ``size`` its length,
``pos`` the position in it, and ``n`` the last length or count.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from .schema import FIXED, Request, Spec
from .wire import (
    get_uvarint,
    lacks_field,
    put_uvarint,
    refuse,
    refuse_count,
    refuse_flag,
    refuse_long_string,
    refuse_null,
    refuse_tag,
    wrong_length,
)

UNROLLED = 16
"""An array of fewer numbers uses a prepared ``Struct``. Lists of replicas usually have fewer."""

MAX_REQUESTED = 100_000
"""The maximum number of structs in each array of a request, if the array has no bound of its own. Three million empty
names, in 6 MB, stopped an embedded broker for eight seconds. Numbers are decoded in one call and need no bound."""


def has_records(cls: type[Any]) -> bool:
    return any(
        spec.wire == "records" or (isinstance(spec.item, type) and has_records(spec.item))
        for spec in cls.specs.values()
    )


def least_size(item: Any, version: int, flexible: bool) -> int:
    """Return the smallest size in bytes of one array element."""
    if isinstance(item, type):
        specs = item.specs.values()  # type: ignore[attr-defined]
        fields = (spec for spec in specs if version in spec.versions and spec.tag is None)
        return sum(least_size(spec, version, flexible) for spec in fields) + flexible
    spec: Spec = item
    if spec.wire in FIXED:
        return struct.calcsize(">" + spec.wire)
    if spec.wire == "struct":
        return 1 if spec.is_nullable(version) else least_size(spec.item, version, flexible)
    return 1 if flexible else wide_length(spec)[1]


def wide_length(spec: Spec) -> tuple[str, int]:
    """Return the format and the size of a length in versions before the flexible ones."""
    return ("h", 2) if spec.wire == "string" else ("i", 4)


@cache
def prepared_packers(wire: str, head: str) -> list[Callable[..., bytes]]:
    return [struct.Struct(f">{head}{n}{wire}").pack for n in range(UNROLLED)]


@cache
def prepared_unpackers(wire: str) -> list[Callable[..., tuple[Any, ...]]]:
    return [struct.Struct(f">{n}{wire}").unpack_from for n in range(UNROLLED)]


class Source:
    """The lines of a generated function, and the objects that it refers to."""

    def __init__(self, head: str, cls: type[Any], version: int, *, stops_at: str = "") -> None:
        self.label = cls.__name__
        self.stops_at = stops_at  # the array whose elements the caller decodes: the generated code only reads its count
        self.version = version
        self.flexible = version >= cls.flexible
        self.most = MAX_REQUESTED if issubclass(cls, Request) else None
        self.sliced = "str(data[pos:stop], 'utf-8')" if has_records(cls) else "data[pos:stop].decode()"
        self.lines = [head]
        self.depth = 1
        self.names: dict[str, Any] = {
            "put_uvarint": put_uvarint,
            "get_uvarint": get_uvarint,
            "refuse": refuse,
            "refuse_null": refuse_null,
            "refuse_long_string": refuse_long_string,
            "refuse_count": refuse_count,
            "refuse_tag": refuse_tag,
            "refuse_flag": refuse_flag,
            "lacks_field": lacks_field,
            "wrong_length": wrong_length,
            "pack": struct.pack,
            "unpack_from": struct.unpack_from,
        }

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, prefix: str) -> str:
        """Make a new local name."""
        return self.bind(prefix, None)

    def bind(self, prefix: str, value: Any) -> str:
        """Give ``value`` a new name in the generated code."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def build(self, name: str) -> Any:
        if len(self.lines) == 1:
            self("pass")  # a message without fields
        text = "\n".join(self.lines) + "\n"
        file = f"<{name} {self.label} v{self.version}>"
        # Python's debugger and tracebacks look for the source of a file here.
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.names)
        return self.names[name]
