"""Compile a message class and a version into one straight-line encoder and one straight-line decoder.

This module owns the wire format: byte order, compact and wide lengths, nulls, tagged fields. It knows no message by
name and reads no API key.

What a caller may rely on:

- Encoding raises ``ValueError`` alone, naming ``Message.field`` and the version, and leaves the buffer as it was.
- Bytes from a peer raise ``ProtocolError`` alone, whatever they are. A length is compared with the bytes that are left
  before anything is allocated for it, and an array's count with what that many elements take at least, so a decoded
  message costs memory in proportion to its frame and never to what the frame claims.
- A decoded message has every slot set, with objects of its own, so it encodes again in any version that has its values.
- Bytes *after* a message are not the codec's business: ``decode_message`` says where the message ended. ``connection``
  refuses leftovers; ``decode_versioned`` ignores them, because that is how the consumer protocol grows.

The compiled source is in ``linecache``, so a traceback or a debugger shows the line of generated code that failed.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

from ..errors import ProtocolError
from .schema import MISSING, Message, Spec

Buffer: TypeAlias = bytes | bytearray | memoryview
Encoder: TypeAlias = Callable[[Any, bytearray], None]
Decoder: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
M = TypeVar("M", bound=Message)

FIXED = frozenset("bhiqHI?d") | {"16s"}
BLOBS = frozenset({"bytes", "records"})
LONGEST_STRING = 0x7FFF
"""In bytes. The old two-byte length can say no more, and compact strings kept the limit."""

UNROLLED = 16
"""Arrays of numbers shorter than this use a ready-made ``Struct``; replica lists, the common case, always do."""


def encode_message(message: Message, version: int, out: bytearray) -> None:
    """Append ``message`` in ``version`` to ``out``.

    Raises ``ValueError`` naming the field and the version when the version cannot carry the value (the field does not
    exist there and is not ignorable, null is not allowed, a number or a length does not fit, the type is wrong).
    """
    start = len(out)
    try:
        encoder(type(message), version)(message, out)
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
        del out[start:]
        label = type(message).__name__
        raise ValueError(_complaint(message, version, label) or f"{label} v{version}: {error}") from error


def decode_message(cls: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Read a ``cls`` in ``version`` from ``data`` at ``position``; return it and the position after it.

    Record sets are memoryviews into ``data``, which must then not be changed while the message lives; every other
    field is a copy. Raises ``ProtocolError`` for any bytes that are not such a message.
    """
    try:
        message, end = decoder(cls, version)(data, position)
    except (IndexError, struct.error):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(data)} bytes end in the middle of the message") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{cls.__name__} v{version}: a string is not UTF-8 ({error.reason})") from None
    return message, end


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode data that travels inside another message and carries its own version in front, as an int16."""
    out = bytearray(struct.pack(">h", version))
    encode_message(message, version, out)
    return bytes(out)


def decode_versioned(cls: type[M], data: Buffer) -> tuple[M, int]:
    """Decode data with its own version in front; return it and the version that its sender wrote.

    A version above ours is read as our newest and what follows is ignored: such formats grow only at their end.
    """
    if len(data) < 2:
        raise ProtocolError(f"{cls.__name__}: {len(data)} bytes cannot hold its version")
    (version,) = struct.unpack_from(">h", data)
    if version < cls.versions.first:
        raise ProtocolError(f"{cls.__name__}: version {version} does not exist")
    message, _ = decode_message(cls, min(version, cls.versions.last), data, 2)
    return message, version


_encoders: dict[tuple[type[Any], int], Encoder] = {}
_decoders: dict[tuple[type[Any], int], Decoder] = {}


def encoder(cls: type[Any], version: int) -> Encoder:
    """The compiled encoder: ``encode(message, out)``, which may raise whatever Python raises for a wrong value."""
    made = _encoders.get((cls, version))
    if made is None:
        made = _encoders[cls, version] = _compile_encoder(cls, version)
    return made


def decoder(cls: type[Any], version: int) -> Decoder:
    """The compiled decoder: ``decode(data, position) -> (message, end)``; truncation may show as an IndexError."""
    made = _decoders.get((cls, version))
    if made is None:
        made = _decoders[cls, version] = _compile_decoder(cls, version)
    return made


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
    else:  # one copy of a small frame, for cheaper slices all through it
        source("if type(data) is not bytes: data = bytes(data)")
    source("size = len(data)")
    _get_struct(source, cls, "m")
    source("return m, pos")
    return cast(Decoder, source.build("decode"))


def _check_version(cls: type[Any], version: int) -> None:
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has versions {cls.versions.first} to {cls.versions.last}, not {version}")


# What the compiled code calls, beside methods of the buffers.


def put_uvarint(out: bytearray, number: int) -> None:
    """Append an unsigned varint."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def get_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return it and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint is longer than five bytes")
    if number > 0xFFFFFFFF:
        raise ProtocolError(f"the varint {number} does not fit 32 bits")
    return number, position


