"""A data directory that is damaged, foreign, old, full or new loses no acknowledged record in silence."""

from __future__ import annotations

import resource
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError

SEGMENT = f"node-1/orders-0/{0:020}.log"
COUNT = 20


@asynccontextmanager
async def run(path: Path, brokers: int = 1, **settings: Any) -> AsyncIterator[EmbeddedCluster]:
    settings = {"super_users": ["User:ANONYMOUS"]} | settings
    async with EmbeddedCluster(brokers=brokers, tcp=False, data_dir=path, **settings) as cluster:
        yield cluster


async def write(cluster: EmbeddedCluster, *values: str, **settings: Any) -> list[int]:
    """Return the offsets of values that a new producer wrote, each in a batch of its own."""
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector, **settings) as producer:
        if "transactional_id" not in settings:
            return [(await producer.send("orders", value)).offset for value in values]
        async with producer.transaction():
            return [(await producer.send("orders", value)).offset for value in values]


def values(cluster: EmbeddedCluster) -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records("orders")]


async def filled(path: Path, brokers: int = 1, **settings: Any) -> list[str]:
    """Return a data directory with records. Returns their values."""
    written = [f"order {number}" for number in range(COUNT)]
    async with run(path, brokers, **settings) as cluster:
        await cluster.create_topic("orders", 1, brokers)
        await write(cluster, *written)
        await cluster.until_in_sync("orders")
    return written


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def make_newer(path: Path) -> None:
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))


def make_unreadable(path: Path) -> None:
    """Replace a file by a directory: root may read every file, but not a directory as a file."""
    path.unlink()
    path.mkdir()


REFUSED, WARNED = "the start is refused", "a warning names the file"

# What happens for each kind of file and of damage, and how many records are readable after a start.
TABLE: list[tuple[str, Callable[[Path], None], str, int]] = [
    ("cluster.json", remove, REFUSED, 0),
    ("cluster.json", empty, REFUSED, 0),
    ("cluster.json", truncate, REFUSED, 0),
    ("cluster.json", flip, REFUSED, 0),
    ("cluster.json", make_newer, REFUSED, 0),
    ("cluster.json", make_unreadable, REFUSED, 0),
    ("topics/orders.json", remove, WARNED, 0),
    ("topics/orders.json", empty, REFUSED, 0),
    ("topics/orders.json", truncate, REFUSED, 0),
    ("topics/orders.json", flip, REFUSED, 0),
    ("topics/orders.json", make_newer, REFUSED, 0),
    ("topics/orders.json", make_unreadable, REFUSED, 0),
    ("acls.json", remove, WARNED, COUNT),
    ("acls.json", empty, REFUSED, 0),
    ("acls.json", truncate, REFUSED, 0),
    ("acls.json", flip, REFUSED, 0),
    ("acls.json", make_newer, REFUSED, 0),
    ("acls.json", make_unreadable, REFUSED, 0),
    ("node-1/orders-0/checkpoint.json", remove, WARNED, COUNT),
    ("node-1/orders-0/checkpoint.json", empty, WARNED, COUNT),
    ("node-1/orders-0/checkpoint.json", truncate, WARNED, COUNT),
    ("node-1/orders-0/checkpoint.json", flip, WARNED, COUNT),
    ("node-1/orders-0/checkpoint.json", make_newer, REFUSED, 0),
    ("node-1/orders-0/checkpoint.json", make_unreadable, REFUSED, 0),
    (SEGMENT, remove, REFUSED, 0),
    (SEGMENT, empty, REFUSED, 0),
    (SEGMENT, truncate, REFUSED, 0),
    (SEGMENT, flip, WARNED, COUNT - 1),
    (SEGMENT, make_unreadable, REFUSED, 0),
    ("node-1/orders-0", shutil.rmtree, REFUSED, 0),
    ("node-1", shutil.rmtree, REFUSED, 0),
]


@pytest.mark.parametrize(("name", "damage", "outcome", "count"), TABLE)
async def test_damage_is_refused_with_a_cure_or_logged_and_nothing_is_deleted(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: Callable[[Path], None],
    outcome: str,
    count: int,
) -> None:
    written = await filled(tmp_path)
    damage(tmp_path / name)
    size = _bytes_of_logs(tmp_path)
    caplog.clear()
    if outcome is REFUSED:
        with pytest.raises(ConfigurationError) as caught:
            async with run(tmp_path):
                pass
        text = str(caught.value)
        assert str(tmp_path) in text
        assert name.removesuffix("node-1") in text
        assert any(cure in text for cure in ("Restore", "Give", "Use that version", "Make room")), text
    else:
        async with run(tmp_path) as cluster:
            present = values(cluster) if "orders" in cluster.controller.topics else []
            assert len(present) == count
            assert set(present) <= set(written)
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert any(Path(name).stem.removesuffix(".json") in text for text in warnings), warnings
    assert _bytes_of_logs(tmp_path) >= size


