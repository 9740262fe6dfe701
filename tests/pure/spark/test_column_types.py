"""The column types of schemas, for what only some schemas and some versions of libraries have."""

from __future__ import annotations

import pyarrow
import pytest

from aiokafka_lite.spark.column_types import ColumnType, map_of, struct_of

TEXT = ColumnType("string", pyarrow.string(), str, int)


def test_a_name_with_a_backtick_is_one_name_in_ddl() -> None:
    assert struct_of({"a`b": TEXT}).ddl == "struct<`a``b`:string>"


def test_null_is_kept_where_a_value_would_be_converted() -> None:
    kind = map_of(ColumnType("string", pyarrow.string()), TEXT)
    assert kind.convert is not None
    assert kind.restore is not None
    assert kind.convert({"a": 1, "b": None}) == [("a", "1"), ("b", None)]
    assert kind.restore([("a", "1"), ("b", None)]) == {"a": 1, "b": None}


def test_repeated_fields_of_protobuf_are_lists() -> None:
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    from aiokafka_lite.spark.protobuf_columns import message_type

    info = descriptors.SourceCodeInfo(location=[{"path": [4, 0], "leading_comments": "a"}])
    kind = message_type(type(info))
    assert "array<struct<`path`:array<int>," in kind.ddl
    assert kind.convert is not None
    assert kind.restore is not None
    assert kind.restore(kind.convert(info)) == info
