"""The partition of a keyed record: the 32-bit murmur2 hash with the seed of Kafka's Java client.

There are two implementations with the same result. ``murmur2`` hashes one key, in a compiled build in C.
``murmur2_of_column`` hashes an Arrow column of keys with NumPy; only callers that already use Arrow import NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...extras import extra
from .encode import murmur2, partition_for_key

if TYPE_CHECKING:
    import numpy.typing

__all__ = ["murmur2", "murmur2_of_column", "partition_for_key", "partitions_for_keys"]

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def partitions_for_keys(keys: Any, count: int) -> numpy.typing.NDArray[Any]:
    """Return ``partition_for_key`` of each key in a binary or large binary Arrow column. Undefined for a null key."""
    return (murmur2_of_column(keys) & 0x7FFFFFFF) % count


def edges_of(column: Any) -> numpy.typing.NDArray[Any]:
    """Return the start in the data of each entry of a (large) binary column of Arrow, and the end of the last."""
    np, types = extra("numpy"), extra("pyarrow").types
    kind = np.int64 if types.is_large_binary(column.type) else np.int32
    offsets = column.buffers()[1]
    if offsets is None:  # an empty column may have no buffers
        return np.zeros(1, kind)  # type: ignore[no-any-return]
    return np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1]  # type: ignore[no-any-return]


def murmur2_of_column(keys: Any) -> numpy.typing.NDArray[Any]:
    """Return the murmur2 hash of each key of an Arrow column, binary or large binary, as unsigned 32-bit numbers.

    All keys are hashed together, one word per step. A step covers the keys that are long enough to have that word.
    """
    np = extra("numpy")
    data = b"" if keys.buffers()[2] is None else keys.buffers()[2]
    edges = edges_of(keys).astype(np.int64)
    # Four more bytes, because the last word of a key may reach beyond the data.
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
