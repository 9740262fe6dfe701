"""The directory in which a cluster keeps its topics and logs: ``EmbeddedCluster(data_dir=...)``.

It has ``cluster.json`` (ids), ``topics/<name>.json`` (the controller's decisions about a topic), and a file for each
``Section`` of the other metadata (``acls.json``, ``configs.json``, ...). Each node has a directory ``node-<id>``, with
a directory for each replica, see ``log_files``. Each change is on disk before a broker acts on it or answers.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any, Protocol

from ..errors import ConfigurationError, ErrorCode
from .configs import TopicConfig
from .controller import Controller, Refused
from .log_files import LogFiles, OpenFiles, read_json, write_json
from .topics import NO_LEADER, PartitionKey, PartitionState, Topic

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]


class Section(Protocol):
    """A part of the cluster's metadata, with a file of its own."""

    def saved(self) -> Any:
        """The state as a value that JSON can represent."""

    def restore(self, state: Any) -> None:
        """Begin with the state of an earlier run, or go back to an earlier state. Raises ConfigurationError."""


class InMemory:
    """The interface of ``DataDir`` without a directory. It keeps nothing."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    def open(self, controller: Controller, **sections: Section | None) -> None: ...

    def save(self, name: str | None, topic: Topic | None = None) -> None: ...

    def log_files(self, node_id: int, key: PartitionKey, topic_id: bytes) -> LogFiles | None:
        return None

    def close(self) -> None: ...


class DataDir(InMemory):
    """Owner: the EmbeddedCluster. The constructor reads ``cluster.json``; it raises ConfigurationError."""

    def __init__(self, path: Path, new_id: str, node_ids: Sequence[int]) -> None:
        self._path = path
        self._files = OpenFiles()
        self._lock: IO[str] | None = None
        self._sections: dict[str, Section] = {}
        self._controller: Controller | None = None
        self._saved: dict[str, Any] = {}  # the state of each section that is on disk
        self._maybe_written: set[str] = set()  # sections that may differ on disk, because a write failed
        self._topics: dict[str, dict[str, Any]] = {}  # the description of each topic that is on disk
        try:
            self._cluster: dict[str, Any] = read_json(path / "cluster.json") or {}
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"data_dir {str(path)!r} cannot be read: {error}") from error
        self._nodes = list(node_ids)
        known = self._cluster.get("nodes", [])
        if not set(known) <= set(node_ids):
            raise ConfigurationError(
                f"data_dir {str(path)!r} has the logs of brokers {known}, got {self._nodes}; start all of them"
            )
        super().__init__(self._cluster.get("cluster_id", new_id))

    def __repr__(self) -> str:
        return f"<DataDir {self._path}>"

    def open(self, controller: Controller, **sections: Section | None) -> None:
        """Lock the directory, and restore its content. Raises ConfigurationError.

        A section that is None does not exist in this run; its file does not change.
        """
        try:
            (self._path / "topics").mkdir(parents=True, exist_ok=True)
            self._lock = (self._path / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"data_dir {str(self._path)!r} cannot be used: {error.strerror}; another broker may use it"
            ) from error
        self._cluster = read_json(self._path / "cluster.json") or {}  # another run may have changed it
        self._controller = controller
        sections = {"configs": controller.settings, "features": controller.features, **sections}
        self._sections = {name: section for name, section in sections.items() if section is not None}
        for name, section in self._sections.items():
            state = read_json(self._path / f"{name}.json")
            if state is not None:
                try:
                    section.restore(state)
                except ConfigurationError as error:
                    raise ConfigurationError(f"data_dir {str(self._path)!r} cannot be used: {error}") from None
                self._saved[name] = state
        topics = [_topic(read_json(path), controller) for path in sorted((self._path / "topics").glob("*.json"))]
        controller.restore(topics, self._cluster.get("next_producer_id", 0))
        self._delete_strays(topics)
        self._save_cluster()

    def save(self, name: str | None, topic: Topic | None = None) -> None:
        """Save the new state of a topic, or its deletion; with the name None, the other changes.

        Before ``open``, nothing is saved. Raises Refused if the write fails. Then the sections have their former
        state again.
        """
        if self._lock is None:
            return
        try:
            if name is None:
                self._save_cluster()
            else:
                self._save_topic(name, None if topic is None else _described(topic))
        except OSError as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the change cannot be saved: {error}") from error

    def log_files(self, node_id: int, key: PartitionKey, topic_id: bytes) -> LogFiles:
        """The directory of a replica."""
        return LogFiles(self._path / f"node-{node_id}" / f"{key[0]}-{key[1]}", topic_id, self._files)

    def close(self) -> None:
        """Close all files, and release the lock."""
        self._files.close_all()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _delete_strays(self, topics: list[Topic]) -> None:
        """Delete the logs of deleted topics and of replicas that have moved, which a crash may have left."""
        wanted = {
            (f"node-{node}", f"{topic.name}-{index}")
            for topic in topics
            for index, state in enumerate(topic.partitions)
            for node in state.replicas
        }
        for path in self._path.glob("node-*/*"):
            if (path.parent.name, path.name) not in wanted:
                shutil.rmtree(path)

    def _save_topic(self, name: str, described: dict[str, Any] | None) -> None:
        path = self._path / "topics" / f"{name}.json"
        if described is not None and described == self._topics.get(name):
            return
        self._topics.pop(name, None)  # if the write fails, the disk may have either state
        if described is None:
            path.unlink(missing_ok=True)
        else:
            write_json(path, described)
            self._topics[name] = described

    def _save_cluster(self) -> None:
        assert self._controller is not None
        cluster = {
            "cluster_id": self.cluster_id,
            "nodes": self._nodes,
            "next_producer_id": self._controller.producer_ids_reserved,
        }
        if cluster != self._cluster:
            write_json(self._path / "cluster.json", cluster)
            self._cluster = cluster
        self._save_sections()

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
        write_json(self._path / f"{name}.json", state, is_private=True)
        self._saved[name] = state
        self._maybe_written.discard(name)


def data_of(path: str | PathLike[str] | None, new_id: str, node_ids: Sequence[int]) -> InMemory:
    """The directory at ``path``, or memory if it is None. ``new_id`` is the id of a new cluster.

    Raises ConfigurationError.
    """
    if path is None:
        return InMemory(new_id)
    if fcntl is None:
        raise ConfigurationError("data_dir needs a system with file locks and positioned reads, such as Linux or macOS")
    return DataDir(Path(path), new_id, node_ids)


def _described(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "configs": dict(topic.configs),
        "partitions": [
            {
                "replicas": state.replicas,
                "isr": state.isr,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "partition_epoch": state.partition_epoch,
                "adding": state.adding,
                "removing": state.removing,
                "elr": state.elr,
                "last_leader": state.last_leader,
            }
            for state in topic.partitions
        ],
    }


def _topic(described: dict[str, Any], controller: Controller) -> Topic:
    """The topic as it was, with the same leaders in new epochs. Another in-sync replica may have fewer records."""
    states = tuple(
        PartitionState(
            replicas=tuple(each["replicas"]),
            isr=tuple(each["isr"]),
            leader=each["leader"],
            leader_epoch=each["leader_epoch"] + 1,
            partition_epoch=each["partition_epoch"] + 1,
            adding=tuple(each["adding"]),
            removing=tuple(each["removing"]),
            elr=tuple(each.get("elr", ())),  # data directories of earlier versions lack them
            last_leader=each.get("last_leader", NO_LEADER),
        )
        for each in described["partitions"]
    )
    config = TopicConfig.parse(described["configs"], controller.settings.merged())
    return Topic(described["name"], bytes.fromhex(described["topic_id"]), states, config, described["configs"])
