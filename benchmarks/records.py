"""Record batches: encode and decode per record, against kafka-python and aiokafka where they are installed.

Run as ``python -m benchmarks.records``. A decoder ends with the objects that its client returns: our columns, and our
columns turned into `Record` for the comparison with clients that make an object per record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any, NamedTuple

from aiokafka_lite.protocol.records import BatchBuilder, encode_records, murmur2, split_batches
from aiokafka_lite.types import Compression, Header, Record
from benchmarks.compare import Table, compare

COUNT = 1000
TIME = 1_700_000_000_000
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

WORKLOADS: dict[str, list[Row]] = {
    "small: key of 8, value of 20": [(TIME + i, b"key-%04d" % i, b"v" * 20, []) for i in range(COUNT)],
    "usual: key of 8, value of 100": [(TIME + i, b"key-%04d" % i, b"v" * 100, []) for i in range(COUNT)],
    "headers: two on each": [
        (TIME + i, b"key-%04d" % i, b"v" * 100, [("trace", b"0123456789abcdef"), ("source", b"web")])
        for i in range(COUNT)
    ],
}


class Peer(NamedTuple):
    builder: Callable[..., Any]
    batches: Callable[[bytes], Iterable[Any]]


def peers() -> Iterator[tuple[str, Peer]]:
    """Yield the builders and readers of other clients; those of aiokafka both in C and in Python."""
    for name, package in (("kafka-python", "kafka"), ("aiokafka", "aiokafka")):
        try:
            default = import_module(f"{package}.record.default_records")
            memory = import_module(f"{package}.record.memory_records")
        except ImportError:
            print(f"{name} is not installed: left out")
            continue
        python_builder = getattr(default, "_DefaultRecordBatchBuilderPy", default.DefaultRecordBatchBuilder)
        in_c = default.DefaultRecordBatchBuilder is not python_builder
        yield f"{name} (C)" if in_c else name, Peer(default.DefaultRecordBatchBuilder, batches_of(memory.MemoryRecords))
        if in_c:
            # aiokafka's reader in Python would still make batches in C.
            yield f"{name} (Python)", Peer(python_builder, partial(one_batch, default._DefaultRecordBatchPy))


def one_batch(batch: Callable[[bytes], Any], data: bytes) -> Iterable[Any]:
    return (batch(data),)


def batches_of(reader: Callable[[bytes], Any]) -> Callable[[bytes], Iterable[Any]]:
    def batches(data: bytes) -> Iterator[Any]:
        records = reader(data)
        while records.has_next():
            yield records.next_batch()

    return batches


@dataclass(slots=True, frozen=True)
class FrozenRecord:
    """`Record` as a frozen dataclass, to show the cost of that."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    leader_epoch: int | None = None


def our_encode(rows: list[Row], codec: Compression = Compression.NONE) -> bytes:
    builder = BatchBuilder(codec, max_size=1 << 24)
    append = builder.append
    for timestamp, key, value, headers in rows:
        append(timestamp, key, value, headers)
    return bytes(builder.build())


def their_encode(peer: Peer, rows: list[Row], codec: Compression = Compression.NONE) -> bytes:
    builder = peer.builder(2, int(codec), 0, -1, -1, -1, 1 << 24)
    append = builder.append
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        append(offset, timestamp, key, value, headers)
    built: bytes = builder.build()
    return built


def our_columns(data: bytes) -> int:
    count = 0
    for batch in split_batches(data):
        batch.verify_crc()
        count += len(batch.columns())
    return count


def our_records(data: bytes, make: Callable[..., Any] = Record) -> list[Any]:
    [batch] = split_batches(data)
    batch.verify_crc()
    columns = batch.columns()
    return list(
        map(
            make,
            repeat("topic"),
            repeat(0),
            columns.offsets,
            columns.timestamps,
            repeat(batch.timestamp_type),
            columns.keys,
            columns.values,
            columns.headers,
            repeat(batch.leader_epoch),
        )
    )


