"""Lines as columns of Arrow: what `Producer.put_arrow` takes, made of a block by a few passes over its bytes. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_NEWLINE = 10


def of_lines(block: bytes, partition: int | None) -> pa.RecordBatch:
    """The lines of a block, each of them ended by a newline, as the column ``value``; and ``partition``, if given."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
    count = len(ends)
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends - np.arange(count)  # where they are once newlines are gone
    values = block.replace(b"\n", b"")
    columns = {
        "value": pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    }
    if partition is not None:
        columns["partition"] = pa.array(np.full(count, partition, np.int32))
    return pa.record_batch(columns)
