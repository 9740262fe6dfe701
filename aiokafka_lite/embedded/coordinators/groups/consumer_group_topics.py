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
        topics = self._metadata.topics
        return {topics[name].topic_id for name in self.names_of(member) if name in topics}

    def partition_counts(self) -> dict[bytes, int]:
        """Return the number of partitions of each topic of a member, by the id of the topic, in the order of names."""
        topics = [self._metadata.topics[name] for name in sorted(self.names()) if name in self._metadata.topics]
        return {topic.topic_id: len(topic.partitions) for topic in topics}

    def hash(self) -> int:
        """Return a number that changes with the topics of members and with their partitions; 0 if there are none."""
        return topics_hash(self.partition_counts())


def topics_hash(partition_counts: Mapping[bytes, int]) -> int:
    """Return a number that changes with the ids of the topics and with their partitions; 0 if there are none."""
    if not partition_counts:
        return 0
    text = repr(sorted(partition_counts.items()))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
