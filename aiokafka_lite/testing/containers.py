"""Apache Kafka in a container, for tests: the public image ``apache/kafka``, one node in KRaft mode.

Importing this needs testcontainers; starting a container needs an engine.
"""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path
from typing import Any

from .ports import free_port

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
except ImportError as _error:
    raise ImportError(f"Kafka in a container needs testcontainers ({_error}): pip install testcontainers") from _error

DEFAULT_IMAGE = "apache/kafka:4.3.1"
_PORT = 9092
_TOOLS_PORT = 19092  # for Kafka's own tools inside the container


EVERY_INTERFACE = "0.0.0.0"


class EngineMissing(RuntimeError):
    """No container engine runs on this machine."""


def engine_problem() -> str | None:
    """Return the reason why no container can start on this machine; None if the container engine works."""
    with warnings.catch_warnings():
        # Without an engine, docker's library leaves its socket open. Collect it before warnings are enabled again.
        warnings.simplefilter("ignore", ResourceWarning)
        problem = _engine_problem()
        if problem is not None:
            gc.collect()
    return problem


def _engine_problem() -> str | None:
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=10)
    except DockerException as error:
        return f"no container engine answers: {error}"
    try:
        client.ping()
    except (DockerException, OSError) as error:
        return f"no container engine answers: {error}"
    finally:
        client.close()
    return None


class KafkaContainer(DockerContainer):  # type: ignore[misc, unused-ignore]
    """One Kafka broker in a container, at a port of the container engine's host.

    Clients connect to ``host``, by default the host that testcontainers finds: ``127.0.0.1`` for an engine on this
    machine, the host in ``DOCKER_HOST`` for another one, or ``TESTCONTAINERS_HOST_OVERRIDE``. The port is published at
    ``bind``: by default only at the loopback interface for an engine on this machine, and at every interface of
    another one.

    The port is chosen before the start, because the broker has to advertise it to clients; give ``port`` if another
    engine has few free ones. ``settings`` have Kafka's names (``{"num.partitions": "3"}``).
    ``start_timeout`` is in seconds. Raises EngineMissing if there is no container engine.
    """

    def __init__(
        self,
        image: str = DEFAULT_IMAGE,
        *,
        port: int | None = None,
        host: str | None = None,
        bind: str | None = None,
        heap_megabytes: int = 512,
        settings: dict[str, str] | None = None,
        start_timeout: float = 120.0,
        **kwargs: Any,
    ) -> None:
        if (problem := engine_problem()) is not None:
            raise EngineMissing(f"Kafka in a container: {problem}")
        super().__init__(image, **kwargs)
        self.host: str = _loopback(self.get_docker_client().host() if host is None else host)
        is_here = self.host.startswith("127.") or self.host == "::1"
        self.port: int = free_port(self.host if is_here else "127.0.0.1") if port is None else port
        # Without the address, the engine would publish the port on every interface, for the whole network.
        published = bind if bind is not None else self.host if is_here else EVERY_INTERFACE
        self.ports[str(_PORT)] = (published, self.port)  # type: ignore[assignment, unused-ignore]
        self.with_env("KAFKA_HEAP_OPTS", f"-Xmx{heap_megabytes}m -Xms128m")
        for name, value in {**self._defaults(), **(settings or {})}.items():
            self.with_env(variable_for(name), value)
        self.waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(int(start_timeout)))

    def _defaults(self) -> dict[str, str]:
        return {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://:{_PORT},TOOLS://:{_TOOLS_PORT},CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers},TOOLS://localhost:{_TOOLS_PORT}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TOOLS:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "TOOLS",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.streams.initial.rebalance.delay.ms": "0",
        }

    @property
    def bootstrap_servers(self) -> str:
        """The ``bootstrap_servers`` of a client on this machine."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def start(self) -> KafkaContainer:
        """Start the container, and wait until the broker is ready. If it fails, the container is removed."""
        try:
            super().start()
        except BaseException:  # also KeyboardInterrupt, because a container that failed to start must be removed
            self.stop()
            raise
        return self

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        """Run one of Kafka's tools (``"console-consumer"``) inside the container, and return its standard output.

        The option for the bootstrap server is added. Raises RuntimeError with the output if the tool fails.
        """
        import shlex

        words = [self._tool_path(name), "--bootstrap-server", f"localhost:{_TOOLS_PORT}", *arguments]
        # The tool inherits the broker's environment. Without a limit of its own, its heap is as large as the broker's.
        command = f"printf %s {shlex.quote(stdin)} | KAFKA_HEAP_OPTS=-Xmx256m {shlex.join(words)}"
        code, (output, errors) = self.get_wrapped_container().exec_run(["bash", "-c", command], demux=True)
        if code != 0:
            raise RuntimeError(f"{name} failed with {code}: {(errors or b'').decode()}{(output or b'').decode()}")
        return (output or b"").decode()

    @staticmethod
    def _tool_path(name: str) -> str:
        return str(Path("/opt/kafka/bin") / f"kafka-{name}.sh")


def _loopback(host: str) -> str:
    """Return the host, but an address instead of localhost, which may stand for IPv6 as well."""
    return "127.0.0.1" if host == "localhost" else host


def variable_for(setting: str) -> str:
    """Return the image's variable for a Kafka setting: a dot becomes one underscore, an underscore two, a dash
    three."""
    return "KAFKA_" + setting.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def without_reaper() -> None:
    """Disable the cleanup container of testcontainers, for machines without access to an image registry.

    It affects containers that start later. The caller must stop every container that it starts.
    """
    from testcontainers.core.config import testcontainers_config

    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
    testcontainers_config.ryuk_disabled = True
