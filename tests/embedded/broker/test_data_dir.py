"""A cluster with ``data_dir`` has the same data after a restart."""

from __future__ import annotations

import asyncio
import errno
import resource
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, Producer, TopicPartition
from aiokafka_lite.acls import AclBinding, AclOperation, AclResourceType
from aiokafka_lite.admin import ConfigResource, ConfigResourceType, FeatureChange, QuotaEntity, Results
from aiokafka_lite.embedded import EmbeddedCluster, Security, data_dir
from aiokafka_lite.embedded.log.producer_state import Marker
from aiokafka_lite.errors import BrokerError, ConfigurationError, ErrorCode, KafkaTimeout
from tests.waiting import until

ONE = TopicPartition("orders", 0)


@asynccontextmanager
async def run(path: Path, brokers: int = 3, **settings: Any) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=brokers, tcp=False, data_dir=path, **settings) as cluster:
        yield cluster


def producer(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, connector=cluster.connector, **settings)


def consumer(cluster: EmbeddedCluster, **settings: Any) -> Consumer[bytes, bytes]:
    return Consumer(cluster.bootstrap_servers, connector=cluster.connector, topics=["orders"], **settings)


def admin(cluster: EmbeddedCluster, **settings: Any) -> Admin:
    return Admin(cluster.bootstrap_servers, connector=cluster.connector, **settings)


async def test_topics_records_and_committed_offsets_are_kept(tmp_path: Path) -> None:
    async with run(tmp_path) as cluster:
        before = await cluster.create_topic("orders", 1, 3, configs={"retention.ms": "-1"})
        first_id = cluster.cluster_id
        async with producer(cluster) as writer:
            for number in range(10):
                await writer.send("orders", b"%d" % number)
        async with consumer(cluster, group_id="billing") as reader:
            for _ in range(5):
                await anext(reader)
            reader.mark()
            await reader.commit()
    async with run(tmp_path) as cluster:
        topic = cluster.controller.topics["orders"]
        assert cluster.cluster_id == first_id
        assert (topic.topic_id, dict(topic.configs)) == (before.topic_id, {"retention.ms": "-1"})
        assert [record.value for record in cluster.records("orders")] == [b"%d" % number for number in range(10)]
        async with consumer(cluster, group_id="billing") as reader:
            assert (await anext(reader)).offset == 5
        async with producer(cluster) as writer:
            assert (await writer.send("orders", b"10")).offset == 10


async def test_a_retry_after_a_restart_is_not_written_twice(tmp_path: Path) -> None:
    async with run(tmp_path, brokers=1) as cluster:
        await cluster.create_topic("orders")
        async with producer(cluster) as writer:
            await writer.send("orders", b"v")
        producers = cluster.nodes[1].replica_manager.require(("orders", 0)).producers
        (before,) = producers.entries
    async with run(tmp_path, brokers=1) as cluster:
        replica = cluster.nodes[1].replica_manager.require(("orders", 0))
        assert list(replica.producers.entries) == [before]
        assert replica.producers.find_duplicate(before, 0, 0, 1) is not None
        async with producer(cluster) as writer:
            await writer.send("orders", b"w")
        assert max(replica.producers.entries) >= 1000


async def test_aborted_records_stay_hidden(tmp_path: Path) -> None:
    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders", 1, 3)
        async with producer(cluster, transactional_id="t") as writer:
            await writer.begin_transaction()
            await writer.send("orders", b"aborted")
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("orders", b"committed")
    async with run(tmp_path) as cluster:
        assert [record.value for record in cluster.records("orders")] == [b"committed"]
        async with producer(cluster, transactional_id="t") as writer, writer.transaction():
            await writer.send("orders", b"later")
        assert [record.value for record in cluster.records("orders")] == [b"committed", b"later"]


async def test_deleted_topics_and_records_stay_deleted(tmp_path: Path) -> None:
    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders")
        await cluster.create_topic("bills")
        for _ in range(3):
            await cluster.produce("orders", b"v")
            await cluster.produce("bills", b"v")
        async with admin(cluster) as client:
            await client.records.delete({ONE: 2})
            (await client.topics.delete(["bills"])).raise_for_errors()
    assert not list(tmp_path.glob("node-*/bills-0"))
    async with run(tmp_path) as cluster:
        assert list(cluster.controller.topics) == ["orders"]
        assert [record.offset for record in cluster.records("orders")] == [2]


