"""Newlines end lines, for any division of the input into blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal.lines import LineSplitter
from aiokafka_lite.errors import RecordTooLarge


def lines_of(blocks: list[bytes], limit: int = 1 << 20) -> list[bytes]:
    splitter = LineSplitter(limit)
    text = b"".join([*(splitter.feed(block) for block in blocks), splitter.end()])
    assert not text or text.endswith(b"\n")
    return text.split(b"\n")[:-1]


@pytest.mark.parametrize(
    "text, lines",
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\n", [b"a", b""]),
        (b"a\r\n\x00\xff", [b"a\r", b"\x00\xff"]),
    ],
)
def test_a_line_ends_at_its_newline_and_the_last_may_have_none(text: bytes, lines: list[bytes]) -> None:
    assert lines_of([text]) == lines


@given(st.lists(st.binary(max_size=5).map(lambda block: block.replace(b"\x01", b"\n")), max_size=20))
def test_lines_do_not_depend_on_the_blocks(blocks: list[bytes]) -> None:
    text = b"".join(blocks)
    whole = text.split(b"\n")
    assert lines_of(blocks) == (whole if whole[-1] else whole[:-1])


def test_an_endless_line_is_refused_before_it_is_read_completely() -> None:
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"first\n123456789") == b"first\n"
    splitter.check(1)
    assert splitter.feed(b"ab") == b""
    with pytest.raises(RecordTooLarge, match="line 2 is longer than 10 bytes"):
        splitter.check(1)
