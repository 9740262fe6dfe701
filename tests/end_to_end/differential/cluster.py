"""Random requests about the cluster: brokers, versions, leaders, reassignments, quotas."""

from __future__ import annotations

from aiokafka_lite.protocol import messages as m
from tests.end_to_end.differential.compared_brokers import Side
from tests.end_to_end.differential.scenario import Scenario


def describe_cluster(scenario: Scenario) -> None:
    operations = scenario.random.random() < 0.5
    endpoint = scenario.random.choice([1, 1, 2, 3])
    fenced = scenario.random.random() < 0.5

    def make(side: Side, version: int) -> m.DescribeClusterRequest:
        return m.DescribeClusterRequest(
            include_cluster_authorized_operations=operations,
            endpoint_type=endpoint if version >= 1 else 1,
            include_fenced_brokers=fenced and version >= 2,
        )

    scenario.add(m.DescribeClusterRequest, make)


def api_versions(scenario: Scenario) -> None:
    names = [("name", "1.0"), ("a.b-c", "1"), ("", ""), ("a b", "1"), ("-a", "1"), ("ä", "1")]
    software = scenario.random.choice(names)

    def make(side: Side, version: int) -> m.ApiVersionsRequest:
        if version < 3:
            return m.ApiVersionsRequest()
        return m.ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1])

    scenario.add(m.ApiVersionsRequest, make, only_of_scenario=True)


def elect_leaders(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    indexes = scenario.some_partitions(topic, 2)
    election_topics = [m.ElectLeadersTopic(topic=topic, partitions=indexes)]
    kind = random.choice([0, 0, 1])
    scenario.add(
        m.ElectLeadersRequest,
        lambda side, version: m.ElectLeadersRequest(
            election_type=kind if version >= 1 else 0, topic_partitions=election_topics, timeout_ms=1000
        ),
    )


def reassignments(scenario: Scenario) -> None:
    random = scenario.random
    topic = scenario.topic()
    indexes = scenario.some_partitions(topic, 2)
    if random.random() < 0.5:
        listed = random.choice([None, [m.ListPartitionReassignmentsTopic(name=topic, partition_indexes=indexes)], []])
        scenario.add(
            m.ListPartitionReassignmentsRequest,
            lambda side, _: m.ListPartitionReassignmentsRequest(topics=listed, timeout_ms=1000),
        )
        return
    parts = [
        m.ReassignablePartition(
            partition_index=index, replicas=random.choice([None, [1], [1], [7], [], [1, 1], [1, 7], [-1]])
        )
        for index in indexes
    ]
    reassignments = [m.ReassignableTopic(name=topic, partitions=parts)]
    keep = random.random() < 0.3

    def make(side: Side, version: int) -> m.AlterPartitionReassignmentsRequest:
        request = m.AlterPartitionReassignmentsRequest(topics=reassignments, timeout_ms=1000)
        if version >= 1:
            request.allow_replication_factor_change = not keep
        return request

    scenario.add(m.AlterPartitionReassignmentsRequest, make)


def alter_replica_log_dirs(scenario: Scenario) -> None:
    topic = scenario.topic()
    indexes = sorted({scenario.partition(topic) for _ in range(scenario.several(2))})
    is_missing = scenario.random.random() < 0.3
    topics = [m.AlterReplicaLogDirsTopic(name=topic, partitions=indexes)]
    scenario.add(
        m.AlterReplicaLogDirsRequest,
        lambda side, _: m.AlterReplicaLogDirsRequest(
            dirs=[m.AlterReplicaLogDir(path="/missing" if is_missing else side.log_dir, topics=topics)]
        ),
    )


def describe_quorum(scenario: Scenario) -> None:
    random = scenario.random
    metadata = ("__cluster_metadata", 0)
    partitions = random.choice([[metadata], [metadata], [metadata], [("__cluster_metadata", 1)], [("t", 0)], []])
    quorum_topics = [
        m.DescribeQuorumRequestTopic(
            topic_name=name, partitions=[m.DescribeQuorumRequestPartition(partition_index=index)]
        )
        for name, index in partitions
    ]
    scenario.add(m.DescribeQuorumRequest, lambda side, _: m.DescribeQuorumRequest(topics=quorum_topics))


def update_features(scenario: Scenario) -> None:
    """Only check the update. Before v1, which has no flag for a check, update an unknown feature."""
    random = scenario.random
    names = ["no.such.feature", "transaction.version", "group.version", "eligible.leader.replicas.version"]
    name, level, kind = random.choice(names), random.choice([-1, 0, 1, 2, 9]), random.choice([1, 1, 2, 3, 7])

    def make(side: Side, version: int) -> m.UpdateFeaturesRequest:
        if version == 0:
            change = m.UpdateFeaturesFeature(feature=names[0], max_version_level=level, allow_downgrade=kind > 1)
        else:
            change = m.UpdateFeaturesFeature(feature=name, max_version_level=level, upgrade_type=kind)
        return m.UpdateFeaturesRequest(feature_updates=[change], validate_only=version > 0)

    scenario.add(m.UpdateFeaturesRequest, make)


def unregister_broker(scenario: Scenario) -> None:
    broker = scenario.random.choice([-1, 7, 1000])
    scenario.add(m.UnregisterBrokerRequest, lambda side, _: m.UnregisterBrokerRequest(broker_id=broker))


DIRECTORY = bytes(range(16))


def add_raft_voter(scenario: Scenario) -> None:
    random = scenario.random
    cluster, voter = random.choice([None, None, "another"]), random.choice([-1, 1, 7])
    directory, names = random.choice([bytes(16), DIRECTORY, DIRECTORY]), random.choice([[], ["X"], ["CONTROLLER"]])
    listeners = [m.AddRaftVoterListener(name=name, host="localhost", port=9093) for name in names]
    scenario.add(
        m.AddRaftVoterRequest,
        lambda side, _: m.AddRaftVoterRequest(
            cluster_id=cluster, timeout_ms=1000, voter_id=voter, voter_directory_id=directory, listeners=listeners
        ),
    )


def remove_raft_voter(scenario: Scenario) -> None:
    random = scenario.random
    cluster, voter = random.choice([None, None, "another"]), random.choice([-1, 1, 7])
    directory = random.choice([bytes(16), DIRECTORY, DIRECTORY])
    scenario.add(
        m.RemoveRaftVoterRequest,
        lambda side, _: m.RemoveRaftVoterRequest(cluster_id=cluster, voter_id=voter, voter_directory_id=directory),
    )


def change_loggers(scenario: Scenario) -> None:
    """Use only the logger that both brokers have, and restore its level at the end."""
    random = scenario.random
    name = random.choice(["root", "root", "root", "no.such.logger"])
    operation, level = random.choice([0, 0, 0, 1, 2, 3]), random.choice(["INFO", "WARN", "LOUD", "debug", "", None])
    broker, validate_only = random.choice(["1", "1", "1", "", "x", "1000"]), random.choice([True, False])

    def change(logger: str, operation: int, level: str | None, only: bool) -> None:
        config = m.IncrementalAlterConfigsRequestConfig(name=logger, config_operation=operation, value=level)
        resource = m.IncrementalAlterConfigsRequestResource(resource_type=8, resource_name=broker, configs=[config])
        request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)
        scenario.add(m.IncrementalAlterConfigsRequest, lambda side, _: request)

    def described(side: Side, version: int) -> m.DescribeConfigsRequest:
        resource = m.DescribeConfigsResource(
            resource_type=8, resource_name=broker, configuration_keys=["root", "no.such.logger"]
        )
        documented = version >= m.DescribeConfigsRequest.DOCUMENTATION
        return m.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=documented)

    change("root", 0, "ERROR", False)
    change(name, operation, level, validate_only)
    scenario.add(m.DescribeConfigsRequest, described)
    change("root", 0, "ERROR", False)


