"""The requests of a member, and the errors that refuse them finally. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..aio.retry import is_refusal, is_retriable_in_failover
from ..arguments import plural
from ..cluster.metadata import ClusterView
from ..errors import BrokerError, ErrorCode, KafkaError, error_for
from ..protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ..protocol.messages.metadata import MAX_PARTITIONS
from ..protocol.schema import ZERO_UUID
from ..protocol.versions import VersionTable
from ..types import TopicPartition
from .events import Identity, SendLeave
from .payloads import MAX_ASSIGNED, PROTOCOL_TYPE, write_assignment

MAX_UNLISTED = 1_000
"""The partitions of one assignment that may be missing in metadata. The consumer looks for the leader of each of them
again and again, so each costs CPU until it exists."""

UNKNOWN_ERRORS_TOLERATED = 5
"""The number of UNKNOWN_SERVER_ERROR answers to joining requests that a member retries before it has an assignment.

An exception to ``is_retriable``: brokers return this code during a failover. Java's client fails at the first one.
"""

SHORTEST_INTERVAL = 0.1
"""The shortest time between heartbeats, in seconds. A coordinator that asks for 0 would cause a busy loop."""

LONGEST_INTERVAL = 60.0
"""The longest time between heartbeats, in seconds. With a longer one, a coordinator would evict the member first.
Brokers allow 15 seconds by default."""

REFUSALS = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
"""The codes of missing permissions, which may be granted later (``aio.retry.is_refusal``)."""

FINAL_CODES = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""The codes that end even a member that the coordinator has accepted before: another client has taken its instance id
on purpose, a group of another type has its group id, or this client sends what the coordinator does not understand."""

_EVICTED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
)
"""The codes with which a member joins again, or ends."""

_HINTS = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the brokers limit the group by group.max.size",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the present members use none of these strategies or are not consumers; all members of a group need a common "
        "strategy"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session_timeout must be within group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers"
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "another client has joined with the same group_instance_id; each member of a group needs its own"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs READ on the group",
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another member holds this group_instance_id; if its process died, the coordinator releases the id when the "
        "session of that member ends"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: "group_remote_assignor must be one of group.consumer.assignors of the brokers",
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the group has members of the classic protocol that the coordinator cannot convert; stop them first, or use "
        'group_protocol="classic"'
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster has no consumer groups: its feature group.version is 0; finalize level 1, or use "
        'group_protocol="classic"'
    ),
}


def join_request(
    group_id: str,
    identity: Identity,
    subscriptions: Mapping[str, bytes],
    *,
    session_timeout: float,
    rebalance_timeout: float,
) -> JoinGroupRequest:
    """Make a JoinGroup request. ``subscriptions`` are by strategy, the preferred one first. Timeouts are in seconds."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=round(session_timeout * 1000),
        rebalance_timeout_ms=round(rebalance_timeout * 1000),
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in subscriptions.items()],
    )


def sync_request(
    group_id: str,
    identity: Identity,
    strategy: str,
    assignment: Mapping[str, Sequence[TopicPartition]],
    user_data: Mapping[str, bytes | None] | None = None,
) -> SyncGroupRequest:
    """Make a SyncGroup request. Only the leader has an ``assignment``, and ``user_data`` of its strategy."""
    of_strategy = user_data or {}
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=strategy,
        assignments=[
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=write_assignment(partitions, of_strategy.get(member_id))
            )
            for member_id, partitions in assignment.items()
        ],
    )


def heartbeat_request(group_id: str, identity: Identity) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
    )


def leaves_by_id(action: SendLeave, versions: VersionTable) -> bool:
    """Return whether the request is sent in the old form, with one member id (v0 to v2).

    A member without an instance id uses the newer form only to send the reason (v5). librdkafka's mock cluster offers
    v4, but reads it in the old form.
    """
    return action.instance_id is None and not versions.supports(LeaveGroupRequest.REASON)


def leave_request(group_id: str, action: SendLeave, versions: VersionTable, *, by_id: bool) -> LeaveGroupRequest:
    """Make a LeaveGroup request: with one member id if ``by_id`` or for an old coordinator, otherwise with a list."""
    if by_id or not versions.supports(LeaveGroupRequest.MANY_MEMBERS):
        return LeaveGroupRequest(group_id=group_id, member_id=action.member_id)
    member = LeaveGroupRequestMember(
        member_id=action.member_id, group_instance_id=action.instance_id, reason=action.reason
    )
    return LeaveGroupRequest(group_id=group_id, members=[member])


def heartbeat_interval(milliseconds: int) -> float:
    """Convert the coordinator's interval to seconds, within ``SHORTEST_`` and ``LONGEST_INTERVAL``."""
    return min(max(milliseconds / 1000, SHORTEST_INTERVAL), LONGEST_INTERVAL)


