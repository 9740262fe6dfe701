"""Topics: create, delete, describe (whole or in pages), list, add partitions.

Changes go to the controller. Descriptions come from any broker. Its metadata may be a moment old: a new topic may be
missing, and a deleted topic may still be listed.

Topics can be deleted by id since Kafka 2.8, and described by id since Kafka 3.1.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import arguments
from ..cluster.topics import check_topic_name
from ..errors import KafkaError, UnsupportedVersion
from ..protocol.messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    MetadataRequest,
)
from .answers import answer_of, none_if_negative
from .calls import Calls
from .configs import ConfigSource, SettingValue, setting_text
from .peer import Peer
from .results import Results
from .settling import NOT_FOUND, Rules
from .topic_descriptions import TopicDescription, TopicListing, describe_by_id, describe_named, uuid_of
from .topic_pages import TopicPages

if TYPE_CHECKING:
    from ..cluster.client import Client


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    If the partition count or the replication factor is None, the broker's default applies. Before Kafka 2.4 a partition
    count is required, and the replication factor is 1 by default. ``assignments`` has the brokers of partitions, the
    preferred leader first, and replaces count and factor. ``configs`` are settings by their Kafka names. Raises
    TypeError and ValueError.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[Sequence[int]] | None = None
    configs: Mapping[str, SettingValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.partitions is not None:
            arguments.whole("partitions", self.partitions, 1)
        if self.replication_factor is not None:
            arguments.whole("replication_factor", self.replication_factor, 1, arguments.INT16_MAX)
        if self.assignments is not None and (self.partitions or self.replication_factor):
            raise ValueError("assignments cannot be combined with partitions or replication_factor; pass only one")
        if self.assignments is not None and not _assignments(self.assignments):
            raise ValueError("assignments must have at least one partition, got []; None leaves them to the broker")
        arguments.mapping("configs", self.configs, "setting names to values")
        for setting, value in self.configs.items():
            setting_text(setting, value)


@dataclass(frozen=True, slots=True)
class CreatedSetting:
    """A setting of a created topic."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic, or with ``validate_only`` the topic that would be created.

    Counts and settings are None before Kafka 2.4, and for a client that may not describe the settings of the topic. The
    id is None before 2.8.
    """

    name: str
    topic_id: uuid.UUID | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, CreatedSetting] | None = None


class Topics:
    """The calls of ``admin.topics``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(
        self,
        topics: str | NewTopic | Iterable[str | NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics. A plain name uses the broker's defaults. ``validate_only`` creates nothing."""
        new_topics = _new_topics(topics)

        async def ask(peer: Peer, names: list[str]) -> Mapping[str, CreatedTopic | KafkaError]:
            has_defaults = peer.speaks(CreateTopicsRequest.BROKER_DEFAULTS)
            answers: dict[str, CreatedTopic | KafkaError] = {}
            sendable = []
            for name in names:
                try:
                    sendable.append(_creatable(new_topics[name], has_defaults))
                except UnsupportedVersion as error:
                    answers[name] = error
            request = CreateTopicsRequest(topics=sendable, timeout_ms=peer.timeout_ms, validate_only=validate_only)
            for topic in (await peer.send(request)).topics:
                what = f"creating topic {topic.name!r}"
                answers[topic.name] = answer_of(topic.error_code, what, _created(topic), topic.error_message)
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle(
            "creating topics", new_topics, self._calls.controller, ask, deadline, Rules(grace=0.0)
        )

    async def delete(
        self, topics: str | uuid.UUID | Iterable[str | uuid.UUID], *, timeout: float | None = None
    ) -> Results[str | uuid.UUID, None]:
        """Delete topics by name or id. An id requires Kafka 2.8."""
        names_or_ids = _names_or_ids(topics)

        async def ask(peer: Peer, items: list[str | uuid.UUID]) -> Mapping[str | uuid.UUID, KafkaError | None]:
            answers: dict[str | uuid.UUID, KafkaError | None] = {}
            if peer.speaks(DeleteTopicsRequest.BY_TOPIC_ID):
                states = [
                    DeleteTopicState(topic_id=item.bytes)
                    if isinstance(item, uuid.UUID)
                    else DeleteTopicState(name=item)
                    for item in items
                ]
                request = DeleteTopicsRequest(topics=states, timeout_ms=peer.timeout_ms)
            else:
                by_name = [item for item in items if isinstance(item, str)]
                request = DeleteTopicsRequest(topic_names=by_name, timeout_ms=peer.timeout_ms)
                release = DeleteTopicsRequest.BY_TOPIC_ID.kafka
                too_old = UnsupportedVersion(
                    f"deleting topics by id requires Kafka {release} or newer, and the controller is older"
                )
                answers.update({item: too_old for item in items if isinstance(item, uuid.UUID)})
            sent_items = set(items)
            for response in (await peer.send(request)).responses:
                # A response has the name and the id of a topic. The caller's keys are the values that were sent, which
                # may be both: then the controller refuses the topic, with one response.
                for item in (uuid.UUID(bytes=response.topic_id), response.name or ""):
                    if item in sent_items:
                        what = f"deleting topic {item}"
                        answers[item] = answer_of(response.error_code, what, None, response.error_message)
            return answers

        deadline = self._calls.deadline(timeout)
        # No grace: the controller knows all topics (rule 3 of ``calls``).
        return await self._calls.settle(
            "deleting topics", names_or_ids, self._calls.controller, ask, deadline, Rules(grace=0.0, already=NOT_FOUND)
        )

    async def add_partitions(
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
        checked_totals = _partition_totals(totals, assignments or {})

        async def ask(peer: Peer, names: list[str]) -> Mapping[str, KafkaError | None]:
            pending = set(names)
            request = CreatePartitionsRequest(
                topics=[total for total in checked_totals if total.name in pending],
                timeout_ms=peer.timeout_ms,
                validate_only=validate_only,
            )
            return {
                result.name: answer_of(
                    result.error_code, f"adding partitions to topic {result.name!r}", None, result.error_message
                )
                for result in (await peer.send(request)).results
            }

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle(
            "adding partitions", totals, self._calls.controller, ask, deadline, Rules(grace=0.0)
        )

    async def list(self, *, internal: bool = False, timeout: float | None = None) -> tuple[TopicListing, ...]:
        """List all topics that this client may see, by name. ``internal`` includes Kafka's own topics."""

        async def ask(peer: Peer) -> tuple[TopicListing, ...]:
            answer = await peer.send(MetadataRequest(topics=None))
            return tuple(
                TopicListing(topic.name or "", uuid_of(topic.topic_id), len(topic.partitions), topic.is_internal)
                for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
                if internal or not topic.is_internal
            )

        return await self._calls.one("listing topics", self._calls.any_broker, ask, self._calls.deadline(timeout))

    async def describe(
        self, topics: str | uuid.UUID | Iterable[str | uuid.UUID], *, timeout: float | None = None
    ) -> Results[str | uuid.UUID, TopicDescription]:
        """Describe topics by name or id. An id requires Kafka 3.1."""
        names_or_ids = _names_or_ids(topics)

        async def ask(
            peer: Peer, items: list[str | uuid.UUID]
        ) -> Mapping[str | uuid.UUID, TopicDescription | KafkaError]:
            names = [item for item in items if isinstance(item, str)]
            by_id = [item for item in items if isinstance(item, uuid.UUID)]
            answers: dict[str | uuid.UUID, TopicDescription | KafkaError] = {}
            if names:
                answers.update(await describe_named(peer, names))
            if by_id:
                try:
                    peer.require(MetadataRequest.BY_TOPIC_ID, "describing topics by id")
                    answers.update(await describe_by_id(peer, by_id))
                except UnsupportedVersion as error:
                    answers.update(dict.fromkeys(by_id, error))
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("describing topics", names_or_ids, self._calls.any_broker, ask, deadline)

    def pages(
        self, topics: str | Iterable[str] | None = None, *, size: int = 2000, timeout: float | None = None
    ) -> TopicPages:
        """Describe topics, all if None, in pages of at most ``size`` partitions, for very large clusters.

        ``async for page in admin.topics.pages()``: each page is a tuple of descriptions in order of their names. A
        topic that does not fit continues on the next page. ``timeout`` is for each page. A named topic that does not
        exist raises its error; a topic that is deleted between two pages is left out.
        """
        names = None if topics is None else sorted(arguments.names(topics, "topic"))
        return TopicPages(self._calls, names, arguments.whole("size", size, 1), timeout)


# Requests.


def _new_topics(new_topics: str | NewTopic | Iterable[str | NewTopic]) -> dict[str, NewTopic]:
    if isinstance(new_topics, Mapping):  # the values of a mapping would be ignored
        what = "names or NewTopic objects, such as NewTopic('orders', partitions=3)"
        raise TypeError(arguments.must_be("topics", what, new_topics))
    items = [new_topics] if isinstance(new_topics, str | NewTopic) else arguments.several(new_topics, "topics")
    topics: dict[str, NewTopic] = {}
    for item in items:
        topic = NewTopic(item) if isinstance(item, str) else item
        if not isinstance(topic, NewTopic):
            raise TypeError(arguments.must_be("topic", "a name or a NewTopic", item))
        check_topic_name(topic.name)
        if topic.name in topics:
            raise ValueError(f"topics must have different names, got {topic.name!r} twice")
        topics[topic.name] = topic
    return topics


def _creatable(topic: NewTopic, has_defaults: bool) -> CreatableTopic:
    has_assignments = topic.assignments is not None
    if not (has_assignments or has_defaults or topic.partitions is not None):
        what = f"creating topic {topic.name!r} with the broker's number of partitions"
        release = CreateTopicsRequest.BROKER_DEFAULTS.kafka
        raise UnsupportedVersion(f"{what} requires Kafka {release} or newer; pass partitions")
    factor = -1 if has_assignments or has_defaults else 1
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if has_assignments or topic.partitions is None else topic.partitions,
        replication_factor=factor if has_assignments or topic.replication_factor is None else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(topic.assignments or ())
        ],
        configs=[
            CreatableTopicConfig(name=setting, value=setting_text(setting, value))
            for setting, value in topic.configs.items()
        ],
    )


def _names_or_ids(topics: str | uuid.UUID | Iterable[str | uuid.UUID]) -> list[str | uuid.UUID]:
    names_or_ids = [topics] if isinstance(topics, str | uuid.UUID) else arguments.several(topics, "topics")
    for topic in names_or_ids:
        if not isinstance(topic, uuid.UUID):
            arguments.text("topic", topic)
    return list(dict.fromkeys(names_or_ids))


def _assignments(assignments: Iterable[Iterable[int]]) -> list[list[int]]:
    return [arguments.broker_ids(replicas) for replicas in arguments.several(assignments, "assignments")]


def _partition_totals(
    totals: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]]
) -> list[CreatePartitionsTopic]:
    arguments.mapping("totals", totals, "topics to numbers of partitions")
    arguments.mapping("assignments", assignments, "topics to lists of broker ids")
    brokers = {name: _assignments(assignment) for name, assignment in assignments.items()}
    if unknown := brokers.keys() - totals.keys():
        raise ValueError(f"assignments must be for topics in totals, got {sorted(unknown)}")
    return [
        CreatePartitionsTopic(
            name=arguments.text("topic", name),
            count=arguments.whole(f"partitions of {name!r}", count, 1),
            assignments=[CreatePartitionsAssignment(broker_ids=replicas) for replicas in brokers[name]]
            if name in brokers
            else None,
        )
        for name, count in totals.items()
    ]


# Responses.


def _created(result: CreatableTopicResult) -> CreatedTopic:
    configs = None
    if result.configs is not None and result.num_partitions >= 0:
        configs = {
            config.name: CreatedSetting(
                config.name, config.value, ConfigSource.of(config.config_source), config.read_only, config.is_sensitive
            )
            for config in result.configs
        }
    return CreatedTopic(
        result.name,
        uuid_of(result.topic_id),
        none_if_negative(result.num_partitions),
        none_if_negative(result.replication_factor),
        configs,
    )


# For components that have a client.


async def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> None:
    """Create one topic with an existing client. Raises the broker's error."""
    topic = NewTopic(name, partitions, replication_factor, configs=configs or {})
    (await Topics(Calls(client)).create(topic, timeout=timeout)).raise_for_errors()


async def delete_topics(client: Client, names: Sequence[str], *, timeout: float = 30.0) -> None:
    """Delete topics with an existing client. Raises the errors after all topics were tried."""
    (await Topics(Calls(client)).delete(names, timeout=timeout)).raise_for_errors()
