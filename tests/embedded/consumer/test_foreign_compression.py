"""Batches that other producers compress in unusual ways, which Java's client or librdkafka read."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import crc32c
import lz4.frame
import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Compression, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, take, write_batch
from tests.pure.records.test_compression import zstd_with_window

FIRST = TopicPartition("orders", 0)
HEAD = 61
"""Bytes of a batch before its records. The checksum covers those from 21 on."""

WAYS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "zstd with a window of 1 GiB": (Compression.ZSTD, lambda data: zstd_with_window(30, data)),
    "gzip with bytes after its end": (Compression.GZIP, lambda data: gzip.compress(data) + b"garbage"),
    "gzip of two members": (Compression.GZIP, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "lz4 of two frames": (Compression.LZ4, lambda data: lz4.frame.compress(data[:9]) + lz4.frame.compress(data[9:])),
    "lz4 with bytes after its end": (Compression.LZ4, lambda data: lz4.frame.compress(data) + b"garbage"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_batch_is_read(cluster: EmbeddedCluster, way: str) -> None:
    codec, compress = WAYS[way]
    await cluster.create_topic("orders", partitions=1)
    plain = encode_batch([(0, None, b"value %d" % number, ()) for number in range(50)])
    body = plain[21:HEAD] + compress(plain[HEAD:])
    body = struct.pack(">h", codec.value) + body[2:]
    size, checksum = struct.pack(">i", len(body) + 9), struct.pack(">I", crc32c.crc32c(body))
    write_batch(cluster, FIRST, plain[:8] + size + plain[12:17] + checksum + body)
    for settings in ({}, {"max_decompressed_size": len(plain)}):
        async with consumer_of(cluster, topics=["orders"], **settings) as consumer:
            assert [record.value for record in await take(consumer, 50)] == [b"value %d" % n for n in range(50)]
