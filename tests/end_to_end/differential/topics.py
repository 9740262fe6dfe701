"""Random requests about topics and their settings."""

from __future__ import annotations

from random import Random

from aiokafka_lite.embedded.settings.broker_keys import BROKER_KEYS
from aiokafka_lite.protocol import messages as m
from tests.end_to_end.differential.compared_brokers import UNKNOWN_TOPIC_ID, Side
from tests.end_to_end.differential.scenario import BROKER, CLIENT_METRICS, GROUP, TOPIC, Scenario
from tests.real.jvm import NOTHING_EXPIRES

_BAD_NAMES = ["", ".", "..", "a b", "ä", "a" * 250, "a/b", "a,b"]
_CONFIGS: list[tuple[str, str | None]] = [
    ("retention.ms", "1000000"), ("retention.ms", "-1"), ("retention.ms", "-2"), ("retention.ms", "x"),
    ("retention.ms", ""), ("retention.ms", None), ("retention.ms", "1.5"), ("retention.ms", " 77 "),
    ("retention.bytes", "-5"), ("retention.bytes", "123456"),
    ("cleanup.policy", "compact"), ("cleanup.policy", "delete,compact"), ("cleanup.policy", "none"),
    ("cleanup.policy", ""), ("cleanup.policy", "delete, compact"), ("cleanup.policy", "delete,delete"),
    ("max.message.bytes", "0"), ("max.message.bytes", "-1"), ("max.message.bytes", "5000000000"),
    ("min.insync.replicas", "0"), ("min.insync.replicas", "1"), ("min.insync.replicas", "3"),
    ("compression.type", "zstd"), ("compression.type", "ZSTD"), ("compression.type", "best"),
    ("compression.gzip.level", "0"), ("compression.gzip.level", "9"), ("compression.gzip.level", "-1"),
    ("compression.lz4.level", "18"), ("compression.zstd.level", "22"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "logappendtime"),
    ("message.timestamp.after.max.ms", "5"), ("message.timestamp.before.max.ms", "-1"),
    ("segment.bytes", "14"), ("segment.bytes", "1048576"), ("segment.bytes", "13"), ("segment.ms", "0"),
    ("unclean.leader.election.enable", "true"), ("unclean.leader.election.enable", "TRUE"),
    ("unclean.leader.election.enable", "yes"), ("preallocate", "maybe"),
    ("min.cleanable.dirty.ratio", "0.5"), ("min.cleanable.dirty.ratio", "1.5"), ("min.cleanable.dirty.ratio", "1"),
    ("no.such.setting", "1"), ("", "1"), ("message.format.version", "2.8"), ("flush.messages", "0"),
    ("leader.replication.throttled.replicas", "*"), ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("leader.replication.throttled.replicas", "x"), ("min.compaction.lag.ms", "7"),
    ("delete.retention.ms", "-1"), ("file.delete.delay.ms", "1"), ("index.interval.bytes", "-1"),
    ("local.retention.ms", "5"), ("local.retention.bytes", "-3"), ("remote.storage.enable", "false"),
]  # fmt: skip


def create(scenario: Scenario, name: str, partitions: int, settings: dict[str, str] | None = None) -> None:
    """Create a topic, with success."""
    name = f"{scenario.prefix}{name}"
    scenario.partitions[name] = partitions
    topic = m.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[m.CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()],
    )
    scenario.add(m.CreateTopicsRequest, lambda side, _: m.CreateTopicsRequest(topics=[topic]), changes=(name,))


def drop(scenario: Scenario) -> None:
    """Delete one of the topics that exist."""
    name = scenario.random.choice(list(scenario.partitions))
    del scenario.partitions[name]

    def make(side: Side, version: int) -> m.DeleteTopicsRequest:
        if version >= 6:
            return m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name=name)], timeout_ms=1000)
        return m.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)

    scenario.add(m.DeleteTopicsRequest, make, changes=(name,))


