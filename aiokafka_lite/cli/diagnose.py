"""``aiokafka-lite diagnose``: whether a client here can work with the cluster, and in plain words why it cannot.

Each address is tried by a client of its own that knows no other: the bootstrap servers, then what the brokers say that
their addresses are. A broker that can be reached by the one and not by the other is the most usual mistake of all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from aiokafka_lite.admin import Admin, ApiSupport, ClusterDescription, TopicDescription
from aiokafka_lite.cluster.diagnosis import software
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.types import Node

from .connection import Connection
from .output import Cell, Facts, Output, Part, Table
from .running import FAILED

SHOWN = ("Produce", "Fetch", "Metadata", "JoinGroup", "InitProducerId")
"""The APIs whose newest common version is shown; ``cluster --versions`` has all."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of trying an address: a description of the cluster, or an error."""

    address: str
    seconds: float
    described: ClusterDescription | None = None
    versions: Mapping[str, int | None] | None = None
    error: KafkaError | None = None

    @property
    def row(self) -> tuple[Cell, ...]:
        """Address, whether it answered, in how many milliseconds, and why not."""
        took = None if self.error else round(self.seconds * 1000, 1)
        return (self.address, self.error is None, took, None if self.error is None else str(self.error))


async def diagnose(connection: Connection, output: Output, group: str | None, topic: str | None) -> int:
    """Try everything, and show what came of it. The status is 1 if anything is not as it should be."""
    servers = connection.admin().diagnose().cluster.bootstrap_servers.split(",")
    bootstrap = await _try_all(connection, dict.fromkeys(servers))
    described = next((probe.described for probe in bootstrap if probe.described is not None), None)
    nodes = () if described is None else described.brokers
    brokers = await _try_all(connection, {_address(node): node.node_id for node in nodes})
    parts: dict[str, Part] = {
        "client": Facts(software()),
        "bootstrap_servers": Table(("SERVER", "ANSWERS", "MILLISECONDS", "ERROR"), [probe.row for probe in bootstrap]),
    }
    findings = findings_of(bootstrap, brokers, nodes)
    if described is not None:
        parts["cluster"] = Facts(
            {
                "cluster_id": described.cluster_id,
                "controller": None if described.controller is None else described.controller.node_id,
            }
        )
        parts["brokers"] = _brokers(nodes, brokers)
        findings += await _ask_for(connection, parts, group, topic)
    parts["findings"] = Table(("FINDING",), [(finding,) for finding in findings or ["nothing is wrong here"]])
    output.show_all(parts)
    return FAILED if findings else 0


def findings_of(bootstrap: Sequence[Probe], brokers: Sequence[Probe], nodes: Iterable[Node]) -> list[str]:
    """What is wrong with the addresses, and what to do about it. Pure."""
    answering = [probe.address for probe in bootstrap if probe.error is None]
    if not answering:
        return [
            "no bootstrap server answers: is the cluster up, is the port that of a client listener, and does"
            " security.protocol say what that listener speaks? Each error is above"
        ]
    findings = [f"bootstrap server {probe.address} does not answer" for probe in bootstrap if probe.error is not None]
    names = {_address(node): node.node_id for node in nodes}
    findings += [
        f"broker {names[probe.address]} tells clients to connect to {probe.address}, and that does not answer from"
        f" here, while {answering[0]} does: the broker is down, or its advertised.listeners must name an address that"
        " clients can reach"
        for probe in brokers
        if probe.error is not None
    ]
    clusters = {probe.described.cluster_id for probe in (*bootstrap, *brokers) if probe.described is not None}
    if len(clusters) > 1:
        findings.append(f"the addresses are of different clusters: {', '.join(sorted(map(str, clusters)))}")
    return findings


async def _try_all(connection: Connection, addresses: Mapping[str, int | None]) -> list[Probe]:
    """Try the addresses, all at the same time; in their order."""
    found: dict[str, Probe] = {}

    async def attempt(address: str, node_id: int | None) -> None:
        found[address] = await _try(replace(connection, bootstrap_server=address), address, node_id)

    async with anyio.create_task_group() as tasks:
        for address, node_id in addresses.items():
            tasks.start_soon(attempt, address, node_id)
    return [found[address] for address in addresses]


async def _try(connection: Connection, address: str, node_id: int | None) -> Probe:
    began = time.perf_counter()
    try:
        async with connection.admin() as admin:
            described = await admin.cluster.describe()
            took = time.perf_counter() - began
            if node_id is None:
                return Probe(address, took, described)
            return Probe(address, took, described, await _newest(admin, node_id))
    except KafkaError as error:
        return Probe(address, time.perf_counter() - began, error=error)


async def _newest(admin: Admin, node_id: int) -> dict[str, int | None]:
    """The newest version that both sides speak, of some APIs."""
    answered: Mapping[int, Iterable[ApiSupport]] = (await admin.cluster.api_versions([node_id])).done
    used = {api.name: api.used for api in answered.get(node_id, ())}
    return {name: used.get(name) for name in SHOWN}


def _address(node: Node) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.port}"


def _brokers(nodes: Sequence[Node], probes: Sequence[Probe]) -> Table:
    by_address = {probe.address: probe for probe in probes}
    rows: list[tuple[Cell, ...]] = []
    for node in nodes:
        probe = by_address[_address(node)]
        versions = probe.versions or {}
        rows.append((node.node_id, *probe.row[:3], *(versions.get(name) for name in SHOWN), probe.row[3]))
    headings = tuple(name.upper() for name in SHOWN)
    return Table(("BROKER", "ADVERTISED", "ANSWERS", "MILLISECONDS", *headings, "ERROR"), rows)


async def _ask_for(connection: Connection, parts: dict[str, Part], group: str | None, topic: str | None) -> list[str]:
    """Add the group and the topic to what is shown; what is wrong with them."""
    findings: list[str] = []
    try:
        async with connection.admin() as admin:
            if topic is not None:
                described = (await admin.topics.describe(topic))[topic]
                parts["topic"] = _topic(described)
                findings += _of_topic(described)
            if group is not None:
                findings += await _group(admin, group, parts)
    except KafkaError as error:
        findings.append(str(error))
    return findings


def _topic(described: TopicDescription) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (described.name, each.partition, each.leader, each.replicas, each.in_sync, each.offline)
        for each in described.partitions
    ]
    return Table(("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "OFFLINE"), rows)


def _of_topic(described: TopicDescription) -> list[str]:
    leaderless = [each.partition for each in described.partitions if each.leader is None]
    lacking = [each.partition for each in described.partitions if len(each.in_sync) < len(each.replicas)]
    findings = []
    if leaderless:
        findings.append(f"topic {described.name} has no leader for partitions {leaderless}: nothing can use them")
    if lacking:
        findings.append(f"topic {described.name} lacks replicas in sync for partitions {lacking}")
    return findings


async def _group(admin: Admin, group: str, parts: dict[str, Part]) -> list[str]:
    described = (await admin.groups.describe(group))[group]
    lag = (await admin.groups.lag(group))[group]
    parts["group"] = Facts(
        {
            "group": group,
            "state": described.state.value,
            "strategy": described.strategy,
            "coordinator": _address(described.coordinator),
            "members": len(described.members),
            "lag": lag.total,
        }
    )
    rows: list[tuple[Cell, ...]] = [
        (
            each.partition.topic,
            each.partition.partition,
            each.committed,
            each.end,
            each.lag,
            None if each.member is None else each.member.member_id,
        )
        for each in lag.partitions
    ]
    parts["lag"] = Table(("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"), rows)
    if described.members:
        return []
    return [f"group {group} has no members: nobody reads for it at the moment"]
