"""The cluster: its brokers and controller, its features, and the API versions that its brokers offer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import arguments
from ..errors import KafkaError, UnsupportedVersion, error_for
from ..net.handshake import SOFTWARE_NAME
from ..protocol.messages import (
    REQUESTS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    MetadataRequest,
)
from ..types import Node
from ..version import VERSION
from .calls import Calls, Peer
from .results import Results


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster. ``fenced`` are brokers that are registered and out of service, None without ``include_fenced``.

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

    ``epoch`` grows with each finalization; None if there was none.
    """

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    epoch: int | None


@dataclass(frozen=True, slots=True)
class ApiSupport:
    """An API of a broker: its versions, and the newest that this client speaks too (None if there is none).

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
        """The brokers, the controller and the cluster's id. ``include_fenced`` requires Kafka 4.0."""

        async def ask(peer: Peer) -> ClusterDescription:
            if include_fenced:
                peer.require(DescribeClusterRequest.FENCED_BROKERS, "listing fenced brokers")
            if peer.speaks(DescribeClusterRequest):
                return await _describe(peer, include_fenced)
            return await _describe_by_metadata(peer)

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing the cluster", self._calls.any_broker, ask, deadline)

    async def features(self, *, timeout: float | None = None) -> Features:
        """The features of the cluster (KIP-584). Requires Kafka 2.7."""

        async def ask(peer: Peer) -> Features:
            peer.require(ApiVersionsRequest.FEATURES, "describing features")
            answer = await _versions(peer)
            agreed = answer.finalized_features_epoch >= 0
            return Features(
                {each.name: VersionRange(each.min_version, each.max_version) for each in answer.supported_features},
                {
                    each.name: VersionRange(each.min_version_level, each.max_version_level)
                    for each in answer.finalized_features
                    if agreed
                },
                answer.finalized_features_epoch if agreed else None,
            )

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing features", self._calls.any_broker, ask, deadline)

    async def api_versions(
        self, brokers: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> Results[int, tuple[ApiSupport, ...]]:
        """The APIs that brokers offer, in order of their keys. All brokers if None."""
        wanted = None if brokers is None else arguments.broker_ids(brokers)

        async def ask(peer: Peer, items: list[int]) -> Mapping[int, tuple[ApiSupport, ...] | KafkaError]:
            answer = await _versions(peer)
            apis = sorted(answer.api_keys, key=lambda each: each.api_key)
            return {
                peer.node_id: tuple(_support(peer, each.api_key, each.min_version, each.max_version) for each in apis)
            }

        deadline = self._calls.deadline(timeout)
        nodes = await self._calls.all_brokers(deadline) if wanted is None else wanted
        return await self._calls.settle("asking for API versions", nodes, self._calls.brokers, ask, deadline)


async def _describe(peer: Peer, include_fenced: bool) -> ClusterDescription:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced)
    answer = await peer.send(request)
    if answer.error_code:
        raise error_for(answer.error_code, f"describing the cluster: {answer.error_message or ''}".rstrip(": "))
    listed = sorted(answer.brokers, key=lambda each: each.broker_id)
    nodes = {each.broker_id: Node(each.broker_id, each.host, each.port, each.rack) for each in listed}
    fenced = tuple(nodes[each.broker_id] for each in listed if each.is_fenced)
    return ClusterDescription(
        answer.cluster_id,
        nodes.get(answer.controller_id),
        tuple(node for node in nodes.values() if node not in fenced),
        fenced if include_fenced else None,
    )


async def _describe_by_metadata(peer: Peer) -> ClusterDescription:
    answer = await peer.send(MetadataRequest(topics=[]))
    listed = sorted(answer.brokers, key=lambda each: each.node_id)
    nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in listed}
    return ClusterDescription(answer.cluster_id, nodes.get(answer.controller_id), tuple(nodes.values()))


async def _versions(peer: Peer) -> ApiVersionsResponse:
    answer = await peer.send(ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION))
    if answer.error_code:
        raise error_for(answer.error_code, f"asking for the API versions of broker {peer.node_id}")
    return answer


def _support(peer: Peer, key: int, first: int, last: int) -> ApiSupport:
    request = REQUESTS.get(key)
    name = None if request is None else request.__name__.removesuffix("Request")
    used = None
    if request is not None:
        try:
            used = peer.versions.pick(request)
        except UnsupportedVersion:
            used = None
    return ApiSupport(key, name, VersionRange(first, last), used)
