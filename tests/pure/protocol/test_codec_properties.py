"""Every message in every version, complete and corrupted."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka_lite.errors import ProtocolError
from aiokafka_lite.protocol.codec import decode_message, decoder, encode_message
from aiokafka_lite.protocol.schema import Message
from tests.case_notes import for_each

from .strategies import MESSAGES, messages_in_some_version, struct_in, versions_of

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
each_message = for_each(MESSAGES, name=lambda cls: cls.__name__)
LIES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    encode_message(message, version, out)
    return bytes(out)


@pytest.mark.thorough
@each_message
@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None, suppress_health_check=QUIET)
def test_a_message_decodes_to_itself_and_corrupted_bytes_to_a_message_or_a_protocol_error(
    cls: type[Any], data: st.DataObject, seed: int
) -> None:
    """One test, because to draw a message costs more than to encode and decode it."""
    message, version = data.draw(messages_in_some_version(cls))
    wire, random = encoded(message, version), Random(seed)
    _decodes_to_itself(message, version, wire)
    _surroundings_do_not_matter(message, version, wire, random)
    for _ in range(2):
        _gives_a_message_or_a_protocol_error(cls, version, corrupted(random, bytearray(wire)))


def _decodes_to_itself(message: Any, version: int, wire: bytes) -> None:
    for carrier in (wire, bytearray(wire), memoryview(wire)):
        decoded, end = decode_message(type(message), version, carrier)
        assert (decoded, end) == (message, len(wire))
    assert encoded(decoded, version) == wire


def _surroundings_do_not_matter(message: Any, version: int, wire: bytes, random: Random) -> None:
    before, after = random.randbytes(random.randint(0, 9)), random.randbytes(random.randint(0, 9))
    decoded = decode_message(type(message), version, before + wire + after, len(before))
    assert decoded == (message, len(before) + len(wire))


def _gives_a_message_or_a_protocol_error(cls: type[Any], version: int, wire: bytes) -> None:
    try:
        decoded, end = decode_message(cls, version, wire)
    except ProtocolError:
        return
    assert end <= len(wire)
    again = encoded(decoded, version)
    assert decode_message(cls, version, again)[0] == decoded


def corrupted(random: Random, wire: bytearray) -> bytes:
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(wire))
        match random.choice(["flip", "truncate", "insert", "lie", "lie compactly"]):
            case "flip" if at < len(wire):
                wire[at] ^= random.randint(1, 255)
            case "truncate":
                del wire[at:]
            case "insert":
                wire[at:at] = random.randbytes(random.randint(1, 4))
            case "lie":
                wire[at : at + 4] = struct.pack(">I", random.choice(LIES))
            case "lie compactly":
                wire[at : at + 1] = random.choice([b"\xff\xff\xff\xff\x0f", b"\xff" * 6, b"\x80\x01"])
    return bytes(wire)


@pytest.mark.thorough
@each_message
@given(data=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=QUIET)
def test_a_truncated_message_is_a_protocol_error(cls: type[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    wire = encoded(data.draw(struct_in(cls, version)), version)
    cuts = range(len(wire)) if len(wire) < 200 else data.draw(st.lists(st.integers(0, len(wire) - 1), max_size=50))
    for cut in cuts:
        with pytest.raises(ProtocolError):
            decode_message(cls, version, wire[:cut])


@pytest.mark.thorough
@each_message
def test_no_memory_is_allocated_for_a_claimed_length(cls: type[Any]) -> None:
    """The length is written at each place where the smallest message has one."""
    for version in versions_of(cls):
        decoder(cls, version)
    lengths = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x07")
    frames = [
        (version, bytes(at) + length + bytes(40))
        for length in lengths
        for version in versions_of(cls)
        for at in range(40)
    ]
    tracemalloc.start()
    try:
        for version, wire in frames:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with contextlib.suppress(ProtocolError):
                decode_message(cls, version, wire)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 40_000, f"v{version} {wire!r}"
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
@each_message
@given(data=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=QUIET)
def test_a_decoded_message_shares_nothing_with_another(cls: type[Any], data: st.DataObject) -> None:
    message, version = data.draw(messages_in_some_version(cls))
    wire = encoded(message, version)
    one, other = decode_message(cls, version, wire)[0], decode_message(cls, version, wire)[0]
    for name in cls.specs:
        value = getattr(one, name)
        if isinstance(value, list) or isinstance(cls.specs[name].item, type):
            assert value is None or value is not getattr(other, name)
