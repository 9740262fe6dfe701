"""Find the field that an encoder cannot encode. Slow and thorough, because it runs only after a failure."""

from __future__ import annotations

import struct
from typing import Any

from .schema import BLOBS, LONGEST_STRING, MISSING, Message, Spec


def describe_encode_error(message: Message, version: int) -> str | None:
    """Return the first wrong field of ``message`` with its error; None if no field is wrong."""
    return _check_struct(message, type(message), version, type(message).__name__)


def _check_struct(value: Any, cls: type[Any], version: int, label: str) -> str | None:
    if not isinstance(value, cls):
        return f"{label} v{version}: must be {cls.__name__}, got {type(value).__name__}"
    for name, spec in cls.specs.items():
        field_value = getattr(value, name, MISSING)
        where = f"{label}.{name}"
        if field_value is MISSING:
            return f"{where} v{version}: is not set"
        if version not in spec.versions:
            if not spec.ignorable and field_value != spec.default:
                last = "and above" if spec.versions.last == 0x7FFF else f"to {spec.versions.last}"
                return f"{where} v{version}: the field exists in versions {spec.versions.first} {last} only"
            continue
        problem = _check_value(field_value, spec, version, where)
        if problem:
            return problem
    return None


def _check_value(value: Any, spec: Spec, version: int, where: str) -> str | None:
    if value is None:
        return None if spec.is_nullable(version) else f"{where} v{version}: null is not allowed in this version"
    if spec.wire == "struct":
        return _check_struct(value, spec.item, version, where)
    if spec.wire == "array":
        return _check_array(value, spec, version, where)
    try:
        if spec.wire == "string":
            length = len(value.encode())
            if length > LONGEST_STRING:
                return f"{where} v{version}: must have at most {LONGEST_STRING} bytes, got {length}"
        elif spec.wire in BLOBS:
            length = len(memoryview(value))
            if length > 0x7FFFFFFF:
                return f"{where} v{version}: must have at most {0x7FFFFFFF} bytes, got {length}"
        else:
            struct.pack(">" + spec.wire, value)
            if spec.wire == "16s" and len(value) != 16:
                return f"{where} v{version}: a UUID must have 16 bytes, got {len(value)}"
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
        return f"{where} v{version}: {value!r:.80} does not fit ({error})"
    return None


def _check_array(value: Any, spec: Spec, version: int, where: str) -> str | None:
    try:
        items = list(enumerate(value))
        len(value)
    except TypeError:
        return f"{where} v{version}: must be a list, got {type(value).__name__}"
    for index, item in items:
        label = f"{where}[{index}]"
        if isinstance(spec.item, Spec):
            problem = _check_value(item, spec.item, version, label)
        else:
            problem = _check_struct(item, spec.item, version, label)
        if problem:
            return problem
    return None
