"""What a share consumer waits for: its part of the table of ``Client.standstill``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..arguments import plural
from ..cluster.client import Client
from ..cluster.standstill import Wait
from ..types import TopicPartition
from .member import ShareMember, ShareMemberState

_ENDED = (ShareMemberState.LEAVING, ShareMemberState.LEFT, ShareMemberState.FAILED)


def waits(
    client: Client,
    member: ShareMember,
    topics: Collection[str],
    missing_topics: Collection[str],
    assignment: Sequence[TopicPartition],
) -> Iterator[Wait]:
    """Yield the present waits of a share consumer, in the order of causes."""
    group = f"share group {member.group_id!r}"
    if member.state in _ENDED:
        return
    missing = sorted(missing_topics)
    if missing:
        # ``_view_changed`` of the core has logged it.
        text = f"{group}: {', '.join(map(repr, missing))} does not exist; the consumer waits for it"
        yield Wait("topics", text, is_partial=len(missing) < len(topics), is_logged=True)
    if member.state is not ShareMemberState.STABLE:
        # Requests that fail are an outage, which names the reason.
        is_logged = client.outages.is_ongoing(f"share group {member.group_id}")
        is_logged |= client.lacks_coordinator(member.group_id)
        text = f"it is not a member of {group} yet: its state is {member.state.name}"
        yield Wait("membership", text, is_logged=is_logged)
    elif not member.assignment and len(missing) < len(topics):
        yield Wait("no partitions", f"{group} has assigned it no partition", is_partial=True)
    leaderless = [
        partition
        for partition in assignment
        if client.view.leader_of(partition) is None
        and (topic := client.view.topics.get(partition.topic)) is not None
        and topic.is_usable
    ]
    if leaderless:
        text = f"{leaderless[0]} is not read: it has no leader"
        others = f"; {plural(len(leaderless) - 1, 'other partition')} neither" if len(leaderless) > 1 else ""
        yield Wait("partitions", text + others, is_partial=len(leaderless) < len(member.assignment))
