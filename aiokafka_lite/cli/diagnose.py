"""``aiokafka-lite diagnose``: checks whether a client on this machine can work with the cluster, and explains failures.

A separate client tries each address: first the bootstrap servers, then the addresses that the brokers advertise. The
most frequent mistake is a broker that answers as a bootstrap server, but not at its advertised address.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from ..admin import Admin, ApiSupport, ClusterDescription, TopicDescription
from ..cluster.bootstrap import Address
from ..cluster.diagnosis import software
from ..errors import KafkaError
from ..types import Node
from .cluster import facts_of
from .terminal.connection import ConnectionOptions
from .terminal.output import Cell, Facts, Output, Part, Table
from .terminal.run import FAILED, with_options

SHOWN = ("Produce", "Fetch", "Metadata", "JoinGroup", "InitProducerId")
"""The APIs whose newest common version is shown; ``cluster --versions`` shows all."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of one address: a description of the cluster, or an error."""

    address: str
    seconds: float
    described: ClusterDescription | None = None
    versions: Mapping[str, int | None] | None = None
    error: KafkaError | None = None

    @property
    def row(self) -> tuple[Cell, ...]:
        """The address, whether it answered, after how many milliseconds, and the error."""
        took = None if self.error else round(self.seconds * 1000, 1)
        return (self.address, self.error is None, took, None if self.error is None else with_options(str(self.error)))


async def diagnose(connection: ConnectionOptions, output: Output, group: str | None, topic: str | None) -> int:
    """Try all addresses and show the results. The exit status is 1 if anything is wrong."""
    servers = connection.new_admin().diagnose().cluster.bootstrap_servers.split(",")
    bootstrap = await _try_all(connection, dict.fromkeys(servers))
    description = next((probe.described for probe in bootstrap if probe.described is not None), None)
    nodes = () if description is None else description.brokers
    brokers = await _try_all(connection, {_address(node): node.node_id for node in nodes})
    parts: dict[str, Part] = {
        "client": Facts(software()),
        "bootstrap_servers": Table(("SERVER", "ANSWERS", "MILLISECONDS", "ERROR"), [probe.row for probe in bootstrap]),
    }
    findings = findings_of(bootstrap, brokers, nodes)
    if description is not None:
        parts["cluster"] = facts_of(description)
        parts["brokers"] = _brokers(nodes, brokers)
        findings += await _check_topic_and_group(connection, parts, group, topic)
    parts["findings"] = Table(("FINDING",), [(finding,) for finding in findings or ["nothing is wrong here"]])
    output.show_all(parts)
    return FAILED if findings else 0


def findings_of(bootstrap: Sequence[Probe], brokers: Sequence[Probe], nodes: Iterable[Node]) -> list[str]:
    """Return the faults of the addresses, and what to do about each."""
    answering = [probe.address for probe in bootstrap if probe.error is None]
    if not answering:
        return [
            "no bootstrap server answers: check that the cluster runs, that the port belongs to a client listener, and"
            " that security.protocol is the protocol of this listener; each error is above"
        ]
    findings = [f"bootstrap server {probe.address} does not answer" for probe in bootstrap if probe.error is not None]
    names = {_address(node): node.node_id for node in nodes}
    findings += [
        f"broker {names[probe.address]} advertises {probe.address}, which does not answer from here, while"
        f" {answering[0]} does: the broker is down, or its advertised.listeners must name an address that clients can"
        " reach"
        for probe in brokers
        if probe.error is not None
    ]
    clusters = {probe.described.cluster_id for probe in (*bootstrap, *brokers) if probe.described is not None}
    if len(clusters) > 1:
        findings.append(f"the addresses belong to different clusters: {', '.join(sorted(map(str, clusters)))}")
    return findings


async def _try_all(connection: ConnectionOptions, addresses: Mapping[str, int | None]) -> list[Probe]:
    """Try all addresses at the same time; the results are in the order of the addresses."""
    probes: dict[str, Probe] = {}

    async def attempt(address: str, node_id: int | None) -> None:
        probes[address] = await _try(replace(connection, bootstrap_server=address), address, node_id)

    async with anyio.create_task_group() as tasks:
        for address, node_id in addresses.items():
            tasks.start_soon(attempt, address, node_id)
    return [probes[address] for address in addresses]


