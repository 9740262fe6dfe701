"""Large answers: a topic with the same bytes as in the last answer is taken from the snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokafka_lite.cluster.answer import MetadataAnswer, ReadTopics
from aiokafka_lite.cluster.metadata import ClusterView, TopicView, merge_leader, merging
from aiokafka_lite.errors import ProtocolError
from aiokafka_lite.protocol.codec import encode_message
from aiokafka_lite.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka_lite.protocol.partial import PartialResponse
from aiokafka_lite.types import TopicPartition


def topic(name: str, *, leader: int = 1, epoch: int = 5, partitions: int = 2) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=name,
        partitions=[
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1, 2],
                isr_nodes=[1, 2],
            )
            for index in range(partitions)
        ],
    )


def partial(*topics: MetadataResponseTopic, version: int = 12) -> PartialResponse:
    brokers = [MetadataResponseBroker(node_id=node, host="localhost", port=9092) for node in (1, 2)]
    out = bytearray()
    encode_message(MetadataResponse(brokers=brokers, topics=list(topics)), version, out)
    return PartialResponse(MetadataResponse, version, "topics", bytes(out), 0, "broker 1")


def merged(view: ClusterView, answer: MetadataAnswer) -> ClusterView:
    *_, snapshot = merging(view, answer, requested=None)
    assert snapshot is not None
    return snapshot


def follow(*answers: PartialResponse) -> tuple[ClusterView, ReadTopics]:
    view, before = ClusterView(), ReadTopics()
    for response in answers:
        answer = MetadataAnswer(response, before)
        view = merged(view, answer)
        before = answer.kept(view.topics)
    return view, before


def unread(answer: MetadataAnswer, view: ClusterView) -> list[str]:
    """Return the names of the topics that are not decoded."""
    return [topic.name for topic in answer.read(view.topics) if isinstance(topic, TopicView)]


def test_a_topic_with_the_same_bytes_is_not_decoded_again() -> None:
    view, before = follow(partial(topic("a"), topic("b"), topic("c")))
    answer = MetadataAnswer(partial(topic("a"), topic("b", leader=2, epoch=6), topic("c")), before)
    assert unread(answer, view) == ["a", "c"]
    newer = merged(view, answer)
    assert newer.topics["a"] is view.topics["a"]
    assert [partition.leader for partition in newer.topics["b"].partitions] == [2, 2]


def test_the_snapshot_is_the_same_as_that_of_a_response_that_is_decoded_whole() -> None:
    view, before = follow(partial(topic("a"), topic("b")), partial(topic("a", leader=2, epoch=6), topic("b")))
    response = partial(topic("b"), topic("a", leader=1, epoch=7), topic("new"))
    whole = MetadataResponse(
        brokers=response.message.brokers, topics=[topic("b"), topic("a", leader=1, epoch=7), topic("new")]
    )
    assert merged(view, MetadataAnswer(response, before)) == merged(view, MetadataAnswer(whole))


def test_after_a_topic_that_is_new_or_gone_the_others_are_found_again() -> None:
    view, before = follow(partial(*map(topic, "abcdef")))
    assert unread(MetadataAnswer(partial(*map(topic, "abxcdef")), before), view) == ["a", "b", "c", "d", "e", "f"]
    assert unread(MetadataAnswer(partial(*map(topic, "abdef")), before), view) == ["a", "b", "e", "f"]


def test_a_topic_that_the_snapshot_has_otherwise_is_decoded() -> None:
    view, before = follow(partial(topic("a"), topic("b")))
    hinted = merge_leader(view, TopicPartition("a", 0), 2, 9)
    answer = MetadataAnswer(partial(topic("a"), topic("b")), before)
    assert unread(answer, hinted) == ["b"]
    leader = merged(hinted, answer).partition(TopicPartition("a", 0))
    assert leader is not None
    assert (leader.leader, leader.leader_epoch) == (2, 9)


def test_the_bytes_of_another_version_are_decoded() -> None:
    view, before = follow(partial(topic("a"), version=12))
    assert unread(MetadataAnswer(partial(topic("a"), version=11), before), view) == []


def test_a_topic_that_makes_no_sense_refuses_the_answer_also_in_parts() -> None:
    with pytest.raises(ProtocolError, match="topic b has the leader epoch 2147483647"):
        follow(partial(topic("a"), topic("b", epoch=2**31 - 1)))


def test_a_topic_that_was_not_requested_is_decoded_when_it_is() -> None:
    view, before = follow(partial(topic("a"), topic("b")))
    moved = partial(topic("a"), topic("b", leader=2, epoch=6))
    answer = MetadataAnswer(moved, before)
    *_, view = merging(view, answer, requested={"a"}, keep={"a", "b"})
    assert view is not None
    newer = merged(view, MetadataAnswer(moved, answer.kept(view.topics)))
    assert [partition.leader for partition in newer.topics["b"].partitions] == [2, 2]


def test_of_a_topic_that_is_listed_twice_the_last_one_counts_also_in_the_next_answer() -> None:
    twice = partial(topic("a", leader=1, epoch=6), topic("a", leader=2, epoch=7))
    view, before = follow(twice)
    assert unread(MetadataAnswer(partial(topic("a", leader=1, epoch=6)), before), view) == []
    assert unread(MetadataAnswer(partial(topic("a", leader=2, epoch=7)), before), view) == ["a"]


def test_the_parts_of_a_large_response_are_dropped_with_its_topics() -> None:
    view, before = follow(partial(topic("a"), topic("b")))
    answer = MetadataAnswer(MetadataResponse(brokers=[], topics=[]), before)
    *_, view = merging(view, answer, requested=set(), keep=set())
    assert view is not None
    assert answer.kept(view.topics).encoded == ()


def test_a_small_response_keeps_the_topics_of_the_large_one() -> None:
    view, before = follow(partial(topic("a")))
    small = MetadataResponse(brokers=[], topics=[topic("b")])
    assert MetadataAnswer(small, before).kept(view.topics) is before


def test_a_topic_without_a_leader_is_unsettled() -> None:
    view, _ = follow(partial(topic("a", leader=-1), topic("b")))
    assert [*view.unsettled(["a", "b"])] == ["a"]
    with_leader = replace(view.topics["a"], partitions=view.topics["b"].partitions)
    assert not with_leader.is_unsettled
