"""Good input, made from the declarations of the messages and from the encoders of records, and its damage."""

from __future__ import annotations

import gzip
import struct
from random import Random
from typing import Any

from aiokafka_lite.protocol.codec import encode_message
from aiokafka_lite.protocol.records import RecordBatch, compress, encode_batch, encode_records, replace_records
from aiokafka_lite.protocol.schema import Spec
from aiokafka_lite.types import Compression, TimestampType
from tests.pure.records.test_legacy import message as old_message
from tests.pure.records.test_legacy import wrapper

NUMBERS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}
POWERS = (7, 8, 15, 16, 31, 32, 63)
INTERESTING = (
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2,
    *(2**power for power in POWERS),
    *(2**power - 1 for power in POWERS),
)
NAMES = ("", "t", "orders", "__consumer_offsets", "é" * 3, "x" * 128, "group")


# Messages.


def struct_in(random: Random, cls: type[Any], version: int) -> Any:
    """Return an instance of a message's class that ``version`` can carry."""
    return cls(**{name: _value(random, spec, version) for name, spec in cls.specs.items() if version in spec.versions})


def _value(random: Random, spec: Spec, version: int) -> Any:
    if spec.is_nullable(version) and random.random() < 0.2:
        return None
    match spec.wire:
        case "string":
            return random.choice(NAMES)
        case "bytes":
            return random.randbytes(random.choice((0, 1, 8, 200)))
        case "records":
            return batches(random)
        case "struct":
            return struct_in(random, spec.item, version)
        case "array":
            count = random.choice((0, 1, 1, 2, 20))
            if isinstance(spec.item, Spec):
                return [_value(random, spec.item._replace(nullable=None), version) for _ in range(count)]
            return [struct_in(random, spec.item, version) for _ in range(min(count, 2))]
        case "16s":
            return random.randbytes(16)
        case "d":
            return random.uniform(-10, 1e12)
        case "?":
            return random.random() < 0.5
    bits = NUMBERS[spec.wire]
    number = random.choice(INTERESTING) if random.random() < 0.3 else random.randrange(8)
    low, high = (0, 2**bits - 1) if spec.wire.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return min(max(number, low), high)


def encoded(random: Random, cls: type[Any], version: int) -> bytes:
    """Return a message in wire format."""
    out = bytearray()
    encode_message(struct_in(random, cls, version), version, out)
    return bytes(out)


# Records.


def batches(random: Random) -> bytes:
    """Return a few batches, as a fetch or a produce request has them."""
    return b"".join(random.choice((_batch, _batch, _damaged_inside, _old))(random) for _ in range(random.randrange(3)))


def _codec(random: Random) -> Compression:
    return random.choice(tuple(Compression))


def _rows(random: Random) -> list[Any]:
    blob = lambda: None if random.random() < 0.2 else random.randbytes(random.choice((0, 1, 9, 100)))  # noqa: E731
    headers = lambda: [(random.choice(NAMES), blob()) for _ in range(random.choice((0, 0, 1, 3)))]  # noqa: E731
    return [(random.choice((0, 1_000, 2**40)), blob(), blob(), headers()) for _ in range(random.choice((1, 2, 20)))]


def _batch(random: Random) -> bytes:
    return encode_batch(
        _rows(random),
        base_offset=random.choice((0, 0, 5, 2**40)),
        compression=_codec(random),
        timestamp_type=random.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
        transactional=random.random() < 0.2,
        control=random.random() < 0.1,
    )


def _damaged_inside(random: Random) -> bytes:
    """Return a batch whose checksum and compression are right, and whose records are damaged."""
    rows = _rows(random)
    body = encode_records(0, *([row[column] for row in rows] for column in range(4)))  # type: ignore[arg-type]
    whole = RecordBatch(encode_batch(rows))
    return replace_records(
        whole, damaged(random, bytes(body)), count=len(rows), max_timestamp=2**40, compression=_codec(random)
    )


def _old(random: Random) -> bytes:
    """Return a message of format v0 or v1, or a wrapper around some, damaged or not."""
    magic = random.randrange(2)
    inner = b"".join(old_message(magic, offset, None, random.randbytes(9)) for offset in range(random.randrange(1, 5)))
    if random.random() < 0.3:
        return inner
    if random.random() < 0.5:
        inner = damaged(random, inner)
    codec = random.choice((Compression.GZIP, Compression.SNAPPY, Compression.LZ4))
    return wrapper(magic, random.randrange(10), inner, codec)


def compressed(random: Random, codec: Compression) -> bytes:
    """Return compressed data, which may be a bomb."""
    data = random.randbytes(random.choice((0, 10, 5_000))) + bytes(random.choice((0, 100, 1 << 24)))
    return gzip.compress(data, 1) if codec is Compression.GZIP else compress(codec, data)


# Damage.


def damaged(random: Random, data: bytes) -> bytes:
    """Return ``data`` with one to four changes."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(changed) + 1)
        match random.randrange(8):
            case 0 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 1 if at < len(changed):
                changed[at] = random.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + random.choice((1, 2, 4, 16))]
            case 4:
                changed[at:at] = random.randbytes(random.choice((1, 4, 30)))
            case 5:
                start = random.randrange(len(changed) + 1)
                changed[at:at] = changed[start : start + random.choice((1, 8, 100))]
            case 6:
                size, form = random.choice(((2, ">h"), (4, ">i"), (8, ">q")))
                number = random.choice(INTERESTING)
                limit = 1 << (8 * size - 1)
                changed[at : at + size] = struct.pack(form, max(-limit, min(limit - 1, number)))
            case 7:
                changed[at : at + 5] = random.choice((b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\x81\x00"))
    return bytes(changed)
