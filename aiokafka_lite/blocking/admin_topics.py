"""The calls of ``Admin`` about topics, configurations, records and offsets.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..admin.configs import Configs as AsyncConfigs
from ..admin.offsets import OffsetsOfPartitions as AsyncOffsetsOfPartitions
from ..admin.records import Records as AsyncRecords
from ..admin.topics import Topics as AsyncTopics
from ..types import IsolationLevel
from .wrapper import Blocking

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping, Sequence

    from ..admin.configs import Changes, ConfigResource, ConfigResourceType, Setting
    from ..admin.offsets import EpochEnd, FoundOffset, OffsetSpec
    from ..admin.peer import Deadline
    from ..admin.results import Results
    from ..admin.topic_descriptions import TopicDescription, TopicListing
    from ..admin.topic_pages import TopicPages
    from ..admin.topics import CreatedTopic, NewTopic
    from ..types import TopicPartition


class Topics(Blocking):
    """The calls of ``admin.topics``."""

    _inner: AsyncTopics

    def create(
        self,
        topics: str | NewTopic | Iterable[str | NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics. A plain name uses the broker's defaults. ``validate_only`` creates nothing."""
        return self._await(self._inner.create, topics, validate_only=validate_only, timeout=timeout)

    def delete(
        self, topics: str | uuid.UUID | Iterable[str | uuid.UUID], *, timeout: float | None = None
    ) -> Results[str | uuid.UUID, None]:
        """Delete topics by name or id. An id requires Kafka 2.8."""
        return self._await(self._inner.delete, topics, timeout=timeout)

    def add_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Increase the numbers of partitions to these totals. Afterwards, keys may belong to other partitions.

        ``assignments`` has the brokers of each new partition by topic.
        """
        return self._await(
            self._inner.add_partitions, totals, assignments=assignments, validate_only=validate_only, timeout=timeout
        )

    def list(self, *, internal: bool = False, timeout: float | None = None) -> tuple[TopicListing, ...]:
        """List all topics that this client may see, by name. ``internal`` includes Kafka's own topics."""
        return self._await(self._inner.list, internal=internal, timeout=timeout)

    def describe(
        self, topics: str | uuid.UUID | Iterable[str | uuid.UUID], *, timeout: float | None = None
    ) -> Results[str | uuid.UUID, TopicDescription]:
        """Describe topics by name or id. An id requires Kafka 3.1."""
        return self._await(self._inner.describe, topics, timeout=timeout)

    def pages(
        self, topics: str | Iterable[str] | None = None, *, size: int = 2000, timeout: float | None = None
    ) -> TopicPages:
        """Describe topics, all if None, in pages of at most ``size`` partitions, for very large clusters.

        ``for page in admin.topics.pages()``: each page is a tuple of descriptions in order of their names. A topic that
        does not fit continues on the next page. ``timeout`` is for each page. A named topic that does not exist raises
        its error; a topic that is deleted between two pages is left out.
        """
        return self._run(self._inner.pages, topics, size=size, timeout=timeout)


class Configs(Blocking):
    """The calls of ``admin.configs``."""

    _inner: AsyncConfigs

    def describe(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = True,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, Mapping[str, Setting]]:
        """Read the settings of resources by name: all, or those in ``names``. ``documentation`` requires Kafka 2.6."""
        return self._await(
            self._inner.describe,
            resources,
            names=names,
            synonyms=synonyms,
            documentation=documentation,
            timeout=timeout,
        )

    def list(
        self, types: Iterable[ConfigResourceType] | None = None, *, timeout: float | None = None
    ) -> tuple[ConfigResource, ...]:
        """List the resources of these types, all types if None; groups and client metrics only if they have settings.

        Requires Kafka 4.1; client metrics alone require 3.7.
        """
        return self._await(self._inner.list, types, timeout=timeout)

    def alter(
        self, changes: Mapping[ConfigResource, Changes], *, validate_only: bool = False, timeout: float | None = None
    ) -> Results[ConfigResource, None]:
        """Change these settings of resources, and keep all other settings.

        The changes of a resource are a mapping of names to values, where None restores the default, or a list of
        ``ConfigChange``. All changes of a resource are made, or none.
        """
        return self._await(self._inner.alter, changes, validate_only=validate_only, timeout=timeout)


class Records(Blocking):
    """The calls of ``admin.records``."""

    _inner: AsyncRecords

    def delete(
        self, before: Mapping[TopicPartition, int | None], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset; None deletes all up to the high watermark.

        The result is the new first offset of the partition. A compacted topic refuses with POLICY_VIOLATION.
        """
        return self._await(self._inner.delete, before, timeout=timeout)


class OffsetsOfPartitions(Blocking):
    """The calls of ``admin.offsets``."""

    _inner: AsyncOffsetsOfPartitions

    def list(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> Results[TopicPartition, FoundOffset | None]:
        """Look up the offset of each partition: a special offset, or that of the first record at a time or later.

        The time is in milliseconds since the epoch. The result is None if there is no such offset: all records are
        older, or tiered storage is empty.
        """
        return self._await(self._inner.list, specs, isolation_level=isolation_level, timeout=timeout)

    def look_up(
        self, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel, deadline: Deadline
    ) -> Results[TopicPartition, FoundOffset | None]:
        """Do the same as ``list`` for another call, which has checked the arguments and passes its deadline."""
        return self._await(self._inner.look_up, timestamps, isolation, deadline)

    def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, EpochEnd | None]:
        """Look up the ends of leader epochs; None for an epoch that the log does not have. Requires Kafka 2.1."""
        return self._await(self._inner.ends_of_epochs, epochs, timeout=timeout)
