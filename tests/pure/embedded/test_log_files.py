"""A log on disk: its content after a reload, for each state that a crash can leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiokafka_lite.embedded.json_documents import read_document, write_document
from aiokafka_lite.embedded.log.files import LogFiles, OpenFiles
from aiokafka_lite.embedded.log.log import Log
from aiokafka_lite.embedded.replicas.partition import Partition
from aiokafka_lite.embedded.settings.configs import TopicConfig
from tests.pure.embedded.batches import stored

TOPIC = b"\x01" * 16


class Disk:
    """The directory of a replica, opened again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path / "orders-0"
        self.open_files = OpenFiles(limit=2)
        self.files = LogFiles(self.path, TOPIC, self.open_files)

    def log(self, topic_id: bytes = TOPIC) -> Log:
        self.open_files.close_all()
        self.files = LogFiles(self.path, topic_id, self.open_files)
        log = Log(400, self.files)
        self.files.open(log)
        return log

    @property
    def segments(self) -> list[str]:
        return sorted(path.name for path in self.path.glob("*.log"))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def fill(log: Log, count: int, *, first: int = 0, epoch: int = 0) -> None:
    for offset in range(first, first + count):
        log.append(stored(offset, epoch=epoch, timestamp=1000 + offset, size=30))


def contents(log: Log) -> list[tuple[int, int, bytes]]:
    return [(batch.base_offset, batch.leader_epoch, batch.data) for batch in log.batches()]


def test_a_loaded_log_is_the_one_that_was_written(disk: Disk) -> None:
    log = disk.log()
    fill(log, 10)
    fill(log, 10, first=10, epoch=3)
    log.advance_high_watermark(15)
    disk.files.checkpoint(log, partition_epoch=0)
    loaded = disk.log()
    assert contents(loaded) == contents(log)
    assert (loaded.start_offset, loaded.high_watermark, loaded.end_offset) == (0, 15, 20)
    assert loaded.epochs == [(0, 0), (3, 10)]
    assert len(loaded.segments) == len(log.segments) > 4
    assert loaded.read(7, 10_000, 20) == log.read(7, 10_000, 20)
    assert loaded.offset_for_time(1012) == log.offset_for_time(1012)


def test_appending_continues_after_a_reload(disk: Disk) -> None:
    fill(disk.log(), 5)
    fill(disk.log(), 5, first=5)
    assert [batch[0] for batch in contents(disk.log())] == list(range(10))


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61, 80])
def test_a_torn_batch_at_the_end_is_cut_off(disk: Disk, cut: int) -> None:
    log = disk.log()
    fill(log, 9)
    path = disk.path / disk.segments[-1]
    torn = stored(9, size=30).data[:cut]
    with path.open("ab") as file:
        file.write(torn)
    size = path.stat().st_size
    loaded = disk.log()
    assert contents(loaded) == contents(log)
    assert path.stat().st_size == size - cut
    fill(loaded, 1, first=9)
    assert disk.log().end_offset == 10


def test_the_batches_behind_a_damaged_one_stay_and_the_damaged_file_is_kept(disk: Disk) -> None:
    fill(disk.log(), 12)
    second = disk.path / disk.segments[1]
    data = bytearray(second.read_bytes())
    data[-1] ^= 1
    second.write_bytes(data)
    loaded = disk.log()
    offsets = [batch[0] for batch in contents(loaded)]
    (lost,) = set(range(12)) - set(offsets)
    assert loaded.end_offset == 12
    assert (disk.path / f"{second.name}.damaged").read_bytes() == data
    assert loaded.read(lost, 10_000, 12) == b"".join(data for base, _, data in contents(loaded) if base > lost)
    fill(loaded, 1, first=12)
    assert [batch[0] for batch in contents(disk.log())] == [*offsets, 12]


@pytest.mark.parametrize(
    ("place", "lost"),
    [
        (3, 1),  # a bit of the base offset, which no checksum covers
        (9, 1),  # of the length, which no checksum covers either
        (16, 1),  # of the magic byte
        (40, 1),
        (-1, 1),
    ],
)
def test_one_damaged_bit_costs_one_batch(disk: Disk, place: int, lost: int) -> None:
    log = disk.log()
    fill(log, 12)
    path, batches = disk.path / disk.segments[1], log.segments[1].batches
    data = bytearray(path.read_bytes())
    start, end = batches[0].size, batches[0].size + batches[1].size
    data[(start if place >= 0 else end) + place] ^= 4
    path.write_bytes(data)
    expected = [offset for offset in range(12) if offset != batches[1].base_offset]
    assert [batch[0] for batch in contents(disk.log())] == expected
    assert len(expected) == 12 - lost


def test_a_batch_inside_a_value_does_not_become_a_batch_of_the_log(disk: Disk) -> None:
    log = disk.log()
    inner = stored(5).data
    builder_data = stored(0, size=len(inner)).data.replace(b"v" * len(inner), inner)
    fill(log, 1)
    path = disk.path / disk.segments[0]
    fill(log, 1, first=1)
    path.write_bytes(builder_data + path.read_bytes()[log.segments[0].batches[0].size :])
    assert inner in path.read_bytes()
    assert [batch[0] for batch in contents(disk.log())] == [1]


