"""A diagnosis: the state of a client at one moment, to print or to paste into a bug report.

A diagnosis is made without waiting and without a request, so it works while brokers are down. It has no secrets: of a
secret setting, it only shows that the setting is set. Producers and consumers add their own parts in subclasses.
"""

from __future__ import annotations

import asyncio
import dataclasses
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ..aio.service import Service
from ..arguments import plural
from ..compiled import BUILD
from ..net.broker import Broker
from ..net.connection import Connection
from ..snapshot import Snapshot
from ..version import VERSION
from .bootstrap import Address
from .client import Client
from .metrics import loop_time

HIDDEN = "(set, not shown)"

MOST_SHOWN = 200
"""The maximum number of partitions and topics that are listed. Further ones are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport:
    """A connection. Times are in seconds; ``versions`` has the version of each API that was sent so far."""

    purpose: str
    state: str
    in_flight: int
    age: float
    idle: float
    throttled_for: float
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """A broker or a bootstrap address. ``offers`` has the versions that the broker offers, by API key."""

    broker: str
    connections: tuple[ConnectionReport, ...]
    next_try_in: float
    offers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """The metadata of the cluster. ``metadata_age`` is in seconds, None before the first answer."""

    bootstrap_servers: str
    cluster_id: str | None
    controller: int | None
    brokers: tuple[str, ...]
    metadata_age: float | None
    topics: Mapping[str, str]
    unreachable: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageReport:
    """The failures of one place: their number, and the seconds since the first and since the last failure.

    ``lasts_for`` is the length of the present outage in seconds, None without an outage.
    """

    place: str
    error: str
    count: int
    first_ago: float
    last_ago: float
    lasts_for: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReport:
    """Something that the client waits for, and the seconds since it was first seen."""

    text: str
    lasts_for: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReport:
    """The delay of timers in the event loop, in seconds.

    The average and the maximum of the last minute, and the maximum since the start.
    """

    average: float | None
    longest_of_a_minute: float | None
    longest: float
    tasks_in_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Snapshot):
    """A client at one moment. ``print(diagnosis)`` is text for a person; ``to_dict`` is for JSON."""

    client: str
    failure: str | None
    software: Mapping[str, str]
    settings: Mapping[str, str]
    cluster: ClusterReport
    brokers: tuple[BrokerReport, ...]
    outages: tuple[OutageReport, ...]
    waits: tuple[WaitReport, ...]
    event_loop: LoopReport
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self.to_dict(), ""))


def common(service: Service, client: Client, *configs: object, fatal: BaseException | None = None) -> dict[str, object]:
    """Return the common fields, as arguments of a subclass. ``configs`` are more settings, such as the producer's.

    ``fatal`` is an error after which the client cannot do its work, although its tasks still run.
    """
    failure = service.failure or client.service.failure or fatal
    loop_time()  # raises an error if no loop runs in this thread
    return {
        "client": repr(service),
        "failure": None if failure is None else f"{type(failure).__name__}: {failure}",
        "software": software(),
        "settings": {name: value for config in (client.config, *configs) for name, value in changed(config)},
        "cluster": _cluster(client),
        "brokers": tuple(map(_broker, client.brokers)),
        "outages": tuple(_outages(client)),
        "waits": tuple(
            WaitReport(text=text, lasts_for=round(loop_time() - since, 3)) for text, since in client.standstill.waits()
        ),
        "event_loop": _loop(client),
        "tasks": tuple(sorted(counted((*service.task_names, *client.service.task_names)))),
    }


def software() -> dict[str, str]:
    """Return the versions of this library, of Python and of the other libraries that are used."""
    versions = {
        "aiokafka_lite": VERSION,
        "build": BUILD,
        "python": sys.version.split()[0],
        "system": platform.platform(),
    }
    for name in ("anyio", "crc32c", "lz4", "zstandard", "cramjam", "uvloop", "pyarrow"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def changed(config: object) -> Iterator[tuple[str, str]]:
    """Yield the settings that differ from their defaults. The value of a secret is hidden."""
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if value != field.default and value is not None and field.name != "bootstrap_servers":
            yield field.name, repr(value) if field.repr else HIDDEN


def counted(names: Iterable[str]) -> list[str]:
    """Return each name once, with its number if there are several."""
    numbers: dict[str, int] = {}
    for name in names:
        numbers[name] = numbers.get(name, 0) + 1
    return [name if number == 1 else f"{name} (x{number})" for name, number in numbers.items()]


def bounded(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the first MOST_SHOWN lines, and the number of the remaining lines."""
    every = list(lines)
    left_out = len(every) - MOST_SHOWN
    return tuple(every) if left_out <= 0 else (*every[:MOST_SHOWN], f"... and {left_out} more")