async def test_settings_of_brokers_are_kept(tmp_path: Path) -> None:
    async with run(tmp_path) as cluster, admin(cluster) as client:
        changes = {ConfigResource.broker(1): {"log.cleaner.threads": "2"}}
        (await client.configs.alter(changes)).raise_for_errors()
    async with run(tmp_path) as cluster:
        assert cluster.nodes[1].settings.value("log.cleaner.threads") == "2"


async def test_acls_users_tokens_quotas_features_and_settings_are_kept(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "brokers": 1,
        "security": Security("SASL_PLAINTEXT", users={"alice": "a"}, mechanisms=["SCRAM-SHA-256"]),
        "super_users": ["User:alice"],
        "configs": {"delegation.token.secret.key": "secret"},
    }
    binding = AclBinding(AclResourceType.TOPIC, "orders", "User:bob", AclOperation.READ)
    group = ConfigResource(ConfigResourceType.GROUP, "billing")
    quota = QuotaEntity(user="bob")
    async with run(tmp_path, **settings) as cluster, Admin(**cluster.client_settings()) as client:
        before: dict[str, str] = {}
        for change in (
            client.acls.create([binding]),
            client.users.set_passwords({"bob": "b"}, mechanism="SCRAM-SHA-256"),
            client.tokens.create(renewers=["User:bob"]),
            client.quotas.alter({quota: {"producer_byte_rate": 1000.0}}),
            client.cluster.update_features({"transaction.version": 1}, change=FeatureChange.SAFE_DOWNGRADE),
            client.configs.alter({group: {"consumer.session.timeout.ms": "50000"}}),
        ):
            await change
            saved = {path.name: path.read_text() for path in tmp_path.glob("*.json")}
            assert saved != before, "the change is on disk when it is answered"
            before = saved
        (token,) = await client.tokens.describe()
    async with run(tmp_path, **settings) as cluster, Admin(**cluster.client_settings()) as client:
        assert (await client.acls.describe()) == (binding,)
        assert set((await client.users.describe()).done) == {"alice", "bob"}
        assert await client.tokens.describe() == (token,)
        assert await client.quotas.describe() == {quota: {"producer_byte_rate": 1000.0}}
        assert cluster.controller.features.finalized["transaction.version"] == 1
        assert cluster.controller.settings.resources(ConfigResourceType.GROUP) == ["billing"]
        as_bob = cluster.client_settings() | {"sasl_username": "bob", "sasl_password": "b"}
        by_token = {"sasl_username": token.token_id, "sasl_password": token.password, "sasl_tokenauth": True}
        for login in (as_bob, cluster.client_settings() | by_token):
            async with Admin(**login):
                pass


