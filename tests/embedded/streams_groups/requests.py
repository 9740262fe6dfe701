"""Requests of a member of a streams group, as raw messages, and short forms of the responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka_lite.protocol import messages as m

NO_TASKS: dict[str, list[int]] = {}


def internal_topic(name: str, partitions: int = 0, replication_factor: int = 0, **configs: str) -> m.StreamsTopicInfo:
    return m.StreamsTopicInfo(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        topic_configs=[m.StreamsKeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def subtopology(
    name: str,
    sources: Sequence[str] = (),
    *,
    changelogs: Iterable[m.StreamsTopicInfo] = (),
    sinks: Sequence[str] = (),
    repartition: Iterable[m.StreamsTopicInfo] = (),
    copartitioned: Iterable[tuple[Sequence[int], Sequence[int]]] = (),
    regex: Sequence[str] = (),
) -> m.StreamsSubtopology:
    """Make a subtopology. ``copartitioned`` are places in the lists of sources and of repartition topics."""
    return m.StreamsSubtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=list(regex),
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartition),
        copartition_groups=[
            m.StreamsCopartitionGroup(
                source_topics=list(places), source_topic_regex=[], repartition_source_topics=list(internal)
            )
            for places, internal in copartitioned
        ],
    )


def topology(*subtopologies: m.StreamsSubtopology, epoch: int = 0) -> m.StreamsTopology:
    return m.StreamsTopology(epoch=epoch, subtopologies=list(subtopologies))


def counting(prefix: str) -> m.StreamsTopology:
    """Make a topology that repartitions the records of ``…-in`` and counts them in a store."""
    return topology(
        subtopology("0", [f"{prefix}-in"], sinks=[f"{prefix}-repartition"]),
        subtopology(
            "1",
            changelogs=[internal_topic(f"{prefix}-changelog", cleanup_policy="compact")],
            repartition=[internal_topic(f"{prefix}-repartition")],
        ),
    )


def task_ids(tasks: dict[str, list[int]]) -> list[m.StreamsTaskIds]:
    return [m.StreamsTaskIds(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()]


def join(group: str, member: str, topology: m.StreamsTopology | None, **fields: Any) -> m.StreamsGroupHeartbeatRequest:
    values: dict[str, Any] = {
        "rebalance_timeout_ms": 2000,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": f"process-{member}",
    }
    return heartbeat(group, member, 0, topology=topology, **values | fields)


def heartbeat(
    group: str,
    member: str,
    epoch: int,
    active: dict[str, list[int]] | None = None,
    standby: dict[str, list[int]] | None = None,
    *,
    endpoint_epoch: int = 0,
    **fields: Any,
) -> m.StreamsGroupHeartbeatRequest:
    """Return a heartbeat. With ``active`` or ``standby`` it lists all tasks that the member owns."""
    owned: dict[str, Any] = {}
    if active is not None or standby is not None:
        owned = {
            "active_tasks": task_ids(active or NO_TASKS),
            "standby_tasks": task_ids(standby or NO_TASKS),
            "warmup_tasks": [],
        }
    return m.StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        endpoint_information_epoch=endpoint_epoch,
        **owned | fields,
    )


def tasks(items: list[m.StreamsTaskIds] | None) -> dict[str, list[int]] | None:
    return None if items is None else {item.subtopology_id: item.partitions for item in items}


def answered(response: m.StreamsGroupHeartbeatResponse) -> tuple[int, Any, Any, Any]:
    """Return the epoch of the member, its active and standby tasks, and the codes of the status."""
    assert response.error_code == 0, response
    codes = [status.status_code for status in response.status or ()]
    return response.member_epoch, tasks(response.active_tasks), tasks(response.standby_tasks), codes
