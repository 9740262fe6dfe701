"""A replica's log on disk: a file for each segment, written as the batches arrive, and found again after a crash.

A directory ``<topic>-<partition>`` has:

- ``<base offset>.log``: the batches of a segment, as Kafka writes them;
- ``checkpoint.json``: the topic's id, the first offset, the high watermark of the last orderly stop, and the leader
  epochs of the last compaction, which may have removed all batches of an epoch;
- ``<base offset>.compacted`` and ``swap.json``: a compaction in progress.

Rules:

 1. An append is one ``write`` to the file, before anything is acknowledged. It survives the end of the process; it
    survives the end of the machine if ``flush.messages`` asks for a flush.
 2. The index of a segment, by offset and by time, is in memory. ``open`` makes it from the headers of the batches. The
    first batch that is cut, or whose CRC is wrong, ends the log: it was not acknowledged. Its bytes are cut off.
 3. A compaction writes its segments to new files, then the names of old and new to ``swap.json``, and then swaps them.
    After a crash before ``swap.json``, the old segments remain. After a later crash, ``open`` repeats the swap.
 4. A batch keeps no bytes: ``data`` reads them from the file. The system's page cache keeps recent ones.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from ..errors import CorruptRecord
from ..protocol.records import HEADER_SIZE, RecordBatch
from .log import Log, Segment, Segments, StoredBatch

MAX_OPEN_FILES = 256

_CHECKPOINT = "checkpoint.json"
_SWAP = "swap.json"


class BrokenLog(OSError):
    """A file has bytes that could not be cut off. Nothing may be appended to it."""


class OpenFiles:
    """The file descriptors of one cluster, at most ``limit``: the least recently used descriptor is closed."""

    def __init__(self, limit: int = MAX_OPEN_FILES) -> None:
        self._limit = limit
        self._open: OrderedDict[Path, int] = OrderedDict()

    def get(self, path: Path) -> int:
        """The descriptor, to append and to read. The file is created if it does not exist. Raises OSError."""
        descriptor = self._open.get(path)
        if descriptor is None:
            while len(self._open) >= self._limit:
                os.close(self._open.popitem(last=False)[1])
            descriptor = self._open[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        else:
            self._open.move_to_end(path)
        return descriptor

    def close(self, path: Path) -> None:
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        for path in list(self._open):
            self.close(path)


class FileSegment(Segment):
    """A segment in a file."""

    __slots__ = ("_files", "_has_name", "path")

    def __init__(self, base_offset: int, path: Path, files: OpenFiles) -> None:
        super().__init__(base_offset)
        self.path: Path = path
        self._files = files
        self._has_name = False
        """Whether the disk surely has the file's name."""

    def append(self, batch: StoredBatch) -> None:
        """Write the batch. If that fails, its bytes are removed. Raises OSError, or BrokenLog if bytes remain."""
        position, data = self.size, batch.data
        descriptor = self._files.get(self.path)
        try:
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except OSError as error:
            try:
                os.ftruncate(descriptor, position)
            except OSError:
                raise BrokenLog(error.errno, error.strerror) from error
            raise
        self.index(batch, position, len(data))

    def index(self, batch: StoredBatch, position: int, size: int) -> None:
        """Add a batch that is in the file already."""
        read = partial(self.read, position, size)
        super().append(
            StoredBatch(batch.base_offset, batch.last_offset, batch.max_timestamp, batch.leader_epoch, read, size)
        )

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file. Raises OSError."""
        return os.pread(self._files.get(self.path), size, position)

    def truncate(self, offset: int) -> None:
        super().truncate(offset)
        os.ftruncate(self._files.get(self.path), self.size)

    def flush(self) -> None:
        """Wait until the disk has everything. Raises OSError."""
        os.fsync(self._files.get(self.path))
        if not self._has_name:
            _flush_directory(self.path.parent)
            self._has_name = True

    def delete(self) -> None:
        self._files.close(self.path)
        self.path.unlink(missing_ok=True)

    def rename(self, path: Path) -> None:
        self._files.close(self.path)
        self.path.replace(path)
        self.path = path


class LogFiles(Segments):
    """The directory of one replica. Owner: the replica's ``Partition``."""

    def __init__(self, directory: Path, topic_id: bytes, files: OpenFiles) -> None:
        self._directory = directory
        self._topic_id = topic_id.hex()
        self._files = files
        self._checkpoint: dict[str, Any] = {"topic_id": self._topic_id, "start_offset": 0, "high_watermark": 0}

    def __repr__(self) -> str:
        return f"<LogFiles {self._directory}>"

    # The segments of a log.

    def create(self, base_offset: int) -> FileSegment:
        segment = FileSegment(base_offset, self._directory / f"{base_offset:020}.log", self._files)
        if base_offset:
            # The name keeps the end of the log, also if compaction removes all batches before it.
            self._files.get(segment.path)
        return segment

    def create_compacted(self, base_offset: int) -> FileSegment:
        segment = FileSegment(base_offset, self._directory / f"{base_offset:020}.compacted", self._files)
        segment.delete()  # files of a compaction that a crash ended
        return segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        before, after = cast("Sequence[FileSegment]", old), cast("Sequence[FileSegment]", new)
        for segment in after:
            segment.flush()
        # After swap.json is written, a crash repeats the swap. So the new files are whole on the disk before it.
        names = {"old": [each.path.name for each in before], "new": [each.path.name for each in after]}
        write_json(self._directory / _SWAP, names)
        for segment in before:
            segment.delete()
        for segment in after:
            segment.rename(segment.path.with_suffix(".log"))
        (self._directory / _SWAP).unlink()

    def keep_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        self._checkpoint["epochs"] = list(epochs)
        self._write_checkpoint()

    def start_moved(self, start_offset: int) -> None:
        self._checkpoint["start_offset"] = start_offset
        self._write_checkpoint()

    # The life of the directory.

    def open(self, log: Log) -> None:
        """Create the directory, or load the log that it has. A log of another topic is deleted. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        found = read_json(self._directory / _CHECKPOINT)
        if found is not None and found["topic_id"] == self._topic_id:
            self._checkpoint = found
            self._finish_swap()
            segments = list(self._load())
            start_offset, high_watermark = found["start_offset"], found["high_watermark"]
            if segments:
                epochs = [(epoch, start) for epoch, start in found.get("epochs", [])]
                log.load(cast("list[Segment]", segments), start_offset, high_watermark, epochs)
            else:
                # Without segments, only the checkpoint has the next offset.
                log.delete_before(start_offset)
            return
        for path in self._directory.iterdir():
            path.unlink()
        self._write_checkpoint()

    def checkpoint(self, log: Log) -> None:
        """Write the high watermark."""
        self._checkpoint["high_watermark"] = log.high_watermark
        self._write_checkpoint()

    def delete(self, log: Log) -> None:
        """Delete the log and its directory."""
        # This comes first: after a crash, a directory without this file counts as a directory without a log.
        (self._directory / _CHECKPOINT).unlink(missing_ok=True)
        for segment in log.segments:
            segment.delete()
        for path in self._directory.iterdir():
            path.unlink()
        self._directory.rmdir()

    def _write_checkpoint(self) -> None:
        write_json(self._directory / _CHECKPOINT, self._checkpoint)

    def _finish_swap(self) -> None:
        swap = self._directory / _SWAP
        names = read_json(swap)
        if names is not None:
            new = [self._directory / name for name in names["new"]]
            # The crash may have come between two renames. A renamed new file may have the name of an old file, and must
            # not be deleted here.
            done = {path.with_suffix(".log") for path in new if not path.exists()}
            for name in names["old"]:
                if self._directory / name not in done:
                    (self._directory / name).unlink(missing_ok=True)
            for path in new:
                if path.exists():
                    path.replace(path.with_suffix(".log"))
            swap.unlink()
        for path in self._directory.glob("*.compacted"):
            path.unlink()

    def _load(self) -> Iterator[FileSegment]:
        paths = sorted(self._directory.glob("*.log"))
        next_offset = 0
        for number, path in enumerate(paths):
            segment = FileSegment(int(path.stem), path, self._files)
            whole = _index(segment, next_offset)
            next_offset = segment.batches[-1].next_offset if segment.batches else segment.base_offset
            if segment.batches or path is paths[-1]:
                yield segment
            else:
                segment.delete()
            if not whole:
                # The later segments would leave a gap in the log. Kafka's recovery deletes them as well.
                for later in paths[number + 1 :]:
                    later.unlink()
                return


def _index(segment: FileSegment, next_offset: int) -> bool:
    """Index the batches of a file, and cut off bytes after the last whole batch. Returns False if there were any."""
    size = segment.path.stat().st_size
    position = 0
    if size:
        with segment.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            while (batch := _batch_at(content, position, size)) is not None and batch.base_offset >= next_offset:
                segment.index(batch, position, batch.size)
                position += batch.size
                next_offset = batch.next_offset
    if position < size:
        os.truncate(segment.path, position)
    return position == size


def _batch_at(content: mmap.mmap, position: int, size: int) -> StoredBatch | None:
    """The batch at a position, with its CRC checked; None if it is cut or damaged."""
    if size - position < HEADER_SIZE:
        return None
    length = int.from_bytes(content[position + 8 : position + 12], "big") + 12
    if not HEADER_SIZE <= length <= size - position:
        return None
    data = content[position : position + length]
    try:
        view = RecordBatch(data)
        view.verify_crc()
    except CorruptRecord:
        return None
    return StoredBatch(view.base_offset, view.last_offset, view.max_timestamp, view.leader_epoch, data)


def write_json(path: Path, value: object, *, is_private: bool = False) -> None:
    """Write a file so that a crash leaves the old one or the new one. Only its owner reads it if it ``is_private``.

    Raises OSError. Then the file is usually the old one, but it may be the new one if the disk fails at the very end.
    """
    temporary = path.with_suffix(".tmp")
    mode = 0o600 if is_private else 0o666
    try:
        with open(temporary, "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # a full disk needs the room
        raise
    _flush_directory(path.parent)


def _flush_directory(path: Path) -> None:
    """Wait until the disk has the names of new files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """The content; None if there is no file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
