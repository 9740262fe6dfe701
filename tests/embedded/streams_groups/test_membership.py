"""Members of streams groups (KIP-1071) get tasks, move them to each other, and lose them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Admin, TopicPartition
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.streams import group as streams_group
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.embedded.broker.raw_client import Peer
from tests.embedded.share_groups.raw_members import set_configs
from tests.embedded.streams_groups.requests import (
    answered,
    counting,
    heartbeat,
    internal_topic,
    join,
    subtopology,
    tasks,
    topology,
)

READING = topology(subtopology("0", ["g-in"]))


@asynccontextmanager
async def coordinator(cluster: EmbeddedCluster) -> AsyncIterator[Peer]:
    """Connect to the coordinator of the group ``g``. The first question makes the offsets topic."""
    running = next(node for node in cluster.nodes.values() if node.is_running)
    async with Peer(cluster, running.node_id) as peer:
        (coordinator,) = (await peer.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))).coordinators
    async with Peer(cluster, coordinator.node_id) as peer:
        yield peer


@asynccontextmanager
async def refusing_log(cluster: EmbeddedCluster, peer: Peer) -> AsyncIterator[None]:
    """Let the coordinator's log refuse records: it asks for three replicas in sync, and one broker has stopped."""
    await cluster.stop(next(name for name in cluster.nodes if name != peer.node.node_id))
    for replicas in ("3", "1"):
        config = m.IncrementalAlterConfigsRequestConfig(name="min.insync.replicas", config_operation=0, value=replicas)
        resource = m.IncrementalAlterConfigsRequestResource(
            resource_type=2, resource_name="__consumer_offsets", configs=[config]
        )
        answer = await peer.ask(m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert answer.responses[0].error_code == ErrorCode.NONE
        if replicas == "3":
            yield


async def describe(peer: Peer) -> m.StreamsGroupDescribeGroup:
    request = m.StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    return (await peer.ask(request)).groups[0]


async def test_members_share_the_tasks_and_one_revokes_before_the_other_begins(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        assert answered(await peer.ask(join("g", "a", READING))) == (2, {"0": [0, 1, 2, 3]}, {}, [])
        assert answered(await peer.ask(join("g", "b", READING))) == (3, {}, {}, [])
        assert answered(await peer.ask(heartbeat("g", "a", 2))) == (2, {"0": [0, 1]}, {}, [])
        still = await peer.ask(heartbeat("g", "a", 2, {"0": [0, 1, 2]}))
        assert answered(still) == (2, None, None, []), "the member still has task 2"
        assert answered(await peer.ask(heartbeat("g", "b", 3))) == (3, None, None, [])
        assert answered(await peer.ask(heartbeat("g", "a", 2, {"0": [0, 1]}))) == (3, None, None, [])
        assert answered(await peer.ask(heartbeat("g", "b", 3))) == (3, {"0": [2, 3]}, {}, [])
        assert (await describe(peer)).group_state == "Stable"


async def test_the_lag_of_a_group_names_the_member_that_reads_each_partition(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("g-other", 4, 3)
    async with (
        coordinator(cluster) as peer,
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
    ):
        committed = {TopicPartition(topic, number): 0 for topic in ("g-in", "g-other") for number in range(4)}
        (await admin.groups.alter_offsets("g", committed)).raise_for_errors()
        await peer.ask(join("g", "a", READING))
        await peer.ask(join("g", "b", READING))
        await peer.ask(heartbeat("g", "a", 2))
        await peer.ask(heartbeat("g", "a", 2, {"0": [0, 1]}))
        await peer.ask(heartbeat("g", "b", 3))
        lag = (await admin.groups.lag("g"))["g"]
        owners_of_tasks = [
            (str(partition.partition), partition.member and partition.member.member_id) for partition in lag.partitions
        ]
        owners = ["a", "a", "b", "b", None, None, None, None]
        assert owners_of_tasks == [(str(partition), owner) for partition, owner in zip(committed, owners, strict=True)]


async def test_the_coordinator_creates_the_internal_topics(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        assert answered(await peer.ask(join("g", "a", counting("g")))) == (2, {}, {}, [3])
        topics = cluster.controller.topics
        assert {len(topics[name].partitions) for name in ("g-repartition", "g-changelog")} == {4}
        assert topics["g-changelog"].configs == {"cleanup.policy": "compact"}
        expected = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
        assert answered(await peer.ask(heartbeat("g", "a", 2))) == (3, expected, {}, [])


async def test_a_group_without_its_source_topic_is_not_ready(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        late = topology(subtopology("0", ["late"]))
        assert answered(await peer.ask(join("g", "a", late))) == (2, {}, {}, [1])
        assert (await describe(peer)).group_state == "NotReady"
        await cluster.create_topic("late", 2)
        assert answered(await peer.ask(heartbeat("g", "a", 2))) == (3, {"0": [0, 1]}, {}, [])


async def test_a_topic_that_grows_brings_new_tasks(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        more = m.CreatePartitionsTopic(name="g-in", count=6, assignments=None)
        await peer.ask(m.CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False))
        assert answered(await peer.ask(heartbeat("g", "a", 2)))[1] == {"0": [0, 1, 2, 3, 4, 5]}


async def test_a_session_that_ends_frees_the_tasks(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await peer.ask(join("g", "b", READING))
        for _ in range(10):
            await asyncio.sleep(5)
            last = await peer.ask(heartbeat("g", "b", 3))
            if last.member_epoch != 3:
                break
        assert answered(last)[1] == {"0": [0, 1, 2, 3]}
        assert (await peer.ask(heartbeat("g", "a", 2))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_does_not_revoke_in_time_is_fenced(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await peer.ask(join("g", "b", READING))
        await peer.ask(heartbeat("g", "a", 2))
        await asyncio.sleep(1.5)
        kept = {"0": [0, 1, 2, 3]}
        assert (await peer.ask(heartbeat("g", "a", 2, kept))).error_code == ErrorCode.NONE
        await asyncio.sleep(1)
        assert (await peer.ask(heartbeat("g", "a", 2, kept))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_has_its_whole_time_for_each_revocation(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await peer.ask(join("g", "b", READING))
        assert answered(await peer.ask(heartbeat("g", "a", 2)))[1] == {"0": [0, 1]}
        await peer.ask(join("g", "c", READING))
        await peer.ask(join("g", "d", READING))
        await asyncio.sleep(1.5)
        kept = {"0": [0, 1]}
        revoked = answered(await peer.ask(heartbeat("g", "a", 2, kept)))
        assert revoked[:2] == (3, {"0": [0]}), "task 1 has to go as well, at the next epoch"
        await asyncio.sleep(1.5)
        assert (await peer.ask(heartbeat("g", "a", 3, kept))).error_code == ErrorCode.NONE
        await asyncio.sleep(0.6)
        assert (await peer.ask(heartbeat("g", "a", 3, kept))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_standby_tasks_are_on_other_processes(cluster: EmbeddedCluster) -> None:
    stateful = topology(subtopology("0", ["g-in"], changelogs=counting("g").subtopologies[1].state_changelog_topics))
    await set_configs(cluster, "g", streams_num_standby_replicas="1")
    await cluster.create_topic("g-changelog", 4, 3)
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", stateful))
        await peer.ask(join("g", "a2", stateful, process_id="process-a"))
        await peer.ask(join("g", "b", stateful))
        targets = {member.member_id: member.target_assignment for member in (await describe(peer)).members}
        active = {name: tasks(target.active_tasks) or {} for name, target in targets.items()}
        standby = {name: tasks(target.standby_tasks) or {} for name, target in targets.items()}
        of_a = sorted(active["a"].get("0", []) + active["a2"].get("0", []))
        assert sorted(of_a + active["b"]["0"]) == [0, 1, 2, 3]
        assert standby["b"]["0"] == of_a
        assert sorted(standby["a"].get("0", []) + standby["a2"].get("0", [])) == active["b"]["0"]


async def test_a_group_outlives_its_coordinator(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING, user_endpoint=m.StreamsEndpoint(host="h", port=1), rack_id="r"))
        await peer.ask(join("g", "b", READING))
        await peer.ask(heartbeat("g", "a", 2))
        before, node = await describe(peer), peer.node.node_id
    await cluster.stop(node)
    async with coordinator(cluster) as peer:
        assert peer.node.node_id != node
        assert await describe(peer) == before
        assert answered(await peer.ask(heartbeat("g", "a", 2, {"0": [0, 1]})))[0] == 3
        assert answered(await peer.ask(heartbeat("g", "b", 3)))[1] == {"0": [2, 3]}


async def test_a_group_outlives_a_restart_from_disk(tmp_path: Path) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster:
        await cluster.create_topic("g-in", 4)
        async with coordinator(cluster) as peer:
            await peer.ask(join("g", "a", READING))
            before = await describe(peer)
    async with EmbeddedCluster(brokers=1, tcp=False, data_dir=tmp_path) as cluster, coordinator(cluster) as peer:
        assert await describe(peer) == before
        assert answered(await peer.ask(heartbeat("g", "a", 2))) == (2, None, None, [])


async def test_a_refused_topology_changes_nothing(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        before = await describe(peer)
        other = await peer.ask(join("g", "b", topology(subtopology("0", ["other"]))))
        assert (other.error_code, other.error_message) == (42, "Topology updates are not supported yet.")
        assert await describe(peer) == before


async def test_internal_topics_have_a_bound_on_their_partitions(cluster: EmbeddedCluster) -> None:
    logs = [internal_topic(f"g-log-{number}") for number in range(2_501)]
    many = topology(subtopology("0", ["g-in"], changelogs=logs))
    async with coordinator(cluster) as peer:
        (status,) = (await peer.ask(join("g", "a", many))).status or []
        failed = "; Creation failed: partitions must be <= 10000 in a request, got 10004."
        assert status.status_detail.endswith(failed), status.status_detail
        assert not any(name.startswith("g-log") for name in cluster.controller.topics)


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_refused_request_to_shut_down_changes_nothing(cluster: EmbeddedCluster, leaves: bool) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await peer.ask(join("g", "b", READING))
        async with refusing_log(cluster, peer):
            epoch, changed = (-1, {}) if leaves else (3, {"rack_id": "r"})
            refused = await peer.ask(heartbeat("g", "b", epoch, shutdown_application=True, **changed))
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answered(await peer.ask(heartbeat("g", "a", 2)))[3] == []


async def test_a_refused_heartbeat_does_not_end_the_initial_delay(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, "g", streams_initial_rebalance_delay_ms="30000")
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await asyncio.sleep(10)
        async with refusing_log(cluster, peer):
            refused = await peer.ask(heartbeat("g", "a", 1, rack_id="r"))
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answered(await peer.ask(join("g", "b", READING))) == (1, {}, {}, [5])
        await asyncio.sleep(21)
        assert answered(await peer.ask(heartbeat("g", "a", 1)))[1] == {"0": [0, 2]}


async def test_a_refused_assignment_begins_no_interval(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await set_configs(cluster, "g", streams_assignment_interval_ms="15000")
        await asyncio.sleep(15)
        async with refusing_log(cluster, peer):
            refused = await peer.ask(join("g", "b", READING))
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answered(await peer.ask(join("g", "b", READING))) == (3, {}, {}, [])


async def test_a_heartbeat_writes_only_the_records_of_its_member(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await peer.ask(join("g", "b", READING))
        encoded: list[str] = []
        encode = streams_group.encode_member
        monkeypatch.setattr(
            streams_group, "encode_member", lambda member: encoded.append(member.member_id) or encode(member)
        )
        monkeypatch.setattr(streams_group, "encode_topology", lambda topology: encoded.append("topology"))
        assert answered(await peer.ask(heartbeat("g", "b", 3))) == (3, None, None, [])
        assert encoded == ["b"]


async def test_the_initial_delay_collects_members(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, "g", streams_initial_rebalance_delay_ms="3000")
    async with coordinator(cluster) as peer:
        assert answered(await peer.ask(join("g", "a", READING))) == (1, {}, {}, [5])
        assert answered(await peer.ask(join("g", "b", READING))) == (1, {}, {}, [5])
        await asyncio.sleep(3.1)
        assert answered(await peer.ask(heartbeat("g", "a", 1)))[1] == {"0": [0, 2]}
        assert answered(await peer.ask(heartbeat("g", "b", 1)))[1] == {"0": [1, 3]}


async def test_assignments_have_an_interval(cluster: EmbeddedCluster) -> None:
    await set_configs(cluster, "g", streams_assignment_interval_ms="1000")
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        assert answered(await peer.ask(join("g", "b", READING))) == (2, {}, {}, [5])
        await asyncio.sleep(1.1)
        assert answered(await peer.ask(heartbeat("g", "b", 2))) == (3, None, None, [])


async def test_a_request_to_shut_down_reaches_each_member(cluster: EmbeddedCluster) -> None:
    async with coordinator(cluster) as peer:
        await peer.ask(join("g", "a", READING))
        await peer.ask(join("g", "b", READING))
        await peer.ask(heartbeat("g", "b", -1, shutdown_application=True))
        assert answered(await peer.ask(heartbeat("g", "a", 2)))[3] == [4]
        await peer.ask(heartbeat("g", "a", -1))
        assert answered(await peer.ask(join("g", "a", READING)))[3] == [], "a new run of the application"


async def test_a_cluster_without_the_feature_refuses(cluster: EmbeddedCluster) -> None:
    cluster.set_feature("streams.version", 0)
    async with coordinator(cluster) as peer:
        refused: Any = await peer.ask(join("g", "a", READING))
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
