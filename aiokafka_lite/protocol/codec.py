"""Compile a message class and a version into an encoder and a decoder without loops over fields.

This module owns the wire format: byte order, compact and wide lengths, nulls, tagged fields. It has no code for single
messages. The rules:

1. Encoding raises only ``ValueError``, which names ``Message.field`` and the version, and leaves the buffer unchanged.
2. Decoding raises only ``ProtocolError``, whatever the bytes are.
3. Before memory is allocated, the remaining bytes are compared with a length, or with the smallest size of an array of
   this count. So the memory of a message is proportional to the size of its frame.
4. A decoded message has every slot set, with new objects, so it can be encoded in any version that has its values.
5. The codec ignores bytes after a message: ``decode_message`` returns the message's end. ``decode_versioned``
   needs that, because newer versions of the consumer protocol append fields.

The generated source is in ``linecache``, so a traceback or a debugger shows the generated line that failed.

The generators below work as follows. ``_put_struct`` and ``_get_struct`` walk the fields of a class. They collect
neighbouring numbers in ``run``, often with the length of the next string or array, and one ``struct`` call writes or
reads the run. The names in generated code: ``out`` is the buffer to write, ``data`` the buffer to read and ``size`` its
length, ``pos`` the position in it, and ``n`` the last length or count.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from ..errors import ProtocolError
from .encode_errors import describe_encode_error, lacks_field, wrong_length
from .schema import BLOBS, FIXED, LONGEST_STRING, MISSING, MOST_TAGS, Message, Request, Spec
from .wire import (
    decode_error,
    get_uvarint,
    put_uvarint,
    refuse,
    refuse_count,
    refuse_flag,
    refuse_long_string,
    refuse_null,
    refuse_tag,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
Encoder: TypeAlias = Callable[[Any, bytearray], None]
Decoder: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
M = TypeVar("M", bound=Message)

UNROLLED = 16
"""An array of fewer numbers uses a prepared ``Struct``. Lists of replicas usually have fewer."""


def encode_message(message: Message, version: int, out: bytearray) -> None:
    """Append ``message`` in ``version`` to ``out``.

    Raises ``ValueError`` with the field and the version if the version cannot carry a value:

    - null is not allowed
    - a number or a length does not fit
    - the type is wrong
    - the version lacks a field that must not be ignored.
    """
    start = len(out)
    try:
        encoder(type(message), version)(message, out)
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
        del out[start:]
        label = type(message).__name__
        raise ValueError(describe_encode_error(message, version) or f"{label} v{version}: {error}") from error


def decode_message(cls: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Decode a ``cls`` in ``version`` from ``data`` at ``position``; return it and the position after it.

    Record sets are memoryviews into ``data``, which must not change while the message is used. Every other field is a
    copy. Raises ``ProtocolError`` for bytes that are not such a message.
    """
    try:
        message, end = decoder(cls, version)(data, position)
    # The generated code checks lengths, not each number: a read behind the end of ``data`` raises one of these.
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise decode_error(cls.__name__, version, len(data), error) from None
    return message, end


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode a message that is a field of another message. The encoding begins with the version, as an int16."""
    out = bytearray(struct.pack(">h", version))
    encode_message(message, version, out)
    return bytes(out)


def decode_versioned(cls: type[M], data: Buffer) -> tuple[M, int]:
    """Decode a message that has its version in front; return it and the sender's version.

    A version that is newer than all versions here is decoded as the newest version here. The remaining bytes are
    ignored, because new versions only append fields.
    """
    if len(data) < 2:
        raise ProtocolError(f"{cls.__name__}: {len(data)} bytes cannot hold its version")
    (version,) = struct.unpack_from(">h", data)
    if version < cls.versions.first:
        raise ProtocolError(f"{cls.__name__}: version {version} does not exist")
    message, _ = decode_message(cls, min(version, cls.versions.last), data, 2)
    return message, version


MAX_REQUESTED = 100_000
"""The maximum number of structs in each array of a request, if the array has no bound of its own. Three million empty
names, in 6 MB, stopped an embedded broker for eight seconds. Numbers are decoded in one call and need no bound."""

_encoders: dict[tuple[type[Any], int], Encoder] = {}
_decoders: dict[tuple[type[Any], int], Decoder] = {}
_part_decoders: dict[tuple[type[Any], int, str], PartDecoders] = {}


def encoder(cls: type[Any], version: int) -> Encoder:
    """Return the compiled encoder: ``encode(message, out)``. It raises Python's own errors for wrong values."""
    compiled = _encoders.get((cls, version))
    if compiled is None:
        compiled = _encoders[cls, version] = _compile_encoder(cls, version)
    return compiled