def _bytes_of_logs(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.log*") if file.is_file())


async def test_the_cure_that_an_error_names_lets_the_cluster_start(tmp_path: Path) -> None:
    written = await filled(tmp_path)
    truncate(tmp_path / SEGMENT)
    with pytest.raises(ConfigurationError, match=r"or delete \S+/node-1/orders-0/checkpoint.json"):
        async with run(tmp_path):
            pass
    (tmp_path / "node-1/orders-0/checkpoint.json").unlink()
    async with run(tmp_path) as cluster:
        present = values(cluster)
        assert present == written[: len(present)]
        assert 0 < len(present) < COUNT
        await write(cluster, "later")
    async with run(tmp_path) as cluster:
        assert values(cluster) == [*present, "later"]


# Other replicas have the records.


@pytest.mark.parametrize("damage", [shutil.rmtree, lambda path: remove(path / f"{0:020}.log")])
async def test_a_damaged_leader_copies_the_records_of_a_whole_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    written = await filled(tmp_path, brokers=3)
    async with run(tmp_path, brokers=3) as cluster:
        leader = cluster.leader_of("orders", 0)
    damage(tmp_path / f"node-{leader}" / "orders-0")
    async with run(tmp_path, brokers=3) as cluster:
        assert cluster.leader_of("orders", 0) != leader
        assert values(cluster) == written
        await cluster.until_in_sync("orders")
        await cluster.move_leader("orders", 0, leader)
        assert values(cluster) == written
    assert f"orders-0 begins empty on broker {leader}" in caplog.text


async def test_a_damaged_replica_that_begins_empty_does_not_count_as_whole_after_a_crash(tmp_path: Path) -> None:
    written = await filled(tmp_path, brokers=3)
    shutil.rmtree(tmp_path / "node-1" / "orders-0")
    async with run(tmp_path, brokers=3):
        shutil.copytree(tmp_path, tmp_path / "crashed", ignore=shutil.ignore_patterns("crashed", ".lock"))
    async with run(tmp_path / "crashed", brokers=3) as cluster:
        assert values(cluster) == written


async def test_an_older_file_of_a_topic_does_not_elect_a_replica_that_lacks_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = await filled(tmp_path, brokers=3)
    older = (tmp_path / "topics/orders.json").read_bytes()
    async with run(tmp_path, brokers=3) as cluster:
        await cluster.kill(1)
        await cluster.kill(2)
        await write(cluster, "on one broker")
    (tmp_path / "topics/orders.json").write_bytes(older)
    async with run(tmp_path, brokers=3) as cluster:
        assert values(cluster) == [*written, "on one broker"]
    assert "is older than the logs of partition 0" in caplog.text


async def test_an_older_file_of_a_topic_with_fewer_partitions_keeps_the_logs_of_the_others(tmp_path: Path) -> None:
    await filled(tmp_path)
    older = (tmp_path / "topics/orders.json").read_bytes()
    async with run(tmp_path) as cluster:
        cluster.controller.create_partitions("orders", 2, None)
        await cluster.produce("orders", "new", partition=1)
    (tmp_path / "topics/orders.json").write_bytes(older)
    async with run(tmp_path) as cluster:
        assert len(cluster.controller.topics["orders"].partitions) == 1
    assert (tmp_path / "node-1/orders-1-stray" / f"{0:020}.log").stat().st_size > 0


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_an_older_copy_of_the_directory_of_a_replica_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, brokers: int, is_killed: bool
) -> None:
    written = await filled(tmp_path, brokers)
    replica, end = tmp_path / "node-1" / "orders-0", tmp_path / "end"
    shutil.copytree(replica, tmp_path / "older")
    async with run(tmp_path, brokers) as cluster:
        await write(cluster, "later")
        await cluster.until_in_sync("orders")
        if is_killed:
            shutil.copytree(tmp_path, end, ignore=shutil.ignore_patterns("end", "older", ".lock"))
    if not is_killed:
        shutil.copytree(tmp_path, end, ignore=shutil.ignore_patterns("end", "older", ".lock"))
    shutil.rmtree(end / "node-1" / "orders-0")
    shutil.copytree(tmp_path / "older", end / "node-1" / "orders-0")
    caplog.clear()
    async with run(end, brokers) as cluster:
        assert values(cluster) == (written if brokers == 1 else [*written, "later"])
    assert "node-1/orders-0 is an older copy: it lacks the records that were written later" in caplog.text


