"""The default partitioner of a producer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...protocol.records.murmur2 import murmur2 as signed_murmur2
from ...protocol.records.murmur2 import partition_for_key

__all__ = ["DefaultPartitioner", "murmur2"]


def murmur2(data: bytes) -> int:
    """Return the hash of a key, as an unsigned number of 32 bits."""
    return signed_murmur2(data) & 0xFFFFFFFF


class DefaultPartitioner:
    """Chooses by the hash of the key, as Java's client does; without a key, chooses any available partition."""

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[partition_for_key(key, len(all_partitions))]
