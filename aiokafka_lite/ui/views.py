"""What the page shows of a cluster, as objects for JSON. Each call asks the brokers, and raises KafkaError."""

from __future__ import annotations

from typing import Any

from ..admin import Admin, ConfigResource, ConfigResourceType, ConfigSource, OffsetSpec
from ..cluster.bootstrap import Address
from ..errors import KafkaError, UnsupportedVersion
from ..types import TopicPartition
from .history import LagHistory

MOST_ROWS = 500
"""The most partitions in one answer. The page asks for more with ``first``."""


class Views:
    """Asks for the views of the page."""

    def __init__(self, admin: Admin, history: LagHistory) -> None:
        self._admin = admin
        self._history = history

    def __repr__(self) -> str:
        return f"<Views {self._history!r}>"

    async def cluster(self) -> dict[str, Any]:
        """Return the brokers, with the bytes that they store."""
        cluster = await self._admin.cluster.describe()
        stored = await self._stored()
        return {
            "id": cluster.cluster_id,
            "controller": None if cluster.controller is None else cluster.controller.node_id,
            "brokers": [
                {
                    "id": node.node_id,
                    "address": str(Address(node.host, node.port)),
                    "rack": node.rack,
                    "bytes": stored.get(node.node_id),
                }
                for node in cluster.brokers
            ],
        }

    async def _stored(self) -> dict[int, int]:
        try:
            answered = await self._admin.log_dirs.describe()
        except UnsupportedVersion:
            return {}
        return {broker: sum(directory.size for directory in dirs) for broker, dirs in answered.done.items()}

    async def topics(self) -> list[dict[str, Any]]:
        """Return all topics with their numbers of partitions and replicas, and what is wrong with them."""
        names = [topic.name for topic in await self._admin.topics.list(internal=True)]
        answered = await self._admin.topics.describe(names)
        rows = []
        for topic in sorted(answered.done.values(), key=lambda topic: topic.name):
            partitions = topic.partitions
            rows.append(
                {
                    "name": topic.name,
                    "internal": topic.is_internal,
                    "partitions": len(partitions),
                    "replicas": max((len(partition.replicas) for partition in partitions), default=0),
                    "out_of_sync": sum(len(item.replicas) - len(item.in_sync) for item in partitions),
                    "without_leader": sum(item.leader is None for item in partitions),
                }
            )
        return rows

    async def topic(self, name: str, first: int) -> dict[str, Any]:
        """Return the partitions of a topic from number ``first`` on, and the settings that differ from the defaults."""
        description = (await self._admin.topics.describe([name]))[name]
        partitions = description.partitions[first : first + MOST_ROWS]
        items = [TopicPartition(name, partition.partition) for partition in partitions if partition.leader is not None]
        starts = await self._admin.offsets.list(dict.fromkeys(items, OffsetSpec.EARLIEST))
        ends = await self._admin.offsets.list(dict.fromkeys(items, OffsetSpec.LATEST))

        def offset(places: Any, item: TopicPartition) -> int | None:
            place = places.done.get(item)
            return None if place is None else place.offset

        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        settings = (await self._admin.configs.describe(resource)).done.get(resource, {})
        return {
            "name": name,
            "total": len(description.partitions),
            "first": first,
            "partitions": [
                {
                    "partition": partition.partition,
                    "leader": partition.leader,
                    "replicas": partition.replicas,
                    "in_sync": partition.in_sync,
                    "start": offset(starts, TopicPartition(name, partition.partition)),
                    "end": offset(ends, TopicPartition(name, partition.partition)),
                }
                for partition in partitions
            ],
            "settings": [
                {"name": setting, "value": value.value}
                for setting, value in sorted(settings.items())
                if value.source is ConfigSource.TOPIC
            ],
        }

    async def groups(self) -> list[dict[str, Any]]:
        """Return all groups with state, type and total lag. The lag is None for a group that cannot be read."""
        listed = await self._admin.groups.list()
        names = [group.group_id for group in listed if group.type.value != "Share"]
        lags = await self._admin.groups.lag(names)
        shares = await self._share_lags([group.group_id for group in listed if group.type.value == "Share"])
        return [
            {
                "name": group.group_id,
                "state": group.state.value,
                "type": group.type.value,
                "lag": lags[group.group_id].total if group.group_id in lags.done else shares.get(group.group_id),
                "chart": self._history.of(group.group_id)[-60:],
            }
            for group in listed
        ]

    async def _share_lags(self, names: list[str]) -> dict[str, int]:
        if not names:
            return {}
        try:
            answered = await self._admin.share_groups.offsets(names)
        except KafkaError:
            return {}
        return {group: sum(offset.lag or 0 for offset in offsets.values()) for group, offsets in answered.done.items()}

    async def group(self, name: str) -> dict[str, Any]:
        """Return the lag of a group by partition, and its chart."""
        lag = (await self._admin.groups.lag(name))[name]
        return {
            "name": name,
            "state": lag.state.value,
            "total": lag.total,
            "chart": self._history.of(name),
            "partitions": [
                {
                    "topic": item.partition.topic,
                    "partition": item.partition.partition,
                    "committed": item.committed,
                    "end": item.end,
                    "lag": item.lag,
                    "member": None if item.member is None else f"{item.member.client_id} {item.member.host}",
                }
                for item in lag.partitions[:MOST_ROWS]
            ],
        }