async def test_a_directory_of_a_run_that_ended_in_any_way_is_no_older_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = await filled(tmp_path, brokers=3)
    async with run(tmp_path, brokers=3) as cluster:
        await cluster.kill(3)
        await cluster.create_topic("bills", assignments=[[3, 1]])  # no process opens the directory on broker 3
        shutil.copytree(tmp_path, tmp_path / "crashed", ignore=shutil.ignore_patterns("crashed", ".lock"))
    for path in (tmp_path, tmp_path / "crashed", tmp_path, tmp_path / "crashed"):
        async with run(path, brokers=3) as cluster:
            assert values(cluster) == written
            await cluster.until_in_sync("bills")
    with pytest.raises(ConfigurationError, match="cannot listen"):
        async with EmbeddedCluster(brokers=3, data_dir=tmp_path, ports=[1, 1, 1]):
            pass
    async with run(tmp_path, brokers=3) as cluster:
        assert values(cluster) == written
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


# Producer ids.


@pytest.mark.parametrize("settings", [{}, {"transactional_id": "t"}])
async def test_an_older_cluster_file_gives_no_producer_id_out_again(tmp_path: Path, settings: dict[str, str]) -> None:
    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders")
    older = (tmp_path / "cluster.json").read_bytes()
    async with run(tmp_path) as cluster:
        await write(cluster, "first", "second", **settings)
    (tmp_path / "cluster.json").write_bytes(older)
    async with run(tmp_path) as cluster:
        await write(cluster, "third", "fourth")
        assert values(cluster) == ["first", "second", "third", "fourth"]


async def test_the_ids_of_transactional_producers_without_records_are_not_given_out_again(tmp_path: Path) -> None:
    async with run(tmp_path):
        pass
    older = (tmp_path / "cluster.json").read_bytes()
    async with run(tmp_path) as cluster:
        async with Producer(cluster.bootstrap_servers, connector=cluster.connector, transactional_id="t"):
            pass
        used = cluster.nodes[1].transactions.largest_producer_id
    (tmp_path / "cluster.json").write_bytes(older)
    async with run(tmp_path) as cluster:
        assert cluster.controller.next_producer_id() > used


# Foreign files.


async def test_a_directory_with_files_of_others_is_refused_and_not_touched(tmp_path: Path) -> None:
    for name in ("node-app/src/main.js", "node-red/data/flows.json", ".lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("years of work")
    with pytest.raises(ConfigurationError, match=r"it has 'node-app', but no cluster\.json\. Give a new or an empty"):
        async with run(tmp_path):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "node-app", "node-red"]
    assert {path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {"years of work"}


async def test_files_of_others_in_a_data_directory_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await filled(tmp_path)
    names = ("node-1/notes/today.txt", "node-app/package.json", f"node-1/mine-0/{0:020}.log", "node-1/a.txt")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "node-1/orders-0/readme.txt").write_text("mine")
    async with run(tmp_path) as cluster:
        await cluster.delete_topic("orders")
    async with run(tmp_path):
        pass
    for name in (*names, "node-1/orders-0-delete/readme.txt"):
        assert (tmp_path / name).read_text() == "mine"
    assert "has files that are not a log's, such as readme.txt" in caplog.text


async def test_the_log_of_a_topic_that_was_deleted_while_its_broker_was_stopped_is_deleted(tmp_path: Path) -> None:
    await filled(tmp_path, brokers=2)
    async with run(tmp_path, brokers=2) as cluster:
        await cluster.kill(2)
        await cluster.delete_topic("orders")
    assert (tmp_path / "node-2/orders-0").exists()
    async with run(tmp_path, brokers=2):
        pass
    assert not list(tmp_path.glob("node-*/orders*"))
    assert not list((tmp_path / "deleted").iterdir())


async def test_a_directory_of_a_start_that_crashed_early_is_used(tmp_path: Path) -> None:
    for name in (".lock", "cluster.tmp"):
        (tmp_path / name).touch()
    assert await filled(tmp_path)


# The system refuses.


async def test_a_full_disk_at_the_start_is_named(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        with pytest.raises(ConfigurationError, match=r"data_dir '.*' cannot be used: .*File too large\. Make room"):
            async with run(tmp_path / "new"):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert await filled(tmp_path / "new")


async def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"cannot be read: Not a directory\. Give a directory of this user"):
        EmbeddedCluster(data_dir=tmp_path / "file")


async def test_brokers_of_a_topic_that_an_older_cluster_file_lacks_are_required(tmp_path: Path) -> None:
    async with run(tmp_path):
        pass
    older = (tmp_path / "cluster.json").read_bytes()
    await filled(tmp_path, brokers=2)
    (tmp_path / "cluster.json").write_bytes(older)
    with pytest.raises(ConfigurationError, match=r"topics have replicas on brokers \[1, 2\], got \[1\]; start all"):
        async with run(tmp_path):
            pass
