"""Checks the values of a response about the cluster before the client uses it. The codec has checked the bytes.

Each check raises a ProtocolError that names the wrong value. Then the whole response is refused: the last good snapshot
stays, another broker is asked, and requests are paced as after any failure. docs/responses.md lists the rules for all
responses.

These are legal, although unusual: a leader that is not listed (its broker is down), a partition without replicas, and
gaps in the numbers of partitions. Kafka with ZooKeeper leaves out a new partition if all its replicas are down.
"""

from __future__ import annotations

from typing import Protocol

from ..errors import ProtocolError
from ..protocol.messages import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ..protocol.messages.metadata import MAX_PARTITIONS
from ..protocol.schema import ZERO_UUID
from ..types import printable

MAX_LEADER_EPOCH = 2**30
"""The largest leader epoch that is accepted. An epoch grows by one with each change of the leader, so an epoch near the
largest integer is wrong. It is also dangerous: no correct response could have a higher epoch, so the client would
ignore all later responses."""


class BrokerAddress(Protocol):
    """A broker's id and address, in Metadata, Produce, Fetch and FindCoordinator responses."""

    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


def check_brokers(response: MetadataResponse) -> None:
    """Raise ProtocolError if a broker is listed twice, or has an invalid id or address."""
    seen = set()
    for broker in response.brokers:
        check_endpoint(broker)
        if broker.node_id in seen:
            raise _senseless(f"broker {broker.node_id} is listed twice")
        seen.add(broker.node_id)


def check_endpoint(endpoint: BrokerAddress) -> None:
    """Raise ProtocolError unless a client can connect to this broker."""
    wrong = _wrong_in(endpoint)
    if wrong:
        raise _senseless(wrong)


def is_connectable(endpoint: BrokerAddress) -> bool:
    """Return whether a hint names a broker that a client can connect to. Other hints are ignored."""
    return not _wrong_in(endpoint)


def _wrong_in(endpoint: BrokerAddress) -> str:
    if endpoint.node_id < 0:
        return f"a broker has the id {endpoint.node_id}"
    if not endpoint.host:
        return f"broker {endpoint.node_id} has no host"
    if not 1 <= endpoint.port <= 65535:
        return f"broker {endpoint.node_id} has the port {endpoint.port}; ports are from 1 to 65535"
    return ""


def check_topic(topic: MetadataResponseTopic) -> None:
    """Raise ProtocolError if the topic has neither name nor id, or an invalid partition number or epoch."""
    if not topic.name and topic.topic_id == ZERO_UUID:
        raise _senseless("a topic has neither a name nor an id")
    # Fast path for the usual case: numbers in order, without a gap.
    if all(_is_usual(number, partition) for number, partition in enumerate(topic.partitions)):
        return
    where = f"topic {printable(topic.name or topic.topic_id.hex())}"
    seen = set()
    for partition in topic.partitions:
        number = partition.partition_index
        if partition.leader_epoch > MAX_LEADER_EPOCH:
            what = f"{where} has the leader epoch {partition.leader_epoch} in partition {number}"
            raise _senseless(f"{what}; the largest is {MAX_LEADER_EPOCH}")
        if not 0 <= number < MAX_PARTITIONS:
            raise _senseless(f"{where} has a partition {number}; numbers are from 0 to {MAX_PARTITIONS - 1}")
        if number in seen:
            raise _senseless(f"{where} has partition {number} twice")
        seen.add(number)


def _is_usual(number: int, partition: MetadataResponsePartition) -> bool:
    return partition.partition_index == number and partition.leader_epoch <= MAX_LEADER_EPOCH


def _senseless(what: str) -> ProtocolError:
    return ProtocolError(f"the broker's answer is invalid: {what}")
