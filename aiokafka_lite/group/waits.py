"""What a member of a group waits for: the table of ``Client.standstill`` for memberships.

The checks are in the order of causes. A member that is not in the group waits for nothing else, so only the first
reason is named; the two last checks are about a part of the group's work.
"""

from __future__ import annotations

import asyncio
import difflib
import heapq
import re
from collections.abc import Collection, Iterator

from ..arguments import plural
from ..cluster.client import Client
from ..cluster.standstill import SOON, Wait
from ..cluster.topics import MISSING_AFTER
from ..errors import ErrorCode
from ..settings.group import GroupConfig
from .base_member import BaseMember
from .committer import CurrentMember
from .counters import RebalanceCounters
from .handover import Handovers
from .member_requests import MemberRequests
from .states import MemberState
from .topic_watcher import TopicWatcher

RESTLESS = 30.0
"""Seconds within which so many rebalances as ``RebalanceCounters`` remembers are too many."""

SHOWN = 3
"""The number of names in one text."""

COMPARED = 200
"""The topics that are compared with a pattern, to find the nearest names. ``difflib`` takes up to 0.1 ms for each."""

_REASONS = {
    MemberState.JOINING: (
        "the coordinator has not let it join yet: it waits for the other members of the group, up to their rebalance "
        "timeout"
    ),
    MemberState.SYNCING: "the leader of the group has not assigned the partitions yet",
    MemberState.REVOKING: "partitions are revoked, and the program has not finished with their records",
    MemberState.LEAVING: "it leaves the group, and the program has not finished with its records",
    MemberState.FENCED: "it was evicted from the group, and the program has not released its partitions",
}


class MemberWaits:
    """The checks of one membership. Owner: the ``MemberRunner``."""

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        current: CurrentMember,
        topics: TopicWatcher,
        handovers: Handovers,
        requests: MemberRequests,
        rebalances: RebalanceCounters,
    ) -> None:
        self._client = client
        self._group = f"group {config.group_id!r}"
        self._current = current
        self._topics = topics
        self._handovers = handovers
        self._requests = requests
        self._rebalances = rebalances
        self._described: tuple[re.Pattern[str], Collection[str], str] | None = None  # a pattern, a list, and the text

    def look(self) -> Iterator[Wait]:
        """Yield the present waits."""
        member = self._current.member
        if member.is_gone or member.state is MemberState.FATAL:
            return
        yield from self._missing_topics()
        if member.state is MemberState.UNJOINED:
            return
        # An outage of the group's requests has its own line.
        fails = self._requests.are_failing
        if member.state is not MemberState.STABLE:
            why = "its requests fail" if fails else _REASONS[member.state]
            yield Wait("membership", f"{self._group} {member.state.name}: {why}", is_logged=fails)
        elif step := self._handovers.step:
            yield Wait("assignment", f"{self._group} has assigned partitions, but {step}", is_logged=fails)
        elif not member.partitions.owned:
            yield from self._no_partitions(member)
        recent = self._rebalances.recent
        if len(recent) == recent.maxlen and recent[0] >= asyncio.get_running_loop().time() - RESTLESS:
            yield Wait(
                "rebalances",
                f"{self._group} rebalances again and again, {len(recent)} times in {RESTLESS:g} s: a member that joins "
                "and leaves, or exceeds max_poll_interval, causes this",
                is_partial=True,
                after=0.0,
            )
        yield from self._topics_of_others(member)

    def _missing_topics(self) -> Iterator[Wait]:
        names, pattern = self._topics.subscribed, self._topics.pattern
        if pattern is not None:
            if self._topics.listed is not None and not names:
                text = f"{self._group}: {self._describe(pattern, self._topics.listed)}"
                yield Wait("pattern", text, after=MISSING_AFTER)
            return
        topics = self._client.view.topics
        missing = [
            name
            for name in sorted(names)
            if (topic := topics.get(name)) is not None and topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        if missing:
            # ``MissingTopics`` of the cluster has logged it.
            is_partial = len(missing) < len(names)
            text = f"{_topics(missing)} does not exist" if len(missing) == 1 else f"{_topics(missing)} do not exist"
            text = f"{text}; the client waits for it"
            yield Wait("topics", text, is_partial=is_partial, is_logged=True, after=MISSING_AFTER)

    def _describe(self, pattern: re.Pattern[str], listed: Collection[str]) -> str:
        """Call ``describe_pattern`` once for each list: a cluster may have thousands of topics."""
        description = self._described
        if description is None or description[0] is not pattern or description[1] is not listed:
            description = self._described = (pattern, listed, describe_pattern(pattern, listed))
        return description[2]

    def _no_partitions(self, member: BaseMember) -> Iterator[Wait]:
        topics = self._client.view.topics
        counts = {
            name: len(topic.partitions)
            for name in sorted(self._topics.subscribed)
            if (topic := topics.get(name)) is not None and topic.is_usable
        }
        if not counts:
            if (sent := self._topics.sent_pattern) is not None:
                text = f"{self._group} has assigned it no partition of topics that match {sent.pattern!r}"
                yield Wait("no partitions", f"{text} at the brokers", is_partial=True, after=SOON)
            return
        shown = ", ".join(f"{name!r} ({plural(count, 'partition')})" for name, count in list(counts.items())[:SHOWN])
        more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
        leader = "" if member.protocol == "consumer" else ", or the leader of the group may not see the topic"
        yield Wait(
            "no partitions",
            f"{self._group} has assigned it no partition of {shown}{more}: the group has more members than partitions"
            f"{leader}",
            is_partial=True,  # a member in reserve is ready to take over
            after=SOON,
        )

    def _topics_of_others(self, member: BaseMember) -> Iterator[Wait]:
        """Yield the topics that this member assigns as the leader, and may not see."""
        if member.leadership is None:
            return
        topics = self._client.view.topics
        hidden = [
            name
            for name in sorted(member.leadership.topics - self._topics.subscribed)
            if (topic := topics.get(name)) is not None and topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]
        if hidden:
            yield Wait(
                "topics of other members",
                f"it leads {self._group} and may not see {_topics(hidden)}, so no member gets partitions of that: "
                "brokers answer TOPIC_AUTHORIZATION_FAILED; allow its principal to describe what the other members "
                "read, or use another group_id",
                is_partial=True,
                after=SOON,
            )


def describe_pattern(pattern: re.Pattern[str], listed: Collection[str]) -> str:
    """Say why a pattern matches nothing, with the topics that come nearest."""
    text = f"the pattern {pattern.pattern!r} matches no topic"
    begins = sorted(name for name in listed if pattern.search(name))
    if begins:
        return (
            f"{text}: it has to match the whole name, and matches a part of {_topics(begins)}; add '.*' where more may "
            "follow"
        )
    candidates = heapq.nsmallest(COMPARED, listed, key=lambda name: (-_common_prefix(name, pattern.pattern), name))
    near = difflib.get_close_matches(pattern.pattern, candidates, n=SHOWN, cutoff=0.5)
    if near:
        return f"{text}; the nearest names are {_names(near)}"
    return f"{text} of the {len(listed)} that this principal may describe"


def _common_prefix(name: str, text: str) -> int:
    """Count the characters with which both begin."""
    differences = (index for index, (one, other) in enumerate(zip(name, text)) if one != other)
    return next(differences, min(len(name), len(text)))


def _topics(names: Collection[str]) -> str:
    return f"{'topic' if len(names) == 1 else 'topics'} {_names(names)}"


def _names(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
