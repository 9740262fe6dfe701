"""Generates the code that decodes the fields of a class in one version."""

from __future__ import annotations

import struct
from typing import Any

from .generated_source import UNROLLED, Source, least_size, prepared_unpackers, wide_length
from .schema import FIXED, LONGEST_STRING, MISSING, MOST_TAGS, Spec


def get_struct(source: Source, cls: type[Any], var: str) -> None:
    source(f"{var} = {source.bind('new', cls.__new__)}({source.bind('cls', cls)})")
    get_fields(source, cls, var, list(cls.specs))


def get_fields(source: Source, cls: type[Any], var: str, names: list[str], *, is_end: bool = True) -> None:
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


def _set_default(source: Source, spec: Spec, where: str, label: str) -> None:
    if spec.default is MISSING:
        raise TypeError(f"{label} is not in version {source.version} and needs a default")
    if isinstance(spec.default, list):
        source(f"{where} = []")
    elif isinstance(spec.item, type) and spec.default is not None:
        source(f"{where} = {source.bind('cls', spec.item)}()")
    else:
        source(f"{where} = {spec.default!r}")


def _read_run(source: Source, run: list[tuple[str, str]]) -> None:
    if [wire for wire, _ in run] == ["B"]:
        source(f"{run[0][1]} = data[pos]; pos += 1")
    elif run:
        layout = struct.Struct(">" + "".join(wire for wire, _ in run))
        targets = ", ".join(where for _, where in run) + ("," if len(run) == 1 else "")
        source(f"{targets} = {source.bind('unpack', layout.unpack_from)}(data, pos); pos += {layout.size}")
    run.clear()


def _get_tags(source: Source, cls: type[Any], var: str, tagged: list[tuple[int, str, Spec]]) -> None:
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


def _get_value(source: Source, spec: Spec, where: str, label: str, run: list[tuple[str, str]]) -> None:
    """Read one value of variable size. The numbers in ``run`` are read together with its length."""
    if spec.wire == "struct":
        _get_nested(source, spec, where, label, run)
        return
    nullable = spec.is_nullable(source.version)
    if source.flexible:
        # A compact length is one more than the length, so that 0 is null. Most are one byte, which needs no call.
        run.append(("B", "n"))
        _read_run(source, run)
        source("if n > 0x7f: n, pos = get_uvarint(data, pos - 1)")
        source(f"if not n: {f'{where} = None' if nullable else f'refuse_null({label!r})'}")
        source("else:")
        source.depth += 1
        source("n -= 1")
    else:
        run.append((wide_length(spec)[0], "n"))
        _read_run(source, run)
        source(f"if n == -1: {f'{where} = None' if nullable else f'refuse_null({label!r})'}")
        source("else:")
        source.depth += 1
    if spec.wire == "array":
        _get_array(source, spec, where, label)
    else:
        _get_bytes(source, spec, where, label)
    source.depth -= 1


def _get_bytes(source: Source, spec: Spec, where: str, label: str) -> None:
    source("stop = pos + n")
    # Checked here, because Python clamps a slice that is too long and raises nothing.
    source(f"if stop > size or n < 0: refuse({label!r}, n, size - pos)")
    if spec.wire == "string":
        if source.flexible:
            source(f"if n > {LONGEST_STRING}: refuse_long_string({label!r}, n)")
        source(f"{where} = {source.sliced}; pos = stop")
    elif spec.wire == "records":
        # A view: a copy would take the memory of a fetch twice.
        source(f"{where} = view[pos:stop]; pos = stop")
    else:
        source(f"{where} = bytes(data[pos:stop]); pos = stop")


def _get_array(source: Source, spec: Spec, where: str, label: str) -> None:
    least = least_size(spec.item, source.version, source.flexible)
    if not least:
        raise TypeError(f"{label}: elements without bytes give the count of the array no limit")
    # Rule 3: the count comes from the peer, and nothing is allocated for elements that the frame cannot have.
    check = f"refuse({label!r}, n * {least} if n > 0 else n, size - pos)"
    if isinstance(spec.item, Spec) and spec.item.wire in FIXED:
        unpackers = source.bind("unpackers", prepared_unpackers(spec.item.wire)) if spec.item.wire != "16s" else None
        if unpackers:
            # A short array needs no check: unpack_from itself refuses one that ends after the data.
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
        get_struct(source, spec.item, item)
    source(f"{items}.append({item})")
    source.depth -= 1


def _get_nested(source: Source, spec: Spec, where: str, label: str, run: list[tuple[str, str]]) -> None:
    inner = source.name("inner")
    if not spec.is_nullable(source.version):
        _read_run(source, run)
        get_struct(source, spec.item, inner)
        source(f"{where} = {inner}")
        return
    run.append(("b", "n"))
    _read_run(source, run)
    source(f"if n == -1: {where} = None")
    source(f"elif n != 1: refuse_flag({label!r}, n)")
    source("else:")
    source.depth += 1
    get_struct(source, spec.item, inner)
    source(f"{where} = {inner}")
    source.depth -= 1
