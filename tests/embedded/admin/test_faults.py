"""Retriable errors are retried until the deadline. Other errors belong to their items."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import replace
from typing import Any

import pytest

from aiokafka_lite import BrokerError, ConfigurationError, KafkaError, KafkaTimeout, OffsetAndMetadata, TopicPartition
from aiokafka_lite.admin import (
    Admin,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    Reset,
)
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, IllegalStateError, InvalidTopic, UnknownTopic
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from tests.case_notes import case
from tests.waiting import until

ORDERS = [TopicPartition("orders", number) for number in range(6)]


async def test_the_new_controller_is_asked_after_a_move(admin: Admin, cluster: EmbeddedCluster) -> None:
    cluster.on(CreateTopicsRequest, times=2).fail(ErrorCode.NOT_CONTROLLER)
    (await admin.topics.create("orders")).raise_for_errors()
    assert len(cluster.history.of(CreateTopicsRequest)) == 3


async def test_a_broker_is_asked_where_metadata_names_no_controller(admin: Admin, cluster: EmbeddedCluster) -> None:
    """As librdkafka's mock cluster. A broker that is no controller forwards the request, or refuses it."""
    cluster.on(MetadataRequest, times=None).alter(lambda response: replace(response, controller_id=-1))
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as started:
        cluster.on(CreateTopicsRequest).fail(ErrorCode.NOT_CONTROLLER)
        (await started.topics.create("orders")).raise_for_errors()
    assert len(cluster.history.of(CreateTopicsRequest)) == 2


async def test_a_slow_creation_is_not_repeated_where_metadata_names_no_controller(cluster: EmbeddedCluster) -> None:
    cluster.on(MetadataRequest, times=None).alter(lambda response: replace(response, controller_id=-1))
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as started:
        cluster.on(CreateTopicsRequest).delay(6.0)
        (await started.topics.create("orders", timeout=10.0)).raise_for_errors()
    assert len(cluster.history.of(CreateTopicsRequest)) == 1


