"""Generates the code that encodes the fields of a class in one version."""

from __future__ import annotations

import struct
from typing import Any

from .generated_source import UNROLLED, Source, prepared_packers, wide_length
from .schema import BLOBS, FIXED, LONGEST_STRING, MISSING, Spec


def put_struct(source: Source, cls: type[Any], var: str) -> None:
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


def _check_absent(source: Source, spec: Spec, label: str, where: str) -> None:
    if spec.default is MISSING:
        raise TypeError(f"{label} is not in version {source.version} and needs a default")
    if not spec.ignorable:  # the value must not be lost silently
        last = "and above" if spec.versions.last == 0x7FFF else f"to {spec.versions.last}"
        source(f"if {_differs(source, spec, where)}:")
        source(f"    lacks_field({f'{label} v{source.version}'!r}, {f'{spec.versions.first} {last}'!r})")


def _differs(source: Source, spec: Spec, where: str) -> str:
    """Return the condition that a field differs from its default. A struct of numbers is compared inline."""
    if isinstance(spec.item, type) and spec.wire == "struct" and spec.default is not None:
        specs: dict[str, Spec] = spec.item.specs  # type: ignore[attr-defined]
        if all(field.wire in FIXED for field in specs.values()):
            return " or ".join(f"{where}.{name} != {getattr(spec.default, name)!r}" for name in specs)
    return f"{where} != {source.bind('default', spec.default)}"


def _check_uuid(source: Source, label: str, where: str) -> None:
    # "16s" pads and truncates silently
    source(f"if len({where}) != 16: wrong_length({f'{label} v{source.version} is a UUID of 16 bytes'!r})")


def _put_tags(source: Source, cls: type[Any], var: str, tagged: list[tuple[int, str, Spec]]) -> None:
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


def _put_value(source: Source, spec: Spec, where: str, label: str) -> None:
    value = source.name("v")
    source(f"{value} = {where}")
    nullable = spec.is_nullable(source.version)
    if nullable:
        wide, _ = wide_length(spec)
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
        put_struct(source, spec.item, value)
    if nullable:
        source.depth -= 1


def _put_size(source: Source, spec: Spec, length: str) -> None:
    if source.flexible:
        source(f"n = {length} + 1")
        source("if n < 0x80: out.append(n)")
        if spec.wire == "string":
            source(f"elif n > {LONGEST_STRING + 1}: wrong_length('a string is too long')")
        source("else: put_uvarint(out, n)")
    else:
        source(f"out += {source.bind('pack', struct.Struct('>' + wide_length(spec)[0]).pack)}({length})")


def _put_array(source: Source, spec: Spec, value: str, label: str) -> None:
    if isinstance(spec.item, Spec) and spec.item.wire in FIXED - {"16s"}:
        head, extra = ("B", " + 1") if source.flexible else ("i", "")
        packers = source.bind("packers", prepared_packers(spec.item.wire, head))
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
        put_struct(source, spec.item, item)
    source.depth -= 1
