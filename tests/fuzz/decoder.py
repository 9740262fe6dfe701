"""The shortcuts in C of the record decoder beside the Python code, on the inputs of the fuzz targets.

``python -m tests.fuzz.decoder LIBRARY COUNT``, with AIOKAFKA_LITE_PURE=1 in the environment. ``LIBRARY`` is
``decode.c``, compiled with the sanitizers of the compiler; ``tests/pure/records/test_decoder_in_c.py`` does that.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

from aiokafka_lite.errors import CorruptRecord, DeserializationError
from aiokafka_lite.protocol.records import decode, encode_batch, split_batches
from aiokafka_lite.protocol.records.batch_header import HEADER_SIZE
from aiokafka_lite.protocol.records.columns import READ_COLUMNS, ArrowDecoder, PackedBatch, read
from aiokafka_lite.types import TopicPartition
from tests.fuzz.targets import LIMIT, make_batches

INT64_MAX = (1 << 63) - 1
HEADERS: tuple[list[tuple[str, bytes | None]], ...] = ([], [], [("k", b"v"), ("n", None)])
LEAK = 20_000
"""Bytes that reading the same inputs again may take at most."""


def columns(data: bytes) -> list[object]:
    """Return all columns of all batches, or the error of a batch."""
    results: list[object] = []
    try:
        for batch in split_batches(data):
            try:
                results.extend(
                    (chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers)
                    for chunk in batch.chunks(LIMIT, max_records=7)
                )
            except CorruptRecord as error:
                results.append(str(error))
    except CorruptRecord:
        pass
    return results


def arrow(data: bytes) -> list[object]:
    """Return the Arrow columns of each batch, of all its records and of some, or that a batch is malformed."""
    results: list[object] = []
    try:
        batches = [batch for batch in split_batches(data) if batch.magic == 2]
    except CorruptRecord:
        return []
    partition = TopicPartition("t", 0)
    packed = [PackedBatch(partition, batch, 0, (1 << 63) - 1) for batch in batches]
    packed += [PackedBatch(partition, batch, batch.base_offset + 1, batch.base_offset + 9) for batch in batches]
    for batches in (*([batch] for batch in packed), packed):
        decoder = ArrowDecoder(
            READ_COLUMNS,
            max_rows=1000,
            max_bytes=1 << 20,
            max_decompressed_size=LIMIT,
            corrupt=lambda partition, reason: CorruptRecord(reason),
        )
        try:
            results.append(decoder.decode(batches))
        except DeserializationError:
            results.append("a time that microseconds cannot hold")
        except CorruptRecord:
            results.append("an error")  # its text depends on the bytes after the last record
    return results


def main() -> None:
    spec = spec_from_file_location("decode", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    native: Any = module_from_spec(spec)
    spec.loader.exec_module(native)
    make = (make_batches, damaged_records, damaged_records, damaged_records)
    inputs = [make[number % 4](Random(number)) for number in range(int(sys.argv[2]))]
    done = sum(compare(native, function, data) for function in (columns, arrow) for data in inputs)
    assert done > len(inputs) // 10, f"only {done} of {len(inputs)} inputs were decoded in C"
    check_memory(native, inputs[:200])


def damaged_records(random: Random) -> bytes:
    """Return a batch that is not compressed, in two of three cases with a damaged byte or with offsets that do not
    rise.
    """
    kind = random.choice(("whole", "damaged", "offsets"))
    deltas = sorted(random.sample(range(20), 3))
    if kind == "offsets":
        random.shuffle(deltas)
    time = random.choice((1_000, INT64_MAX - 200))
    data = bytearray(
        encode_batch(
            [
                (time + random.randrange(200), *random.choices((None, b"", b"v" * 70), k=2), random.choice(HEADERS))
                for _ in deltas
            ],
            offset_deltas=deltas,
            last_offset_delta=random.choice((20, max(deltas))),
        )
    )
    if kind == "damaged":
        data[random.randrange(HEADER_SIZE, len(data))] = random.choice((0, 1, 3, 0x7F, 0x80, 0xFF))
    return bytes(data)


class Counting:
    """A function of the module, which counts the calls in which it does the work."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self.done = 0

    def __call__(self, *arguments: object) -> object:
        result = self.function(*arguments)
        self.done += bool(result)
        return result


def compare(native: Any, function: Callable[[bytes], list[object]], data: bytes) -> int:
    """Read the input with and without the shortcuts. Returns how often the shortcuts did the work."""
    shortcuts = [Counting(function) for function in (native.decode_lists, native.find_fields, native.join_fields)]
    expected = function(data)
    with patch.object(decode, "decode_lists", shortcuts[0]), use_for_arrow(*shortcuts[1:]):
        result = function(data)
    assert result == expected, f"--input {data.hex()}: {result} in C, {expected} in Python"
    return sum(shortcut.done for shortcut in shortcuts)


def use_for_arrow(find_fields: object, join_fields: object) -> Any:
    return patch.multiple(read, find_fields=find_fields, join_fields=join_fields)


def check_memory(native: ModuleType, inputs: list[bytes]) -> None:
    """Check that reading the same inputs several times takes no memory, whether they are damaged or not."""
    with patch.object(decode, "decode_lists", native.decode_lists):
        for turn in range(4):
            for data in inputs:
                columns(data)
            if turn == 1:
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
        grown = tracemalloc.get_traced_memory()[0] - before
    assert grown < LEAK, f"{grown} bytes leaked"


if __name__ == "__main__":
    main()