def problem_of_assignment(topics: Sequence[tuple[bytes, Sequence[int]]]) -> str | None:
    """Return the reason why a coordinator's assignment is invalid; None if it is valid.

    ``topics`` are all its entries, each with a topic id and partition numbers. A topic id may be repeated.
    """
    count = sum(len(numbers) for _, numbers in topics)
    if count > MAX_ASSIGNED:
        return f"an assignment of {count} partitions, more than {MAX_ASSIGNED}"
    if any(topic_id == ZERO_UUID for topic_id, _ in topics):
        return "an assigned topic without an id"
    wrong = next((number for _, numbers in topics for number in numbers if not 0 <= number < MAX_PARTITIONS), None)
    return None if wrong is None else f"an assigned partition with the number {wrong}"


def problem_of_unlisted(topics: Mapping[str, Sequence[int]], view: ClusterView) -> str | None:
    """Return the reason to refuse an assignment of partition numbers by topic; None to accept it.

    It is refused if more than ``MAX_UNLISTED`` of its partitions do not exist in this metadata. Topics that metadata
    does not know, or knows with an error, do not count.
    """
    if sum(map(len, topics.values())) <= MAX_UNLISTED:
        return None
    unlisted: dict[str, int] = {}
    for name, numbers in topics.items():
        topic = view.topics.get(name)
        if topic is not None and topic.is_usable and numbers and max(numbers) > topic.partitions[-1].partition:
            last = topic.partitions[-1].partition
            unlisted[name] = sum(number > last for number in numbers)
    count = sum(unlisted.values())
    if count <= MAX_UNLISTED:
        return None
    name = max(unlisted, key=unlisted.__getitem__)
    count_text = plural(len(view.topics[name].partitions), "partition")
    return (
        f"an assignment with {count} partitions that do not exist; topic {name!r} has {count_text}, and the "
        f"assignment names {plural(len(topics[name]), 'partition')} of it"
    )


def refusal(api: str, code: ErrorCode, *, group_id: str, instance_id: str | None, request: str = "") -> KafkaError:
    """Make the error for the user when the coordinator refuses the member finally. ``request`` describes details."""
    static = "" if instance_id is None else f" as {instance_id!r}"
    return error_for(code, f"{api} of group {group_id!r}{static}{request} was refused", reason=_HINTS.get(code))


def is_final(code: ErrorCode, *, was_accepted: bool) -> bool:
    """Return whether a code that is not retriable ends a member.

    A missing permission ends none. ``was_accepted``: the coordinator has accepted the member before, with the same
    settings. Then the cause is outside this client, such as a full group or a setting of the brokers, and may pass.
    """
    if code in REFUSALS:
        return False
    return code in FINAL_CODES or not was_accepted


def is_refused(error: KafkaError) -> bool:
    """Return whether an operator may have to act: the error is neither a step of a rebalance nor retriable."""
    if not isinstance(error, BrokerError):
        return is_refusal(error)
    return error.code not in _EVICTED and not is_retriable_in_failover(error)
