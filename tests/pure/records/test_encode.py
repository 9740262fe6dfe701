"""``encode.c`` does what ``encode.py`` does: equal bytes, equal results, and errors for the same input."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import build_backend
from aiokafka_lite.compiled import COMPILED
from aiokafka_lite.protocol.records import encode
from tests.pure.records.test_two_builds import plain

pytest.importorskip("pyarrow")

from tests.fuzz.encode import outcome

compiled_only = pytest.mark.skipif(not COMPILED, reason="no module is compiled here; `make build` compiles them")

BYTES = st.binary(max_size=40) | st.sampled_from([0, 63, 64, 8_191, 8_192, 16_384, 16_385, 70_000]).map(bytes)
PIECES = st.none() | BYTES | BYTES.map(bytearray) | BYTES.map(memoryview) | st.sampled_from(["text", 5, [1]])
DELTAS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-70, 20_000) | st.sampled_from([1 << 63, -(1 << 63) - 1])
LIMITS = st.integers(0, 300) | st.sampled_from([16_000, 100_000, (1 << 63) - 1])


@pytest.mark.thorough
def test_c_and_python_encode_the_same_under_the_sanitizers_of_the_compiler(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc here")
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("gcc has no address sanitizer here")
    library, include = tmp_path / "encode.so", sysconfig.get_path("include")
    source = build_backend.ROOT / "aiokafka_lite/protocol/records/encode.c"
    options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-Wall", "-Werror"]
    options += ["-shared", "-fPIC", f"-I{include}"]
    subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
    environment = {
        **os.environ,
        "AIOKAFKA_LITE_PURE": "1",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python frees little at its end
        "LD_PRELOAD": runtime.stdout.strip(),
        "PYTHONMALLOC": "malloc",  # else a read beyond an object of Python stays within its arena
    }
    command = [sys.executable, "-m", "tests.fuzz.encode", str(library), "300"]
    done = subprocess.run(command, cwd=build_backend.ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def plain_encode() -> Any:
    return plain().records.encode


@compiled_only
@given(LIMITS, DELTAS, DELTAS, PIECES, PIECES, st.binary(min_size=1, max_size=90))
@example(16, 0, 0, None, None, b"\0")
@example(12, 0, 0, None, None, b"\0")
@example((1 << 63) - 1, (1 << 63) - 1, -(1 << 63), b"k", bytes(70_000), b"\0")
def test_a_record_is_encoded_as_in_python(
    limit: int, offset_delta: int, timestamp_delta: int, key: object, value: object, headers: bytes
) -> None:
    arguments = (limit, offset_delta, timestamp_delta, key, value, headers)
    assert outcome(encode.append_record, *arguments) == outcome(plain_encode().append_record, *arguments)


@compiled_only
@given(st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=300)), max_size=70))
def test_headers_are_encoded_as_in_python(headers: list[tuple[str, bytes | None]]) -> None:
    expected = plain_encode().encode_headers(headers)
    assert [encode.encode_headers(argument) for argument in (headers, tuple(headers), iter(headers))] == [expected] * 3


@compiled_only
@pytest.mark.parametrize(
    "wrong", [None, [None], [("a",)], [("a", b"", b"")], [("a", "b")], [(b"a", b"b")], [("\ud800", b"")]]
)
def test_wrong_headers_are_not_encoded(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode.encode_headers(wrong)


@compiled_only
@given(st.binary(max_size=80) | st.binary(min_size=100, max_size=300))
def test_a_key_is_hashed_as_in_python(key: bytes) -> None:
    hashed = plain_encode().murmur2(key)
    assert [encode.murmur2(argument) for argument in (key, bytearray(key), memoryview(key))] == [hashed] * 3


@compiled_only
@given(st.binary(max_size=80), st.integers(1, (1 << 31) - 1) | st.integers(1, 20))
def test_a_key_has_the_partition_that_it_has_in_python(key: bytes, count: int) -> None:
    partition = plain_encode().partition_for_key(key, count)
    assert [encode.partition_for_key(argument, count) for argument in (key, bytearray(key), memoryview(key))] == [
        partition
    ] * 3


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize(
    "arguments, error",
    [
        ((None, 3), TypeError),
        (("text", 3), TypeError),
        ((b"k", "3"), TypeError),
        ((b"k",), TypeError),
        ((b"k", 0), ValueError),
        ((b"k", -1), ValueError),
        ((b"k", 1 << 64), ValueError),
    ],
)
def test_wrong_keys_and_counts_have_no_partition(
    arguments: tuple[Any, ...], error: type[Exception], is_plain: bool
) -> None:
    module = plain_encode() if is_plain else encode
    with pytest.raises(error):
        module.partition_for_key(*arguments)


@compiled_only
def test_a_growing_buffer_is_seldom_copied() -> None:
    buffer, sizes = bytearray(61), set()
    for number in range(10_000):
        encode.append_record(buffer, 1 << 30, number, 0, b"key", bytes(100), b"\0")
        sizes.add(sys.getsizeof(buffer))
    assert len(sizes) <= 25
    assert max(sizes) <= 1.6 * len(buffer)


@compiled_only
@pytest.mark.parametrize("wrong", [None, "text", 5])
def test_only_bytes_are_hashed(wrong: Any) -> None:
    with pytest.raises(TypeError):
        encode.murmur2(wrong)


@compiled_only
@pytest.mark.parametrize(
    "keys, values, start, stop, error",
    [
        (None, [b"v", "text"], 0, 2, TypeError),
        ([b"k", None], [b"v", b"v"], 0, 2, TypeError),
        ([b"k"], [b"v", b"v"], 0, 2, ValueError),
        (None, [b"v"], 0, 2, ValueError),
        (None, [b"v"], -1, 1, ValueError),
        (b"kk", [b"v"], 0, 1, TypeError),
    ],
)
def test_wrong_lists_leave_the_buffer_unchanged(
    keys: Any, values: Any, start: int, stop: int, error: type[Exception]
) -> None:
    buffer = bytearray(b"before")
    with pytest.raises(error):
        encode.append_lists(buffer, 1_000, 0, 0, keys, values, b"\0", start, stop)
    assert buffer == b"before"


def edges(*places: int) -> bytes:
    """Return the offsets of a large binary column."""
    return b"".join(place.to_bytes(8, "little", signed=True) for place in places)


@compiled_only
@pytest.mark.parametrize(
    "column",
    [
        (8, 0, None, edges(0, 4), b"abc"),  # the end is outside of the data
        (8, 0, None, edges(2, 1), b"abc"),
        (8, 0, None, edges(-1, 1), b"abc"),
        (8, 0, None, edges(0, 1), None),
        (8, 1, None, edges(0, 1), b"abc"),  # the column begins behind its only row
        (8, -1, None, edges(0, 1), b"abc"),
        (8, 0, b"", edges(0, 1), b"abc"),  # the bits of validity are missing
        (8, 0, None, b"", b"abc"),
        (3, 0, None, edges(0, 1), b"abc"),
    ],
)
def test_a_column_that_points_outside_of_its_buffers_is_refused(column: Any) -> None:
    buffer = bytearray(b"before")
    good = (8, 0, None, edges(0, 3), b"abc")
    for columns in ((None, column, None), (column, good, None), (None, good, column)):
        with pytest.raises(ValueError):
            encode.append_rows(buffer, 1_000, 0, 1, None, 0, None, *columns)
    for numbers in (edges(1), edges(-1), b""):
        with pytest.raises(ValueError):
            encode.append_rows(buffer, 1_000, 0, 1, numbers, 0, None, None, good, None)
    with pytest.raises(ValueError):
        encode.append_rows(buffer, 1_000, 0, 1, None, 0, b"", None, good, None)
    assert buffer == b"before"
