"""Records as columns of NumPy and Arrow: ``Consumer.batches()``, ``send_arrow`` and the Spark data source use this.

``to_arrow`` and ``ArrowDecoder`` make columns of records (``read``), ``Rows`` makes records of columns (``write``).
NumPy and pyarrow come with the extra ``arrow`` and are imported by the functions that need them. ``BytesColumn`` needs
neither. Each name is imported at its first use, because a producer without tables needs little of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy

if TYPE_CHECKING:
    from aiokafka_lite.protocol.records.columns.read import (
        READ_COLUMNS,
        SPARK_COLUMNS,
        ArrowDecoder,
        BytesColumn,
        PackedBatch,
        arrow_types,
        bytes_column,
        column_names,
        int64_array,
        to_arrow,
    )
    from aiokafka_lite.protocol.records.columns.write import (
        MAX_RECORDS,
        WRITE_COLUMNS,
        EncodedRecords,
        Rows,
        by_number,
    )

_HOMES = {
    "read": (
        "READ_COLUMNS",
        "SPARK_COLUMNS",
        "ArrowDecoder",
        "BytesColumn",
        "PackedBatch",
        "arrow_types",
        "bytes_column",
        "column_names",
        "int64_array",
        "to_arrow",
    ),
    "write": ("MAX_RECORDS", "WRITE_COLUMNS", "EncodedRecords", "Rows", "by_number"),
}

__all__ = [
    "MAX_RECORDS",
    "READ_COLUMNS",
    "SPARK_COLUMNS",
    "WRITE_COLUMNS",
    "ArrowDecoder",
    "BytesColumn",
    "EncodedRecords",
    "PackedBatch",
    "Rows",
    "arrow_types",
    "by_number",
    "bytes_column",
    "column_names",
    "int64_array",
    "to_arrow",
]

if not TYPE_CHECKING:  # with a __getattr__, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
