"""The topics of the members of a consumer group (KIP-848): names, regular expressions, and their partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from ...metadata.view import MetadataView
from ...settings.topic_patterns import matches, topic_pattern
from .consumer_group_members import ConsumerMember


class GroupTopics:
    """The topics to which the members of a group subscribe. Owner: the ConsumerGroup, which passes its ``members``."""

    def __init__(self, metadata: MetadataView, members: Mapping[str, ConsumerMember]) -> None:
        self._metadata = metadata
        self._members = members
        self._matched: dict[str, frozenset[str]] = {}  # regular expression → topics
        self._matched_version = -1

    def match(self, may_describe: Callable[[str], bool]) -> None:
        """Match the regular expressions of the members, if topics or expressions changed since the last time."""
        patterns = {member.regex for member in self._members.values() if member.regex}
        if self._matched_version == self._metadata.version and patterns == self._matched.keys():
            return
        self._matched_version = self._metadata.version
        self._matched = {regex: self._matches(regex, may_describe) for regex in sorted(patterns)}

    def _matches(self, regex: str, may_describe: Callable[[str], bool]) -> frozenset[str]:
        pattern = topic_pattern(regex)
        return frozenset(name for name in self._metadata.topics if matches(pattern, name) and may_describe(name))

    def names_of(self, member: ConsumerMember) -> set[str]:
        """Return the names of the topics that a member subscribes to, also of topics that do not exist."""
        return {*member.topics, *self._matched.get(member.regex or "", ())}

    def names(self) -> set[str]:
        """Return the names of the topics that any member subscribes to."""
        return {name for member in self._members.values() for name in self.names_of(member)}

    def ids_of(self, member: ConsumerMember) -> set[bytes]:
        """Return the ids of a member's topics that exist."""
        known = (self._metadata.topics.get(name) for name in self.names_of(member))
        return {topic.topic_id for topic in known if topic is not None}

    def partition_counts(self) -> dict[bytes, int]:
        """Return the number of partitions of each topic of a member, by the id of the topic, in the order of names."""
        known = [self._metadata.topics.get(name) for name in sorted(self.names())]
        return {topic.topic_id: len(topic.partitions) for topic in known if topic is not None}

    def hash(self) -> int:
        """Return a number that changes with the topics of members and with their partitions; 0 without topics."""
        return topics_hash(self.partition_counts())


def topics_hash(partition_counts: Mapping[bytes, int]) -> int:
    """Return a number that changes with the topics, given by their ids, and with their partitions; 0 without topics."""
    if not partition_counts:
        return 0
    text = repr(sorted(partition_counts.items()))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
