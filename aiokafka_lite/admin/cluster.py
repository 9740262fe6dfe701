"""The cluster: its brokers, controllers and features, and the API versions that its brokers offer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from .. import arguments
from ..errors import KafkaError, ProtocolError, UnsupportedVersion
from ..net.handshake import SOFTWARE_NAME
from ..protocol.messages import (
    REQUESTS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeQuorumPartition,
    DescribeQuorumReplica,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    MetadataRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesFeature,
    UpdateFeaturesRequest,
)
from ..types import Node
from ..version import VERSION
from .answers import none_if_negative, raise_for
from .calls import Calls
from .peer import Peer
from .results import Results


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster. ``fenced`` are registered brokers that are out of service, None without ``include_fenced``.

    On a cluster without ZooKeeper ``controller`` is a broker that forwards requests to the controllers.
    """

    cluster_id: str | None
    controller: Node | None
    brokers: tuple[Node, ...]
    fenced: tuple[Node, ...] | None = None


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from ``first`` to ``last``, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Features:
    """The features that the brokers support, and the levels that are finalized for the whole cluster.

    ``epoch`` grows with each finalization; None before the first one.
    """

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    epoch: int | None


class FeatureChange(IntEnum):
    """The direction of a change of features. A SAFE_DOWNGRADE loses no metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller or a broker with a replica of the metadata log. The replica has the log up to ``end_offset``.

    Times are milliseconds since the epoch, None if unknown or before Kafka 3.3.
    """

    node_id: int
    end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@dataclass(frozen=True, slots=True)
class Quorum:
    """The controllers of a cluster without ZooKeeper, and the brokers that follow them, the observers.

    ``leader`` is the id of the active controller, -1 if there is none.
    """

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class ApiSupport:
    """An API of a broker: its versions, and the newest version that this client supports too; None if there is none.

    ``name`` is None for an API that this client does not know.
    """

    key: int
    name: str | None
    offered: VersionRange
    used: int | None


class Cluster:
    """The calls of ``admin.cluster``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(self, *, include_fenced: bool = False, timeout: float | None = None) -> ClusterDescription:
        """Describe the cluster: its brokers, its controller, its id. ``include_fenced`` requires Kafka 4.0.

        With ``bootstrap_controllers``, ``brokers`` are the controllers, ``controller`` is the active one, and
        ``include_fenced`` raises ValueError.
        """
        of_controllers = self._calls.asks_controllers
        if include_fenced and of_controllers:
            raise ValueError("include_fenced is for brokers, and this client asks the controllers")

        async def ask(peer: Peer) -> ClusterDescription:
            if include_fenced:
                peer.require(DescribeClusterRequest.FENCED_BROKERS, "listing fenced brokers")
            if peer.speaks(DescribeClusterRequest):
                kind = DescribeClusterRequest.CONTROLLERS if of_controllers else DescribeClusterRequest.BROKERS
                return await _describe(peer, kind, include_fenced)
            return await _describe_by_metadata(peer)

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing the cluster", self._calls.any_broker, ask, deadline)

    async def features(self, *, timeout: float | None = None) -> Features:
        """Describe the features of the cluster (KIP-584). Requires Kafka 2.7."""

        async def ask(peer: Peer) -> Features:
            peer.require(ApiVersionsRequest.FEATURES, "describing features")
            answer = await _versions(peer)
            agreed = answer.finalized_features_epoch >= 0
            return Features(
                {
                    supported_feature.name: VersionRange(supported_feature.min_version, supported_feature.max_version)
                    for supported_feature in answer.supported_features
                },
                {
                    finalized_feature.name: VersionRange(
                        finalized_feature.min_version_level, finalized_feature.max_version_level
                    )
                    for finalized_feature in answer.finalized_features
                    if agreed
                },
                answer.finalized_features_epoch if agreed else None,
            )

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing features", self._calls.any_broker, ask, deadline)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        change: FeatureChange = FeatureChange.UPGRADE,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Finalize levels of features for the whole cluster. Level 0 removes a feature. All levels change, or none.

        Requires Kafka 2.7; ``validate_only``, and the difference between safe and unsafe downgrades, require 3.3.
        """
        arguments.mapping("levels", levels, "feature to level")
        level_of = {arguments.text("feature", name): arguments.whole(name, level) for name, level in levels.items()}
        if not isinstance(change, FeatureChange):
            raise TypeError(arguments.must_be("change", "a FeatureChange such as FeatureChange.UPGRADE", change))

        async def ask(peer: Peer) -> None:
            peer.require(UpdateFeaturesRequest.INTRODUCED, "updating features")
            has_types = peer.speaks(UpdateFeaturesRequest.VALIDATE_ONLY)
            if validate_only or change is FeatureChange.UNSAFE_DOWNGRADE:
                peer.require(UpdateFeaturesRequest.VALIDATE_ONLY, "validating features, or an unsafe downgrade,")
            updates = [
                UpdateFeaturesFeature(feature=name, max_version_level=level, upgrade_type=change)
                if has_types
                else UpdateFeaturesFeature(
                    feature=name, max_version_level=level, allow_downgrade=change is not FeatureChange.UPGRADE
                )
                for name, level in level_of.items()
            ]
            request = UpdateFeaturesRequest(
                timeout_ms=peer.timeout_ms, feature_updates=updates, validate_only=validate_only
            )
            answer = await peer.send(request)
            raise_for(answer.error_code, "updating features", answer.error_message)
            for result in answer.results:
                raise_for(result.error_code, f"updating the feature {result.feature}", result.error_message)

        deadline = self._calls.deadline(timeout)
        await self._calls.one("updating features", self._calls.controller, ask, deadline)

    async def quorum(self, *, timeout: float | None = None) -> Quorum:
        """Describe the controllers of a cluster without ZooKeeper. Requires Kafka 3.3."""

        async def ask(peer: Peer) -> Quorum:
            peer.require(DescribeQuorumRequest.INTRODUCED, "describing the metadata quorum")
            partition = DescribeQuorumRequestPartition(partition_index=0)
            topic = DescribeQuorumRequestTopic(topic_name="__cluster_metadata", partitions=[partition])
            answer = await peer.send(DescribeQuorumRequest(topics=[topic]))
            raise_for(answer.error_code, "describing the metadata quorum", answer.error_message)
            partitions = [partition for topic in answer.topics for partition in topic.partitions]
            if len(partitions) != 1:
                raise ProtocolError(f"the metadata quorum has one partition, and the answer has {len(partitions)}")
            return _quorum(partitions[0])

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing the metadata quorum", self._calls.any_broker, ask, deadline)

    async def unregister_broker(self, node_id: int, *, timeout: float | None = None) -> None:
        """Remove a fenced broker that has left permanently. Requires Kafka 3.0 or newer, without ZooKeeper.

        Raises BrokerError with BROKER_ID_NOT_REGISTERED for an unknown broker.
        """
        what = f"unregistering broker {arguments.whole('broker id', node_id)}"

        async def ask(peer: Peer) -> None:
            peer.require(UnregisterBrokerRequest.INTRODUCED, "unregistering a broker")
            answer = await peer.send(UnregisterBrokerRequest(broker_id=node_id))
            raise_for(answer.error_code, what, answer.error_message)

        deadline = self._calls.deadline(timeout)
        await self._calls.one(what, self._calls.controller, ask, deadline)

    async def api_versions(
        self, brokers: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> Results[int, tuple[ApiSupport, ...]]:
        """Ask brokers for their APIs, in order of the keys; all brokers if None."""
        broker_ids = None if brokers is None else arguments.broker_ids(brokers)

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, tuple[ApiSupport, ...] | KafkaError]:
            answer = await _versions(peer)
            apis = sorted(answer.api_keys, key=lambda api: api.api_key)
            return {peer.node_id: tuple(_support(peer, api.api_key, api.min_version, api.max_version) for api in apis)}

        deadline = self._calls.deadline(timeout)
        nodes = await self._calls.all_brokers(deadline) if broker_ids is None else broker_ids
        return await self._calls.settle("asking for API versions", nodes, self._calls.brokers, ask, deadline)


