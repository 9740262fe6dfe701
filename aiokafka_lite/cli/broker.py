"""``aiokafka-lite broker``: the embedded cluster as a process."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal.arguments import names_and_values, principal_of
from .terminal.run import log_warnings, on_signals, run

if TYPE_CHECKING:
    import asyncio

    from ..embedded import EmbeddedCluster, Security

EXAMPLES = """
aiokafka-lite broker --brokers 3 --topic orders:12:3
aiokafka-lite broker --topic orders:12:retention.ms=60000 --topic prices:1:cleanup.policy=compact
aiokafka-lite broker --host 0.0.0.0 --advertised kafka:9092
aiokafka-lite broker --sasl-user alice:secret --tls --client-config alice.properties
aiokafka-lite broker --sasl-user admin:secret --sasl-user bob:secret --super-user admin
"""


def broker(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the first broker; 0 for any.")] = 9092,
    brokers: Annotated[int, typer.Option(min=1, max=64, help="Number of brokers, on consecutive ports.")] = 1,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Partitions of a topic that is created by its first use; 1 by default.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A broker setting with Kafka's name. May be repeated."),
    ] = None,
    first_node_id: Annotated[int, typer.Option(min=0, help="Id of the first broker; the next ids follow.")] = 1,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PARTITIONS[:REPLICAS]][:SETTING=VALUE...]",
            help="Topic to create at the start, such as orders:12:retention.ms=60000. May be repeated.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on; by default the loopback interface. Any client that reaches another address has"
            " full access, unless clients have to log in.",
        ),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="The host that clients use, and the port of the first broker there; by default --host and --port.",
        ),
    ] = None,
    as_kafka: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="Offer the API versions of this Kafka release, such as 2.8.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt connections, with certificates that are made for this run.")
    ] = False,
    client_auth: Annotated[
        str, typer.Option(metavar="none|requested|required", help="With --tls: whether clients need a certificate.")
    ] = "none",
    sasl_user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PASSWORD", help="A user. Clients must log in. May be repeated. For tests only."),
    ] = None,
    sasl_mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MECHANISM",
            help="How clients log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. May be repeated.",
        ),
    ] = None,
    client_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a properties file for clients of this cluster."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Keep topics and records in this directory for the next start."),
    ] = None,
    super_user: Annotated[
        list[str] | None,
        typer.Option(metavar="USER", help="Enforce ACLs; this user may do everything. May be repeated."),
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="Also serve a page with topics, records, groups and the requests.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the brokers' log, and the traceback of an error.")
    ] = False,
) -> None:
    """Run the embedded cluster until Ctrl-C.

    The cluster listens on the loopback interface, or on --host. Without --data-dir it keeps all data in memory. A
    warning says why a broker closed a connection.
    """
    raise typer.Exit(
        run(
            lambda: _run(
                topic or [],
                client_config,
                listen=listen_settings(host, advertised),
                default_partitions=partitions,
                brokers=brokers,
                ports=port or None,
                configs=names_and_values("config", config or []),
                as_kafka=as_kafka,
                security=security(tls, client_auth, sasl_user or [], sasl_mechanism or []),
                super_users=None if super_user is None else list(map(principal_of, super_user)),
                data_dir=data_dir,
                first_node_id=first_node_id,
                with_ui=ui,
            ),
            verbose=verbose,
        )
    )


async def _run(
    topics: list[str],
    client_config: Path | None,
    *,
    first_node_id: int,
    listen: dict[str, Any],
    with_ui: bool,
    **settings: Any,
) -> int:
    """Serve until SIGINT or SIGTERM, then stop; the exit status is 0.

    ``settings`` are those of the cluster. Raises ConfigurationError for a wrong topic or setting.
    """
    from ..embedded import ClusterConfig, EmbeddedCluster

    log_warnings()
    # Only the page reads the history, which keeps requests in memory.
    config = ClusterConfig(history_limit=300 if with_ui else 0, first_node_id=first_node_id, **listen)
    cluster = EmbeddedCluster(**settings, config=config)
    default = cluster.controller.settings.of().number("num.partitions")
    new_topics = [parse_topic(topic, default) for topic in topics]
    await _serve(cluster, new_topics, client_config, keeps_data=settings["data_dir"] is not None, with_ui=with_ui)
    return 0


def security(tls: bool, client_auth: str, users: list[str], mechanisms: list[str]) -> Security:
    """Return the security settings of the options. Raises ConfigurationError."""
    from .. import disclosure
    from ..embedded import Security
    from ..errors import ConfigurationError

    passwords = {}
    for user in users:
        name, colon, passwords[name] = user.partition(":")
        if not colon:
            raise ConfigurationError(f"sasl-user must be NAME:PASSWORD, got {disclosure.kind(user)}")
    protocol = ("SASL_SSL" if tls else "SASL_PLAINTEXT") if users or mechanisms else "SSL" if tls else "PLAINTEXT"
    return Security(protocol, users=passwords, mechanisms=mechanisms or None, client_auth=client_auth)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create at the start."""

    name: str
    partitions: int
    replicas: int
    settings: dict[str, str]


