"""Frames are complete for every split of the stream, and take memory in proportion to the received bytes."""

from __future__ import annotations

import struct
import tracemalloc
from mmap import mmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka_lite.errors import ProtocolError
from aiokafka_lite.protocol.framing import (
    FIRST_CHUNK,
    GROWTH,
    MAPPED,
    FrameMemory,
    FrameSplitter,
    WaitingFrameMemory,
    close_frame,
    frame,
    open_frame,
)

MIB = 1024 * 1024
BODIES = [b"four", b"a frame", bytes(range(256)) * 8, b"last"]
SMALL_INTAKE = 64


def splitter(max_size: int = 100 * MIB, *, intake_size: int = 64 * 1024) -> FrameSplitter:
    return FrameSplitter(max_size, "kafka-1:9092", intake_size=intake_size)


def feed_in_place(target: FrameSplitter, stream: bytes, cut: int) -> list[bytes | memoryview]:
    """Write into the splitter's buffer, as a transport does."""
    frames: list[bytes | memoryview] = []
    while stream:
        room = target.get_buffer()
        count = min(cut, len(room), len(stream))
        room[:count] = stream[:count]
        frames += target.received(count)
        stream = stream[count:]
    return frames


def test_a_stream_with_small_frames_has_a_small_buffer() -> None:
    target = splitter()
    for _ in range(100):
        target.feed(frame(b"x" * 500))
    assert len(target.get_buffer()) <= 2048


def test_the_buffer_of_a_busy_stream_grows_to_its_limit() -> None:
    target = splitter()
    sent = frame(b"x" * 500) * 1000
    assert len(target.feed(sent)) == 1000
    assert len(target.get_buffer()) > 60 * 1024


@pytest.mark.parametrize("intake_size", [SMALL_INTAKE, 64 * 1024])
@pytest.mark.parametrize("cut", [1, 2, 3, 5, 7, 64, 100, 4096, 10**6])
def test_frames_are_whole_for_every_split_of_the_stream(cut: int, intake_size: int) -> None:
    stream = b"".join(map(frame, BODIES * 3))
    fed = splitter(intake_size=intake_size)
    pieces = [stream[at : at + cut] for at in range(0, len(stream), cut)]
    assert [body for piece in pieces for body in fed.feed(piece)] == BODIES * 3
    in_place = splitter(intake_size=intake_size)
    assert feed_in_place(in_place, stream, cut) == BODIES * 3
    assert fed.waiting == in_place.waiting == 0


@given(st.lists(st.binary(min_size=4, max_size=300), max_size=12), st.lists(st.integers(1, 200), min_size=1), st.data())
@settings(deadline=None)
def test_any_frames_in_any_split_of_the_stream(bodies: list[bytes], cuts: list[int], data: st.DataObject) -> None:
    stream = b"".join(map(frame, bodies))
    target = splitter(intake_size=data.draw(st.sampled_from([64, 100, 4096])))
    received: list[bytes | memoryview] = []
    at = 0
    while at < len(stream):
        cut = cuts[len(received) % len(cuts)]
        received += target.feed(stream[at : at + cut])
        at += cut
    assert received == bodies
    assert target.waiting == 0


def test_bytes_of_the_next_frame_wait() -> None:
    target = splitter()
    assert target.feed(frame(b"whole") + b"\0\0\0\x09par") == [b"whole"]
    assert target.waiting == 7
    assert target.feed(b"") == []
    assert target.feed(b"tially") == [b"partially"]
    assert target.waiting == 0


def test_a_frame_does_not_change_when_more_bytes_arrive() -> None:
    target = splitter(intake_size=SMALL_INTAKE)
    [small] = target.feed(frame(b"small one"))
    [large] = target.feed(frame(b"L" * 500))
    target.feed(frame(b"other" * 3) + frame(b"M" * 500))
    assert small == b"small one"
    assert bytes(large) == b"L" * 500
    assert isinstance(large, memoryview)
    assert large.readonly


def test_a_large_frame_is_received_in_place() -> None:
    """When enough of the frame has arrived, the buffer is the remaining part of the frame."""
    target = splitter()
    target.feed(frame(b"x" * 500) * 1000)  # the stream is busy, so its intake buffer has its full size
    target.feed(struct.pack(">i", 200_000) + b"x" * 50_000)
    room = target.get_buffer()
    assert len(room) == 200_000 - 50_000
    room[:] = b"y" * len(room)
    [received] = target.received(len(room))
    assert bytes(received) == b"x" * 50_000 + b"y" * 150_000