def list_config_resources(scenario: Scenario) -> None:
    kinds = scenario.random.choice([[], [2], [4, 8], [16], [32], [16, 32], [99]])
    scenario.add(
        m.ListConfigResourcesRequest,
        lambda side, version: m.ListConfigResourcesRequest(resource_types=kinds if version >= 1 else []),
        only_of_scenario=True,
    )


def describe_log_dirs(scenario: Scenario) -> None:
    topic = scenario.topic()
    indexes = scenario.some_partitions(topic, 2)
    log_dir_topics = [m.DescribableLogDirTopic(topic=topic, partitions=indexes)]
    scenario.add(m.DescribeLogDirsRequest, lambda side, _: m.DescribeLogDirsRequest(topics=log_dir_topics))


def alter_client_quotas(scenario: Scenario) -> None:
    """Use only client ids that do not exist, so that no client is throttled."""
    random = scenario.random
    entries = []
    for number in random.sample(range(4), scenario.several(2)):
        entity = _ENTITIES[number]
        named = [
            m.AlterClientQuotasRequestEntity(entity_type=kind, entity_name=f"{scenario.prefix}{name}")
            for kind, name in entity
        ]
        keys = random.sample(_QUOTAS, scenario.several(2))
        ops = [
            m.AlterClientQuotasOperation(key=key, value=random.choice([1000.0, 5.5]), remove=random.random() < 0.3)
            for key in keys
        ]
        entries.append(m.AlterClientQuotasRequestEntry(entity=named, ops=ops))
    validate_only = random.random() < 0.2
    scenario.add(
        m.AlterClientQuotasRequest,
        lambda side, _: m.AlterClientQuotasRequest(entries=entries, validate_only=validate_only),
        changes=(f"{scenario.prefix}plain",),
    )


_ENTITIES = [[("user", "u")], [("client-id", "c")], [("user", "u"), ("client-id", "c")], [("stranger", "n")]]
_QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "no.such.quota"]


def describe_client_quotas(scenario: Scenario) -> None:
    components = [
        m.DescribeClientQuotasComponent(entity_type=kind, match_type=0, match=f"{scenario.prefix}{name}")
        for kind, name in scenario.random.choice(_ENTITIES)
    ]
    strict = scenario.random.random() < 0.5
    scenario.add(
        m.DescribeClientQuotasRequest,
        lambda side, _: m.DescribeClientQuotasRequest(components=components, strict=strict),
    )