def decoder(cls: type[Any], version: int) -> Decoder:
    """Return the compiled decoder: ``decode(data, position) -> (message, end)``. It raises IndexError for truncated
    data.
    """
    compiled = _decoders.get((cls, version))
    if compiled is None:
        compiled = _decoders[cls, version] = _compile_decoder(cls, version)
    return compiled


def _compile_encoder(cls: type[Any], version: int) -> Encoder:
    _check_version(cls, version)
    source = _Source("def encode(m, out):", cls, version)
    _put_struct(source, cls, "m")
    return cast(Encoder, source.build("encode"))


def _compile_decoder(cls: type[Any], version: int) -> Decoder:
    _check_version(cls, version)
    source = _Source("def decode(data, pos):", cls, version)
    if _has_records(cls):
        source("view = memoryview(data)")
    else:  # after one copy of a small frame, all slices of it are cheaper
        source("if type(data) is not bytes: data = bytes(data)")
    source("size = len(data)")
    _get_struct(source, cls, "m")
    source("return m, pos")
    return cast(Decoder, source.build("decode"))


class PartDecoders(NamedTuple):
    """The decoders of a message whose longest array is decoded in parts. They raise errors like a ``Decoder``.

    ``head`` decodes the fields before the array. It returns the message with an empty array, the count of the array,
    and the position of its first element. ``element`` decodes one element. ``tail`` decodes the other fields into the
    message, and returns the position after it. ``data`` must be bytes.
    """

    head: Callable[[bytes, int], tuple[Any, int, int]]
    element: Decoder
    tail: Callable[[Any, bytes, int], int]


def part_decoders(cls: type[Any], version: int, array: str) -> PartDecoders:
    """Return the compiled decoders of a message without tagged fields; ``array`` names the field, an array of
    structs."""
    compiled = _part_decoders.get((cls, version, array))
    if compiled is None:
        compiled = _part_decoders[cls, version, array] = _compile_parts(cls, version, array)
    return compiled


def _compile_parts(cls: type[Any], version: int, array: str) -> PartDecoders:
    _check_version(cls, version)
    names = list(cls.specs)
    after = names.index(array) + 1
    head = _Source("def head(data, pos):", cls, version, stops_at=f"{cls.__name__}.{array}")
    head("size = len(data)")
    head(f"m = {head.bind('new', cls.__new__)}({head.bind('cls', cls)})")
    _get_fields(head, cls, "m", names[:after], is_end=False)
    element = _Source("def element(data, pos):", cls, version)
    element("size = len(data)")
    _get_struct(element, cls.specs[array].item, "m")
    element("return m, pos")
    tail = _Source("def tail(m, data, pos):", cls, version)
    tail("size = len(data)")
    _get_fields(tail, cls, "m", names[after:])
    tail("return pos")
    return PartDecoders(head.build("head"), element.build("element"), tail.build("tail"))


def _check_version(cls: type[Any], version: int) -> None:
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has versions {cls.versions.first} to {cls.versions.last}, not {version}")


# Sizes and shapes that the schema determines.


def _has_records(cls: type[Any]) -> bool:
    return any(
        spec.wire == "records" or (isinstance(spec.item, type) and _has_records(spec.item))
        for spec in cls.specs.values()
    )


