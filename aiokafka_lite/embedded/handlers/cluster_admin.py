"""DescribeQuorum, UpdateFeatures, UnregisterBroker, AddRaftVoter and RemoveRaftVoter: the cluster itself.

- DescribeQuorum (KIP-595) describes partition 0 of ``__cluster_metadata``; any other is UNKNOWN_TOPIC_OR_PARTITION.
  Every broker acts as a voter that has all decisions of the controller, as with ``process.roles=broker,controller``.
- UpdateFeatures (KIP-584) changes all the named levels or none. The error is INVALID_UPDATE_VERSION for an unsupported
  level, and for a lower level if the request does not allow downgrades. v0 has one flag for all downgrades. v1 has the
  type of each change. v2 has no result for each feature.
- AddRaftVoter and RemoveRaftVoter (KIP-853) change the voters of a dynamic quorum. The quorum here is static, as with
  ``controller.quorum.voters``: its kraft.version is 0, and both requests get UNSUPPORTED_VERSION.
- UnregisterBroker removes a broker: it is no longer listed as fenced. If it still runs, it is fenced first.
"""

from __future__ import annotations

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ...protocol.schema import ZERO_UUID
from ..metadata.controller import Refused, Registration
from ..metadata.features import UpgradeType
from ..metadata.topics import METADATA_TOPIC
from ..request_context import RequestContext, handles, refusal_in

METADATA_EPOCH = 1
CONTROLLER_LISTENER = "CONTROLLER"


@handles(m.DescribeQuorumRequest, requires=AclOperation.DESCRIBE)
def describe_quorum(context: RequestContext, request: m.DescribeQuorumRequest) -> m.DescribeQuorumResponse:
    partitions = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if partitions != [(METADATA_TOPIC, 0)]:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return m.DescribeQuorumResponse(
            error_code=ErrorCode.NONE,
            topics=[
                m.DescribeQuorumResponseTopic(
                    topic_name=topic.topic_name,
                    partitions=[_refused(partition.partition_index, unknown) for partition in topic.partitions],
                )
                for topic in request.topics
            ],
        )
    brokers = sorted(context.broker.controller.brokers.values(), key=lambda broker: broker.node_id)
    if context.version < m.DescribeQuorumRequest.NODES:
        brokers = []
    return m.DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=[m.DescribeQuorumResponseTopic(topic_name=METADATA_TOPIC, partitions=[_quorum(context)])],
        nodes=[
            m.DescribeQuorumNode(node_id=broker.node_id, listeners=[_listener(context, broker)]) for broker in brokers
        ],
    )


def _listener(context: RequestContext, broker: Registration) -> m.DescribeQuorumListener:
    return m.DescribeQuorumListener(name=CONTROLLER_LISTENER, host=broker.host, port=context.port_of(broker))


def _refused(index: int, code: ErrorCode) -> m.DescribeQuorumPartition:
    return m.DescribeQuorumPartition(
        partition_index=index,
        error_code=code,
        error_message=code.description,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _quorum(context: RequestContext) -> m.DescribeQuorumPartition:
    controller, now_ms = context.broker.controller, context.broker.now_ms()
    voters = [
        m.DescribeQuorumReplica(
            replica_id=broker.node_id,
            log_end_offset=controller.decisions,
            last_fetch_timestamp=now_ms if broker.alive else -1,
            last_caught_up_timestamp=now_ms if broker.alive else -1,
        )
        for broker in sorted(controller.brokers.values(), key=lambda broker: broker.node_id)
    ]
    return m.DescribeQuorumPartition(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=controller.controller_id,
        leader_epoch=METADATA_EPOCH,
        high_watermark=controller.decisions,
        current_voters=voters,
        observers=[],
    )


@handles(m.UpdateFeaturesRequest, requires=AclOperation.ALTER)
def update_features(context: RequestContext, request: m.UpdateFeaturesRequest) -> m.UpdateFeaturesResponse:
    response = m.UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    typed = context.version >= m.UpdateFeaturesRequest.VALIDATE_ONLY
    changes = {change.feature: (change.max_version_level, _type(change, typed)) for change in request.feature_updates}
    with refusal_in(response):
        context.broker.changes.update_features(changes, validate_only=request.validate_only)
        response.results = [
            m.UpdateFeaturesResult(feature=name, error_code=ErrorCode.NONE, error_message="NONE") for name in changes
        ]
    return response


def _type(change: m.UpdateFeaturesFeature, typed: bool) -> int:
    if typed:
        return change.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if change.allow_downgrade else UpgradeType.UPGRADE


@handles(m.UnregisterBrokerRequest, requires=AclOperation.ALTER)
def unregister_broker(context: RequestContext, request: m.UnregisterBrokerRequest) -> m.UnregisterBrokerResponse:
    response = m.UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
    with refusal_in(response):
        context.broker.controller.unregister(request.broker_id)
    return response


@handles(m.AddRaftVoterRequest, requires=AclOperation.ALTER)
def add_raft_voter(context: RequestContext, request: m.AddRaftVoterRequest) -> m.AddRaftVoterResponse:
    response = m.AddRaftVoterResponse(error_code=ErrorCode.NONE, error_message=None)
    with refusal_in(response):
        problem = None
        if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID or not request.listeners:
            problem = "a voter must have an id, a directory id and a listener"
        elif all(listener.name != CONTROLLER_LISTENER for listener in request.listeners):
            problem = f"the voter has no address for the listener {CONTROLLER_LISTENER}"
        _refuse_voter(context, request.cluster_id, problem, "adding")
    return response


@handles(m.RemoveRaftVoterRequest, requires=AclOperation.ALTER)
def remove_raft_voter(context: RequestContext, request: m.RemoveRaftVoterRequest) -> m.RemoveRaftVoterResponse:
    response = m.RemoveRaftVoterResponse(error_code=ErrorCode.NONE, error_message=None)
    with refusal_in(response):
        is_incomplete = request.voter_id < 0 or request.voter_directory_id == ZERO_UUID
        problem = "a voter must have an id and a directory id" if is_incomplete else None
        _refuse_voter(context, request.cluster_id, problem, "removing")
    return response


def _refuse_voter(context: RequestContext, cluster_id: str | None, problem: str | None, change: str) -> None:
    """Raise Refused: the request names another cluster, or has a ``problem``, or else the quorum is static."""
    if cluster_id is not None and cluster_id != context.broker.cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {context.broker.cluster_id}")
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    # Kafka's words, because kafka-metadata-quorum.sh prints them.
    text = f"Cluster doesn't support {change} voter because the kraft.version feature is 0"
    raise Refused(ErrorCode.UNSUPPORTED_VERSION, text)