def their_records(peer: Peer, data: bytes) -> list[Any]:
    decoded: list[Any] = []
    for batch in peer.batches(data):
        batch.validate_crc()
        decoded.extend((r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch)
    return decoded


def encoding(name: str, rows: list[Row], others: list[tuple[str, Peer]]) -> Table:
    columns: tuple[list[Any], ...] = tuple(map(list, zip(*rows, strict=True)))
    candidates: dict[str, Callable[[], object]] = {"ours, append by append": lambda: our_encode(rows)}
    candidates["ours, as columns"] = lambda: encode_records(TIME, *columns)
    for peer_name, peer in others:
        candidates[peer_name] = partial(their_encode, peer, rows)
    return compare(candidates, operations=COUNT, title=f"encode, {name}", unit="record")


def decoding(name: str, rows: list[Row], others: list[tuple[str, Peer]]) -> Table:
    data = our_encode(rows)
    candidates: dict[str, Callable[[], object]] = {"ours, to Record": lambda: our_records(data)}
    candidates["ours, to columns"] = lambda: our_columns(data)
    candidates["ours, to a frozen dataclass"] = lambda: our_records(data, FrozenRecord)
    for peer_name, peer in others:
        candidates[peer_name] = partial(their_records, peer, data)
    return compare(candidates, operations=COUNT, title=f"decode, {name}", unit="record")


def codecs() -> Iterator[Table]:
    """Yield the time that compression adds to a batch of usual records. Other clients use the same libraries."""
    rows = WORKLOADS["usual: key of 8, value of 100"]
    built = {codec: our_encode(rows, codec) for codec in Compression}
    encode = {codec.name.lower(): partial(our_encode, rows, codec) for codec in Compression}
    yield compare(encode, operations=COUNT, title="encode by codec", unit="record")
    decode = {codec.name.lower(): partial(our_columns, built[codec]) for codec in Compression}
    yield compare(decode, operations=COUNT, title="decode by codec", unit="record")


def restamping() -> Table:
    """Compare building a batch again, as a retry with other ids does, with building it the first time."""
    rows = WORKLOADS["usual: key of 8, value of 100"]
    builder = BatchBuilder(Compression.ZSTD)
    for row in rows:
        builder.append(*row)
    builder.build()
    return compare(
        {"build again": lambda: builder.build(1, 2, 3), "encode again": lambda: our_encode(rows, Compression.ZSTD)},
        title=f"a batch of {COUNT} records, zstd",
        unit="batch",
    )


def hash_all(function: Callable[[bytes], int], keys: list[bytes]) -> None:
    for key in keys:
        function(key)


def hashing() -> Table:
    """Return the hash of a key of 8 bytes."""
    keys = [b"key-%04d" % number for number in range(COUNT)]
    candidates: dict[str, Callable[[], object]] = {"ours": partial(hash_all, murmur2, keys)}
    for name, module in (("kafka-python", "kafka.partitioner.default"), ("aiokafka", "aiokafka.partitioner")):
        try:
            theirs = import_module(module).murmur2
        except ImportError:
            continue
        candidates[name] = partial(hash_all, theirs, keys)
    return compare(candidates, operations=COUNT, title="murmur2", unit="key")


def columns() -> Table:
    """Encode rows of Arrow into the body of a batch: as columns, or as objects one by one."""
    import pyarrow

    from aiokafka_lite.protocol.records.columns import Rows
    from aiokafka_lite.protocol.records.murmur2 import partitions_for_keys

    keys, values = [b"key-%05d" % number for number in range(10 * COUNT)], [b"v" * 100] * (10 * COUNT)
    batch = pyarrow.record_batch({"key": keys, "value": values})
    times = [TIME] * len(keys)

    def by_column() -> None:
        rows = Rows("t", batch, TIME)
        partitions_for_keys(rows.keys, 4)
        rows.encode(0, len(keys))

    def one_by_one() -> None:
        of_key, of_value = (batch.column(name).to_pylist() for name in ("key", "value"))
        hash_all(murmur2, of_key)
        encode_records(TIME, times, of_key, of_value)

    candidates: dict[str, Callable[[], object]] = {"by column": by_column, "one by one": one_by_one}
    return compare(candidates, operations=len(keys), title="rows of Arrow: hash and encode", unit="row")


def main() -> None:
    others = list(peers())
    for name, rows in WORKLOADS.items():
        print(encoding(name, rows, others), end="\n\n")
        print(decoding(name, rows, others), end="\n\n")
    for table in (*codecs(), restamping(), hashing(), columns()):
        print(table, end="\n\n")


if __name__ == "__main__":
    main()