def _least_size(item: Any, version: int, flexible: bool) -> int:
    """Return the smallest size in bytes of one array element."""
    if isinstance(item, type):
        specs = item.specs.values()  # type: ignore[attr-defined]
        fields = (spec for spec in specs if version in spec.versions and spec.tag is None)
        return sum(_least_size(spec, version, flexible) for spec in fields) + flexible
    spec: Spec = item
    if spec.wire in FIXED:
        return struct.calcsize(">" + spec.wire)
    if spec.wire == "struct":
        return 1 if spec.is_nullable(version) else _least_size(spec.item, version, flexible)
    return 1 if flexible else _wide(spec)[1]


def _wide(spec: Spec) -> tuple[str, int]:
    """Return the format and the size of a length in versions before the flexible ones."""
    return ("h", 2) if spec.wire == "string" else ("i", 4)


@cache
def _packers(wire: str, head: str) -> list[Callable[..., bytes]]:
    return [struct.Struct(f">{head}{n}{wire}").pack for n in range(UNROLLED)]


@cache
def _unpackers(wire: str) -> list[Callable[..., tuple[Any, ...]]]:
    return [struct.Struct(f">{n}{wire}").unpack_from for n in range(UNROLLED)]


class _Source:
    """The lines of a generated function, and the objects that it refers to."""

    def __init__(self, head: str, cls: type[Any], version: int, *, stops_at: str = "") -> None:
        self.label = cls.__name__
        self.stops_at = stops_at  # the array whose elements the caller decodes: the generated code only reads its count
        self.version = version
        self.flexible = version >= cls.flexible
        self.most = MAX_REQUESTED if issubclass(cls, Request) else None
        self.sliced = "str(data[pos:stop], 'utf-8')" if _has_records(cls) else "data[pos:stop].decode()"
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
        """Return a new local name."""
        return self.bind(prefix, None)

    def bind(self, prefix: str, value: Any) -> str:
        """Return a new name for ``value`` in the generated code."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def build(self, name: str) -> Any:
        if len(self.lines) == 1:
            self("pass")  # a message without fields
        text = "\n".join(self.lines) + "\n"
        file = f"<{name} {self.label} v{self.version}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.names)
        return self.names[name]


# Encoding.


def _put_struct(source: _Source, cls: type[Any], var: str) -> None:
    run: list[tuple[str, str]] = []  # neighbouring numbers, written by one pack
    tagged: list[tuple[int, str, Spec]] = []

    def flush() -> None:
        if run:
            packer = source.bind("pack", struct.Struct(">" + "".join(wire for wire, _ in run)).pack)
            source(f"out += {packer}({', '.join(expression for _, expression in run)})")
            run.clear()

    for name, spec in cls.specs.items():
        where = f"{var}.{name}"
        if source.version not in spec.versions:
            _check_absent(source, spec, f"{cls.__name__}.{name}", where)
        elif spec.tag is not None:
            tagged.append((spec.tag, name, spec))
        elif spec.wire in FIXED:
            if spec.wire == "16s":
                _check_uuid(source, f"{cls.__name__}.{name}", where)
            run.append((spec.wire, where))
        else:
            flush()
            _put_value(source, spec, where, f"{cls.__name__}.{name}")
    if source.flexible and not tagged:
        run.append(("B", "0"))
    flush()
    if tagged:
        # Tags must be in rising order (KIP-482).
        _put_tags(source, cls, var, sorted(tagged, key=lambda entry: entry[0]))


def _check_absent(source: _Source, spec: Spec, label: str, where: str) -> None:
    if spec.default is MISSING:
        raise TypeError(f"{label} is not in version {source.version} and needs a default")
    if not spec.ignorable:  # the value must not be lost silently
        last = "and above" if spec.versions.last == 0x7FFF else f"to {spec.versions.last}"
        source(f"if {_differs(source, spec, where)}:")
        source(f"    lacks_field({f'{label} v{source.version}'!r}, {f'{spec.versions.first} {last}'!r})")


def _differs(source: _Source, spec: Spec, where: str) -> str:
    """Return the condition that the value of a field differs from its default. A struct of numbers is compared
    inline."""
    if isinstance(spec.item, type) and spec.wire == "struct" and spec.default is not None:
        specs: dict[str, Spec] = spec.item.specs  # type: ignore[attr-defined]
        if all(field.wire in FIXED for field in specs.values()):
            return " or ".join(f"{where}.{name} != {getattr(spec.default, name)!r}" for name in specs)
    return f"{where} != {source.bind('default', spec.default)}"


def _check_uuid(source: _Source, label: str, where: str) -> None:
    # "16s" pads and truncates silently
    source(f"if len({where}) != 16: wrong_length({f'{label} v{source.version} is a UUID of 16 bytes'!r})")


def _put_tags(source: _Source, cls: type[Any], var: str, tagged: list[tuple[int, str, Spec]]) -> None:
    """Write the tagged fields that differ from their defaults, each to its own buffer to get its length."""
    tags = source.name("tags")
    source(f"{tags} = []")
    for tag, name, spec in tagged:
        where = f"{var}.{name}"
        outer = source.name("outer")
        source(f"if {_differs(source, spec, where)}:")
        source.depth += 1
        source(f"{outer} = out; out = bytearray()")
        _put_value(source, spec, where, f"{cls.__name__}.{name}")
        source(f"{tags}.append(({tag}, out)); out = {outer}")
        source.depth -= 1
    source(f"out.append(len({tags}))")
    source(f"for tag, body in {tags}: put_uvarint(out, tag); put_uvarint(out, len(body)); out += body")


def _put_value(source: _Source, spec: Spec, where: str, label: str) -> None:
    value = source.name("v")
    source(f"{value} = {where}")
    nullable = spec.is_nullable(source.version)
    if nullable:
        wide, _ = _wide(spec)
        null = b"\xff" if spec.wire == "struct" else b"\0" if source.flexible else struct.pack(">" + wide, -1)
        source(f"if {value} is None: out += {null!r}")
        source("else:")
        source.depth += 1
    if spec.wire in FIXED:
        if spec.wire == "16s":
            _check_uuid(source, label, value)
        source(f"out += pack('>{spec.wire}', {value})")
    elif spec.wire == "string":
        source(f"{value} = {value}.encode()")
        _put_size(source, spec, f"len({value})")
        source(f"out += {value}")
    elif spec.wire in BLOBS:
        _put_size(source, spec, f"len({value})")
        source(f"out += {value}")
    elif spec.wire == "array":
        _put_array(source, spec, value, label)
    else:
        if nullable:
            source("out.append(1)")
        _put_struct(source, spec.item, value)
    if nullable:
        source.depth -= 1


def _put_size(source: _Source, spec: Spec, length: str) -> None:
    if source.flexible:
        source(f"n = {length} + 1")
        source("if n < 0x80: out.append(n)")
        if spec.wire == "string":
            source(f"elif n > {LONGEST_STRING + 1}: wrong_length('a string is too long')")
        source("else: put_uvarint(out, n)")
    else:
        source(f"out += {source.bind('pack', struct.Struct('>' + _wide(spec)[0]).pack)}({length})")


def _put_array(source: _Source, spec: Spec, value: str, label: str) -> None:
    if isinstance(spec.item, Spec) and spec.item.wire in FIXED - {"16s"}:
        head, extra = ("B", " + 1") if source.flexible else ("i", "")
        packers = source.bind("packers", _packers(spec.item.wire, head))
        source(f"n = len({value})")
        source(f"if n < {UNROLLED}: out += {packers}[n](n{extra}, *{value})")
        source("else:")
        source.depth += 1
        _put_size(source, spec, f"len({value})")
        source(f"out += pack(f'>{{len({value})}}{spec.item.wire}', *{value})")
        source.depth -= 1
        return
    _put_size(source, spec, f"len({value})")
    item = source.name("item")
    source(f"for {item} in {value}:")
    source.depth += 1
    if isinstance(spec.item, Spec):
        _put_value(source, spec.item, item, label)
    else:
        _put_struct(source, spec.item, item)
    source.depth -= 1


# Decoding.


def _get_struct(source: _Source, cls: type[Any], var: str) -> None:
    source(f"{var} = {source.bind('new', cls.__new__)}({source.bind('cls', cls)})")
    _get_fields(source, cls, var, list(cls.specs))


def _get_fields(source: _Source, cls: type[Any], var: str, names: list[str], *, is_end: bool = True) -> None:
    """Read the named fields of a struct, and its tagged fields if this ``is_end`` of the struct."""
    run: list[tuple[str, str]] = []  # neighbouring numbers, read by one unpack
    tagged: list[tuple[int, str, Spec]] = []
    for name in names:
        spec, where = cls.specs[name], f"{var}.{name}"
        if source.version not in spec.versions or spec.tag is not None:
            # Tagged fields are set first: the peer may leave them out, and every slot must be set (rule 4).
            _set_default(source, spec, where, f"{cls.__name__}.{name}")
            if source.version in spec.versions and spec.tag is not None:
                tagged.append((spec.tag, name, spec))
        elif spec.wire in FIXED:
            run.append((spec.wire, where))
        else:
            _get_value(source, spec, where, f"{cls.__name__}.{name}", run)
    ends_with_tags = is_end and source.flexible
    if ends_with_tags:
        run.append(("B", "n"))
    _read_run(source, run)
    if ends_with_tags:
        source("if n:")
        source.depth += 1
        _get_tags(source, cls, var, tagged)
        source.depth -= 1


def _set_default(source: _Source, spec: Spec, where: str, label: str) -> None:
    if spec.default is MISSING:
        raise TypeError(f"{label} is not in version {source.version} and needs a default")
    if isinstance(spec.default, list):
        source(f"{where} = []")
    elif isinstance(spec.item, type) and spec.default is not None:
        source(f"{where} = {source.bind('cls', spec.item)}()")
    else:
        source(f"{where} = {spec.default!r}")


def _read_run(source: _Source, run: list[tuple[str, str]]) -> None:
    if [wire for wire, _ in run] == ["B"]:
        source(f"{run[0][1]} = data[pos]; pos += 1")
    elif run:
        layout = struct.Struct(">" + "".join(wire for wire, _ in run))
        targets = ", ".join(where for _, where in run) + ("," if len(run) == 1 else "")
        source(f"{targets} = {source.bind('unpack', layout.unpack_from)}(data, pos); pos += {layout.size}")
    run.clear()


def _get_tags(source: _Source, cls: type[Any], var: str, tagged: list[tuple[int, str, Spec]]) -> None:
    """Read known tagged fields, skip unknown ones of newer peers (KIP-482). ``n`` is the first byte of their count."""
    source("if n > 0x7f: n, pos = get_uvarint(data, pos - 1)")
    source(f"if n > {MOST_TAGS}: refuse_count({f'the tagged fields of {cls.__name__}'!r}, n, {MOST_TAGS})")
    end, tag, start = source.name("end"), source.name("tag"), source.name("start")
    source(f"for {source.name('count')} in range(n):")
    source.depth += 1
    source(f"{tag}, pos = get_uvarint(data, pos)")
    source("n, pos = get_uvarint(data, pos)")
    source(f"{start} = pos; {end} = pos + n")
    source(f"if {end} > size: refuse({f'a tagged field of {cls.__name__}'!r}, n, size - pos)")
    for number, name, spec in tagged:
        label = f"{cls.__name__}.{name}"
        source(f"if {tag} == {number}:")
        source.depth += 1
        if spec.wire in FIXED:
            _read_run(source, [(spec.wire, f"{var}.{name}")])
        else:
            _get_value(source, spec, f"{var}.{name}", label, [])
        source(f"if pos != {end}: refuse_tag({label!r}, {number}, pos - {start}, {end} - {start})")
        source.depth -= 1
    source(f"pos = {end}")
    source.depth -= 1


def _get_value(source: _Source, spec: Spec, where: str, label: str, run: list[tuple[str, str]]) -> None:
    """Read one value of variable size. The numbers in ``run`` are read together with its length."""
    if spec.wire == "struct":
        _get_nested(source, spec, where, label, run)
        return
    nullable = spec.is_nullable(source.version)
    if source.flexible:
        run.append(("B", "n"))
        _read_run(source, run)
        source("if n > 0x7f: n, pos = get_uvarint(data, pos - 1)")
        source(f"if not n: {f'{where} = None' if nullable else f'refuse_null({label!r})'}")
        source("else:")
        source.depth += 1
        source("n -= 1")
    else:
        run.append((_wide(spec)[0], "n"))
        _read_run(source, run)
        source(f"if n == -1: {f'{where} = None' if nullable else f'refuse_null({label!r})'}")
        source("else:")
        source.depth += 1
    if spec.wire == "array":
        _get_array(source, spec, where, label)
    else:
        _get_bytes(source, spec, where, label)
    source.depth -= 1


def _get_bytes(source: _Source, spec: Spec, where: str, label: str) -> None:
    source("stop = pos + n")
    # Checked here, because Python clamps a slice that is too long and raises nothing.
    source(f"if stop > size or n < 0: refuse({label!r}, n, size - pos)")
    if spec.wire == "string":
        if source.flexible:
            source(f"if n > {LONGEST_STRING}: refuse_long_string({label!r}, n)")
        source(f"{where} = {source.sliced}; pos = stop")
    elif spec.wire == "records":
        source(f"{where} = view[pos:stop]; pos = stop")
    else:
        source(f"{where} = bytes(data[pos:stop]); pos = stop")


def _get_array(source: _Source, spec: Spec, where: str, label: str) -> None:
    least = _least_size(spec.item, source.version, source.flexible)
    if not least:
        raise TypeError(f"{label}: elements without bytes give the count of the array no limit")
    check = f"refuse({label!r}, n * {least} if n > 0 else n, size - pos)"
    if isinstance(spec.item, Spec) and spec.item.wire in FIXED:
        unpackers = source.bind("unpackers", _unpackers(spec.item.wire)) if spec.item.wire != "16s" else None
        if unpackers:
            source(f"if 0 <= n < {UNROLLED}: {where} = [*{unpackers}[n](data, pos)]")
            source("else:")
            source.depth += 1
        source(f"if n * {least} > size - pos or n < 0: {check}")
        form = f"f'>{{n}}{spec.item.wire}'" if unpackers else f"'>' + {spec.item.wire!r} * n"
        source(f"{where} = [*unpack_from({form}, data, pos)]")
        if unpackers:
            source.depth -= 1
        source(f"pos += n * {least}")
        return
    source(f"if n * {least} > size - pos or n < 0: {check}")
    most = source.most if spec.most is None else spec.most
    if most is not None:
        source(f"if n > {most}: refuse_count({label!r}, n, {most})")
    items, item = source.name("items"), source.name("item")
    source(f"{items} = {where} = []")
    if source.stops_at == label:
        source("return m, n, pos")
        return
    source(f"for {source.name('count')} in range(n):")
    source.depth += 1
    if isinstance(spec.item, Spec):
        _get_value(source, spec.item, item, label, [])
    else:
        _get_struct(source, spec.item, item)
    source(f"{items}.append({item})")
    source.depth -= 1


def _get_nested(source: _Source, spec: Spec, where: str, label: str, run: list[tuple[str, str]]) -> None:
    inner = source.name("inner")
    if not spec.is_nullable(source.version):
        _read_run(source, run)
        _get_struct(source, spec.item, inner)
        source(f"{where} = {inner}")
        return
    run.append(("b", "n"))
    _read_run(source, run)
    source(f"if n == -1: {where} = None")
    source(f"elif n != 1: refuse_flag({label!r}, n)")
    source("else:")
    source.depth += 1
    _get_struct(source, spec.item, inner)
    source(f"{where} = {inner}")
    source.depth -= 1