async def _try(connection: ConnectionOptions, address: str, node_id: int | None) -> Probe:
    began = time.perf_counter()
    try:
        async with connection.admin() as admin:
            description = await admin.cluster.describe()
            took = time.perf_counter() - began
            if node_id is None:
                return Probe(address, took, description)
            return Probe(address, took, description, await _newest(admin, node_id))
    except KafkaError as error:
        return Probe(address, time.perf_counter() - began, error=error)


async def _newest(admin: Admin, node_id: int) -> dict[str, int | None]:
    """Ask for the newest common version of each API in ``SHOWN``."""
    answered: Mapping[int, Iterable[ApiSupport]] = (await admin.cluster.api_versions([node_id])).done
    used = {api.name: api.used for api in answered.get(node_id, ())}
    return {name: used.get(name) for name in SHOWN}


def _address(node: Node) -> str:
    return str(Address(node.host, node.port))


def _brokers(nodes: Sequence[Node], probes: Sequence[Probe]) -> Table:
    by_address = {probe.address: probe for probe in probes}
    rows: list[tuple[Cell, ...]] = []
    for node in nodes:
        probe = by_address[_address(node)]
        versions = probe.versions or {}
        rows.append((node.node_id, *probe.row[:3], *(versions.get(name) for name in SHOWN), probe.row[3]))
    headings = tuple(name.upper() for name in SHOWN)
    return Table(("BROKER", "ADVERTISED", "ANSWERS", "MILLISECONDS", *headings, "ERROR"), rows)


async def _check_topic_and_group(
    connection: ConnectionOptions, parts: dict[str, Part], group: str | None, topic: str | None
) -> list[str]:
    """Add the group and the topic to the output, and return their faults."""
    findings: list[str] = []
    try:
        async with connection.admin() as admin:
            if topic is not None:
                findings += await _explained(_of_topic(admin, topic, parts))
            if group is not None:
                findings += await _explained(_group(admin, group, parts))
    except KafkaError as error:
        findings.append(with_options(str(error)))
    return findings


async def _explained(check: Awaitable[list[str]]) -> list[str]:
    """Return the faults that a check finds. Its error is one of them, so that the other checks are made too."""
    try:
        return await check
    except KafkaError as error:
        return [with_options(str(error))]


def _topic(description: TopicDescription) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            description.name,
            partition.partition,
            partition.leader,
            partition.replicas,
            partition.in_sync,
            partition.offline,
        )
        for partition in description.partitions
    ]
    return Table(("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "OFFLINE"), rows)


async def _of_topic(admin: Admin, topic: str, parts: dict[str, Part]) -> list[str]:
    description = (await admin.topics.describe(topic))[topic]
    parts["topic"] = _topic(description)
    leaderless = [partition.partition for partition in description.partitions if partition.leader is None]
    lacking = [
        partition.partition for partition in description.partitions if len(partition.in_sync) < len(partition.replicas)
    ]
    findings = []
    if leaderless:
        findings.append(f"topic {description.name} has no leader for partitions {leaderless}: clients cannot use them")
    if lacking:
        findings.append(f"topic {description.name} has replicas that are not in sync, for partitions {lacking}")
    return findings


async def _group(admin: Admin, group: str, parts: dict[str, Part]) -> list[str]:
    description = (await admin.groups.describe(group))[group]
    lag = (await admin.groups.lag(group))[group]
    parts["group"] = Facts(
        {
            "group": group,
            "state": description.state.value,
            "strategy": description.strategy,
            "coordinator": _address(description.coordinator),
            "members": len(description.members),
            "lag": lag.total,
        }
    )
    rows: list[tuple[Cell, ...]] = [
        (
            partition.partition.topic,
            partition.partition.partition,
            partition.committed,
            partition.end,
            partition.lag,
            None if partition.member is None else partition.member.member_id,
        )
        for partition in lag.partitions
    ]
    parts["lag"] = Table(("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"), rows)
    if description.members:
        return []
    return [f"group {group} has no members: no consumer reads its topics now"]
