"""Batches as producers send them, and invalid batches."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from crc32c import crc32c

from aiokafka_lite.protocol.records import HEADER_SIZE, encode_batch
from aiokafka_lite.types import Compression, Header

BASE_TIME = 1_700_000_000_000
FAR_FUTURE = 4_102_444_800_000
CODECS = tuple(Compression)

_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_AT, _ATTRIBUTES_AT = 17, 21


def records(random: Random, count: int | None = None, *, keyed: bool = False) -> list[Any]:
    """Return some records with all kinds of keys, values, headers and timestamps."""
    rows = []
    for index in range(random.randint(1, 4) if count is None else count):
        key = random.choice([b"k%d" % random.randint(0, 3), b"", b"key" * 5] if keyed else [None, b"", b"key"])
        value = random.choice([None, b"", b"value", b"value %d " % index * random.randint(1, 40)])
        headers = random.choice([(), (), (Header("h", b"1"),), (Header("h", None), Header("", b""))])
        rows.append((BASE_TIME + random.randint(-50, 50) * 1000, key, value, headers))
    return rows


def good(random: Random, **fields: Any) -> bytes:
    """Return a batch that every topic accepts."""
    return encode_batch(records(random, keyed=True), compression=random.choice(CODECS), **fields)


def keyless(random: Random) -> bytes:
    return encode_batch(records(random), compression=random.choice(CODECS))


def large(random: Random) -> bytes:
    """Return a batch that is larger than a topic with a small max.message.bytes accepts, and often larger than a fetch
    may return.
    """
    return encode_batch([(BASE_TIME, b"key", random.randbytes(random.choice([900, 1100, 5000])), ())])


def patched(batch: bytes, at: int, data: bytes, *, sealed: bool = True) -> bytes:
    """Return a batch with some bytes replaced. With ``sealed``, the checksum is corrected."""
    changed = bytearray(batch)
    changed[at : at + len(data)] = data
    if sealed:
        changed[_CRC_AT:_ATTRIBUTES_AT] = _CRC.pack(crc32c(bytes(changed[_ATTRIBUTES_AT:])))
    return bytes(changed)


def with_body(batch: bytes, body: bytes) -> bytes:
    """Return a batch with other records, and with correct length and checksum."""
    whole = batch[:HEADER_SIZE] + body
    return patched(whole, 8, _LENGTH.pack(len(whole) - 12))


def with_attributes(batch: bytes, change: Callable[[int], int]) -> bytes:
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_AT)
    return patched(batch, _ATTRIBUTES_AT, struct.pack(">h", change(attributes)))


def _plain(random: Random, count: int | None = None) -> bytes:
    return encode_batch(records(random, count, keyed=True))


def _old_message(random: Random, magic: int) -> bytes:
    """Return a message set of format v0 or v1 with one message in it."""
    from zlib import crc32

    body = bytes([magic, 0]) + (struct.pack(">q", BASE_TIME) if magic else b"") + _LENGTH.pack(-1)
    body += _LENGTH.pack(5) + b"value"
    return struct.pack(">qi", 0, len(body) + 4) + _CRC.pack(crc32(body)) + body


BAD: dict[str, Callable[[Random], bytes]] = {
    "empty": lambda random: b"",
    "a few bytes": lambda random: b"\0" * random.choice([1, 11, 12, 16, 17, 18, 30]),
    "wrong checksum": lambda random: patched(good(random), _CRC_AT, b"\1\2\3\4", sealed=False),
    "flipped byte in the records": lambda random: patched(_plain(random), HEADER_SIZE + 2, b"\x7f", sealed=False),
    "format 0": lambda random: _old_message(random, 0),
    "format 1": lambda random: _old_message(random, 1),
    "format byte 0": lambda random: patched(good(random), 16, b"\0"),
    "format byte 1": lambda random: patched(good(random), 16, b"\1"),
    "format byte 3": lambda random: patched(good(random), 16, b"\3"),
    "format byte 127": lambda random: patched(good(random), 16, b"\x7f"),
    "format byte negative": lambda random: patched(good(random), 16, b"\xff"),
    "base offset 5": lambda random: patched(good(random), 0, struct.pack(">q", 5)),
    "base offset negative": lambda random: patched(good(random), 0, struct.pack(">q", -5)),
    "leader epoch set": lambda random: patched(good(random), 12, _LENGTH.pack(7)),
    "last offset delta too large": lambda random: patched(_plain(random), 23, _LENGTH.pack(10)),
    "last offset delta too small": lambda random: patched(_plain(random, 3), 23, _LENGTH.pack(0)),
    "last offset delta negative": lambda random: patched(_plain(random), 23, _LENGTH.pack(-1)),
    "count too large": lambda random: patched(_plain(random), 57, _LENGTH.pack(9)),
    "count too small": lambda random: patched(_plain(random, 3), 57, _LENGTH.pack(1)),
    "count zero": lambda random: patched(_plain(random), 57, _LENGTH.pack(0)),
    "count negative": lambda random: patched(_plain(random), 57, _LENGTH.pack(-1)),
    "count and delta lie alike": lambda random: patched(
        patched(_plain(random, 2), 57, _LENGTH.pack(4)), 23, _LENGTH.pack(3)
    ),
    "no records": lambda random: encode_batch([]),
    "unknown compression": lambda random: with_attributes(_plain(random), lambda bits: bits | random.choice([5, 6, 7])),
    "reserved attributes": lambda random: with_attributes(_plain(random), lambda bits: bits | 0x100),
    "control batch": lambda random: with_attributes(_plain(random), lambda bits: bits | 0x20),
    "control batch with an id": lambda random: encode_batch(
        records(random, 1, keyed=True), producer_id=9001, producer_epoch=0, base_sequence=0, control=True
    ),
    "transactional without an id": lambda random: with_attributes(_plain(random), lambda bits: bits | 0x10),
    "transactional outside a transaction": lambda random: encode_batch(
        records(random, keyed=True), producer_id=9009, producer_epoch=0, base_sequence=0, transactional=True
    ),
    "cut in the header": lambda random: good(random)[: random.randint(20, 60)],
    "cut in the records": lambda random: good(random)[:-1],
    "garbage behind": lambda random: good(random) + b"\xff" * random.choice([1, 5, 13, 70]),
    "part of a batch behind": lambda random: good(random) + good(random)[: random.randint(1, 60)],
    "two batches": lambda random: good(random) + good(random),
    "length too small": lambda random: patched(good(random), 8, _LENGTH.pack(random.choice([-1, 0, 1, 5, 13, 48]))),
    "length huge": lambda random: patched(good(random), 8, _LENGTH.pack(0x7FFFFFFF)),
    "garbage compressed": lambda random: with_body(
        with_attributes(_plain(random), lambda bits: random.choice([1, 2, 3, 4])), random.randbytes(40)
    ),
    "garbage where records belong": lambda random: with_body(_plain(random), random.choice([b"\xff" * 20, b"\0" * 8])),
    "records cut": lambda random: with_body(_plain(random, 2), _plain(random, 2)[HEADER_SIZE:-3]),
    "bytes behind the records": lambda random: with_body(_plain(random, 2), _plain(random, 2)[HEADER_SIZE:] + b"\0\0"),
    "far future": lambda random: encode_batch([(FAR_FUTURE, b"key", b"value", ())]),
    "one record in the far future": lambda random: encode_batch(
        [*records(random, 2, keyed=True), (FAR_FUTURE, b"key", b"value", ())], compression=random.choice(CODECS)
    ),
    "maximum timestamp missing": lambda random: patched(good(random), 35, struct.pack(">q", -1)),
    "no timestamp": lambda random: encode_batch([(-1, b"key", b"value", ())]),
    "offset deltas with gaps": lambda random: encode_batch(
        records(random, 2, keyed=True), offset_deltas=[0, 3], compression=random.choice(CODECS)
    ),
    "offset deltas from one": lambda random: encode_batch(records(random, 2, keyed=True), offset_deltas=[1, 2]),
    "epoch without an id": lambda random: encode_batch(records(random, keyed=True), producer_epoch=3, base_sequence=7),
    "id without an epoch": lambda random: encode_batch(records(random, keyed=True), producer_id=9003, base_sequence=0),
    "id without a sequence": lambda random: encode_batch(
        records(random, keyed=True), producer_id=9004, producer_epoch=0
    ),
    "sequence below -1": lambda random: encode_batch(
        records(random, keyed=True), producer_id=9005, producer_epoch=0, base_sequence=-7
    ),
    "id below -1": lambda random: encode_batch(
        records(random, keyed=True), producer_id=-5, producer_epoch=0, base_sequence=0
    ),
}
"""By name: batches that a broker has to refuse, or to accept without harm.

Two kinds are left out. Kafka 4.3.1 never answers a request with null records. And Kafka reads every batch, so it
corrects any wrong maximum timestamp, or an append time that no broker set. The embedded broker corrects a maximum below
the first timestamp, as Sarama sends it, and trusts the header otherwise."""

ALONE = frozenset({"unknown compression"})
"""In some versions, Kafka fails the whole request because of these, so no other batch is sent with them."""
