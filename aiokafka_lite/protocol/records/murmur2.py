"""Where a keyed record goes: the 32-bit murmur2 hash with the seed that Kafka's Java client uses.

All clients that agree on this put a key into the same partition, so every bit matters.
"""

from __future__ import annotations

from aiokafka_lite.protocol.records.codec import murmur2

__all__ = ["murmur2", "partition_for_key"]


def partition_for_key(key: bytes | bytearray | memoryview, count: int) -> int:
    """The partition, out of ``count``, that the Java client's default partitioner picks for a serialized key."""
    return (murmur2(key) & 0x7FFFFFFF) % count