def _cluster(client: Client) -> ClusterReport:
    view = client.view
    outages = [
        outage.error for outage in client.outages.all() if outage.place == "metadata" and outage.began is not None
    ]
    return ClusterReport(
        bootstrap_servers=",".join(client.config.servers),
        cluster_id=view.cluster_id,
        controller=view.controller_id,
        brokers=tuple(f"{node.node_id} at {Address(node.host, node.port)}" for node in view.nodes.values()),
        metadata_age=None if view.updated_at is None else round(view.age(loop_time()), 3),
        topics={
            name: plural(len(topic.partitions), "partition") if not topic.error else topic.error.name
            for name, topic in sorted(view.topics.items())[:MOST_SHOWN]
        },
        unreachable=outages[0] if outages else None,
    )


def _broker(broker: Broker) -> BrokerReport:
    connections = broker.connections
    offers = next((str(connection.versions) for connection in connections.values() if connection.ready), "unknown")
    return BrokerReport(
        broker=broker.place,
        connections=tuple(_connection(purpose.value, connection) for purpose, connection in connections.items()),
        next_try_in=round(max(0.0, broker.retry_at - loop_time()), 3),
        offers=offers,
    )


def _connection(purpose: str, connection: Connection) -> ConnectionReport:
    return ConnectionReport(
        purpose=purpose,
        state=connection.state.name,
        in_flight=connection.in_flight,
        age=round(loop_time() - connection.opened_at, 3),
        idle=round(loop_time() - connection.last_used, 3),
        throttled_for=round(max(0.0, connection.throttled_until - loop_time()), 3),
        versions=connection.agreed_versions,
    )


def _outages(client: Client) -> Iterator[OutageReport]:
    for outage in client.outages.all():
        yield OutageReport(
            place=outage.place,
            error=outage.error,
            count=outage.count,
            first_ago=round(loop_time() - outage.first, 3),
            last_ago=round(loop_time() - outage.last, 3),
            lasts_for=None if outage.began is None else round(loop_time() - outage.began, 3),
        )


def _loop(client: Client) -> LoopReport:
    recent = client.loop_delay.recent
    return LoopReport(
        average=round(sum(recent) / len(recent), 6) if recent else None,
        longest_of_a_minute=round(max(recent), 6) if recent else None,
        longest=round(client.loop_delay.longest, 6),
        tasks_in_all=len(asyncio.all_tasks()),
    )


def _lines(value: Mapping[str, object], indent: str) -> Iterator[str]:
    """Yield lines ``name: value``. Nested values are on the lines below, indented."""
    for name, field in value.items():
        label = f"{indent}{name.replace('_', ' ')}:"
        if isinstance(field, dict) and field:
            yield label
            yield from _lines(field, indent + "  ")
        elif isinstance(field, list) and field:
            yield label
            for item in field:
                yield from _item(item, indent + "  ")
        else:
            yield f"{label} {'none' if field in (None, [], {}) else field}"


def _item(item: object, indent: str) -> Iterator[str]:
    """Yield an element of a list: its simple fields on one line, the nested ones below."""
    if not isinstance(item, dict):
        yield f"{indent}- {item}"
        return
    simple = {name: field for name, field in item.items() if not isinstance(field, dict | list) and field is not None}
    yield f"{indent}- " + ", ".join(f"{name.replace('_', ' ')}: {field}" for name, field in simple.items())
    yield from _lines({name: field for name, field in item.items() if isinstance(field, dict | list)}, indent + "    ")
