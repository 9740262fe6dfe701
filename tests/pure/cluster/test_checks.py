"""A wrong answer about the cluster is refused, with an error that names the wrong value."""

from __future__ import annotations

import pytest

from aiokafka_lite.cluster.answer import MetadataAnswer
from aiokafka_lite.cluster.checks import MAX_LEADER_EPOCH, is_connectable
from aiokafka_lite.cluster.metadata import ClusterView, merge_leader
from aiokafka_lite.errors import ProtocolError
from aiokafka_lite.protocol.codec import decode_message, encode_message
from aiokafka_lite.protocol.messages import (
    DescribeClusterBroker,
    DescribeClusterResponse,
    MetadataResponse,
    MetadataResponseBroker,
)
from aiokafka_lite.protocol.messages.metadata import MAX_BROKERS, MAX_PARTITIONS
from aiokafka_lite.protocol.schema import ZERO_UUID
from aiokafka_lite.types import TopicPartition
from tests.pure.cluster.metadata_snapshots import merge
from tests.pure.cluster.test_metadata import ID_A, broker, known, partition, response, topic

LAST = 2**31 - 1


def check(message: MetadataResponse) -> None:
    """Read the answer to its end."""
    list(MetadataAnswer(message).read({}))


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (response(topic(partition(LAST))), "topic orders has a partition 2147483647; numbers are from 0 to 99999"),
        (response(topic(partition(-1))), "topic orders has a partition -1"),
        (response(topic(partition(0), partition(MAX_PARTITIONS))), "topic orders has a partition 100000"),
        (response(topic(partition(0), partition(1), partition(0))), "topic orders has partition 0 twice"),
        (response(topic(partition(0, epoch=LAST))), "topic orders has the leader epoch 2147483647 in partition 0"),
        (response(topic(partition(), name="", topic_id=ZERO_UUID)), "a topic has neither a name nor an id"),
        (response(nodes=(1, -1)), "a broker has the id -1"),
        (response(nodes=(1, 2, 1)), "broker 1 is listed twice"),
    ],
)
def test_a_wrong_value_is_named(answer: MetadataResponse, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        check(answer)


@pytest.mark.parametrize("port", [-1, 65536, 70_000, LAST])
def test_a_port_outside_the_range_is_refused(port: int) -> None:
    answer = MetadataResponse(brokers=[broker(1), broker(2, port)], topics=[])
    with pytest.raises(ProtocolError, match=f"broker 2 has the port {port}; ports are from 1 to 65535"):
        check(answer)


def test_a_broker_without_a_host_is_refused() -> None:
    nowhere = MetadataResponseBroker(node_id=2, host="", port=9092)
    assert not is_connectable(nowhere)
    with pytest.raises(ProtocolError, match="broker 2 has no host"):
        check(MetadataResponse(brokers=[broker(1), nowhere], topics=[]))


def test_unusual_and_legal_answers_are_accepted() -> None:
    check(response(topic(partition(leader=99), partition(1, leader=-1, epoch=-1)), nodes=(1, 5000)))
    check(response(topic(partition(1), partition(0), partition(7, replica_nodes=[], isr_nodes=[]))))
    check(response(topic(error=3), topic(partition(epoch=MAX_LEADER_EPOCH), name="other")))


def test_topics_that_were_not_asked_for_are_ignored() -> None:
    answer = response(topic(partition(), name="other"))
    view = merge(known(topic(partition())), answer, requested={"orders"}, keep={"orders"})
    assert set(view.topics) == {"orders"}


@pytest.mark.parametrize(("port", "epoch"), [(-1, 5), (70_000, 5), (9092, LAST)])
def test_a_hint_that_makes_no_sense_is_ignored(port: int, epoch: int) -> None:
    view = known(topic(partition(leader=1, epoch=3)))
    endpoint = MetadataResponseBroker(node_id=7, host="kafka", port=port)
    assert merge_leader(view, TopicPartition("orders", 0), 7, epoch, [endpoint]) is view


@pytest.mark.parametrize("version", [1, 9, 13])
def test_more_brokers_than_any_cluster_has_are_refused_before_they_are_decoded(version: int) -> None:
    encoded = bytearray()
    encode_message(response(nodes=tuple(range(MAX_BROKERS + 1))), version, encoded)
    with pytest.raises(ProtocolError, match="brokers claims 10001 elements; at most 10000 are accepted"):
        decode_message(MetadataResponse, version, encoded)


def test_more_brokers_in_describe_cluster_are_refused_as_well() -> None:
    brokers = [DescribeClusterBroker(broker_id=number, host="h", port=1) for number in range(MAX_BROKERS + 1)]
    encoded = bytearray()
    answer = DescribeClusterResponse(error_code=0, cluster_id="c", brokers=brokers)
    encode_message(answer, 0, encoded)
    with pytest.raises(ProtocolError, match="at most 10000 are accepted"):
        decode_message(DescribeClusterResponse, 0, encoded)


def test_as_many_brokers_as_are_allowed_become_a_snapshot() -> None:
    answer = response(nodes=tuple(range(5000)))
    check(answer)
    assert len(merge(ClusterView(), answer, requested=set()).nodes) == 5000


def test_a_topic_id_is_not_required() -> None:
    check(response(topic(partition(), topic_id=ZERO_UUID), topic(partition(), name="other", topic_id=ID_A)))