async def test_a_deletion_without_a_response_counts_as_deleted(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create("orders")
    cluster.on(DeleteTopicsRequest).apply_then_disconnect()
    (await admin.topics.delete("orders")).raise_for_errors()
    assert len(cluster.history.of(DeleteTopicsRequest)) == 2
    with pytest.raises(UnknownTopic):
        (await admin.topics.delete("orders")).raise_for_errors()


async def test_the_error_of_a_creation_without_a_response_notes_that_it_may_be_done(
    admin: Admin, cluster: EmbeddedCluster
) -> None:
    cluster.on(CreateTopicsRequest).apply_then_disconnect()
    error = (await admin.topics.create("orders")).failed["orders"]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "may have been carried out" in error.__notes__[0]


async def test_stale_leaders_are_looked_up_again(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", 6, 3))
    cluster.on(ListOffsetsRequest, topic="orders", partition=3, times=2).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    results = await admin.offsets.list(dict.fromkeys(ORDERS, OffsetSpec.LATEST))
    assert list(results.raise_for_errors()) == ORDERS
    requested = [
        TopicPartition(topic.name, partition.partition_index)
        for exchange in cluster.history.of(ListOffsetsRequest)
        for topic in exchange.request.topics  # type: ignore[attr-defined]
        for partition in topic.partitions
    ]
    assert {requested.count(partition) for partition in ORDERS if partition.partition != 3} == {1}, (
        "only what failed is asked again"
    )


async def test_many_calls_in_a_row_do_not_wait_for_metadata_each(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", 6, 2))
    started = asyncio.get_running_loop().time()
    for _ in range(20):
        (await admin.offsets.list(dict.fromkeys(ORDERS, OffsetSpec.LATEST))).raise_for_errors()
    assert asyncio.get_running_loop().time() - started < 0.5
    await cluster.move_leader("orders", 0)
    (await admin.offsets.list(dict.fromkeys(ORDERS, OffsetSpec.LATEST))).raise_for_errors()


async def test_each_leader_is_asked_once_for_all_of_its_partitions(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", 6))
    cluster.history.clear()
    await admin.offsets.list(dict.fromkeys([*ORDERS, *ORDERS], OffsetSpec.EARLIEST))
    assert sorted(exchange.node_id for exchange in cluster.history.of(ListOffsetsRequest)) == [1, 2, 3]


async def test_the_new_coordinator_is_asked_after_a_move(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", 1))
    await admin.groups.alter_offsets("billing", {ORDERS[0]: 0})
    cluster.on(DescribeGroupsRequest, times=2).fail(ErrorCode.NOT_COORDINATOR)
    cluster.on(DeleteGroupsRequest, times=2).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.history.clear()
    (await admin.groups.describe("billing")).raise_for_errors()
    assert len(cluster.history.of(FindCoordinatorRequest)) == 2, "it is looked for after each refusal"
    (await admin.groups.delete("billing")).raise_for_errors()


async def test_a_group_without_a_coordinator_delays_no_other(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", 1))
    for name in ("billing", "sales"):
        await admin.groups.alter_offsets(name, {ORDERS[0]: 0})
    admin._client.forget_coordinator("billing")
    admin._client.forget_coordinator("sales")
    cluster.on(FindCoordinatorRequest, nth=2, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    described = await admin.groups.describe(["sales", "billing"], timeout=5.0)
    (described_group,) = described.done
    (missed,) = {"sales", "billing"} - {described_group}
    with pytest.raises(KafkaTimeout, match=rf"'{missed}'.*COORDINATOR_NOT_AVAILABLE"):
        described[missed]


async def test_a_silent_broker_delays_only_its_own_items(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", assignments=[[1], [2], [3]]))
    cluster.on(ListOffsetsRequest, node=2, times=None).drop()
    cluster.on(ListOffsetsRequest, node=3, times=3).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    results = await admin.offsets.list(dict.fromkeys(ORDERS[:3], OffsetSpec.LATEST), timeout=10.0)
    assert list(results.done) == [ORDERS[0], ORDERS[2]]
    assert len([exchange for exchange in cluster.history.of(ListOffsetsRequest) if exchange.node_id == 2]) == 1
    with pytest.raises(KafkaTimeout, match=r"orders-1 did not succeed within 10 s"):
        results[ORDERS[1]]


async def test_a_broker_that_is_down_fails_only_its_own_items(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", assignments=[[1], [2], [3]]))
    await cluster.kill(2)
    results = await admin.offsets.list(dict.fromkeys(ORDERS[:3], OffsetSpec.LATEST), timeout=5.0)
    assert list(results.done) == [ORDERS[0], ORDERS[2]]
    with pytest.raises(KafkaTimeout, match=r"orders-1.*within 5 s.*LEADER_NOT_AVAILABLE"):
        results[ORDERS[1]]
    described = await admin.log_dirs.describe([1, 2, 3], timeout=5.0)
    assert list(described.done) == [1, 3]
    assert list(described.failed) == [2]
    assert len((await admin.cluster.describe()).brokers) == 2


async def test_the_list_of_groups_is_complete_or_fails(admin: Admin, cluster: EmbeddedCluster) -> None:
    cluster.on(ListGroupsRequest, node=2, times=3).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert await admin.groups.list() == ()
    cluster.on(ListGroupsRequest, node=2, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(KafkaTimeout, match="COORDINATOR_NOT_AVAILABLE"):
        await admin.groups.list(timeout=3.0)


async def test_groups_are_listed_although_a_broker_has_left(admin: Admin, cluster: EmbeddedCluster) -> None:
    await cluster.stop(2)
    assert await admin.groups.list() == ()


async def test_groups_are_listed_although_a_broker_leaves_meanwhile(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create(NewTopic("orders", 1))
    for number in range(6):
        await admin.groups.alter_offsets(f"group-{number}", {ORDERS[0]: 0})
    fault = cluster.on(ListGroupsRequest, node=2).delay(5.0)
    listing = asyncio.ensure_future(admin.groups.list())
    await until(lambda: fault.hits, "broker 2 is asked")
    await cluster.stop(2)
    assert {group.group_id for group in await listing} <= {f"group-{number}" for number in range(6)}
    assert {exchange.node_id for exchange in cluster.history.of(ListGroupsRequest)} >= {1, 3}


async def test_a_call_ends_at_its_deadline(admin: Admin, cluster: EmbeddedCluster) -> None:
    for request in (CreateTopicsRequest, MetadataRequest, ApiVersionsRequest):
        cluster.on(request, times=None).drop()
    loop = asyncio.get_running_loop()
    for number, call in enumerate(CALLS):
        started = loop.time()
        try:
            result = await call(admin, 2.0)
        except KafkaError:
            pass
        else:
            assert number >= 0
            del result
        assert loop.time() - started <= 2.1, call


async def test_an_unknown_topic_is_final_after_a_second_answer(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create("orders")
    cluster.on(MetadataRequest, topic="orders").fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (await admin.topics.describe("orders")).raise_for_errors()
    started = asyncio.get_running_loop().time()
    results = await admin.offsets.list({TopicPartition("missing", 0): OffsetSpec.LATEST, ORDERS[5]: 0})
    assert asyncio.get_running_loop().time() - started < 2.0
    with pytest.raises(UnknownTopic, match="missing"):
        results[TopicPartition("missing", 0)]
    with pytest.raises(UnknownTopic, match=r"topic 'orders' has 1 partition; there is no orders-5"):
        results[ORDERS[5]]


Call = Any
CALLS: list[Call] = [
    lambda admin, timeout: admin.topics.create("new", timeout=timeout),
    lambda admin, timeout: admin.topics.delete("new", timeout=timeout),
    lambda admin, timeout: admin.topics.list(timeout=timeout),
    lambda admin, timeout: admin.topics.describe("new", timeout=timeout),
    lambda admin, timeout: anext(admin.topics.pages(timeout=timeout)),
    lambda admin, timeout: admin.topics.add_partitions({"new": 2}, timeout=timeout),
    lambda admin, timeout: admin.configs.describe(ConfigResource.broker(1), timeout=timeout),
    lambda admin, timeout: admin.configs.alter({ConfigResource.topic("new"): {"retention.ms": 1}}, timeout=timeout),
    lambda admin, timeout: admin.groups.list(timeout=timeout),
    lambda admin, timeout: admin.groups.describe("group", timeout=timeout),
    lambda admin, timeout: admin.groups.delete("group", timeout=timeout),
    lambda admin, timeout: admin.groups.offsets("group", timeout=timeout),
    lambda admin, timeout: admin.groups.alter_offsets("group", {ORDERS[0]: 1}, timeout=timeout),
    lambda admin, timeout: admin.groups.delete_offsets("group", ORDERS, timeout=timeout),
    lambda admin, timeout: admin.groups.remove_members("group", ["member"], timeout=timeout),
    lambda admin, timeout: admin.groups.reset_offsets("group", Reset.to_latest(), topics=["new"], timeout=timeout),
    lambda admin, timeout: admin.groups.lag("group", timeout=timeout),
    lambda admin, timeout: admin.cluster.describe(timeout=timeout),
    lambda admin, timeout: admin.cluster.features(timeout=timeout),
    lambda admin, timeout: admin.cluster.api_versions(timeout=timeout),
    lambda admin, timeout: admin.records.delete({ORDERS[0]: None}, timeout=timeout),
    lambda admin, timeout: admin.offsets.list({ORDERS[0]: OffsetSpec.LATEST}, timeout=timeout),
    lambda admin, timeout: admin.offsets.ends_of_epochs({ORDERS[0]: 0}, timeout=timeout),
    lambda admin, timeout: admin.leaders.elect(timeout=timeout),
    lambda admin, timeout: admin.reassignments.alter({ORDERS[0]: [1]}, timeout=timeout),
    lambda admin, timeout: admin.reassignments.list(timeout=timeout),
    lambda admin, timeout: admin.log_dirs.describe(timeout=timeout),
    lambda admin, timeout: admin.quotas.describe(timeout=timeout),
    lambda admin, timeout: admin.quotas.alter({QuotaEntity(user="a"): {"request_percentage": 5}}, timeout=timeout),
]


@pytest.mark.parametrize("call", CALLS, ids=itertools.count())
async def test_an_admin_works_only_between_start_and_close(cluster: EmbeddedCluster, call: Call) -> None:
    admin = Admin(cluster.bootstrap_servers, connector=cluster.connector)
    with pytest.raises(IllegalStateError, match=r"Admin.*is not started"):
        await call(admin, 5.0)
    async with admin:
        for wrong in (0, -1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="timeout must be a number of seconds > 0"):
                await call(admin, wrong)
    with pytest.raises(IllegalStateError, match=r"Admin.*is closed"):
        await call(admin, 5.0)


async def test_closing_at_any_turn_ends_a_call() -> None:
    for (number, call), turns in itertools.product(enumerate(CALLS), (1, 3, 8, 20)):
        with case(number, turns):
            async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
                admin = Admin(cluster.bootstrap_servers, connector=cluster.connector)
                await admin.start()
                calling = asyncio.ensure_future(call(admin, 5.0))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await admin.close()
                with contextlib.suppress(IllegalStateError, StopAsyncIteration):
                    await calling


async def test_another_broker_is_asked_if_one_is_silent(admin: Admin, cluster: EmbeddedCluster) -> None:
    await admin.topics.create("orders")
    cluster.on(DescribeTopicPartitionsRequest, times=1).drop()
    (page,) = [page async for page in admin.topics.pages(timeout=10.0)]
    assert page[0].name == "orders"
    first, second = (exchange.node_id for exchange in cluster.history.of(DescribeTopicPartitionsRequest))
    assert first != second


async def test_closing_ends_the_calls_that_wait(admin: Admin, cluster: EmbeddedCluster) -> None:
    fault = cluster.on(CreateTopicsRequest).drop()
    call = asyncio.ensure_future(admin.topics.create("orders"))
    await until(lambda: fault.hits, "the request is at the broker")
    await admin.close()
    with pytest.raises(IllegalStateError):
        await call


async def test_a_cancelled_call_leaves_the_admin_usable(admin: Admin, cluster: EmbeddedCluster) -> None:
    cluster.on(CreateTopicsRequest).delay(5.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(admin.topics.create("orders"), 1.0)
    (await admin.topics.create("other")).raise_for_errors()


WRONG_TYPES: list[Call] = [
    lambda admin: admin.topics.create(3),
    lambda admin: admin.topics.create([b"orders"]),
    lambda admin: admin.topics.create(NewTopic("orders", partitions="3")),  # type: ignore[arg-type]
    lambda admin: admin.topics.delete([None]),
    lambda admin: admin.topics.add_partitions(["orders"]),
    lambda admin: admin.topics.add_partitions({"orders": 2.5}),
    lambda admin: admin.configs.describe("orders"),
    lambda admin: admin.groups.describe([7]),
    lambda admin: admin.groups.alter_offsets("group", {"orders": 3}),
    lambda admin: admin.groups.alter_offsets("group", {ORDERS[0]: "3"}),
    lambda admin: admin.groups.reset_offsets("group", "earliest"),
    lambda admin: admin.records.delete([ORDERS[0]]),
    lambda admin: admin.offsets.list({ORDERS[0]: "latest"}),
    lambda admin: admin.offsets.list({("orders", "0"): -1}),
    lambda admin: admin.reassignments.alter({ORDERS[0]: ["1"]}),
    lambda admin: admin.log_dirs.describe(["1"]),
    lambda admin: admin.quotas.describe(user=4),
    lambda admin: admin.quotas.alter({QuotaEntity(user="a"): {"request_percentage": "much"}}),
    lambda admin: admin.quotas.alter({QuotaEntity(user="a"): {5: 1.0}}),
    lambda admin: admin.quotas.alter({QuotaEntity(user="a"): 5}),
    lambda admin: admin.topics.create(NewTopic("orders", assignments="12")),
    lambda admin: admin.topics.create(NewTopic("orders", assignments=[1, 2])),
    lambda admin: admin.topics.create(NewTopic("orders", configs=["retention.ms"])),
    lambda admin: admin.topics.add_partitions({5: 2}),
    lambda admin: admin.topics.add_partitions({"orders": 2}, assignments=[[1]]),
    lambda admin: admin.topics.add_partitions({"orders": 2}, assignments={"orders": [1]}),
    lambda admin: admin.configs.describe(ConfigResource(ConfigResourceType.TOPIC, 5)),
    lambda admin: admin.configs.describe(ConfigResource(2, "orders")),
    lambda admin: admin.configs.alter({ConfigResource.topic("orders"): "retention.ms=1"}),
    lambda admin: admin.configs.alter({ConfigResource.topic("orders"): ["retention.ms"]}),
    lambda admin: admin.configs.alter({ConfigResource.topic("orders"): [ConfigChange("retention.ms", 1, "set")]}),
    lambda admin: admin.groups.list(states=[5]),
    lambda admin: admin.groups.alter_offsets("group", {ORDERS[0]: OffsetAndMetadata(1, 5)}),
    lambda admin: admin.groups.alter_offsets("group", {ORDERS[0]: OffsetAndMetadata(1, "", "0")}),
    lambda admin: admin.groups.reset_offsets("group", Reset.to_latest(), topics=[5]),
    lambda admin: admin.reassignments.alter({ORDERS[0]: b"1"}),
]


@pytest.mark.parametrize("call", WRONG_TYPES, ids=itertools.count())
async def test_wrong_types_are_refused_before_a_request_is_sent(
    admin: Admin, cluster: EmbeddedCluster, call: Call
) -> None:
    cluster.history.clear()
    with pytest.raises(TypeError):
        await call(admin)
    assert len(cluster.history) == 0


WRONG_VALUES: list[Call] = [
    lambda admin: admin.topics.create(["orders", "orders"]),
    lambda admin: admin.topics.create(NewTopic("orders", 0)),
    lambda admin: admin.topics.create(NewTopic("orders", 1, assignments=[[1]])),
    lambda admin: admin.topics.add_partitions({"orders": 2**40}),
    lambda admin: admin.topics.add_partitions({"orders": 2}, assignments={"other": [[1]]}),
    lambda admin: admin.groups.list(states=["Sleeping"]),
    lambda admin: admin.groups.alter_offsets("group", {ORDERS[0]: -1}),
    lambda admin: admin.offsets.list({ORDERS[0]: -7}),
    lambda admin: admin.offsets.list({ORDERS[0]: 0}, isolation_level="serializable"),
    lambda admin: admin.topics.pages(size=0),
    lambda admin: admin.leaders.elect(election=7),
    lambda admin: admin.topics.create(NewTopic("orders", assignments=[])),
    lambda admin: admin.topics.create("orders", timeout=10**400),
    lambda admin: admin.topics.delete("\ud800"),
    lambda admin: admin.groups.describe("\ud800"),
    lambda admin: admin.groups.delete("group" * 10_000),
    lambda admin: admin.groups.alter_offsets("group", {("\ud800", 0): 1}),
    lambda admin: admin.configs.describe(ConfigResource(ConfigResourceType.BROKER, "first")),
    lambda admin: admin.quotas.alter({QuotaEntity(user="a"): {"request_percentage": float("nan")}}),
    lambda admin: admin.quotas.alter({QuotaEntity(user="a"): {"request_percentage": 10**400}}),
    lambda admin: admin.quotas.describe(user="\ud800"),
    lambda admin: admin.quotas.alter({QuotaEntity(): {"request_percentage": 5}}),
]


@pytest.mark.parametrize("call", WRONG_VALUES, ids=itertools.count())
async def test_wrong_values_are_refused_before_a_request_is_sent(
    admin: Admin, cluster: EmbeddedCluster, call: Call
) -> None:
    cluster.history.clear()
    with pytest.raises(ValueError):
        await call(admin)
    assert len(cluster.history) == 0


async def test_a_bad_topic_name_is_refused_at_the_call(admin: Admin) -> None:
    with pytest.raises(InvalidTopic):
        await admin.topics.create("white space")


def test_a_bad_setting_is_refused_by_the_constructor() -> None:
    with pytest.raises(ConfigurationError, match="acks is not a setting of this client"):
        Admin("localhost:9092", acks="all")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="request_timeout must be"):
        Admin("localhost:9092", request_timeout=0)


async def test_an_item_that_responses_leave_out_is_retried_and_other_items_are_ignored(
    admin: Admin, cluster: EmbeddedCluster
) -> None:
    def about_another(response: Any) -> Any:
        response.topics[0].name = "a-stranger"
        return response

    cluster.on(CreateTopicsRequest, times=None).alter(about_another)
    results = await admin.topics.create("orders", timeout=5)
    assert list(results.failed) == ["orders"]
    assert not results.done
    with pytest.raises(KafkaError, match="the response does not have this item"):
        results.raise_for_errors()
    assert len(cluster.history.of(CreateTopicsRequest)) < 25


async def test_members_that_cannot_be_read_have_neither_topics_nor_assignment(
    admin: Admin, cluster: EmbeddedCluster
) -> None:
    def with_broken_members(response: Any) -> Any:
        group = response.groups[0]
        group.error_code, group.protocol_type, group.group_state = 0, "consumer", "Stable"
        group.members = [
            DescribedGroupMember(
                member_id=f"member-{number}",
                client_id="client",
                client_host="/127.0.0.1",
                member_metadata=data,
                member_assignment=data,
            )
            for number, data in enumerate([b"\0", b"\0\0\xff\xff\xff\xf0", b"\xff" * 20, bytes(range(256))])
        ]
        return response

    await admin.groups.alter_offsets("g", {TopicPartition("orders", 0): 0})
    cluster.on(DescribeGroupsRequest, times=None).alter(with_broken_members)
    described = (await admin.groups.describe("g"))["g"]
    assert [(member.topics, member.assignment) for member in described.members] == [(None, None)] * 4
