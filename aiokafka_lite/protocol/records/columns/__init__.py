"""Records as columns of NumPy and Arrow: ``Consumer.batches()``, ``send_arrow`` and the Spark data source use this.

``to_arrow`` (``lists``) and ``ArrowDecoder`` (``read``) make columns of records, ``Rows`` (``write``) makes records of
columns. NumPy and pyarrow come with the extra ``arrow`` and are imported by the functions that need them.
``BytesColumn`` needs neither. Each name is imported at its first use, because a producer that sends no tables needs few
of these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy

if TYPE_CHECKING:
    from aiokafka_lite.protocol.records.columns.lists import READ_COLUMNS as READ_COLUMNS
    from aiokafka_lite.protocol.records.columns.lists import SPARK_COLUMNS as SPARK_COLUMNS
    from aiokafka_lite.protocol.records.columns.lists import BytesColumn as BytesColumn
    from aiokafka_lite.protocol.records.columns.lists import arrow_types as arrow_types
    from aiokafka_lite.protocol.records.columns.lists import bytes_column as bytes_column
    from aiokafka_lite.protocol.records.columns.lists import column_names as column_names
    from aiokafka_lite.protocol.records.columns.lists import int64_array as int64_array
    from aiokafka_lite.protocol.records.columns.lists import to_arrow as to_arrow
    from aiokafka_lite.protocol.records.columns.read import ArrowDecoder as ArrowDecoder
    from aiokafka_lite.protocol.records.columns.read import PackedBatch as PackedBatch
    from aiokafka_lite.protocol.records.columns.write import MAX_RECORDS as MAX_RECORDS
    from aiokafka_lite.protocol.records.columns.write import WRITE_COLUMNS as WRITE_COLUMNS
    from aiokafka_lite.protocol.records.columns.write import EncodedRecords as EncodedRecords
    from aiokafka_lite.protocol.records.columns.write import Rows as Rows
    from aiokafka_lite.protocol.records.columns.write import by_number as by_number
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".lists": """
                BytesColumn READ_COLUMNS SPARK_COLUMNS arrow_types bytes_column column_names int64_array to_arrow
            """,
            ".read": "ArrowDecoder PackedBatch",
            ".write": "EncodedRecords MAX_RECORDS Rows WRITE_COLUMNS by_number",
        },
    )