def create_topics(scenario: Scenario) -> None:
    random = scenario.random
    topics = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        name = scenario.prefix + random.choice(["c", "d", "e", "f", "plain", "a.b", "a_b", "c.d"])
        if random.random() < 0.15:
            name = random.choice(_BAD_NAMES)
        topic = m.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
        if random.random() < 0.25:
            topic.assignments = _assignments(random)
            if random.random() < 0.2:
                topic.num_partitions = 1
        else:
            topic.num_partitions = random.choice([1, 1, 2, 3, 3, -1, 0, -2])
            topic.replication_factor = random.choice([1, 1, 1, 1, -1, 0, 2, -2, 32767])
        if random.random() < 0.4:
            settings = random.sample(_CONFIGS, scenario.several(2))
            topic.configs = [m.CreatableTopicConfig(name=key, value=value) for key, value in settings]
        topics.append(topic)
    validate_only = random.random() < 0.2
    names = tuple({topic.name for topic in topics})
    for topic in topics:
        if topic.num_partitions > 0 and topic.replication_factor == 1 and not topic.configs:
            scenario.partitions.setdefault(topic.name, topic.num_partitions)
    scenario.add(
        m.CreateTopicsRequest,
        lambda side, _: m.CreateTopicsRequest(topics=topics, validate_only=validate_only, timeout_ms=5000),
        changes=names,
    )


def _assignments(random: Random) -> list[m.CreatableReplicaAssignment]:
    choices: list[list[tuple[int, list[int]]]] = [
        [(0, [1])], [(0, [1])], [(0, [1]), (1, [1])], [(1, [1]), (0, [1])], [(0, [1]), (2, [1])], [(0, [7])],
        [(0, [1, 1])], [(0, [])], [(0, [1]), (1, [1, 7])], [(0, [1]), (0, [1])], [(-1, [1])], [(0, [-1])], [(1, [1])],
    ]  # fmt: skip
    return [
        m.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in random.choice(choices)
    ]


def create_partitions(scenario: Scenario) -> None:
    random = scenario.random
    topics = []
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        name = scenario.topic()
        count = random.choice([1, 2, 3, 4, 0, -1, scenario.partitions.get(name, 1) + 1])
        choices: list[list[list[int]] | None] = [None, None, None, [[1]], [[1], [1]], [[7]], [[1, 1]], [[]], []]
        assignments = random.choice(choices)
        topics.append(
            m.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [m.CreatePartitionsAssignment(broker_ids=assignment) for assignment in assignments],
            )
        )
    validate_only = random.random() < 0.2
    names = tuple({topic.name for topic in topics})
    scenario.add(
        m.CreatePartitionsRequest,
        lambda side, _: m.CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=validate_only),
        changes=names,
    )


def delete_topics(scenario: Scenario) -> None:
    random = scenario.random
    names = [scenario.topic() for _ in range(scenario.several(2))]
    if random.random() < 0.1:
        names = [names[0], names[0]]
    if random.random() < 0.1:
        names.append(random.choice(_BAD_NAMES))
    how = random.choice(["name", "name", "id", "both", "neither"])
    for name in names:
        if how != "neither" and len(scenario.partitions) > 1:
            scenario.partitions.pop(name, None)

    def make(side: Side, version: int) -> m.DeleteTopicsRequest:
        if version < 6:
            return m.DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
        topics = []
        for name in names:
            state = m.DeleteTopicState(name=name if how in ("name", "both") else None)
            if how in ("id", "both"):
                state.topic_id = side.topic_id(name)
            topics.append(state)
        return m.DeleteTopicsRequest(topics=topics, timeout_ms=5000)

    scenario.add(m.DeleteTopicsRequest, make, changes=tuple(names))