def parse_topic(topic: str, partitions: int) -> NewTopic:
    """Parse ``NAME:PARTITIONS:REPLICAS:SETTING=VALUE``, of which only the name is required.

    ``partitions`` is the default. A value may have colons. Raises ConfigurationError for any other form.
    """
    from ..arguments import must_be
    from ..errors import ConfigurationError

    name, *parts = topic.split(":")
    numbers: list[str] = []
    settings: dict[str, str] = {}
    setting = ""
    for part in parts:
        key, equals, value = part.partition("=")
        if equals and re.fullmatch(r"[a-z][a-z0-9.]*", key):
            setting = key
            settings[key] = value
        elif setting:
            settings[setting] += f":{part}"
        else:
            numbers.append(part)
    if not name or "=" in name or len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        form = "NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICAS, and then SETTING=VALUE with a colon before each"
        raise ConfigurationError(must_be("topic", form, topic))
    counts = [int(number) for number in numbers]
    return NewTopic(name, counts[0] if counts else partitions, counts[1] if len(counts) > 1 else 1, settings)


def listen_settings(host: str | None, advertised: str | None) -> dict[str, Any]:
    """Return the settings of a cluster for ``--host`` and ``--advertised``. Raises ConfigurationError."""
    from ..arguments import must_be
    from ..errors import ConfigurationError

    settings: dict[str, Any] = {} if host is None else {"host": host, "expose": True}
    if advertised is None:
        if host in ("0.0.0.0", "::"):
            raise ConfigurationError(
                f"--host {host} requires --advertised, the name or address that clients use for this machine"
            )
        return settings
    address = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]\s]+))(?::(\d+))?", advertised)
    port = None if address is None or address[3] is None else int(address[3])
    if address is None or (port is not None and not 0 < port < 65536):
        raise ConfigurationError(must_be("--advertised", "HOST or HOST:PORT", advertised))
    return {**settings, "advertised_host": address[1] or address[2], "advertised_port": port}


async def _serve(
    started: EmbeddedCluster, topics: list[NewTopic], client_config: Path | None, *, keeps_data: bool, with_ui: bool
) -> None:
    import asyncio

    stopped = asyncio.Event()
    with on_signals(lambda number: stopped.set()):
        await _serve_until(stopped, started, topics, client_config, keeps_data=keeps_data, with_ui=with_ui)
    print("stopped", flush=True)


async def _serve_until(
    stopped: asyncio.Event,
    started: EmbeddedCluster,
    topics: list[NewTopic],
    client_config: Path | None,
    *,
    keeps_data: bool,
    with_ui: bool,
) -> None:
    from contextlib import AsyncExitStack

    from ..embedded import Refused
    from ..errors import ConfigurationError, ErrorCode

    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(started)
        for topic in topics:
            try:
                await cluster.create_topic(topic.name, topic.partitions, topic.replicas, configs=topic.settings)
            except Refused as refusal:
                if refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS and keeps_data:
                    continue  # an earlier run has created the topic
                raise ConfigurationError(f"topic {topic.name!r} cannot be created: {refusal}") from refusal
        if client_config is not None:
            servers = {"bootstrap_servers": _advertised(cluster)}
            _write(client_config, _properties({**cluster.client_settings(), **servers}))
        print(f"bootstrap servers: {_advertised(cluster)}", flush=True)
        if with_ui:
            from .ui import serving_embedded

            print(f"page: {await stack.enter_async_context(serving_embedded(cluster))}", flush=True)
        await stopped.wait()


def _advertised(cluster: EmbeddedCluster) -> str:
    """Return the addresses that the brokers advertise for the first listener, separated by commas."""
    addresses = []
    for node_id, node in cluster.nodes.items():
        host, ports = cluster.config.advertised(node_id, {name: one.port for name, one in node.listeners.items()})
        port = next(iter(ports.values()))
        addresses.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return ",".join(addresses)


_FIRST_LINE = "# written by aiokafka-lite broker\n"


def _write(path: Path, text: str) -> None:
    """Write a file that only this user can read. Raises ConfigurationError, also for a file that is not ours."""
    from ..errors import ConfigurationError

    try:
        if path.is_file() and not path.read_bytes().startswith(_FIRST_LINE.encode()):
            raise ConfigurationError(
                f"client-config={str(path)!r} is a file that this command has not written; give another name"
            )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            if path.is_file():  # and not a pipe or a terminal
                path.chmod(0o600)
            file.write(_FIRST_LINE + text)
    except OSError as error:
        raise ConfigurationError(f"cannot write client-config={str(path)!r}: {error.strerror}") from error


_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"


def _properties(settings: dict[str, Any]) -> str:
    """Return the settings of a client as a properties file, which Kafka's own tools read too."""
    properties = {
        "bootstrap.servers": settings["bootstrap_servers"],
        "security.protocol": settings["security_protocol"],
    }
    for setting, store in (("ssl_cafile", "ssl.truststore"), ("ssl_certfile", "ssl.keystore")):
        if setting in settings:
            properties |= {f"{store}.type": "PEM", f"{store}.location": settings[setting]}
    if "sasl_mechanism" in settings:
        properties["sasl.mechanism"] = settings["sasl_mechanism"]
    if "sasl_username" in settings:
        module = _MODULES.get(settings["sasl_mechanism"], _SCRAM_MODULE)
        name, password = (_quoted(settings[f"sasl_{part}"]) for part in ("username", "password"))
        package = "org.apache.kafka.common.security"
        properties["sasl.jaas.config"] = f"{package}.{module} required username={name} password={password};"
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(value: str) -> str:
    """Escape a value in ASCII: Java reads the file as Latin-1, and a line break would end the value."""

    def units(match: re.Match[str]) -> str:
        content = match[0].encode("utf-16-be")
        return "".join(f"\\u{content[start : start + 2].hex()}" for start in range(0, len(content), 2))

    return re.sub(r"[^ -~]+", units, value.replace("\\", "\\\\"))
