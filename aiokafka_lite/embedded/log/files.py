"""A replica's log on disk: a file for each segment, written as the batches arrive, and found again after a crash.

A directory ``<topic>-<partition>`` has:

- ``<base offset>.log``: the batches of a segment, as Kafka writes them;
- ``checkpoint.json``: the topic's id, the first offset, a high watermark, the names of the segments with the size that
  surely is on the disk, and the leader epochs of the last compaction, which may have removed all batches of an epoch;
- ``<base offset>.compacted`` and ``swap.json``: a compaction in progress.

Rules:

 1. An append is one ``write`` to the file, before anything is acknowledged. It survives the end of the process; it
    survives the end of the machine if ``flush.messages`` asks for a flush.
 2. The index of a segment, by offset and by time, is in memory. ``load`` makes it from the batches, whose CRC it
    checks. ``segment_scan`` says what happens to damaged bytes.
 3. A compaction writes its segments to new files, then the names of old and new to ``swap.json``, and then swaps them.
    After a crash before ``swap.json``, the old segments remain. After a later crash, ``load`` repeats the swap.
 4. A batch keeps no bytes: ``data`` reads them from the file. The system's page cache keeps recent ones.
 5. ``checkpoint.json`` has the name of a segment as long as its records may not be lost: it is written after a new file
    is made, and before a file is cut or deleted. So a file that it names and that is missing was taken away.
 6. Only files with these names are deleted. A directory is renamed before its files are deleted, so that a crash does
    not leave a log without its first records.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from ...aio import forks
from ..json_documents import DamagedDocument, flush_directory, read_document, unused_name, write_document
from .log import Log, Segment, Segments, StoredBatch
from .segment_scan import DAMAGED, SegmentScan, scan_segment

logger = logging.getLogger(__name__)

MAX_OPEN_FILES = 256

CHECKPOINT = "checkpoint.json"
STRAY = "-stray"
"""The suffix of the directory of a log that belongs to no topic, as in Kafka."""
DELETED = "-delete"
"""The suffix of a directory that is being deleted, as in Kafka."""
_SWAP = "swap.json"
_NOTHING = {
    "start_offset": 0,
    "high_watermark": 0,
    "partition_epoch": -1,
    "epochs": [],
    "start": 0,
    "is_stopped": False,
}
"""What ``checkpoint.json`` says about an empty log. Lists in it are replaced, never changed."""
_SEGMENT_NAME = re.compile(r"[0-9]{20}\.log")
_OWN_NAME = re.compile(
    r"[0-9]{20}\.(log|compacted|tmp)(\.damaged(\.[0-9]+)?)?|(checkpoint|swap)\.(json|tmp)(\.damaged(\.[0-9]+)?)?"
)


class BrokenLog(OSError):
    """A file has bytes that could not be cut off. Nothing may be appended to it."""


class OpenFiles:
    """The file descriptors of one cluster, at most ``limit``: the least recently used descriptor is closed.

    In a forked process, each call raises OSError: the files belong to the parent.
    """

    def __init__(self, limit: int = MAX_OPEN_FILES) -> None:
        self._limit = limit
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._is_inherited = False
        forks.notify(self)

    def forked(self) -> None:
        self._is_inherited = True
        for descriptor in self._open.values():
            forks.detach_file(descriptor)

    def get(self, path: Path) -> int:
        """Return the descriptor, to append and to read. The file is created if it does not exist. Raises OSError."""
        self._check_process()
        descriptor = self._open.get(path)
        if descriptor is None:
            while len(self._open) >= self._limit:
                os.close(self._open.popitem(last=False)[1])
            descriptor = self._open[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            assert len(self._open) <= self._limit, "at most `limit` files are open"
        else:
            self._open.move_to_end(path)
        return descriptor

    def close(self, path: Path) -> None:
        """Close the file. Callers do so before they delete or rename it."""
        self._check_process()
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        for path in list(self._open):
            self.close(path)

    def _check_process(self) -> None:
        if self._is_inherited:
            raise OSError(errno.EPERM, "the files belong to another process, which forked this one")


class FileSegment(Segment):
    """A segment in a file."""

    __slots__ = ("_files", "_has_name", "flushed", "path")

    def __init__(self, base_offset: int, path: Path, files: OpenFiles) -> None:
        super().__init__(base_offset)
        self.path: Path = path
        self._files = files
        self._has_name = False
        """Whether the disk surely has the file's name."""
        self.flushed: int = 0
        """The size that the disk surely has."""

    def append(self, batch: StoredBatch) -> None:
        """Write the batch. If that fails, its bytes are removed. Raises OSError, or BrokenLog if bytes remain."""
        position, data = self.size, batch.data
        descriptor = self._files.get(self.path)
        try:
            # A short write is no error. If the disk is full, the next write raises it.
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
        """Read ``size`` bytes of the file. Raises OSError."""
        return os.pread(self._files.get(self.path), size, position)

    def truncate(self, offset: int) -> None:
        super().truncate(offset)
        os.ftruncate(self._files.get(self.path), self.size)

    def flush(self) -> None:
        """Wait until the disk has everything. Raises OSError."""
        os.fsync(self._files.get(self.path))
        if not self._has_name:
            flush_directory(self.path.parent)
            self._has_name = True
        self.flushed = self.size

    def delete(self) -> None:
        self._files.close(self.path)
        self.path.unlink(missing_ok=True)

    def touch(self) -> None:
        """Create the file, if there is none. Raises OSError."""
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644))

    def rename(self, path: Path) -> None:
        self._files.close(self.path)
        self.path.replace(path)
        self.path = path


