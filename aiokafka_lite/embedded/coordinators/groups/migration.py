"""A group changes its protocol while it has members (KIP-848): from classic to consumer, and back.

The members keep their partitions and their generation, which is the epoch of the consumer group. A group becomes a
consumer group when the first member of that protocol joins, and a classic group when the last one has left.
"""

from __future__ import annotations

from ....errors import ErrorCode, ProtocolError
from ....protocol.codec import decode_versioned
from ....protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ...metadata.view import MetadataView
from .classic_members import CONSUMER, encode_assignment, partitions_with_ids
from .consumer_group import ConsumerGroup
from .consumer_group_members import ClassicSupport, ConsumerMember
from .group import Group
from .heartbeat_group import GroupRefusal
from .members import Member, Members


def upgrade(old: Group, new: ConsumerGroup, metadata: MetadataView, *, allowed: bool, max_size: int) -> None:
    """Give the members of a classic group to a ``new`` consumer group. Raises GroupRefusal."""
    problem = ""
    if not allowed:
        problem = "online upgrade is disabled"
    elif old.protocol_type != CONSUMER:
        problem = "the group does not use the consumer embedded protocol"
    elif len(old.members) > max_size:
        problem = "the group size exceeds the consumer group maximum size"
    try:
        members = [] if problem else [_consumer_member(old, member, metadata) for member in old.members.values()]
    except ProtocolError:
        problem = "the embedded consumer protocol is malformed"
    except ValueError:
        problem = (
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade"
        )
    if problem:
        # As in Kafka, the member gets the code for a group of another type.
        text = f"Cannot upgrade classic group {old.group_id} to consumer group because {problem}."
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, text)
    new.adopt(old.generation, members)


def _consumer_member(group: Group, member: Member, metadata: MetadataView) -> ConsumerMember:
    """Return the member of a consumer group for a member of a classic group.

    Raises ProtocolError if its bytes cannot be read, and ValueError if bytes of a custom strategy would be lost.
    """
    assigned: dict[tuple[bytes, int], int] = {}
    if member.assignment:
        assignment = decode_versioned(ConsumerProtocolAssignment, member.assignment)[0]
        # User data is the state of a custom strategy. The consumer protocol has no field for it.
        if assignment.user_data:
            raise ValueError(f"the assignment of {member.member_id} has user data")
        named = ((topic.topic, topic.partitions) for topic in assignment.assigned_partitions)
        assigned = dict.fromkeys(sorted(partitions_with_ids(metadata, named)), group.generation)
    # A group that waits for its first members has no protocol yet.
    stored = member.subscription(group.protocol) or member.protocols[0][1]
    subscription = decode_versioned(ConsumerProtocolSubscription, stored)[0]
    return ConsumerMember(
        member.member_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        member.rebalance_timeout,
        instance_id=member.instance_id,
        topics=tuple(sorted(set(subscription.topics))),
        classic=ClassicSupport(member.session_timeout, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
    )


def is_classic(group: ConsumerGroup) -> bool:
    """Return whether the group has members, and all of them are classic members."""
    return bool(group.members) and all(member.classic is not None for member in group.members.values())


def downgrade(old: ConsumerGroup, new: Group, metadata: MetadataView) -> None:
    """Give the members of a consumer group, which are all classic, to a ``new`` classic group."""
    members = Members()
    for member in old.members.values():
        assert member.classic is not None
        session_timeout, protocols = member.classic
        # As in Kafka, the target: it gives no partition twice. A member may still have one that it has to revoke.
        target = old.targets.get(member.member_id, frozenset())
        members.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                session_timeout,
                member.rebalance_timeout,
                CONSUMER,
                protocols,
                assignment=encode_assignment(metadata, target, protocols[0][1]),
            )
        )
    assert old.epoch >= old.assignment_epoch, "the generation of the new group is not older than any epoch of a member"
    new.restore(old.epoch, members.leader, members.elect_protocol(), list(members.values()))
