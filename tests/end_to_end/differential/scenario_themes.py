"""The themes of scenarios: records, topics, a group, or transactions.

A scenario is made from its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.end_to_end.differential import assigned_members as members
from tests.end_to_end.differential import transactions
from tests.end_to_end.differential.access import ACCESS
from tests.end_to_end.differential.cluster import (
    add_raft_voter,
    alter_client_quotas,
    alter_replica_log_dirs,
    api_versions,
    change_loggers,
    describe_client_quotas,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_config_resources,
    reassignments,
    remove_raft_voter,
    unregister_broker,
    update_features,
)
from tests.end_to_end.differential.groups import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group_wrongly,
    joined,
    leave_group_wrongly,
    left,
    list_groups,
    live_commit,
    live_heartbeat,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tests.end_to_end.differential.records import (
    delete_records,
    describe_producers,
    fetch,
    fetch_session,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from tests.end_to_end.differential.scenario import Scenario
from tests.end_to_end.differential.topics import (
    alter_configs,
    alter_resource,
    create,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    drop,
    incremental_alter_configs,
    metadata,
)

_KEEP = {"retention.ms": "-1"}
"""The records are dated 2023: a broker deletes them as soon as it looks for expired records."""

_SETTINGS: list[dict[str, str]] = [
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete"},
    {"max.message.bytes": "1000"},
    {"compression.type": "gzip"},
    {"compression.type": "uncompressed"},
    {"compression.type": "zstd"},
    {"message.timestamp.before.max.ms": "1000"},
    {"message.timestamp.after.max.ms": "1000"},
    {"segment.bytes": "1048576", "retention.bytes": "-1"},
    {"min.insync.replicas": "2"},
]


def _records(scenario: Scenario) -> None:
    random = scenario.random
    create(scenario, "plain", 3, _KEEP)
    create(scenario, "a", 1, _KEEP | random.choice(_SETTINGS))
    create(scenario, "b", 2, _KEEP | random.choice(_SETTINGS))
    choices = [produce] * 6 + [fetch] * 4 + [list_offsets] * 3
    choices += [offset_for_leader_epoch, init_producer_id, metadata, delete_records, fetch_session, describe_producers]
    for _ in range(60):
        random.choice(choices)(scenario)
    drop(scenario)
    for _ in range(5):
        random.choice(choices)(scenario)


def _topics(scenario: Scenario) -> None:
    random = scenario.random
    create(scenario, "plain", 2)
    create(scenario, "a.b", 1, random.choice(_SETTINGS))
    choices = [create_topics] * 5 + [metadata] * 4 + [describe_configs] * 3 + [incremental_alter_configs] * 2
    choices += [alter_configs] * 2 + [create_partitions] * 3 + [delete_topics] * 2
    choices += [describe_topic_partitions] * 2
    choices += [alter_client_quotas, describe_client_quotas, describe_client_quotas]
    choices += [produce, list_offsets, describe_cluster, api_versions, elect_leaders, reassignments, describe_log_dirs]
    choices += [alter_replica_log_dirs, describe_quorum, update_features, unregister_broker, list_config_resources]
    choices += [alter_resource] * 2
    for _ in range(45):
        random.choice(choices)(scenario)
    for _ in range(6):
        random.choice(ACCESS)(scenario)
    for add in (add_raft_voter, remove_raft_voter, change_loggers):
        add(scenario)


def _group(scenario: Scenario) -> None:
    random = scenario.random
    create(scenario, "plain", 2)
    group = f"{scenario.prefix}group"
    others = [find_coordinator, describe_groups, list_groups, offset_commit, offset_fetch, heartbeat, sync_group]
    others += [delete_groups, offset_delete, join_group_wrongly, offset_fetch, offset_commit, leave_group_wrongly]
    for _ in range(10):
        random.choice(others)(scenario, group)
    for _ in range(2):
        instance = random.choice([None, None, f"{scenario.prefix}instance"])
        joined(scenario, group, instance)
        for _ in range(12):
            random.choice([*others, live_heartbeat, live_commit, live_commit])(scenario, group)
        left(scenario, group, instance)
        for _ in range(6):
            random.choice(others)(scenario, group)
    delete_groups(scenario, group)


def _transactions(scenario: Scenario) -> None:
    random = scenario.random
    # A marker is years younger than the records: it would begin a segment, and Kafka reads one segment at a time.
    create(scenario, "plain", 2, _KEEP | {"segment.ms": str(2**63 - 1)})
    create(scenario, "other", 1, _KEEP | {"segment.ms": str(2**63 - 1)})
    ids = transactions.Ids(scenario)
    transactions.begin(scenario, ids)
    choices = [transactions.produce_transactional] * 6 + [transactions.add_partitions] * 4 + [transactions.end] * 4
    choices += [transactions.initialize] * 2 + [transactions.add_offsets, transactions.commit_offsets] * 2
    choices += [transactions.describe, transactions.list_all, transactions.fetch_committed] * 2
    choices += [transactions.committed_offsets, transactions.write_markers]
    for _ in range(60):
        random.choice(choices)(scenario, ids)
    transactions.end(scenario, ids)
    transactions.initialize(scenario, ids)


_THEMES = (_records, _topics, _group, _transactions)


def scenario_of(seed: int, prefix: str) -> Scenario:
    """Return the scenario of a seed. ``prefix`` makes names that no other scenario uses."""
    round_number, theme = divmod(seed, len(_THEMES))
    scenario = Scenario(seed, prefix, first_use=round_number)
    _THEMES[theme](scenario)
    return scenario


def _consumer_group(scenario: Scenario) -> None:
    group = _members(scenario, "consumer")
    choices = [members.consumer_heartbeat] * 10 + [members.member_commit, members.member_fetch] * 2
    _of_members(scenario, group, [*choices, members.describe])


def _streams_group(scenario: Scenario) -> None:
    group = _members(scenario, "streams")
    choices = [members.streams_heartbeat] * 10 + [members.member_commit, members.member_fetch, members.describe]
    _of_members(scenario, group, choices)


def _members(scenario: Scenario, kind: str) -> members.Members:
    """Return the group of a kind, and its topics.

    Members of a consumer group have one topic: brokers order several topics by their ids, and each broker chooses its
    own ids. The tasks of a streams group can be divided by two, three and four members: brokers choose the members with
    an extra task differently.
    """
    create(scenario, "plain", 12 if kind == "streams" else 3, _KEEP)
    if kind == "streams":
        create(scenario, "other", 2, _KEEP)
    group = members.Members(scenario, kind)
    group.begin()
    return group


def _of_members(
    scenario: Scenario, group: members.Members, choices: Sequence[Callable[[members.Members], None]]
) -> None:
    """Send requests of members, also the requests that belong to classic groups."""
    random = scenario.random
    classic = [describe_groups, list_groups, heartbeat, leave_group_wrongly, delete_groups, join_group_wrongly]
    for _ in range(70):
        if random.random() < 0.1:
            random.choice(classic)(scenario, group.group)
        else:
            random.choice(choices)(group)


_THEMES_OF_MEMBERS = (_consumer_group, _streams_group)


def members_scenario(seed: int, prefix: str) -> Scenario:
    """Return the scenario of a seed with members that the coordinator assigns partitions to."""
    round_number, theme = divmod(seed, len(_THEMES_OF_MEMBERS))
    scenario = Scenario(seed, prefix, first_use=round_number)
    _THEMES_OF_MEMBERS[theme](scenario)
    return scenario