def metadata(scenario: Scenario) -> None:
    random = scenario.random
    names: list[str] | None = [scenario.topic() for _ in range(random.choice([0, 1, 1, 2, 3]))]
    if random.random() < 0.1 and names:
        names[0] = random.choice(_BAD_NAMES)
    if random.random() < 0.1:
        names = None
    by_id = random.choice([False, False, True])
    odd = random.choice(["", "", "", "unknown", "both"])
    may_create = random.random() < 0.1
    operations = random.random() < 0.3

    def make(side: Side, version: int) -> m.MetadataRequest:
        topics = None
        if names is not None:
            topics = []
            for name in names:
                if by_id and version >= 12:
                    topics.append(m.MetadataRequestTopic(name=None, topic_id=side.topic_id(name)))
                else:
                    topics.append(m.MetadataRequestTopic(name=name))
            if odd and version >= 12 and topics:
                topics[0].name = None if odd != "both" else names[0]
                topics[0].topic_id = UNKNOWN_TOPIC_ID
        elif version == 0:
            topics = []
        request = m.MetadataRequest(topics=topics)
        if version >= 4:
            request.allow_auto_topic_creation = may_create
        if version >= 8:
            request.include_topic_authorized_operations = operations
            request.include_cluster_authorized_operations = operations and version <= 10
        return request

    # before version 4 a request for a topic creates it
    scenario.add(m.MetadataRequest, make, changes=tuple(names or ()), only_of_scenario=True)


def describe_topic_partitions(scenario: Scenario) -> None:
    random = scenario.random
    names = sorted({scenario.topic() for _ in range(scenario.several(3))})
    limit = random.choice([2000, 1, 2, 3])
    cursor = None
    if random.random() < 0.4:
        cursor = m.TopicPartitionCursor(topic_name=random.choice(names), partition_index=random.choice([0, 1, 2, 7]))
    describe_topics = [m.DescribeTopicPartitionsRequestTopic(name=name) for name in names]
    scenario.add(
        m.DescribeTopicPartitionsRequest,
        lambda side, _: m.DescribeTopicPartitionsRequest(
            topics=describe_topics, response_partition_limit=limit, cursor=cursor
        ),
    )


_OF_THE_CONTAINER = {
    *("advertised.listeners", "inter.broker.listener.name", "listener.security.protocol.map", "listeners"),
    *("controller.quorum.voters", "log.dir", "log.dirs", "max.connections", "queued.max.request.bytes"),
    *("share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor"),
    *NOTHING_EXPIRES,
}
"""Settings that the two brokers have in their files, with different values."""
_BROKER_SETTINGS = sorted(BROKER_KEYS.keys() - _OF_THE_CONTAINER)


def _resource(scenario: Scenario) -> tuple[int, str]:
    """Return a group or a subscription of client metrics."""
    return scenario.random.choice([CLIENT_METRICS, GROUP]), scenario.random.choice(["", f"{scenario.prefix}resource"])


def alter_resource(scenario: Scenario) -> None:
    """Change a setting of a group or of client metrics."""
    random = scenario.random
    kind, name = _resource(scenario)
    setting, value = random.choice(_OF_GROUPS if kind == GROUP else _OF_CLIENT_METRICS)
    change = m.IncrementalAlterConfigsRequestConfig(
        name=setting, config_operation=random.choice([0, 0, 0, 1]), value=value
    )
    resource = m.IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=[change])
    only_checked = random.random() < 0.2
    scenario.add(
        m.IncrementalAlterConfigsRequest,
        lambda side, _: m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_checked),
        changes=(f"{scenario.prefix}plain",),  # of no topic: the test waits only for the changes of topics
    )


