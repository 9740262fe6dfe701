"""The directory in which a cluster keeps its topics and logs: ``EmbeddedCluster(data_dir=...)``.

It has ``cluster.json`` (ids), ``topics/<name>.json`` (the controller's decisions about a topic), and a file for each
``Section`` of the other metadata (``acls.json``, ``configs.json``, ...). Each node has a directory ``node-<id>``, with
a directory for each replica, see ``log.files``. Each change is on disk before a broker acts on it or answers.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import IO, Any, Protocol

from ..aio import forks
from ..errors import ConfigurationError, ErrorCode
from .json_documents import DamagedDocument, UnreadableDocument, flush_directory, read_document, write_document
from .log.files import CHECKPOINT, DELETED, STRAY, LoadedLog, LogFiles, OpenFiles, delete_directory, set_aside, size_of
from .log.segment_scan import DAMAGED
from .metadata.controller import Controller, Refused
from .metadata.topics import PartitionKey, PartitionRegistration, Topic
from .replicas.recovery import Recovery, recover
from .settings.configs import TopicConfig

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]


logger = logging.getLogger(__name__)

_CLUSTER = "cluster.json"
_LOCK = ".lock"
_DELETED_TOPICS = "deleted"
_OF_NO_MEANING = {_LOCK, "cluster.tmp", "lost+found", ".gitignore", ".gitkeep", ".DS_Store"}
"""Files that a directory without ``cluster.json`` may have: none of them says that it is used for something else."""


class Section(Protocol):
    """A part of the cluster's metadata, with a file of its own."""

    def saved(self) -> Any:
        """Return the state as a value that JSON can represent."""

    def restore(self, state: Any) -> None:
        """Begin with the state of an earlier run, or go back to an earlier state. Raises ConfigurationError."""


