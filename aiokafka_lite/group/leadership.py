"""The leader's part in one generation: it assigns all partitions, and detects when the assignment is outdated. No I/O.

The data of other members is not trusted: a member whose subscription cannot be read gets no partitions, and an invalid
topic name is ignored. Otherwise one broken member could make every leader fail, and so the whole group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..aio.callbacks import in_copy
from ..cluster.topics import problem_of_topic_name
from ..errors import IllegalStateError, ProtocolError
from ..protocol.messages import JoinGroupResponse
from ..types import TopicPartition
from .events import AssignmentsSeen, JoinAnswer, TopicsGathered
from .payloads import read_assignment, read_subscription
from .strategies import AssignmentStrategy, GroupMember, TopicRacks

LARGE_GROUP = 20_000
"""The partitions of a group, plus its members times its topics, from which the leader computes the assignment in a
thread. Each of them costs up to 10 us, and with 50,000 members the computation would hold the event loop for a
second."""

LARGE_SUBSCRIPTIONS = 128 << 10
"""Bytes of all subscriptions, or of all assignments, from which a member reads them in a thread."""

UUID_LENGTH = 36

MEMBER_BYTES = 128
"""What a member counts beside its subscription."""


class Leadership:
    """The members of one generation whose subscriptions can be read.

    ``problems`` are texts that name the members without partitions, and the ignored topics. ``own_topics`` are those of
    a leader that gets no list of members.
    """

    def __init__(self, response: JoinGroupResponse, own_topics: frozenset[str] = frozenset()) -> None:
        members: list[GroupMember] = []
        self._left_out: list[str] = []
        self.problems: list[str] = []
        for member in response.members:
            try:
                members.append(read_subscription(member.member_id, member.group_instance_id, member.metadata))
            except ProtocolError as error:
                self.problems.append(f"{error}; the member gets no partitions")
                self._left_out.append(member.member_id)
        topics = own_topics.union(*(member.topics for member in members))
        self.topics: frozenset[str] = frozenset(topic for topic in topics if self._is_valid(topic))
        self.members: tuple[GroupMember, ...] = tuple(members)
        self.is_outdated = False
        """Whether partitions changed after the assignment was made. If so, the group has to rebalance once it is
        STABLE."""
        # Set for a static leader that came back: the coordinator keeps the assignment (KIP-814), and the leader only
        # watches topics.
        self._keeps_assignment = response.skip_assignment or not response.members
        self._counts: dict[str, int] | None = None  # the partition count of each topic on which the assignment is based

    def _is_valid(self, topic: str) -> bool:
        problem = problem_of_topic_name(topic)
        if problem is not None:
            self.problems.append(f"ignored an invalid topic in the subscription of a member: {problem}")
        return problem is None

    def assign(self, strategy: AssignmentStrategy, topics: TopicRacks) -> Mapping[str, Sequence[TopicPartition]]:
        """Let the strategy assign partitions to each member id; none if the coordinator keeps the assignment.

        Raises IllegalStateError if the strategy names a partition twice, an unknown member or an unknown partition.
        """
        self._counts = {topic: len(racks) for topic, racks in topics.items()}
        if self._keeps_assignment:
            return {}
        assignment = in_copy(strategy.assign, self.members, topics)
        self._check(assignment, topics, strategy.name)
        # An empty assignment is encoded, because other clients cannot read an assignment without bytes.
        return {**dict.fromkeys(self._left_out, ()), **assignment}

    def is_based_on(self, counts: Mapping[str, int]) -> bool:
        """Return whether the assignment is based on these partition counts. True as long as there is no assignment."""
        if self._counts is None:
            return True
        return {topic: count for topic, count in counts.items() if topic in self.topics} == self._counts

    def _check(self, assignment: Mapping[str, Sequence[TopicPartition]], topics: TopicRacks, strategy: str) -> None:
        # A user's strategy may be wrong, and two readers of one partition would not be detected.
        assigned = [partition for partitions in assignment.values() for partition in partitions]
        member_ids = {member.member_id for member in self.members}
        unknown = next(
            (
                partition
                for partition in assigned
                if not 0 <= partition.partition < len(topics.get(partition.topic, ()))
            ),
            None,
        )
        if unknown is not None:
            mistake = f"names {unknown}, which does not exist"
        elif len(assigned) != len(set(assigned)):
            mistake = "names a partition twice"
        elif not member_ids.issuperset(assignment):
            mistake = "names unknown members"
        else:
            return
        raise IllegalStateError(f"the assignment of strategy {strategy!r} {mistake}")


def is_former_id(member_id: str, instance_id: str | None) -> bool:
    """Return whether a coordinator made this id for a member with this instance id: it appends a UUID."""
    return instance_id is not None and member_id[:-UUID_LENGTH] == f"{instance_id}-"


def lacks_partitions(event: AssignmentsSeen) -> bool:
    """Return whether a topic has more partitions than the assignments know, or is in none of them.

    A strategy may leave out others on purpose. If an assignment cannot be read, nothing is concluded.
    """
    ends: dict[str, int] = {}
    try:
        for data in event.assignments:
            for topic, number in read_assignment(data):
                ends[topic] = max(ends.get(topic, 0), number + 1)
    except ProtocolError:
        return False
    return any(ends.get(topic, 0) < count for topic, count in event.counts.items())


LongEvent = JoinAnswer | TopicsGathered | AssignmentsSeen
"""The events that may take long in a large group."""


def takes_long(event: LongEvent, leadership: Leadership | None) -> bool:
    """Return whether the member should handle this event in a thread, because its group is large."""
    if isinstance(event, JoinAnswer):
        return sum(MEMBER_BYTES + len(member.metadata) for member in event.response.members) > LARGE_SUBSCRIPTIONS
    if isinstance(event, AssignmentsSeen):
        return sum(map(len, event.assignments)) > LARGE_SUBSCRIPTIONS
    members = 0 if leadership is None else len(leadership.members)
    return members * len(event.topics) + sum(map(len, event.topics.values())) > LARGE_GROUP