def _quorum(response: DescribeQuorumPartition) -> Quorum:
    raise_for(response.error_code, "describing the metadata quorum", response.error_message)
    return Quorum(
        response.leader_id,
        response.leader_epoch,
        response.high_watermark,
        tuple(map(_replica, response.current_voters)),
        tuple(map(_replica, response.observers)),
    )


def _replica(replica: DescribeQuorumReplica) -> QuorumReplica:
    return QuorumReplica(
        replica.replica_id,
        replica.log_end_offset,
        none_if_negative(replica.last_fetch_timestamp),
        none_if_negative(replica.last_caught_up_timestamp),
    )


async def _describe(peer: Peer, endpoints: int, include_fenced: bool) -> ClusterDescription:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoints, include_fenced_brokers=include_fenced
    )
    answer = await peer.send(request)
    raise_for(answer.error_code, "describing the cluster", answer.error_message)
    brokers = sorted(answer.brokers, key=lambda broker: broker.broker_id)
    nodes = {broker.broker_id: Node(broker.broker_id, broker.host, broker.port, broker.rack) for broker in brokers}
    fenced = tuple(nodes[broker.broker_id] for broker in brokers if broker.is_fenced)
    return ClusterDescription(
        answer.cluster_id,
        nodes.get(answer.controller_id),
        tuple(node for node in nodes.values() if node not in fenced),
        fenced if include_fenced else None,
    )


async def _describe_by_metadata(peer: Peer) -> ClusterDescription:
    answer = await peer.send(MetadataRequest(topics=[]))
    brokers = sorted(answer.brokers, key=lambda broker: broker.node_id)
    nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in brokers}
    return ClusterDescription(answer.cluster_id, nodes.get(answer.controller_id), tuple(nodes.values()))


async def _versions(peer: Peer) -> ApiVersionsResponse:
    answer = await peer.send(ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION))
    raise_for(answer.error_code, f"asking for the API versions of broker {peer.node_id}")
    return answer


def _support(peer: Peer, key: int, first: int, last: int) -> ApiSupport:
    request = REQUESTS.get(key)
    name = None if request is None else request.__name__.removesuffix("Request")
    version = None
    if request is not None:
        try:
            version = peer.versions.pick(request)
        except UnsupportedVersion:
            version = None
    return ApiSupport(key, name, VersionRange(first, last), version)