_OF_GROUPS = [
    ("consumer.session.timeout.ms", "50000"), ("consumer.session.timeout.ms", "1"), ("no.such.setting", "1"),
    ("consumer.heartbeat.interval.ms", "6000"), ("consumer.heartbeat.interval.ms", "x"),
    ("share.isolation.level", "read_committed"), ("share.isolation.level", "nothing"),
    ("streams.num.standby.replicas", "1"), ("share.record.lock.duration.ms", "1"),
]  # fmt: skip
_OF_CLIENT_METRICS = [
    ("interval.ms", "200"), ("interval.ms", "1"), ("interval.ms", "x"), ("metrics", "a,b"), ("metrics", ""),
    ("match", "client_id=x.*"), ("match", "zz=1"), ("match", "client_id=("), ("no.such.setting", "1"),
]  # fmt: skip


def describe_configs(scenario: Scenario) -> None:
    random = scenario.random
    resources = []
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        kind, name = TOPIC, scenario.topic()
        if random.random() < 0.15:
            kind, name = random.choice([(BROKER, "1"), (BROKER, ""), (BROKER, "9"), (BROKER, "x"), (0, "x"), (99, "x")])
        if random.random() < 0.05:
            kind, name = TOPIC, random.choice(_BAD_NAMES)
        keys = random.choice([None, None, [], ["retention.ms"], ["retention.ms", "no.such.setting", "cleanup.policy"]])
        if kind == BROKER:
            keys = random.choice([random.sample(_BROKER_SETTINGS, 30), ["num.partitions", "no.such.setting"]])
        if random.random() < 0.1:
            kind, name, keys = *_resource(scenario), None
        resources.append(m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys))
    synonyms, documentation = random.random() < 0.4, random.random() < 0.3

    def make(side: Side, version: int) -> m.DescribeConfigsRequest:
        return m.DescribeConfigsRequest(
            resources=resources, include_synonyms=synonyms, include_documentation=documentation and version >= 3
        )

    scenario.add(m.DescribeConfigsRequest, make)


def _some_configs(scenario: Scenario) -> list[tuple[str, str | None]]:
    chosen = scenario.random.sample(_CONFIGS, scenario.random.choice([0, 1, 1, 1, 2]))
    if scenario.random.random() < 0.05 and chosen:
        chosen.append(chosen[0])
    return chosen


def _resources(scenario: Scenario) -> list[tuple[int, str]]:
    """Choose topics, and sometimes a resource whose settings cannot be changed.

    None is named twice: Kafka 4.3.1 never answers that in version 0 of AlterConfigs.
    """
    random = scenario.random
    resources = [(TOPIC, scenario.topic()) for _ in range(random.choice([0, 1, 1, 1, 2]))]
    if random.random() < 0.15:
        odd = [(BROKER, "9"), (BROKER, "x"), (0, "x"), (99, "x"), (TOPIC, ""), (TOPIC, "a b")]
        resources.append(random.choice(odd))
    return list(dict.fromkeys(resources))


def alter_configs(scenario: Scenario) -> None:
    resources = [
        m.AlterConfigsRequestResource(
            resource_type=kind,
            resource_name=name,
            configs=[m.AlterConfigsRequestConfig(name=key, value=value) for key, value in _some_configs(scenario)],
        )
        for kind, name in _resources(scenario)
    ]
    validate_only = scenario.random.random() < 0.2
    scenario.add(
        m.AlterConfigsRequest,
        lambda side, _: m.AlterConfigsRequest(resources=resources, validate_only=validate_only),
        changes=tuple(resource.resource_name for resource in resources if resource.resource_type == TOPIC),
    )


def incremental_alter_configs(scenario: Scenario) -> None:
    random = scenario.random
    resources = [
        m.IncrementalAlterConfigsRequestResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                m.IncrementalAlterConfigsRequestConfig(
                    name=key, value=value, config_operation=random.choice([0, 0, 0, 0, 1, 2, 3])
                )
                for key, value in _some_configs(scenario)
            ],
        )
        for kind, name in _resources(scenario)
    ]
    validate_only = random.random() < 0.2
    scenario.add(
        m.IncrementalAlterConfigsRequest,
        lambda side, _: m.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only),
        changes=tuple(resource.resource_name for resource in resources if resource.resource_type == TOPIC),
    )