def test_offsets_of_lost_records_are_not_given_again(disk: Disk) -> None:
    log = disk.log()
    fill(log, 12)
    log.advance_high_watermark(12)
    disk.files.checkpoint(log, 0, is_flushed=False)
    os.truncate(disk.path / disk.segments[-1], 0)
    loaded = disk.log()
    assert len(contents(loaded)) < 12
    assert (loaded.high_watermark, loaded.end_offset) == (12, 12)


def test_deleted_and_truncated_records_do_not_return(disk: Disk) -> None:
    log = disk.log()
    fill(log, 20)
    log.advance_high_watermark(20)
    log.delete_before(8)
    log.truncate_to(14)
    loaded = disk.log()
    assert (loaded.start_offset, loaded.end_offset) == (8, 14)
    assert contents(loaded) == contents(log)
    log = disk.log()
    log.reset_to(50)
    assert (disk.log().start_offset, disk.log().end_offset) == (50, 50)
    assert disk.segments == ["00000000000000000050.log"]


def test_a_log_whose_records_are_all_deleted_keeps_its_end(disk: Disk) -> None:
    log = disk.log()
    fill(log, 20)
    log.advance_high_watermark(20)
    log.delete_before(20)
    loaded = disk.log()
    assert (loaded.start_offset, loaded.end_offset, contents(loaded)) == (20, 20, [])


@pytest.mark.parametrize("crash", ["before the swap", "after swap.json", "in the middle", "none"])
def test_a_compaction_is_whole_or_has_not_happened(disk: Disk, crash: str) -> None:
    log = disk.log()
    fill(log, 20)
    kept = [batch for batch in log.batches() if batch.base_offset in (1, 6, 11)]
    closed = next(index for index, segment in enumerate(log.segments) if segment.base_offset > 11)
    checkpoint = read_document(disk.path / "checkpoint.json")
    before = {name: (disk.path / name).read_bytes() for name in disk.segments}
    tail = [batch[0] for batch in contents(log) if batch[0] >= log.segments[closed].base_offset]
    log.replace_segments(closed, kept)
    after = {name: (disk.path / name).read_bytes() for name in disk.segments}
    new = [name for name in after if after[name] != before.get(name)]
    names = {"old": sorted(before)[:closed], "new": [name.replace(".log", ".compacted") for name in new]}
    if crash != "none":  # restore the files as a crash leaves them
        for name in new:
            (disk.path / name).rename(disk.path / name.replace(".log", ".compacted"))
        for name, data in before.items():
            (disk.path / name).write_bytes(data)
    if crash in ("after swap.json", "in the middle"):
        write_document(disk.path / "swap.json", names)
        write_document(disk.path / "checkpoint.json", checkpoint)
    if crash == "in the middle":
        for name in names["old"]:
            (disk.path / name).unlink()
        (disk.path / names["new"][0]).rename(disk.path / names["new"][0].replace(".compacted", ".log"))
    loaded = disk.log()
    assert loaded.start_offset == 0
    offsets = [batch[0] for batch in contents(loaded)]
    assert offsets == ([*range(20)] if crash == "before the swap" else [1, 6, 11, *tail])
    assert {path.suffix for path in disk.path.iterdir()} <= {".log", ".json"}


class Crash(Exception):
    """The process ends here."""


def test_epochs_whose_batches_were_compacted_away_are_known_after_a_reload(disk: Disk) -> None:
    log = disk.log()
    for epoch in (1, 2, 4):
        fill(log, 3, first=log.end_offset, epoch=epoch)
        log.roll()
    log.advance_high_watermark(6)
    kept = [batch for batch in log.batches() if batch.leader_epoch != 2]
    log.replace_segments(len(log.segments) - 1, kept)
    log.truncate_to(6)
    fill(log, 3, first=6, epoch=5)
    assert disk.log().epochs == log.epochs == [(1, 0), (2, 3), (5, 6)]


def test_a_log_with_new_records_is_flushed_when_flush_ms_is_over(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TopicConfig.parse({"flush.ms": "1000"}, {})
    partition = Partition(("orders", 0), TOPIC, 1, config, disk.files)
    flushed: list[float] = []
    now = 0.0
    monkeypatch.setattr("os.fsync", lambda descriptor: flushed.append(now))
    partition.append_as_follower([stored(0)])
    partition.flush_if_old(now)
    partition.append_as_follower([stored(1)])
    for now in (0.9, 1.0, 5.0):
        partition.flush_if_old(now)
    assert sorted(set(flushed)) == [0.0, 1.0]


def crash(*_: object) -> None:
    raise Crash


def test_a_crash_while_all_segments_are_deleted_keeps_the_end(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.log()
    fill(log, 20)
    log.advance_high_watermark(20)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(LogFiles, "create", crash)  # the old segments are gone, and the new one does not exist yet
        log.delete_before(20)
    assert disk.segments == []
    loaded = disk.log()
    assert (loaded.start_offset, loaded.end_offset) == (20, 20)


def test_a_directory_that_was_being_deleted_is_no_log(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.log()
    fill(log, 20)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Path, "unlink", crash)
        disk.files.delete(log)
    assert contents(disk.log()) == []


def test_the_log_of_an_older_topic_of_that_name_is_deleted(disk: Disk) -> None:
    fill(disk.log(), 5)
    assert contents(disk.log(b"\x02" * 16)) == []


def test_many_segments_are_read_with_few_open_files(disk: Disk) -> None:
    log = disk.log()
    fill(log, 40)
    assert len(log.segments) == 10
    assert [batch.data for batch in log.batches()] == [stored(n, timestamp=1000 + n, size=30).data for n in range(40)]