@pytest.mark.parametrize("size", [FIRST_CHUNK - 1, FIRST_CHUNK, FIRST_CHUNK + 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_frames_around_the_sizes_of_growth_are_whole(size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    bodies = splitter().feed(frame(body) + frame(b"next"))
    assert [bytes(view) for view in bodies] == [body, b"next"]


def test_a_frame_in_mapped_memory_is_whole_and_stays() -> None:
    body = bytes(range(256)) * (3 * MAPPED // 256)
    target = splitter()
    [received] = target.feed(frame(body))
    assert isinstance(received, memoryview)
    assert received.readonly
    assert isinstance(received.obj, mmap)  # a bytearray is filled with zeros first, in one turn of the event loop
    target.end()
    assert received == body


def test_a_size_alone_allocates_no_more_than_a_first_chunk() -> None:
    target = splitter()
    tracemalloc.start()
    try:
        target.feed(struct.pack(">i", 99 * MIB) + b"x")
        _, after_size = tracemalloc.get_traced_memory()
        target.feed(b"x" * (2 * MIB))
        _, later = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_size < FIRST_CHUNK + 64 * 1024
    assert later < 2 * MIB * (GROWTH + 1) + FIRST_CHUNK


def test_the_end_of_the_stream_drops_its_buffers() -> None:
    """A frame that was cut off must not stay in memory until the next full garbage collection."""
    target = splitter()
    tracemalloc.start()
    try:
        target.feed(struct.pack(">i", 99 * MIB) + b"x" * (5 * MIB))
        target.end()
        traced, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert traced < 64 * 1024
    with pytest.raises(ProtocolError, match="kafka-1:9092 sent bytes after the end of the stream"):
        target.get_buffer()


def test_the_memory_of_several_streams_has_one_bound() -> None:
    memory = FrameMemory(limit=5 * MIB // 2)
    streams = [FrameSplitter(100 * MIB, f"peer {number}", memory=memory) for number in range(3)]
    started = struct.pack(">i", 50 * MIB) + b"x" * (100 * 1024)
    streams[0].feed(started)
    streams[1].feed(started)
    with pytest.raises(ProtocolError, match="peer 2 sends a frame of 52428800 bytes, but frames of all connections"):
        streams[2].feed(started)
    assert 0 < memory.held <= memory.limit
    streams[0].end()
    other = FrameSplitter(100 * MIB, "another peer", memory=memory)
    assert other.feed(started) == []
    assert memory.held <= memory.limit


@pytest.mark.parametrize("cut", [7, 50_000, 10**7])
def test_a_complete_frame_no_longer_counts(cut: int) -> None:
    memory = FrameMemory(limit=3 * MIB)
    target = FrameSplitter(100 * MIB, "peer", memory=memory)
    stream = frame(bytes(2 * MIB)) if cut > 7 else frame(bytes(100_000))
    for _ in range(5):
        assert len(feed_in_place(target, stream, cut)) == 1
        assert memory.held == 0
    target.end()
    assert memory.held == 0


def receive(target: FrameSplitter, count: int) -> list[bytes | memoryview]:
    """Write at most ``count`` bytes into the splitter's buffer, and stop when it is starved."""
    frames: list[bytes | memoryview] = []
    while count and not target.starved:
        room = target.get_buffer()
        size = min(len(room), count)
        frames += target.received(size)
        count -= size
    return frames


def begin(target: FrameSplitter, size: int) -> None:
    prefix = struct.pack(">i", size)
    target.get_buffer()[:4] = prefix
    assert target.received(4) == []
    receive(target, 60 * 1024)


def test_all_frames_are_completed_within_the_bound_though_the_streams_begin_together() -> None:
    size = 20 * MIB
    memory = WaitingFrameMemory(limit=30 * MIB, largest=size)
    streams = [FrameSplitter(size, f"peer {number}", memory=memory) for number in range(5)]
    for stream in streams:
        begin(stream, size)
    completed: list[FrameSplitter] = []
    while len(completed) < len(streams):
        for stream in [stream for stream in streams if not stream.starved and stream not in completed]:
            # All but the last byte: the others run out of room before the first frame is complete.
            rest = 4 + size - stream.waiting
            completed += [stream] * len(receive(stream, rest - 1 if rest > 1 else 1))
            if stream.starved:
                memory.wait(stream, stream.retry)
            assert memory.held <= memory.limit
    assert set(completed) == set(streams)
    assert memory.held == 0


def test_a_stream_that_ends_gives_its_room_to_the_next_one() -> None:
    memory = WaitingFrameMemory(limit=10 * MIB, largest=10 * MIB)
    first, second, third = (FrameSplitter(10 * MIB, "peer", memory=memory) for _ in range(3))
    for stream in (first, second, third):
        begin(stream, 10 * MIB)
        receive(stream, MIB)
    assert (first.starved, second.starved, third.starved) == (False, True, True)
    memory.wait(second, second.retry)
    memory.wait(third, third.retry)
    second.end()
    assert third.starved
    first.end()
    assert not third.starved
    assert memory.held <= 10 * MIB
    third.end()
    assert memory.held == 0


def test_the_largest_size_can_be_raised() -> None:
    target = splitter(1000)
    assert target.feed(frame(bytes(1000))) != []
    target.accept(MIB)
    assert target.feed(frame(bytes(5000))) != []
    with pytest.raises(ProtocolError, match="at most 1048576 are accepted"):
        target.feed(struct.pack(">i", MIB + 1))


@pytest.mark.parametrize(
    ("prefix", "complaint"),
    [
        (struct.pack(">i", -1), "announced a frame of -1 bytes; a size is never negative"),
        (struct.pack(">i", -(2**31)), "announced a frame of -2147483648 bytes"),
        (struct.pack(">i", 0), "announced a frame of 0 bytes, too small for a header"),
        (struct.pack(">i", 3), "announced a frame of 3 bytes, too small for a header"),
        (struct.pack(">i", 1001), "announced a frame of 1001 bytes; at most 1000 are accepted"),
        (b"HTTP/1.1 400 Bad Request", "does not speak Kafka: an HTTP server responded"),
        (b"GET / HTTP/1.1", "does not speak Kafka: it sent an HTTP request"),
        (b"\x15\x03\x03\0\2\2\x46", "does not speak Kafka: it responded with a TLS alert"),
        (b"\x16\x03\x01\2\0\1", "does not speak Kafka: it began a TLS handshake"),
    ],
)
def test_an_impossible_size_is_refused_and_names_the_peer(prefix: bytes, complaint: str) -> None:
    target = splitter(1000)
    with pytest.raises(ProtocolError, match=f"^kafka-1:9092 {complaint}"):
        target.feed(prefix)
    with pytest.raises(ProtocolError, match=complaint):
        target.get_buffer()
    byte_by_byte = splitter(1000)
    with pytest.raises(ProtocolError, match=complaint):
        for at in range(len(prefix)):
            byte_by_byte.feed(prefix[at : at + 1])


def test_another_protocol_is_recognised_even_if_its_size_is_accepted() -> None:
    with pytest.raises(ProtocolError, match="TLS alert"):
        splitter(2**31 - 1).feed(b"\x15\x03\x03\0\2\2\x46")


def test_a_later_frame_of_the_same_size_is_a_frame() -> None:
    target = splitter(2**31 - 1)
    assert target.feed(frame(b"first") + b"\x15\x03\x03\0") == [b"first"]
    assert target.error is None


@pytest.mark.parametrize("cut", [1, 4, 10**6])
def test_frames_before_an_impossible_size_are_not_lost(cut: int) -> None:
    target = splitter(1000)
    stream = frame(b"good") + frame(b"better") + struct.pack(">i", -5)
    bodies: list[bytes | memoryview] = []
    with pytest.raises(ProtocolError, match="-5 bytes"):
        for at in range(0, len(stream) + cut, cut):
            bodies += target.feed(stream[at : at + cut] or b"more")
    assert bodies == [b"good", b"better"]
    assert target.error is not None


def test_the_largest_size_is_accepted() -> None:
    assert splitter(1000).feed(frame(bytes(1000))) == [bytes(1000)]


def test_an_open_frame_is_closed_with_its_size() -> None:
    out = open_frame()
    out += b"body"
    assert bytes(close_frame(out)) == frame(b"body") == b"\0\0\0\4body"


def test_repr_has_the_peer_and_the_waiting_bytes() -> None:
    target = splitter()
    target.feed(b"\0\0")
    assert repr(target) == "<FrameSplitter peer=kafka-1:9092 waiting=2>"
