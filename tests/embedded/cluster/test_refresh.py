"""The snapshot stays up to date with few requests, while brokers fail and callers are cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.cluster import metadata
from aiokafka_lite.cluster.metadata import ClusterView
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.faults import Fault
from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.errors import (
    AuthorizationError,
    ConnectionLost,
    ErrorCode,
    IllegalStateError,
    InvalidTopic,
    KafkaTimeout,
    UnknownTopic,
)
from aiokafka_lite.protocol.messages import MetadataRequest, MetadataResponse, MetadataResponseBroker
from aiokafka_lite.types import Node, TopicPartition
from tests.embedded.cluster.simulation import (
    CountingConnector,
    client_of,
    cluster_and_client,
    memory_cluster,
    metadata_requests,
    now,
    simulated,
)

ORDERS_0 = TopicPartition("orders", 0)


def leader_in(view: ClusterView) -> int | None:
    leader = view.leader_of(ORDERS_0)
    return None if leader is None else leader.node_id


@simulated
async def test_client_knows_the_cluster_once_it_is_started() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", partitions=3, replication_factor=2)
        assert set(client.view.nodes) == {1, 2, 3}
        assert client.view.controller is not None
        topic = await client.topic("orders")
        assert [p.leader for p in topic.partitions] == [cluster.leader_of("orders", p) for p in range(3)]
        assert client.known_topic("orders") is topic


@simulated
async def test_many_waiters_share_one_request() -> None:
    async with cluster_and_client() as (cluster, client):
        before = metadata_requests(cluster)
        await asyncio.gather(*(client.refresh() for _ in range(500)))
        assert metadata_requests(cluster) == before + 1


@simulated
async def test_many_waiters_for_many_new_topics_share_one_request() -> None:
    async with cluster_and_client() as (cluster, client):
        before = metadata_requests(cluster)
        await asyncio.gather(*(client.topic(f"t{number % 50}") for number in range(200)))
        assert metadata_requests(cluster) == before + 1


@simulated
async def test_new_topic_is_asked_for_alone_and_at_once() -> None:
    async with cluster_and_client() as (cluster, client):
        for number in range(20):
            started = now()
            await client.topic(f"t{number}")
            assert now() == pytest.approx(started, abs=1e-3)
        for exchange in cluster.history.of(MetadataRequest):
            assert isinstance(exchange.request, MetadataRequest)
            assert len(exchange.request.topics or ()) <= 1


@simulated
async def test_a_caller_that_arrives_during_a_request_gets_a_newer_answer() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        await client.topic("orders")
        stale = await _answer_now_arriving_in(cluster, 0.9)
        before = metadata_requests(cluster)
        first = asyncio.ensure_future(client.refresh())
        await asyncio.sleep(0.5)
        moved = await cluster.move_leader("orders", 0)
        second = asyncio.gather(*(client.refresh() for _ in range(10)))
        assert leader_in(await first) != moved
        assert {leader_in(view) for view in await second} == {moved}
        assert metadata_requests(cluster) == before + 2
        assert stale.hits == 1


async def _answer_now_arriving_in(cluster: EmbeddedCluster, seconds: float) -> Fault:
    """Make the next Metadata response now, and send it ``seconds`` later."""
    async with client_of(cluster) as other:
        await other.topic("orders")
        response = cluster.history.of(MetadataRequest)[-1].response

    async def late(_: MetadataRequest) -> MetadataResponse:
        await asyncio.sleep(seconds)
        assert isinstance(response, MetadataResponse)
        return response

    return cluster.on(MetadataRequest).answer(late)


@simulated
async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(MetadataRequest).delay(0.9)  # after a second, another broker would be asked as well
        before = metadata_requests(cluster)
        waiters = [asyncio.ensure_future(client.refresh()) for _ in range(3)]
        await asyncio.sleep(0.5)
        waiters[0].cancel()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert isinstance(results[1], ClusterView)
        assert metadata_requests(cluster) == before + 1


@simulated
async def test_refreshes_that_bring_no_change_slow_down() -> None:
    async with cluster_and_client() as (cluster, client):
        before = metadata_requests(cluster)
        async with asyncio.timeout(30):
            while now() < 20:
                await client.refresh()
        assert 15 <= metadata_requests(cluster) - before <= 35, "about one a second"


def test_a_timer_that_is_early_by_a_rounding_refreshes_once() -> None:
    """It once sent a request for no topics, again and again, until the clock was there; virtual time never was."""

    async def main() -> int:
        async with cluster_and_client(client={"metadata_max_age": 0.7}) as (cluster, _):
            await asyncio.sleep(700.0)
            return metadata_requests(cluster)

    assert run(main()) == pytest.approx(1000, abs=5)


@simulated
async def test_the_view_is_refreshed_after_metadata_max_age_and_not_before() -> None:
    async with cluster_and_client(client={"metadata_max_age": 60.0}) as (cluster, client):
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        await client.topic("orders")
        before = metadata_requests(cluster)
        moved = await cluster.move_leader("orders", 0)
        await asyncio.sleep(58)
        assert metadata_requests(cluster) == before
        await asyncio.sleep(3)
        assert leader_in(client.view) == moved
        await asyncio.sleep(600)
        assert 9 <= metadata_requests(cluster) - before <= 12


@simulated
async def test_a_topic_that_is_created_later_is_awaited() -> None:
    async with cluster_and_client(auto_create_topics=False) as (cluster, client):
        waiter = asyncio.ensure_future(client.topic("orders", timeout=10))
        await asyncio.sleep(3)
        await cluster.create_topic("orders", partitions=2)
        assert len((await waiter).partitions) == 2
        assert now() < 5


@simulated
async def test_a_metadata_request_creates_the_topic_if_allowed() -> None:
    async with cluster_and_client(client={"allow_auto_create_topics": False}) as (cluster, client):
        with pytest.raises(UnknownTopic, match="allow_auto_create_topics is off"):
            await client.topic("new", timeout=1)
        async with client_of(cluster) as other:
            assert (await other.topic("new")).is_usable


@simulated
async def test_an_unknown_topic_is_an_error_at_the_deadline_and_no_longer_requested() -> None:
    async with cluster_and_client(auto_create_topics=False) as (cluster, client):
        before = metadata_requests(cluster)
        with pytest.raises(UnknownTopic, match=r"'nowhere'.*within 5 s"):
            await client.topic("nowhere", timeout=5)
        assert now() == pytest.approx(5, abs=0.1)
        requests = metadata_requests(cluster) - before
        assert 3 <= requests <= 10
        await asyncio.sleep(60)
        assert metadata_requests(cluster) - before <= requests + 3


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, None, b"bytes"])
@simulated
async def test_an_invalid_name_is_refused_without_a_request(name: str) -> None:
    async with cluster_and_client(1) as (cluster, client):
        before = metadata_requests(cluster)
        with pytest.raises(InvalidTopic):
            await client.topic(name)
        with pytest.raises(InvalidTopic):
            client.add_topics([name])
        with pytest.raises(InvalidTopic):
            await client.refresh([name])
        assert metadata_requests(cluster) == before


@simulated
async def test_a_refused_topic_fails_its_caller_at_once_and_only_that_one() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(MetadataRequest, topic="secret").fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        open_topic, secret = await asyncio.gather(client.topic("open"), client.topic("secret"), return_exceptions=True)
        assert isinstance(secret, AuthorizationError)
        assert "'secret'" in str(secret)
        assert not isinstance(open_topic, BaseException)
        assert now() == pytest.approx(0.0, abs=1e-3)
        cluster.faults.clear()
        assert (await client.topic("secret")).is_usable, "requested again, as the permission may have been granted"


@simulated
async def test_a_leaderless_partition_is_refreshed_until_it_has_a_leader() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", assignments=[[2], [3]])
        await client.topic("orders")
        await cluster.kill(2)
        await client.refresh()
        assert leader_in(client.view) is None
        assert client.view.leader_of(TopicPartition("orders", 1)) is not None
        before = metadata_requests(cluster)
        await asyncio.sleep(20)
        assert 10 <= metadata_requests(cluster) - before <= 30, "repeatedly, with a pause"
        await cluster.start_node(2)
        await asyncio.sleep(2)
        assert leader_in(client.view) == 2
        settled = metadata_requests(cluster)
        await asyncio.sleep(60)
        assert metadata_requests(cluster) <= settled + 1


@simulated
async def test_stale_answers_do_not_undo_a_newer_leader() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        await client.topic("orders")
        stale = await _answer_now_arriving_in(cluster, 0.0)
        stale.times, stale.node = None, 1
        moved = await cluster.move_leader("orders", 0, 3)
        client.update_leader(ORDERS_0, moved, 1)
        seen = []
        client.on_view_change(lambda view: seen.append(leader_in(view)))
        before = metadata_requests(cluster)
        while now() < 10:
            client.request_refresh()
            assert leader_in(client.view) == moved
            await asyncio.sleep(0.01)
        assert set(seen) <= {moved}
        assert metadata_requests(cluster) - before < 20


@simulated
async def test_an_unreachable_broker_is_skipped_until_no_other_is_left() -> None:
    async with memory_cluster() as cluster:
        assert cluster.connector is not None
        connector = CountingConnector(cluster.connector)
        async with client_of(cluster, connector) as client:
            port = cluster.nodes[1].port
            await cluster.freeze(1)
            for _ in range(10):
                await client.refresh(timeout=60)
            attempts = connector.attempts[port]
            for _ in range(20):
                await client.refresh(timeout=60)
            assert connector.attempts[port] == attempts, "it is not tried while others answer"
            await cluster.stop(2)
            await cluster.stop(3)
            await cluster.thaw(1)
            await client.refresh()
            assert set(client.view.nodes) == {1}


@simulated
async def test_a_silent_broker_delays_a_refresh_by_one_second() -> None:
    async with cluster_and_client() as (cluster, client):
        await client.refresh()
        cluster.on(MetadataRequest).drop()
        began = now()
        await client.refresh()
        assert 1.0 < now() - began < 1.5
        for _ in range(20):  # the silent broker has a request in flight, so others are asked first
            began = now()
            await client.refresh()
            assert now() - began < 1.1
            await asyncio.sleep(5.0)


@simulated
async def test_a_slow_cluster_gets_few_extra_requests() -> None:
    async with cluster_and_client(brokers=20) as (cluster, client):
        await client.refresh()
        before = metadata_requests(cluster)
        with cluster.on(MetadataRequest, times=None).delay(10.0):
            began = now()
            await client.refresh()
            assert now() - began == pytest.approx(10.0, abs=0.5)
        assert metadata_requests(cluster) - before <= 4
        await asyncio.sleep(60.0)
        assert metadata_requests(cluster) - before <= 5


@simulated
async def test_a_caller_that_arrives_during_a_hedged_request_gets_a_newer_answer() -> None:
    async with cluster_and_client() as (cluster, client):
        await client.refresh()
        await _answer_now_arriving_in(cluster, 3.0)  # the first answer is older than the topic
        first = asyncio.ensure_future(client.refresh())
        await asyncio.sleep(0.5)
        cluster.on(MetadataRequest).drop()
        await cluster.create_topic("new")
        topic = await client.topic("new")
        await first
        assert topic.partitions
        assert client.known_topic("new") is not None


@simulated
async def test_an_outage_of_all_brokers_ends_when_they_return() -> None:
    async with cluster_and_client() as (cluster, client):
        for node in (1, 2, 3):
            await cluster.stop(node)
        with pytest.raises(KafkaTimeout) as caught:
            await client.refresh(timeout=5)
        for node in (1, 2, 3):
            assert f"127.0.0.1:{cluster.nodes[node].port}" in str(caught.value)
        started = now()
        await asyncio.sleep(60)
        for node in (1, 2, 3):
            await cluster.start_node(node)
        await client.refresh(timeout=30)
        assert now() - started < 60 + 2 * client.config.reconnect_backoff_max


@simulated
async def test_bootstrap_list_is_used_again_when_all_brokers_have_moved() -> None:
    async with memory_cluster() as cluster:
        assert cluster.connector is not None
        connector = CountingConnector(cluster.connector)
        connector.aliases["kafka.example", 1] = ("127.0.0.1", cluster.nodes[1].port)
        async with client_of(cluster, connector, bootstrap_servers="kafka.example:1") as client:
            assert connector.attempts[1] == 1
            for node in (1, 2, 3):
                await cluster.restart(node, port=7000 + node)
            connector.aliases["kafka.example", 1] = ("127.0.0.1", 7002)
            await client.refresh()
            assert connector.attempts[1] == 2
            assert {node.port for node in client.view.nodes.values()} == {7001, 7002, 7003}


@simulated
async def test_known_brokers_are_tried_again_if_the_bootstrap_addresses_fail() -> None:
    async with memory_cluster() as cluster:
        assert cluster.connector is not None
        connector = CountingConnector(cluster.connector)
        connector.aliases["kafka.example", 1] = ("127.0.0.1", cluster.nodes[1].port)
        async with client_of(cluster, connector, bootstrap_servers="kafka.example:1") as client:
            connector.aliases.clear()
            for node in (1, 2, 3):
                await cluster.stop(node)
            with pytest.raises(KafkaTimeout, match=r"kafka.example:1: .*refused|no node"):
                await client.refresh(timeout=5)
            for node in (1, 2, 3):
                await cluster.start_node(node)
            await client.refresh(timeout=30)


@simulated
async def test_rebootstrap_required_sends_the_client_to_the_bootstrap_list() -> None:
    async with memory_cluster() as cluster:
        assert cluster.connector is not None
        connector = CountingConnector(cluster.connector)
        connector.aliases["kafka.example", 1] = ("127.0.0.1", cluster.nodes[1].port)
        async with client_of(cluster, connector, bootstrap_servers="kafka.example:1") as client:
            await client.refresh()
            fault = cluster.on(MetadataRequest).answer(
                lambda _: MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            )
            await client.refresh()
            assert fault.hits == 1
            assert connector.attempts[1] == 2


@simulated
async def test_a_broker_with_a_new_address_is_followed() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.restart(2, port=7002)
        await client.refresh()
        assert client.view.nodes[2] == Node(2, "127.0.0.1", 7002, None)
        await client.send(MetadataRequest(topics=[]), node=2)
        assert cluster.history.of(MetadataRequest, node=2)


@simulated
async def test_a_broker_that_is_no_longer_listed_is_dropped_once_it_has_no_connection() -> None:
    async with cluster_and_client() as (cluster, client):
        await client.send(MetadataRequest(topics=[]), node=2)
        broker = client.broker(2)
        others = [node for node in cluster.nodes.values() if node.node_id != 2]
        listed = [MetadataResponseBroker(node_id=node.node_id, host="127.0.0.1", port=node.port) for node in others]
        with cluster.on(MetadataRequest, times=None).answer(lambda _: MetadataResponse(brokers=listed, topics=[])):
            await client.refresh()
            assert 2 not in client.view.nodes
            assert broker.connected, "requests in flight to a broker that is omitted by mistake must not fail"
            next(iter(broker.connections.values())).retire()
            await asyncio.sleep(1.0)
            await client.refresh()
            assert set(client._brokers._brokers) & {1, 2, 3} <= {1, 3}
        await client.refresh()
        await client.send(MetadataRequest(topics=[]), node=2)
        with pytest.raises(ConnectionLost, match="is closed"):
            await broker.connection()


@simulated
async def test_an_answer_without_brokers_is_ignored() -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.on(MetadataRequest).answer(lambda _: MetadataResponse(brokers=[], topics=[]))
        await client.refresh()
        assert set(client.view.nodes) == {1, 2, 3}


@simulated
async def test_used_topics_are_dropped_when_idle_and_added_ones_are_not() -> None:
    async with cluster_and_client(client={"metadata_max_age": 100.0}) as (_, client):
        await client.topic("used")
        client.add_topics(["added"])
        await client.refresh()
        assert {"used", "added"} == set(client.view.topics)
        await asyncio.sleep(250)
        assert client.known_topic("used") is not None, "which uses it again"
        await asyncio.sleep(250)
        assert {"used", "added"} == set(client.view.topics)
        await asyncio.sleep(400)
        assert {"added"} == set(client.view.topics)
        client.remove_topics(["added"])
        await client.refresh()
        assert not client.view.topics


@simulated
async def test_a_topic_is_tracked_for_its_time_in_use_plus_the_idle_time() -> None:
    async with cluster_and_client(client={"metadata_max_age": 50.0}) as (_, client):
        await client.topic("slow")
        assert client.known_topic("slow", in_use_for=1_000.0) is not None
        assert client.known_topic("slow") is not None, "a shorter use does not shorten the time"
        await asyncio.sleep(1_250)
        assert {"slow"} == set(client.view.topics)
        await asyncio.sleep(150)
        assert not client.view.topics


@simulated
async def test_a_refreshed_topic_is_not_tracked() -> None:
    async with cluster_and_client() as (_, client):
        assert "once" in (await client.refresh(["once"])).topics
        assert "once" not in (await client.refresh()).topics


@simulated
async def test_a_leader_hint_is_applied_and_not_undone_by_stale_metadata() -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        await client.topic("orders")
        seen: list[int | None] = []
        forget = client.on_view_change(lambda view: seen.append(leader_in(view)))
        other = next(node for node in (1, 2, 3) if node != leader_in(client.view))
        assert client.update_leader(ORDERS_0, other, 5, [Node(other, "elsewhere", 1)])
        assert not client.update_leader(ORDERS_0, 1, 5)
        await client.refresh()
        assert leader_in(client.view) == other
        forget()
        assert client.update_leader(ORDERS_0, 1, 6)
        assert set(seen) == {other}


@simulated
async def test_a_recreated_topic_of_the_same_name_is_another_topic() -> None:
    async with cluster_and_client(auto_create_topics=False) as (cluster, client):
        await cluster.create_topic("orders", partitions=3, replication_factor=3)
        old = await client.topic("orders")
        for _ in range(3):
            await cluster.move_leader("orders", 0)
        await client.refresh()
        await cluster.delete_topic("orders")
        await client.refresh()
        assert client.known_topic("orders") is None
        assert len(client.view.topics["orders"].partitions) == 3
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        new = await client.topic("orders")
        assert new.topic_id != old.topic_id
        assert [p.leader_epoch for p in new.partitions] == [0]


@simulated
async def test_closing_the_client_ends_its_calls_and_refuses_new_ones() -> None:
    async with cluster_and_client(auto_create_topics=False) as (cluster, client):
        other = client_of(cluster)
        with pytest.raises(IllegalStateError, match="not started"):
            await other.topic("x")
        waiter = asyncio.ensure_future(client.topic("nowhere"))
        await asyncio.sleep(1)
        await client.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await waiter
        for call in (client.topic("x"), client.refresh(), client.send(MetadataRequest(topics=[]))):
            with pytest.raises(IllegalStateError, match="closed"):
                await call


@pytest.mark.parametrize("metadata_version", [5, 7, 8, 9, 12, 13])
@simulated
async def test_each_version_of_metadata_works(metadata_version: int) -> None:
    versions = {**default_versions(), 3: (0, metadata_version)}
    async with cluster_and_client(config=ClusterConfig(versions=versions)) as (cluster, client):
        await cluster.create_topic("orders", partitions=3, replication_factor=3)
        topic = await client.topic("orders")
        assert (topic.partitions[0].leader_epoch is not None) == (metadata_version >= 9)
        moved = await cluster.move_leader("orders", 0)
        await client.refresh()
        assert leader_in(client.view) == moved
        assert cluster.history.of(MetadataRequest)[-1].version == metadata_version


@simulated
async def test_a_missing_topic_is_logged_once_and_so_is_its_creation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_and_client(auto_create_topics=False) as (cluster, client):
        client.add_topics(["odrers"])
        await asyncio.sleep(600)
        assert [record.getMessage() for record in caplog.records] == [
            "topic 'odrers' does not exist; check its name. The client waits for it"
        ]
        caplog.set_level(logging.INFO, "aiokafka_lite.cluster.updater")
        await cluster.create_topic("odrers", partitions=1)
        await client.topic("odrers")
        assert [record.getMessage() for record in caplog.records][1:] == ["topic 'odrers' exists now"]


async def _turns_while(work: Awaitable[object], call: Callable[[], object]) -> int:
    """Return the number of turns that another task gets until ``work`` is done. The task calls ``each`` in each
    turn."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            call()
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await work
    counting.cancel()
    return turns


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred partitions count as a large answer."""
    monkeypatch.setattr(metadata, "SLICE", 10)


@simulated
async def test_other_tasks_run_while_a_large_answer_is_merged_and_see_a_whole_snapshot(tiny_slices: None) -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("small", partitions=1, replication_factor=1)
        await cluster.create_topic("large", partitions=300, replication_factor=1)
        await client.refresh()
        usual = await _turns_while(client.topic("small"), lambda: None)
        seen: set[int] = set()
        turns = await _turns_while(
            client.topic("large"),
            lambda: seen.add(len(client.view.topics["large"].partitions) if "large" in client.view.topics else 0),
        )
        assert turns >= usual + 29
        assert seen <= {0, 300}


@simulated
async def test_a_hint_that_comes_while_an_answer_is_merged_is_kept(tiny_slices: None) -> None:
    async with cluster_and_client() as (cluster, client):
        await cluster.create_topic("orders", partitions=300, replication_factor=1)
        await client.topic("orders")
        epoch = 0

        def hint() -> None:
            nonlocal epoch
            epoch += 1
            assert client.update_leader(ORDERS_0, 1, epoch)

        await asyncio.sleep(1.0)  # the next request is not paced
        await _turns_while(client.refresh(), hint)
        partition_view = client.view.partition(ORDERS_0)
        assert partition_view is not None
        assert epoch > 29
        assert partition_view.leader_epoch == epoch
