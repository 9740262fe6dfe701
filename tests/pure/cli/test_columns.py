"""Lines become Arrow columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")
pytest.importorskip("pyarrow")

from aiokafka_lite.cli.terminal.columns import lines_to_arrow


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), min_size=1))
def test_each_line_is_a_value(lines: list[bytes]) -> None:
    table = lines_to_arrow(b"".join(line + b"\n" for line in lines), None)
    table.validate(full=True)
    assert table.column("value").to_pylist() == lines
    assert table.schema.names == ["value"]


def test_the_partition_applies_to_every_line() -> None:
    table = lines_to_arrow(b"a\n\nb\n", 7)
    assert table.to_pydict() == {"value": [b"a", b"", b"b"], "partition": [7, 7, 7]}
