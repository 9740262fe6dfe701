"""The partition of a keyed record: the 32-bit murmur2 hash with the seed of Kafka's Java client.

There are two implementations with the same result. ``murmur2`` hashes one key and is part of the compiled codec.
``murmur2_of_column`` hashes an Arrow column of keys with NumPy; only callers that already use Arrow import NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...extras import extra
from .codec import murmur2

if TYPE_CHECKING:
    import numpy.typing

__all__ = ["murmur2", "murmur2_of_column", "partition_for_key", "partitions_for_keys"]

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def partition_for_key(key: bytes | bytearray | memoryview, count: int) -> int:
    """The partition, of ``count``, that Kafka's own clients choose for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def partitions_for_keys(keys: Any, count: int) -> numpy.typing.NDArray[Any]:
    """``partition_for_key`` for each key of an Arrow column of large binary. The result for a null key is undefined."""
    return (murmur2_of_column(keys) & 0x7FFFFFFF) % count


def murmur2_of_column(keys: Any) -> numpy.typing.NDArray[Any]:
    """The murmur2 hash of each key of an Arrow column of large binary, as unsigned 32-bit numbers.

    All keys are hashed together, one word per step. A step covers the keys that are long enough to have that word.
    """
    np = extra("numpy")
    data = b"" if keys.buffers()[2] is None else keys.buffers()[2]
    edges = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    octets = np.concatenate((np.frombuffer(data, np.uint8)[int(edges[0]) : int(edges[-1])], np.zeros(4, np.uint8)))
    starts = edges[:-1] - edges[0]
    lengths = np.diff(edges)
    word_at = np.ndarray((len(octets) - 3,), "<u4", octets, strides=(1,))  # a word may begin at any byte
    multiplier = np.uint32(_MULTIPLIER)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    long_enough = np.arange(len(lengths))
    for step in range(int(lengths.max(initial=0)) >> 2):
        long_enough = long_enough[lengths[long_enough] >= 4 * step + 4]
        word = word_at[starts[long_enough] + 4 * step] * multiplier
        hashes[long_enough] = hashes[long_enough] * multiplier ^ (word ^ word >> 24) * multiplier
    rest = lengths & 3
    tail = word_at[starts + lengths - rest] & ((np.uint32(1) << (8 * rest).astype(np.uint32)) - np.uint32(1))
    hashes = np.where(rest > 0, (hashes ^ tail) * multiplier, hashes)
    hashes = (hashes ^ hashes >> 13) * multiplier
    result: numpy.typing.NDArray[Any] = hashes ^ hashes >> 15
    return result
