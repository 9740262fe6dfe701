"""Lists of bytes become the same records as the same bytes one by one."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from aiokafka_lite.protocol.records import BatchBuilder, RecordLists
from aiokafka_lite.types import Header

SIZES = st.sampled_from([0, 1, 5, 60, 63, 64, 100, 8_190, 8_200])
RECORDS = st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=200)
HEADERS = st.sampled_from([(), (Header("a", b"1"),), (Header("trace", None), Header("b", bytes(100)))])


@given(RECORDS, st.booleans(), HEADERS, st.integers(0, 80), st.integers(-70, 20_000), st.integers(100, 60_000))
@example([(100, 5)] * 9_000, True, (), 0, 0, 1 << 30)
@example([(100, 5)] * 9_000, False, (), 60, 3, 1 << 30)
def test_lists_are_packed_as_single_records_are(
    sizes: list[tuple[int, int]], keyed: bool, headers: tuple[Header, ...], before: int, age: int, max_size: int
) -> None:
    values = [b"%d" % (place % 7) * size for place, (size, _) in enumerate(sizes)]
    keys = [b"k" * size for _, size in sizes] if keyed else None
    packed, expected = BatchBuilder(max_size=max_size), BatchBuilder(max_size=max_size)
    for builder in (packed, expected):
        for _ in range(before):
            builder.append(1_000, None, b"x")
    start = len(sizes) // 3
    added = packed.append_lists(RecordLists(values, keys, headers, 1_000 + age), start, len(sizes))
    one_by_one = 0
    for place in range(start, len(sizes)):
        if not expected.append(1_000 + age, None if keys is None else keys[place], values[place], headers):
            break
        one_by_one += 1
    assert added == one_by_one
    assert packed.count == expected.count
    assert packed.build() == expected.build()


def test_a_built_batch_takes_no_lists() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    builder.build()
    assert builder.append_lists(RecordLists([b"y"], None, (), 1), 0, 1) == 0


def test_the_first_record_of_a_batch_always_fits() -> None:
    builder = BatchBuilder(max_size=100)
    lists = RecordLists([bytes(500), b"y"], None, (), 1)
    assert builder.append_lists(lists, 0, 2) == 1
    assert builder.append_lists(lists, 1, 2) == 0
