"""Lines as an Arrow record batch for ``Producer.put_arrow``, made with a few passes over a block. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_NEWLINE = 10


def lines_to_arrow(block: bytes, partition: int | None) -> pa.RecordBatch:
    """Return lines as the column ``value``, and the column ``partition`` if not None. A newline ends each line."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
    count = len(ends)
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends - np.arange(count)  # the positions without the newlines
    values = block.replace(b"\n", b"")
    columns = {
        "value": pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    }
    if partition is not None:
        columns["partition"] = pa.array(np.full(count, partition, np.int32))
    return pa.record_batch(columns)