def _refuse(where: str, need: int, left: int) -> NoReturn:
    if need < 0:
        raise ProtocolError(f"{where} has the length {need}")
    raise ProtocolError(f"{where} claims {need} bytes where {left} are left")


def _refuse_null(where: str) -> NoReturn:
    raise ProtocolError(f"{where} is null, which this version does not allow")


def _refuse_long_string(where: str, length: int) -> NoReturn:
    raise ProtocolError(f"{where} is a string of {length} bytes; the protocol allows {LONGEST_STRING}")


def _refuse_tag(where: str, tag: int, read: int, given: int) -> NoReturn:
    raise ProtocolError(f"tag {tag} ({where}) holds {given} bytes, but its value takes {read}")


def _refuse_flag(where: str, flag: int) -> NoReturn:
    raise ProtocolError(f"{where} is neither null nor present: its marker is {flag}")


def _lacks_field(where: str, versions: str) -> NoReturn:
    raise ValueError(f"{where} exists in versions {versions} only")


def _wrong_length(what: str) -> NoReturn:
    raise ValueError(what)


# Shapes of a message, known before any bytes are.


def _has_records(cls: type[Any]) -> bool:
    return any(
        spec.wire == "records" or (isinstance(spec.item, type) and _has_records(spec.item))
        for spec in cls.specs.values()
    )


def _least_size(item: Any, version: int, flexible: bool) -> int:
    """The fewest bytes that one array element can take."""
    if isinstance(item, type):
        specs = item.specs.values()  # type: ignore[attr-defined]
        fields = (spec for spec in specs if version in spec.versions and spec.tag is None)
        return sum(_least_size(spec, version, flexible) for spec in fields) + flexible
    spec: Spec = item
    if spec.wire in FIXED:
        return struct.calcsize(">" + spec.wire)
    if spec.wire == "struct":
        return 1 if _nullable(spec, version) else _least_size(spec.item, version, flexible)
    return 1 if flexible else _wide(spec)[1]


def _nullable(spec: Spec, version: int) -> bool:
    return spec.nullable is not None and version in spec.nullable


def _wide(spec: Spec) -> tuple[str, int]:
    """The format and the size of a length in versions before the flexible ones."""
    return ("h", 2) if spec.wire == "string" else ("i", 4)


@cache
def _packers(wire: str, head: str) -> list[Callable[..., bytes]]:
    return [struct.Struct(f">{head}{n}{wire}").pack for n in range(UNROLLED)]


@cache
def _unpackers(wire: str) -> list[Callable[..., tuple[Any, ...]]]:
    return [struct.Struct(f">{n}{wire}").unpack_from for n in range(UNROLLED)]


class _Source:
    """Lines of a function under construction, and the objects that its code refers to."""

    def __init__(self, head: str, cls: type[Any], version: int) -> None:
        self.label = cls.__name__
        self.version = version
        self.flexible = version >= cls.flexible
        self.sliced = "str(data[pos:stop], 'utf-8')" if _has_records(cls) else "data[pos:stop].decode()"
        self.lines = [head]
        self.depth = 1
        self.names: dict[str, Any] = {
            "put_uvarint": put_uvarint,
            "get_uvarint": get_uvarint,
            "refuse": _refuse,
            "refuse_null": _refuse_null,
            "refuse_long_string": _refuse_long_string,
            "refuse_tag": _refuse_tag,
            "refuse_flag": _refuse_flag,
            "lacks_field": _lacks_field,
            "wrong_length": _wrong_length,
            "pack": struct.pack,
            "unpack_from": struct.unpack_from,
        }

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, prefix: str) -> str:
        """A local name that is used nowhere else."""
        return self.bind(prefix, None)

    def bind(self, prefix: str, value: Any) -> str:
        """A name by which the code can reach ``value``."""
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
        _put_tags(source, cls, var, sorted(tagged, key=lambda entry: entry[0]))


def _check_absent(source: _Source, spec: Spec, label: str, where: str) -> None:
    if spec.default is MISSING:
        raise TypeError(f"{label} is not in version {source.version} and needs a default")
    if not spec.ignorable:
        last = "and above" if spec.versions.last == 0x7FFF else f"to {spec.versions.last}"
        source(f"if {where} != {source.bind('default', spec.default)}:")
        source(f"    lacks_field({f'{label} v{source.version}'!r}, {f'{spec.versions.first} {last}'!r})")


def _check_uuid(source: _Source, label: str, where: str) -> None:
    # "16s" pads and cuts without a word
    source(f"if len({where}) != 16: wrong_length({f'{label} v{source.version} is a UUID of 16 bytes'!r})")