@dataclass(slots=True)
class LoadedLog:
    """The content of a directory, before anything in it was repaired.

    ``losses`` are missing and shortened files, ``damage`` is what a repair can pass over; each text names the file.
    ``high_watermark`` is the last one that was written down, ``partition_epoch`` that of the last orderly stop.
    ``start`` is the number of the cluster's last start with this directory, -1 if that is unknown; ``is_stopped`` says
    whether that run ended orderly.
    """

    scans: list[SegmentScan]
    start_offset: int
    end_offset: int
    high_watermark: int
    partition_epoch: int
    epochs: list[tuple[int, int]]
    start: int
    is_stopped: bool
    losses: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    is_torn: bool = False

    @property
    def is_whole(self) -> bool:
        return not self.losses and not self.damage

    @property
    def largest_producer_id(self) -> int:
        return max((scan.largest_producer_id for scan in self.scans), default=-1)

    @property
    def last_epoch(self) -> int:
        return max((batch.leader_epoch for scan in self.scans for batch, _ in scan.batches), default=-1)

    @property
    def has_records(self) -> bool:
        return any(scan.size for scan in self.scans)


class LogFiles(Segments):
    """The directory of one replica. Owner: the replica's ``Partition``; before it exists, the ``DataDir``."""

    def __init__(self, directory: Path, topic_id: bytes, files: OpenFiles) -> None:
        self.directory = directory
        self._topic_id = topic_id.hex()
        self._files = files
        self._loaded: LoadedLog | None = None
        self._is_open = False
        self._segments: dict[int, FileSegment] = {}  # those that checkpoint.json names
        self._written: dict[str, Any] = {}
        self._facts: dict[str, Any] = dict(_NOTHING)

    def __repr__(self) -> str:
        return f"<LogFiles {self.directory}>"

    # The segments of a log.

    def create(self, base_offset: int) -> FileSegment:
        segment = self._segment(base_offset)
        if self._is_open:
            # The name keeps the end of the log, also if compaction removes all batches before it.
            segment.touch()
            self._segments[base_offset] = segment
            self._write_checkpoint()
        return segment

    def create_compacted(self, base_offset: int) -> FileSegment:
        segment = FileSegment(base_offset, self.directory / f"{base_offset:020}.compacted", self._files)
        segment.delete()  # files of a compaction that a crash ended
        return segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        before, after = cast("Sequence[FileSegment]", old), cast("Sequence[FileSegment]", new)
        for segment in after:
            segment.flush()
        # After swap.json is written, a crash repeats the swap. So the new files are whole on the disk before it.
        names = {"old": [segment.path.name for segment in before], "new": [segment.path.name for segment in after]}
        write_document(self.directory / _SWAP, names)
        for segment in before:
            segment.delete()
        for segment in after:
            segment.rename(segment.path.with_suffix(".log"))
        dropped = {segment.base_offset for segment in before}
        rest = {base: segment for base, segment in self._segments.items() if base not in dropped}
        self._segments = {segment.base_offset: segment for segment in after} | rest
        self._write_checkpoint()
        (self.directory / _SWAP).unlink()

    def keep_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        self._facts["epochs"] = list(epochs)
        self._write_checkpoint()

    def start_moved(self, start_offset: int) -> None:
        self._facts["start_offset"] = start_offset
        bases = sorted(self._segments)
        for base, following in pairwise(bases):
            if following <= start_offset:
                del self._segments[base]
        self._write_checkpoint()

    def restarted(self, start_offset: int) -> None:
        self._facts["start_offset"] = start_offset
        self._facts["high_watermark"] = min(self._facts["high_watermark"], start_offset)
        self._segments.clear()
        self._write_checkpoint()

    def shortened(self, end_offset: int) -> None:
        later = [base for base, segment in self._segments.items() if base >= end_offset]
        for base in later:
            del self._segments[base]
        last = self._segments.get(max(self._segments, default=-1))
        if last is not None:
            # The file is about to be shorter than the checkpoint says, which ``load`` would take for lost bytes.
            last.flushed = 0
        self._facts["high_watermark"] = min(self._facts["high_watermark"], end_offset)
        self._write_checkpoint()

    # The life of the directory.

    @property
    def largest_producer_id(self) -> int:
        """The largest id of a producer in the log, from ``load`` until ``open``; -1 without producers."""
        return -1 if self._loaded is None else self._loaded.largest_producer_id

    @property
    def start(self) -> int:
        """The number of the cluster's last start with this directory, from ``load`` until ``open``; -1 if unknown."""
        return -1 if self._loaded is None else self._loaded.start

    @property
    def topic_id_on_disk(self) -> str | None:
        """The id of the topic that the directory belongs to, in hexadecimal; None if that is not written there.

        Raises UnreadableDocument for a file that may be whole.
        """
        try:
            content = read_document(self.directory / CHECKPOINT)
        except DamagedDocument:
            return None
        return content["topic_id"] if content is not None else None

    def create_directory(self, start: int = 0) -> None:
        """Create the directory of an empty log, if there is none, in this start of the cluster. Raises OSError."""
        if not self.directory.exists():
            self._facts["start"] = start
            self.directory.mkdir(parents=True)
            first = self._segment(0)
            first.touch()
            self._segments = {0: first}
            self._write_checkpoint()
            self._segments = {}

    def load(self) -> LoadedLog:
        """Read the directory, and change nothing but a compaction that is finished.

        Raises OSError, and UnreadableDocument for a file that may be whole.
        """
        damage: list[str] = []
        try:
            checkpoint = read_document(self.directory / CHECKPOINT)
        except DamagedDocument as error:
            checkpoint = None
            damage.append(f"{error}. The log begins with its first segment")
        else:
            if checkpoint is None:
                damage.append(f"{self.directory / CHECKPOINT} is missing. The log begins with its first segment")
        self._finish_swap(checkpoint)
        paths = {int(path.stem): path for path in self.directory.iterdir() if _SEGMENT_NAME.fullmatch(path.name)}
        if checkpoint is None:
            sizes: dict[int, int] = {}
            checkpoint = _NOTHING | {"start_offset": min(paths, default=0), "start": -1}
        else:
            sizes = dict(checkpoint["segments"])
        losses = []
        for base, flushed in sizes.items():
            path = paths.get(base)
            if path is None:
                losses.append(f"{self._segment(base).path} is missing")
            elif (size := path.stat().st_size) < flushed:
                losses.append(f"{path} has {size} of its {flushed} bytes")
        loaded = LoadedLog(
            scans=[],
            start_offset=checkpoint["start_offset"],
            end_offset=checkpoint["start_offset"],
            high_watermark=checkpoint["high_watermark"],
            partition_epoch=checkpoint["partition_epoch"],
            epochs=[(epoch, start) for epoch, start in checkpoint["epochs"]],
            start=checkpoint["start"],
            is_stopped=checkpoint["is_stopped"],
            losses=losses,
            damage=damage,
        )
        self._scan(loaded, sorted(paths.items()), sizes)
        self._facts = {name: checkpoint[name] for name in self._facts}
        self._loaded = loaded
        return loaded

    def repair(self, start: int) -> None:
        """Keep damaged files aside, and log a warning for each, in this start of the cluster. Raises OSError."""
        loaded = self._loaded
        assert loaded is not None, "the directory is loaded before it is repaired"
        self.log_problems()
        try:
            read_document(self.directory / CHECKPOINT)
        except DamagedDocument:
            (self.directory / CHECKPOINT).rename(unused_name(self.directory / CHECKPOINT, DAMAGED))
        for scan in loaded.scans:
            if scan.gaps:
                aside = scan.keep_whole_batches()
                logger.warning("%s is kept as %s, and its %d whole batches stay", scan.path, aside, len(scan.batches))
        # Left by a compaction that crashed before swap.json, whose old segments are still complete.
        for path in self.directory.glob("*.compacted"):
            path.unlink()
        self._segments = {}
        for scan in loaded.scans[:-1]:
            if not scan.batches:
                scan.path.unlink()
        scans = [scan for scan in loaded.scans if scan.batches or scan is loaded.scans[-1]]
        for scan in scans:
            segment = self._segment(int(scan.path.stem))
            position = 0
            for batch, _ in scan.batches:
                segment.index(batch, position, batch.size)
                position += batch.size
            self._segments[segment.base_offset] = segment
        last = next(reversed(self._segments.values()), None)
        end = max(loaded.end_offset, loaded.high_watermark)
        if last is None or (last.batches and end > loaded.end_offset):
            # The offsets of lost records are not given again: a reader behind them would take new records for old ones.
            segment = self._segment(end)
            segment.touch()
            self._segments[end] = segment
        elif end > loaded.end_offset:
            del self._segments[last.base_offset]
            last.path.rename(last.path.with_name(f"{end:020}.log"))
            self._segments[end] = self._segment(end)
        self._facts |= {"start": start, "is_stopped": False}
        self._write_checkpoint(is_flushed=bool(loaded.losses or loaded.damage or last is None))

    def log_problems(self) -> None:
        """Log a warning for each file that ``load`` has found missing or damaged."""
        if self._loaded is not None:
            for text in self._loaded.losses + self._loaded.damage:
                logger.warning("%s", text)

    def open(self, log: Log) -> None:
        """Begin the log with the content of the directory, which is created if it does not exist. Raises OSError."""
        if self._loaded is None:
            topic_id = self.topic_id_on_disk if self.directory.exists() else None
            # Such as the log of an older topic of this name, which was deleted while this broker was stopped.
            if topic_id not in (None, self._topic_id):
                self.set_aside(STRAY)
            self.create_directory()
            self.repair(self.load().start)
        assert self._loaded is not None
        segments = cast("list[Segment]", list(self._segments.values()))
        log.load(segments, self._loaded.start_offset, self._loaded.high_watermark, self._loaded.epochs)
        self._loaded = None  # the log has it now
        self._is_open = True

    def set_aside(self, suffix: str) -> Path:
        """Rename the directory, so that another log may have its place. Returns the new name. Raises OSError."""
        aside = set_aside(self.directory, suffix)
        self._loaded = None
        self._facts = dict(_NOTHING)
        return aside

    def checkpoint(self, log: Log, partition_epoch: int, *, is_flushed: bool = True) -> None:
        """Write the high watermark and, with ``is_flushed``, the sizes after a flush. Raises OSError."""
        last = cast("FileSegment", log.segments[-1])
        if is_flushed and last.flushed != last.size:
            last.flush()
        self._facts |= {"high_watermark": log.high_watermark, "partition_epoch": partition_epoch}
        # Only an orderly end flushes all logs, so a flushed checkpoint is the last one of its run.
        self._facts["is_stopped"] = is_flushed
        if self._content() != self._written:
            self._write_checkpoint(is_flushed=is_flushed)

    def stop_unopened(self) -> None:
        """Record an orderly stop of a run in which no broker opened this directory. Raises OSError."""
        if self.directory.exists() and self.topic_id_on_disk == self._topic_id:
            path = self.directory / CHECKPOINT
            write_document(path, read_document(path) | {"is_stopped": True})

    def delete(self, log: Log) -> None:
        """Delete the log and its directory. Raises OSError."""
        for segment in log.segments:
            self._files.close(cast("FileSegment", segment).path)
        if self.topic_id_on_disk == self._topic_id:
            delete_directory(self.directory)

    def _segment(self, base_offset: int) -> FileSegment:
        return FileSegment(base_offset, self.directory / f"{base_offset:020}.log", self._files)

    def _content(self) -> dict[str, Any]:
        sizes = [(base, segment.flushed) for base, segment in self._segments.items()]
        return {"topic_id": self._topic_id, "segments": sizes, **self._facts}

    def _write_checkpoint(self, *, is_flushed: bool = True) -> None:
        content = self._content()
        write_document(self.directory / CHECKPOINT, content, is_flushed=is_flushed)
        self._written = content

    def _finish_swap(self, checkpoint: dict[str, Any] | None) -> None:
        """Finish the compaction that a crash ended. Then the checkpoint names the new files. Raises OSError."""
        swap = self.directory / _SWAP
        names = read_document(swap)
        if names is None:
            return
        new = [self.directory / name for name in names["new"]]
        # The crash may have come between two renames. A renamed new file may have the name of an old file, and must
        # not be deleted here.
        done = {path.with_suffix(".log") for path in new if not path.exists()}
        for name in names["old"]:
            if self.directory / name not in done:
                (self.directory / name).unlink(missing_ok=True)
        for path in new:
            if path.exists():
                path.replace(path.with_suffix(".log"))
        if checkpoint is not None:
            bases = {int(name[:20]) for name in names["old"]}
            after = [(int(path.stem), size_of(path.with_suffix(".log"))) for path in new]
            rest = [(base, size) for base, size in checkpoint["segments"] if base not in bases | dict(after).keys()]
            checkpoint["segments"] = after + rest
            write_document(self.directory / CHECKPOINT, checkpoint)
        swap.unlink()

    def _scan(self, loaded: LoadedLog, paths: Sequence[tuple[int, Path]], sizes: dict[int, int]) -> None:
        """Find the batches of all segments, and note what is damaged."""
        next_offset = 0
        for base, path in paths:
            scan = scan_segment(path, max(next_offset, base))
            loaded.scans.append(scan)
            if scan.gaps:
                flushed = sizes.get(base, 0)
                # Only the last file can end in the middle of a write: a segment was complete when the next one began.
                if scan.is_torn(flushed) and path is paths[-1][1]:
                    loaded.is_torn = True
                    logger.warning(
                        "%s ends with %d bytes of a batch that is not whole", path, scan.size - scan.end_position
                    )
                else:
                    bytes_of = ", ".join(f"{first} to {end - 1}" for first, end in scan.gaps)
                    lost = scan.lost_offsets(max(next_offset, base))
                    loaded.damage.append(f"{path} is damaged in bytes {bytes_of}: {lost} are lost")
            next_offset = scan.batches[-1][0].next_offset if scan.batches else max(next_offset, base)
        loaded.end_offset = max(next_offset, loaded.start_offset)
        if loaded.end_offset < loaded.high_watermark and not loaded.losses:
            loaded.damage.append(
                f"{self.directory} ends at offset {loaded.end_offset}, but offset {loaded.high_watermark} was reached: "
                "the records between them are lost"
            )


def size_of(path: Path) -> int:
    """Return the size of a file; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def set_aside(directory: Path, suffix: str) -> Path:
    """Rename the directory of a log, so that another log may have its place. Returns the new name. Raises OSError."""
    aside = unused_name(directory, suffix)
    directory.rename(aside)
    return aside


def delete_directory(directory: Path) -> None:
    """Delete the directory of a log, under another name. Files that are not ours stay there. Raises OSError."""
    if not directory.name.endswith(DELETED):
        directory = set_aside(directory, DELETED)
    foreign = []
    for path in directory.iterdir():
        if _OWN_NAME.fullmatch(path.name):
            path.unlink()
        else:
            foreign.append(path.name)
    if foreign:
        logger.warning("%s stays, because it has files that are not a log's, such as %s", directory, foreign[0])
    else:
        directory.rmdir()