async def test_a_password_that_a_client_set_or_removed_outlives_the_configured_one(tmp_path: Path) -> None:
    def security(password: str) -> Security:
        users = {"alice": password, "bob": password}
        return Security(["PLAINTEXT", "SASL_PLAINTEXT"], users=users, mechanisms=["SCRAM-SHA-256"])

    async with run(tmp_path, brokers=1, security=security("first")) as cluster, admin(cluster) as client:
        (await client.users.set_passwords({"alice": "changed"}, mechanism="SCRAM-SHA-256")).raise_for_errors()
    async with run(tmp_path, brokers=1, security=security("second")) as cluster:
        settings = cluster.client_settings("alice", protocol="SASL_PLAINTEXT")
        for user, password in (("alice", "changed"), ("bob", "second")):
            async with Admin(**settings | {"sasl_username": user, "sasl_password": password}) as client:
                assert await client.users.describe(["alice"])
    assert stat.S_IMODE((tmp_path / "security.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("is_in_sync", [True, False])
async def test_a_reassignment_continues_after_a_restart(tmp_path: Path, is_in_sync: bool) -> None:
    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders", assignments=[[1, 2]])
        await cluster.produce("orders", b"v")
        await cluster.until_in_sync("orders")
        if not is_in_sync:
            await cluster.freeze(3)
        cluster.leadership.reassign(("orders", 0), [3, 1])
        while is_in_sync and 3 not in cluster.state_of("orders", 0).isr:
            await asyncio.sleep(0)
    async with run(tmp_path) as cluster:
        assert cluster.state_of("orders", 0).adding == (3,)
        await cluster.until_in_sync("orders")
        assert cluster.state_of("orders", 0).replicas == (3, 1)


async def test_a_release_that_lacks_the_finalized_level_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path, brokers=1):
        pass
    with pytest.raises(ConfigurationError, match=r"data_dir .* metadata\.version must be a level from 7 to 27, got 30"):
        async with run(tmp_path, brokers=1, as_kafka="4.1"):
            pass


async def test_an_isr_that_had_shrunk_elects_only_its_members(tmp_path: Path) -> None:
    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders", assignments=[[1, 2, 3]])
        await cluster.kill(1)
        await cluster.kill(2)
        await cluster.produce("orders", b"only on 3")
    async with run(tmp_path) as cluster:
        assert cluster.leader_of("orders", 0) == 3
        assert [record.value for record in cluster.records("orders")] == [b"only on 3"]


async def test_the_last_leader_leads_again(tmp_path: Path) -> None:
    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders", assignments=[[1, 2, 3]])
        await cluster.move_leader("orders", 0, 3)
        before = cluster.state_of("orders", 0).leader_epoch
    async with run(tmp_path) as cluster:
        await cluster.until_in_sync("orders")
        assert cluster.leader_of("orders", 0) == 3
        assert cluster.state_of("orders", 0).leader_epoch > before
        assert await cluster.produce("orders", b"v") == 0


async def test_topics_of_two_runs_with_one_seed_have_different_ids(tmp_path: Path) -> None:
    async with run(tmp_path, brokers=1, seed=1) as cluster:
        first = await cluster.create_topic("orders")
    async with run(tmp_path, brokers=1, seed=1) as cluster:
        assert (await cluster.create_topic("bills")).topic_id != first.topic_id


async def test_a_disk_that_is_full_refuses_records_with_kafkas_code(tmp_path: Path) -> None:
    async with run(tmp_path, brokers=1) as cluster:
        await cluster.create_topic("orders")
        segment = tmp_path / "node-1" / "orders-0" / f"{0:020}.log"
        segment.unlink()
        segment.symlink_to("/dev/full")
        async with producer(cluster, retries=0) as writer:
            with pytest.raises(BrokerError) as caught:
                await writer.send("orders", b"v")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_disk_that_is_full_refuses_a_marker_with_kafkas_code(tmp_path: Path) -> None:
    async with run(tmp_path, brokers=1) as cluster:
        await cluster.create_topic("orders")
        segment = tmp_path / "node-1" / "orders-0" / f"{0:020}.log"
        segment.unlink()
        segment.symlink_to("/dev/full")
        marker = Marker(producer_id=1, producer_epoch=0, committed=True, coordinator_epoch=0)
        answer = await cluster.nodes[1].replica_manager.append_marker(ONE, marker, 0, 1.0)
    assert answer is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_directory_in_use_and_one_of_more_brokers_are_refused(tmp_path: Path) -> None:
    async with run(tmp_path):
        with pytest.raises(ConfigurationError, match="another broker may use it"):
            async with run(tmp_path):
                pass
    with pytest.raises(ConfigurationError, match=r"has the logs of brokers \[1, 2, 3\], got \[1\]"):
        EmbeddedCluster(brokers=1, data_dir=tmp_path)


# A disk that refuses the metadata.


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit the files of this process to a few bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


SECURED = {
    "security": Security(["PLAINTEXT", "SASL_PLAINTEXT"], users={"alice": "secret"}),
    "super_users": ["User:ANONYMOUS"],
}
MAY_READ = AclBinding(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
ORDERS = ConfigResource(ConfigResourceType.TOPIC, "orders")
BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
LIMIT = QuotaEntity(user="alice")

Change = Callable[[Admin], Awaitable[object]]

CHANGES: dict[str, Change] = {
    "create a topic": lambda admin: admin.topics.create("bills"),
    "add partitions": lambda admin: admin.topics.add_partitions({"orders": 5}),
    "change a topic's settings": lambda admin: admin.configs.alter({ORDERS: {"retention.ms": "5"}}),
    "change a broker's settings": lambda admin: admin.configs.alter({BROKERS: {"log.retention.ms": "5"}}),
    "create an ACL": lambda admin: admin.acls.create([MAY_READ]),
    "set a password": lambda admin: admin.users.set_passwords(
        {"alice": "other"}, mechanism="SCRAM-SHA-256", iterations=5000
    ),
    "remove a user": lambda admin: admin.users.remove("alice", mechanism="SCRAM-SHA-256"),
    "set a quota": lambda admin: admin.quotas.alter({LIMIT: {"producer_byte_rate": 5.0}}),
    "change a feature": lambda admin: admin.cluster.update_features(
        {"transaction.version": 1}, change=FeatureChange.SAFE_DOWNGRADE
    ),
}


async def described(admin: Admin) -> list[str]:
    """Return everything that the changes may affect, as clients see it."""
    return [
        repr(dict(answer.done) if isinstance(answer, Results) else answer)
        for answer in (
            await admin.topics.list(),
            await admin.configs.describe([ORDERS, BROKERS]),
            await admin.acls.describe(),
            await admin.users.describe(),
            await admin.quotas.describe(),
            await admin.cluster.features(),
        )
    ]


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_that_cannot_be_saved_is_refused_and_undone(tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    async with run(tmp_path, brokers=1, **SECURED) as cluster:
        await cluster.create_topic("orders", 2)
        async with admin(cluster, api_timeout=0.5) as client:
            before = await described(client)
            with full_disk():
                assert "KAFKA_STORAGE_ERROR" in await outcome(change, client)
            assert await described(client) == before
    async with run(tmp_path, brokers=1, **SECURED) as cluster, admin(cluster) as client:
        assert await described(client) == before
        assert "Error" not in await outcome(change, client)
        assert await described(client) != before


async def test_a_change_of_two_files_is_undone_in_both_if_the_disk_refuses_one(tmp_path: Path) -> None:
    """With eligible leader replicas, no broker has its own min.insync.replicas: both files change."""
    name = "eligible.leader.replicas.version"
    broker = ConfigResource(ConfigResourceType.BROKER, "1")

    async def state(client: Admin) -> tuple[int, str | None]:
        settings = (await client.configs.describe([broker])).raise_for_errors()[broker]
        level = (await client.cluster.features()).finalized.get(name)
        return 0 if level is None else level.last, settings["min.insync.replicas"].value

    async with run(tmp_path, brokers=1) as cluster, admin(cluster) as client:
        await client.cluster.update_features({name: 0}, change=FeatureChange.SAFE_DOWNGRADE)
        (await client.configs.alter({broker: {"min.insync.replicas": "2"}})).raise_for_errors()
        refused = tmp_path / "features.tmp"  # the file under its first name: a directory cannot be written
        refused.mkdir()
        async with admin(cluster, api_timeout=0.5) as impatient:
            assert "KAFKA_STORAGE_ERROR" in await outcome(lambda one: one.cluster.update_features({name: 1}), impatient)
        assert await state(client) == (0, "2")
        refused.rmdir()
    async with run(tmp_path, brokers=1) as cluster, admin(cluster) as client:
        assert await state(client) == (0, "2")
        assert "Error" not in await outcome(lambda one: one.cluster.update_features({name: 1}), client)
        assert await state(client) == (1, "1")


async def outcome(change: Change, client: Admin) -> str:
    """Return the text of the error of a change, or of its result."""
    try:
        return repr(await change(client))
    except BrokerError as error:
        return f"{error} {error.code.name}"
    except KafkaTimeout as error:
        return str(error)


async def test_a_leader_that_cannot_be_saved_is_elected_when_the_disk_has_room(tmp_path: Path) -> None:
    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders", 1, 3)
        leader = cluster.leader_of("orders", 0)
        with full_disk():
            await cluster.kill(leader)
            assert cluster.leader_of("orders", 0) == leader
        await until(lambda: cluster.leader_of("orders", 0) != leader, "a new leader")
        elected = cluster.state_of("orders", 0)
        assert (elected.leader != leader, leader in elected.isr) == (True, False)
    async with run(tmp_path) as cluster:
        assert cluster.state_of("orders", 0).leader == elected.leader
        assert leader not in elected.isr


@pytest.mark.thorough
async def test_the_end_of_a_reassignment_that_cannot_be_saved_is_tried_and_logged_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[float] = []

    def refuse(path: Path, value: object, **_: object) -> None:
        attempts.append(asyncio.get_running_loop().time())
        raise OSError(errno.ENOSPC, "No space left on device")

    async with run(tmp_path) as cluster:
        await cluster.create_topic("orders", assignments=[[1, 2]])
        cluster.leadership.reassign(("orders", 0), [3, 1])
        while 3 not in cluster.state_of("orders", 0).isr:
            await asyncio.sleep(0)
        with monkeypatch.context() as patch:
            patch.setattr(data_dir, "write_document", refuse)
            await until(lambda: len(attempts) >= 3, "attempts to end the reassignment")
        assert attempts[1] - attempts[0] >= 0.9
        assert attempts[2] - attempts[1] >= 0.9
        assert sum("failed to end the reassignment" in line for line in caplog.messages) == 1
        await until(lambda: cluster.state_of("orders", 0).replicas == (3, 1), "the end of the reassignment")