def _put_tags(source: _Source, cls: type[Any], var: str, tagged: list[tuple[int, str, Spec]]) -> None:
    """Write the tagged fields that differ from their defaults, each into a buffer of its own for its length."""
    tags = source.name("tags")
    source(f"{tags} = []")
    for tag, name, spec in tagged:
        where = f"{var}.{name}"
        outer = source.name("outer")
        source(f"if {where} != {source.bind('default', spec.default)}:")
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
    nullable = _nullable(spec, source.version)
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
    run: list[tuple[str, str]] = []  # neighbouring numbers, read by one unpack
    tagged: list[tuple[int, str, Spec]] = []
    for name, spec in cls.specs.items():
        where = f"{var}.{name}"
        if source.version not in spec.versions or spec.tag is not None:
            _set_default(source, spec, where, f"{cls.__name__}.{name}")
            if source.version in spec.versions and spec.tag is not None:
                tagged.append((spec.tag, name, spec))
        elif spec.wire in FIXED:
            run.append((spec.wire, where))
        else:
            _get_value(source, spec, where, f"{cls.__name__}.{name}", run)
    if source.flexible:
        run.append(("B", "n"))
    _read_run(source, run)
    if source.flexible:
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
        made = struct.Struct(">" + "".join(wire for wire, _ in run))
        targets = ", ".join(where for _, where in run) + ("," if len(run) == 1 else "")
        source(f"{targets} = {source.bind('unpack', made.unpack_from)}(data, pos); pos += {made.size}")
    run.clear()


def _get_tags(source: _Source, cls: type[Any], var: str, tagged: list[tuple[int, str, Spec]]) -> None:
    """Read the tagged fields that this version knows and step over the others. ``n`` holds their count's first byte."""
    source("if n > 0x7f: n, pos = get_uvarint(data, pos - 1)")
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
    """Read one value of variable size; the numbers waiting in ``run`` are read together with its length."""
    if spec.wire == "struct":
        _get_nested(source, spec, where, label, run)
        return
    nullable = _nullable(spec, source.version)
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
        raise TypeError(f"{label}: elements that take no bytes would leave the count of the array without a bound")
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
    items, item = source.name("items"), source.name("item")
    source(f"{items} = {where} = []")
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
    if not _nullable(spec, source.version):
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


# Finding the field to blame, after an encoder failed. Slow and thorough, because it runs only then.


def _complaint(value: Any, version: int, label: str) -> str | None:
    flexible = version >= type(value).flexible if isinstance(value, Message) else None
    return _blame_struct(value, type(value), version, label, bool(flexible))


def _blame_struct(value: Any, cls: type[Any], version: int, label: str, flexible: bool) -> str | None:
    if not isinstance(value, cls):
        return f"{label} v{version}: expected {cls.__name__}, not {type(value).__name__}"
    for name, spec in cls.specs.items():
        found = getattr(value, name, MISSING)
        where = f"{label}.{name}"
        if found is MISSING:
            return f"{where} v{version}: was never set"
        if version not in spec.versions:
            if not spec.ignorable and found != spec.default:
                last = "and above" if spec.versions.last == 0x7FFF else f"to {spec.versions.last}"
                return f"{where} v{version}: the field exists in versions {spec.versions.first} {last} only"
            continue
        complaint = _blame_value(found, spec, version, where, flexible)
        if complaint:
            return complaint
    return None


def _blame_value(value: Any, spec: Spec, version: int, where: str, flexible: bool) -> str | None:
    if value is None:
        return None if _nullable(spec, version) else f"{where} v{version}: null is not allowed in this version"
    if spec.wire == "struct":
        return _blame_struct(value, spec.item, version, where, flexible)
    if spec.wire == "array":
        return _blame_array(value, spec, version, where, flexible)
    try:
        if spec.wire == "string":
            length = len(value.encode())
            if length > LONGEST_STRING:
                return f"{where} v{version}: {length} bytes; a string may have {LONGEST_STRING}"
        elif spec.wire in BLOBS:
            length = len(memoryview(value))
            if length > 0x7FFFFFFF:
                return f"{where} v{version}: {length} bytes do not fit a message"
        else:
            struct.pack(">" + spec.wire, value)
            if spec.wire == "16s" and len(value) != 16:
                return f"{where} v{version}: {len(value)} bytes; a UUID has 16"
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
        return f"{where} v{version}: {value!r:.80} does not fit ({error})"
    return None


def _blame_array(value: Any, spec: Spec, version: int, where: str, flexible: bool) -> str | None:
    try:
        items = list(enumerate(value))
        len(value)
    except TypeError:
        return f"{where} v{version}: expected a list, not {type(value).__name__}"
    for index, item in items:
        label = f"{where}[{index}]"
        if isinstance(spec.item, Spec):
            complaint = _blame_value(item, spec.item, version, label, flexible)
        else:
            complaint = _blame_struct(item, spec.item, version, label, flexible)
        if complaint:
            return complaint
    return None
