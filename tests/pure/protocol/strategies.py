"""Hypothesis strategies that make any message in any version from its declaration."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from aiokafka_lite.protocol import messages
from aiokafka_lite.protocol.schema import Message, Request, Response, Spec

MESSAGES: list[type[Any]] = sorted(
    (
        value
        for value in (getattr(messages, name) for name in messages.__all__)
        if isinstance(value, type) and issubclass(value, Message) and value not in (Message, Request, Response)
    ),
    key=lambda cls: cls.__name__,
)

NUMBERS = {
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "H": st.integers(0, 2**16 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "I": st.integers(0, 2**32 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False),
    "?": st.booleans(),
    "16s": st.binary(min_size=16, max_size=16),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
STRINGS = TEXT | st.sampled_from(["x" * 126, "x" * 127, "x" * 128, "é" * 8192, "x" * 32767])
BLOBS = st.binary(max_size=8) | st.sampled_from([b"\0" * 126, b"\0" * 127, b"\xff" * 16384])
COUNTS = (0, 1, 2, 15, 16, 126, 127, 130)


def versions_of(cls: type[Any]) -> list[int]:
    return list(range(cls.versions.first, cls.versions.last + 1))


@cache  # a strategy is expensive to make, and nested in many others
def struct_in(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Return instances of ``cls`` that ``version`` can carry: fields that the version lacks have their defaults."""
    fields = {name: value_in(spec, version) for name, spec in cls.specs.items() if version in spec.versions}
    return st.builds(cls, **fields)


def value_in(spec: Spec, version: int) -> st.SearchStrategy[Any]:
    values = _present(spec, version)
    if spec.nullable is not None and version in spec.nullable:
        values = st.none() | values
    if spec.tag is not None and not isinstance(spec.default, list) and not isinstance(spec.item, type):
        values = st.just(spec.default) | values
    return values


def _present(spec: Spec, version: int) -> st.SearchStrategy[Any]:
    if spec.wire == "string":
        return STRINGS
    if spec.wire in ("bytes", "records"):
        return BLOBS
    if spec.wire == "struct":
        return struct_in(spec.item, version)
    if spec.wire == "array":
        if isinstance(spec.item, Spec):
            item = _present(spec.item, version)
            if spec.item.wire in NUMBERS:  # around the bounds of the unrolled and of the one-byte count
                return st.lists(item, max_size=3) | st.sampled_from(COUNTS).map(lambda n: [7] * n)
        else:
            item = struct_in(spec.item, version)
        return st.lists(item, max_size=3)
    return NUMBERS[spec.wire]


@cache
def messages_in_some_version(cls: type[Any]) -> st.SearchStrategy[tuple[Any, int]]:
    """Return a message together with a version that can carry it."""
    return st.sampled_from(versions_of(cls)).flatmap(lambda v: st.tuples(struct_in(cls, v), st.just(v)))
