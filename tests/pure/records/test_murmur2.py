"""Keys have the partitions of Java's client."""

from __future__ import annotations

import random

import pytest

from aiokafka_lite.protocol.records import murmur2, partition_for_key

# From Kafka's own unit tests of its hash.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN, ids=bytes.decode)
def test_the_hash_has_known_values(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key]
    assert murmur2(bytearray(key)) == murmur2(memoryview(b"x" + key)[1:]) == KNOWN[key]


def test_a_negative_hash_gives_a_partition() -> None:
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
    assert {partition_for_key(b"%d" % number, 3) for number in range(100)} == {0, 1, 2}


@pytest.mark.parametrize("module", ["kafka.partitioner.default", "aiokafka.partitioner"])
def test_hash_equals_that_of_other_clients(module: str) -> None:
    theirs = pytest.importorskip(module).murmur2
    source = random.Random(1)
    for size in [*range(40), 100, 1000, 1001]:
        key = source.randbytes(size)
        assert murmur2(key) & 0xFFFFFFFF == theirs(key) & 0xFFFFFFFF
