"""Kafka's record formats: batches, compression, and the partition of a key. Pure: bytes in, objects out."""

from .batch import RecordBatch, split_batches
from .batch_header import HEADER_SIZE, max_timestamp_of, replace_max_timestamp, rewrite_header
from .build import BatchBuilder, encode_batch, replace_records
from .compression import (
    DEFAULT_MAX_DECOMPRESSED,
    check_available,
    check_level,
    codec_of,
    compress,
    decompress,
    decompressing,
)
from .encode import append_record
from .murmur2 import murmur2, partition_for_key
from .pack import RecordLists
from .record_format import MAX_HEADERS, RecordColumns, decode_records, encode_records

__all__ = [
    "DEFAULT_MAX_DECOMPRESSED",
    "HEADER_SIZE",
    "MAX_HEADERS",
    "BatchBuilder",
    "RecordBatch",
    "RecordColumns",
    "RecordLists",
    "append_record",
    "check_available",
    "check_level",
    "codec_of",
    "compress",
    "decode_records",
    "decompress",
    "decompressing",
    "encode_batch",
    "encode_records",
    "max_timestamp_of",
    "murmur2",
    "partition_for_key",
    "replace_max_timestamp",
    "replace_records",
    "rewrite_header",
    "split_batches",
]