class NoDataDir:
    """The interface of ``DataDir`` without a directory. It keeps nothing."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    def open(self, controller: Controller, **sections: Section | None) -> None: ...

    def save(self, name: str | None, topic: Topic | None = None) -> None: ...

    def log_files(self, node_id: int, key: PartitionKey, topic_id: bytes) -> LogFiles | None:
        return None

    def close(self, *, is_orderly: bool) -> None: ...


class DataDir(NoDataDir):
    """Owner: the EmbeddedCluster. The constructor reads ``cluster.json``; it raises ConfigurationError."""

    def __init__(self, path: Path, new_id: str, node_ids: Sequence[int]) -> None:
        self._path = path
        self._files = OpenFiles()
        self._lock: IO[bytes] | None = None
        self._is_inherited = False  # whether this process was forked, so that the directory is its parent's
        self._sections: dict[str, Section] = {}
        self._controller: Controller | None = None
        self._saved: dict[str, Any] = {}  # the state of each section that is on disk
        self._maybe_written: set[str] = set()  # sections that may differ on disk, because a write failed
        self._topics: dict[str, dict[str, Any]] = {}  # the description of each topic that is on disk
        self._loaded: dict[tuple[int, PartitionKey], LogFiles] = {}  # replicas whose Partition does not exist yet
        self._deleted: dict[Path, list[Path]] = {}  # by the file of a deleted topic, the directories of its replicas
        self._nodes = list(node_ids)
        self._start = 0  # the number of this start of the cluster
        self._cluster: dict[str, Any] = self._read_cluster()
        super().__init__(self._cluster.get("cluster_id", new_id))

    def __repr__(self) -> str:
        return f"<DataDir {self._path}>"

    def open(self, controller: Controller, **sections: Section | None) -> None:
        """Lock the directory, and restore its content. Raises ConfigurationError.

        A section that is None does not exist in this run; its file does not change.
        """
        self._controller = controller
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._read_cluster()  # before the first file of ours is made in a directory that may not be ours
            self._take_lock()
            self._cluster = self._read_cluster()  # another run may have changed it
            if not self._cluster:
                self._write_cluster()  # a directory with any other file of ours has this one
            self._start = self._cluster["start"] + 1
            self._restore_sections({"configs": controller.settings, "features": controller.features, **sections})
            topics = self._restore_topics(controller)
            controller.restore(topics, self._next_producer_id())
            self._set_strays_aside()
            self._save_cluster()
        except OSError as error:
            where = error.filename if error.filename is not None else self._path
            raise self._unusable(
                f"{where}: {error.strerror}. Make room, and let this user read and write all of the directory"
            ) from error
        except UnreadableDocument as error:
            raise self._unusable(f"{error}. Restore the file from a copy of the directory") from error

    def _take_lock(self) -> None:
        # Not truncated: the file's name alone proves nothing.
        lock = (self._path / _LOCK).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise self._unusable(
                    "another broker may use it: its lock is taken. Stop that broker, or give another directory"
                ) from error
            raise
        self._lock = lock
        forks.notify(self)

    def _read_cluster(self) -> dict[str, Any]:
        """Read ``cluster.json``. Returns {} for a new directory, and raises ConfigurationError for a foreign one."""
        try:
            names = {path.name for path in self._path.iterdir()} if self._path.exists() else set()
            cluster: dict[str, Any] | None = read_document(self._path / _CLUSTER)
        except OSError as error:
            raise self._unusable(f"it cannot be read: {error.strerror}. Give a directory of this user") from error
        except UnreadableDocument as error:
            raise self._unusable(f"{error}. Restore the file from a copy of the directory") from error
        if cluster is None:
            foreign = sorted(names - _OF_NO_MEANING)
            if foreign and "topics" in foreign:
                raise self._unusable(
                    f"it has topics, but {_CLUSTER} is missing, which has the ids that were given out. "
                    "Restore the file from a copy of the directory, or give another directory"
                )
            if foreign:
                raise self._unusable(
                    f"it is not empty, and not a data directory: it has {foreign[0]!r}, but no {_CLUSTER}. "
                    "Give a new or an empty directory"
                )
            return {}
        used = set(cluster["nodes"])
        if not used <= set(self._nodes):
            raise ConfigurationError(
                f"data_dir {str(self._path)!r} has the logs of brokers {sorted(used)}, got {self._nodes}; "
                "start all of them"
            )
        return cluster

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"data_dir {str(self._path)!r} cannot be used: {why}")

    def _restore_sections(self, sections: Mapping[str, Section | None]) -> None:
        self._sections = {name: section for name, section in sections.items() if section is not None}
        for name, section in self._sections.items():
            path = self._path / f"{name}.json"
            try:
                state = read_document(path)
            except DamagedDocument as error:
                raise self._unusable(
                    f"{error}. Restore the file from a copy of the directory; or delete it: then its content is lost"
                ) from error
            if state is not None:
                try:
                    section.restore(state)
                except ConfigurationError as error:
                    raise self._unusable(str(error)) from None
                self._saved[name] = state
            elif name in self._cluster.get("sections", ()):
                logger.warning("%s is missing: the cluster begins without its content", path)

    # Topics and their logs.

    def _restore_topics(self, controller: Controller) -> list[Topic]:
        """Read the topics and their logs; no damaged replica begins in sync. Raises ConfigurationError."""
        topics = [self._read_topic(path, controller) for path in sorted((self._path / "topics").glob("*.json"))]
        used = {node for topic in topics for state in topic.partitions for node in state.replicas}
        if not used <= set(self._nodes):
            raise self._unusable(
                f"topics have replicas on brokers {sorted(used)}, got {self._nodes}; start all of them"
            )
        decided: list[tuple[Topic, list[Recovery]]] = []
        for topic in topics:
            recoveries = [self._recover(topic, index) for index in range(len(topic.partitions))]
            states = tuple(recovery.state for recovery in recoveries)
            decided.append((replace(topic, partitions=states), recoveries))
        self._start = max(self._start, *(files.start + 1 for files in self._loaded.values()), 0)
        # Nothing is changed before all logs are known to be usable. The topics come first: after a crash, a replica
        # that is empty now would count as one that has all records.
        for topic, (after, _) in zip(topics, decided):
            if after.partitions != topic.partitions:
                self._save_topic(after.name, self._described(after))
        for topic, recoveries in decided:
            for index, recovery in enumerate(recoveries):
                self._repair((topic.name, index), recovery)
        return [topic for topic, _ in decided]

    def _read_topic(self, path: Path, controller: Controller) -> Topic:
        try:
            content = read_document(path)
            if content["name"] != path.stem:
                raise DamagedDocument(f"{path} is damaged: it describes the topic {content['name']!r}")
        except DamagedDocument as error:
            raise self._unusable(
                f"{error}. Restore the file from a copy of the directory; or delete it: then the topic is gone, and "
                "its logs are kept aside"
            ) from error
        self._topics[path.stem] = content
        return _topic(content, controller, self._start)

    def _recover(self, topic: Topic, index: int) -> Recovery:
        """Load the logs of a partition, and decide with which state it begins. Raises ConfigurationError."""
        key, state = (topic.name, index), topic.partitions[index]
        logs: dict[int, LoadedLog | None] = {}
        losses = []
        for node in state.replicas:
            files = self._loaded[node, key] = self._directory(node, key, topic.topic_id)
            topic_id = files.topic_id_on_disk
            if topic_id is not None and (self._path / _DELETED_TOPICS / f"{topic_id}.json").exists():
                delete_directory(files.directory)  # of an older topic of this name, on a broker that was stopped
                files.create_directory(self._start)
                topic_id = topic.topic_id.hex()
            if not files.directory.exists() or topic_id not in (None, topic.topic_id.hex()):
                logs[node] = None
                losses.append(f"{files.directory} is missing")
                cure = f"create the directory {files.directory}"
                continue
            log = logs[node] = files.load()
            # This needs no record of each write: cluster.json has the number of the last start, and whether it ended
            # orderly, and each directory that took part has the same.
            last, is_stopped = self._cluster["start"], self._cluster["is_stopped"]
            if 0 <= log.start < last or (log.start == last and is_stopped and not log.is_stopped):
                log.damage.append(f"{files.directory} is an older copy: it lacks the records that were written later")
            if log.losses:
                losses += log.losses
                cure = f"delete {files.directory / CHECKPOINT}"
        recovery = recover(state, logs)
        if recovery.is_lost:
            raise self._unusable(
                f"records of {topic.name}-{index} are gone: {', '.join(losses)}. Restore the files from a copy of the "
                f"directory; or {cure}, to begin without these records"
            )
        if recovery.is_older:
            logger.warning(
                "%s is older than the logs of partition %d: its leader is chosen by the logs",
                self._path / "topics" / f"{topic.name}.json",
                index,
            )
        return recovery

    def _repair(self, key: PartitionKey, recovery: Recovery) -> None:
        for node in recovery.state.replicas:
            files = self._loaded[node, key]
            if node in recovery.empty:
                if files.directory.exists():
                    files.log_problems()
                    logger.warning("%s is damaged, and kept as %s", files.directory, files.set_aside(DAMAGED))
                else:
                    logger.warning("%s is missing", files.directory)
                logger.warning("%s-%d begins empty on broker %d, and copies the records of the leader", *key, node)
                files.create_directory(self._start)
                files.load()
            files.repair(self._start)

    def _next_producer_id(self) -> int:
        """Return the first producer id that no record has: an older ``cluster.json`` would give ids out again."""
        largest = max((files.largest_producer_id for files in self._loaded.values()), default=-1)
        reserved: int = self._cluster.get("next_producer_id", 0)
        return max(reserved, largest + 1)

    def _set_strays_aside(self) -> None:
        """Rename the logs that belong to no replica. Delete only those of deleted topics, and those without records.

        A directory without a checkpoint of ours is not touched.
        """
        replica_directories = {self._directory(node, key, b"").directory for node, key in self._loaded}
        deleted = {path.stem: path for path in (self._path / _DELETED_TOPICS).glob("*.json")}
        for path in sorted(self._path.glob("node-*/*")):
            if path in replica_directories or not path.is_dir():
                continue
            if re.search(f"{DELETED}([.][0-9]+)?$", path.name):
                delete_directory(path)
                continue
            topic_id = LogFiles(path, b"", self._files).topic_id_on_disk
            if topic_id is None or re.search(f"({STRAY}|{DAMAGED})([.][0-9]+)?$", path.name):
                continue
            if topic_id in deleted or not any(map(size_of, path.glob("*.log"))):
                delete_directory(path)
            else:
                logger.warning(
                    "%s belongs to no topic, and is kept as %s: %s has no such replica",
                    path,
                    set_aside(path, STRAY),
                    self._path / "topics",
                )
        for path in deleted.values():
            path.unlink()

    def save(self, name: str | None, topic: Topic | None = None) -> None:
        """Save the new state of a topic, or its deletion; with the name None, the other changes.

        Before ``open``, nothing is saved. Raises Refused if the write fails. Then the sections have their former
        state again.
        """
        if self._lock is None or self._is_inherited:
            return
        try:
            if name is None:
                self._save_cluster()
            else:
                self._save_topic(name, None if topic is None else self._described(topic))
        except OSError as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the change cannot be saved: {error}") from error

    def log_files(self, node_id: int, key: PartitionKey, topic_id: bytes) -> LogFiles:
        """Return the directory of a replica."""
        return self._loaded.pop((node_id, key), None) or self._directory(node_id, key, topic_id)

    def _directory(self, node_id: int, key: PartitionKey, topic_id: bytes) -> LogFiles:
        return LogFiles(self._path / f"node-{node_id}" / f"{key[0]}-{key[1]}", topic_id, self._files)

    def forked(self) -> None:
        """Leave the directory and its lock to the parent."""
        self._is_inherited = True
        if self._lock is not None:
            forks.detach_file(self._lock.fileno())

    def close(self, *, is_orderly: bool) -> None:
        """Close all files, and release the lock. ``is_orderly`` if all logs have been flushed."""
        self._files.close_all()
        if is_orderly and self._lock is not None:
            try:
                for files in self._loaded.values():
                    files.stop_unopened()
                self._write_cluster(is_stopped=True)
            except (OSError, UnreadableDocument) as error:
                logger.error("%r failed to record its orderly end: %s", self, error)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _described(self, topic: Topic) -> dict[str, Any]:
        return {
            "name": topic.name,
            "topic_id": topic.topic_id.hex(),
            "configs": dict(topic.configs),
            "start": self._start,
            "partitions": [asdict(state) for state in topic.partitions],
        }

    def _save_topic(self, name: str, content: dict[str, Any] | None) -> None:
        path = self._path / "topics" / f"{name}.json"
        if content is not None and content == self._topics.get(name):
            return
        before = self._topics.get(name)
        if content is None:
            self._delete_topic(path, before)
            self._topics.pop(name, None)
            return
        if before is None and path.exists():  # on a file system that ignores case, under the name of another topic
            for other in self._topics:
                if other.lower() == name.lower():
                    raise OSError(errno.EEXIST, f"the file system takes {name!r} and the topic {other!r} for one name")
        # The directories come first. So a topic whose directory is missing has lost it.
        path.parent.mkdir(exist_ok=True)
        for replica, files in self._new_directories(content, before):
            files.create_directory(self._start)
            self._loaded[replica] = files
        self._topics.pop(name, None)  # if the write fails, the disk may have either state
        write_document(path, content)
        self._topics[name] = content

    def _new_directories(
        self, content: dict[str, Any], before: dict[str, Any] | None
    ) -> Iterator[tuple[tuple[int, PartitionKey], LogFiles]]:
        is_same = before is not None and before["topic_id"] == content["topic_id"]
        present = before["partitions"] if before is not None and is_same else []
        for index, state in enumerate(content["partitions"]):
            old = present[index]["replicas"] if index < len(present) else ()
            for node in state["replicas"]:
                if node not in old:
                    key = (content["name"], index)
                    yield (node, key), self._directory(node, key, bytes.fromhex(content["topic_id"]))

    def _delete_topic(self, path: Path, before: dict[str, Any] | None) -> None:
        """Move the file of a topic. It proves that logs of the topic on a broker that is stopped may be deleted."""
        for earlier, directories in list(self._deleted.items()):
            if not any(directory.exists() for directory in directories):
                earlier.unlink(missing_ok=True)
                del self._deleted[earlier]
        if before is None:
            path.unlink(missing_ok=True)
            return
        deleted = self._path / _DELETED_TOPICS / f"{before['topic_id']}.json"
        deleted.parent.mkdir(exist_ok=True)
        path.rename(deleted)
        try:
            flush_directory(path.parent)
        except OSError:
            deleted.rename(path)
            raise
        self._deleted[deleted] = [
            self._directory(node, (before["name"], index), b"").directory
            for index, state in enumerate(before["partitions"])
            for node in state["replicas"]
        ]

    def _save_cluster(self) -> None:
        # The sections come first: cluster.json lists their files, so a listed file that is missing was taken away.
        self._save_sections()
        self._write_cluster()

    def _write_cluster(self, *, is_stopped: bool = False) -> None:
        assert self._controller is not None
        # Reserved producer ids are never given out again, not even by a controller that has begun anew.
        next_producer_id = max(self._controller.producer_ids_reserved, self._cluster.get("next_producer_id", 0))
        cluster = {
            "cluster_id": self.cluster_id,
            "nodes": self._nodes,
            "next_producer_id": next_producer_id,
            "start": self._start,
            "is_stopped": is_stopped,
            "sections": sorted({*self._saved, *self._cluster.get("sections", ())}),
        }
        if cluster != self._cluster:
            write_document(self._path / _CLUSTER, cluster)
            self._cluster = cluster

    def _save_sections(self) -> None:
        """Write the sections that changed. If the write of one section fails, all are restored."""
        before = dict(self._saved)
        states = {name: section.saved() for name, section in self._sections.items()}
        try:
            for name, state in states.items():
                if state != before.get(name) or name in self._maybe_written:
                    self._write_section(name, state)
        except OSError:
            written = [name for name in before if self._saved[name] != before[name]]
            for name, state in states.items():
                if name in before and state != before[name]:
                    self._sections[name].restore(before[name])
            self._saved = before
            self._maybe_written.update(written)
            with contextlib.suppress(OSError):  # the next save tries again
                for name in written:
                    self._write_section(name, before[name])
            raise

    def _write_section(self, name: str, state: Any) -> None:
        self._maybe_written.add(name)
        write_document(self._path / f"{name}.json", state, is_private=True)
        self._saved[name] = state
        self._maybe_written.discard(name)


def data_of(path: str | PathLike[str] | None, new_id: str, node_ids: Sequence[int]) -> NoDataDir:
    """Return the directory at ``path``, or memory if it is None. ``new_id`` is the id of a new cluster.

    Raises ConfigurationError.
    """
    if path is None:
        return NoDataDir(new_id)
    if fcntl is None:
        raise ConfigurationError("data_dir needs a system with file locks and positioned reads, such as Linux or macOS")
    return DataDir(Path(path), new_id, node_ids)


def _topic(content: dict[str, Any], controller: Controller, start: int) -> Topic:
    """Return the topic as it was, with the same leaders in new epochs. Another in-sync replica may have fewer
    records."""
    # The epochs of earlier starts are not written to the file unless something else of the topic changed.
    starts = max(1, start - content["start"])
    partitions = tuple(_state(values, starts) for values in content["partitions"])
    config = TopicConfig.parse(content["configs"], controller.settings.merged())
    return Topic(content["name"], bytes.fromhex(content["topic_id"]), partitions, config, content["configs"])


def _state(values: dict[str, Any], starts: int) -> PartitionRegistration:
    """Return the saved state of a partition, in epochs that are ``starts`` later. JSON has lists for its tuples."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    state = PartitionRegistration(**fields)
    return replace(state, leader_epoch=state.leader_epoch + starts, partition_epoch=state.partition_epoch + starts)
