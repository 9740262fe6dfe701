"""Three Apache Kafka brokers as plain Java processes on loopback, and the faults that can hit each of them.

Each node is broker and controller (KRaft), so that the active controller can fail, too. Releases before 3.7 run beside
a ZooKeeper, which has no faults. Faults are signals to the process; the cluster has to notice them by itself.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

from aiokafka_lite.testing.ports import free_port
from tests.real.jvm import (
    CLUSTER_ID,
    JavaProcess,
    jars,
    java_command,
    needs_zookeeper,
    ready_line,
    run_to_end,
    start_zookeeper,
    write_properties,
)

HEAP_MEGABYTES = 320
FORMAT_HEAP_MEGABYTES = 128

_SETTINGS = {
    # Small timeouts, so that a dead broker's partitions have a new leader within seconds.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "zookeeper.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.request.timeout.ms": "1000",
    "replica.socket.timeout.ms": "5000",
    "replica.fetch.backoff.ms": "100",
    # Leaders do not move by themselves, and only tests create topics.
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    # Three brokers share one small machine.
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


class NodeState(Enum):
    """The state of a node's process."""

    STOPPED = "there is no process"
    RUNNING = "it serves"
    FROZEN = "it is suspended: connections stay, and nothing answers"


class JvmNode:
    """One node: its directory, its ports, and its process while it has one."""

    def __init__(self, version: str, node_id: int, directory: Path) -> None:
        self.version = version
        self.node_id = node_id
        self.port = free_port()
        self.controller_port = free_port()
        self.client_port = free_port()
        self.advertised_port = self.client_port
        """The port of the CLIENT listener that clients connect to: the broker's own, or a proxy's."""
        self.state = NodeState.STOPPED
        self.directory = directory
        self._jars = jars(version)
        self._process: JavaProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    def format(self, quorum: str) -> None:
        """Write the settings and format the log directory. ``quorum`` has the voters, or the address of ZooKeeper."""
        self.directory.mkdir()
        listeners = {"PLAINTEXT": self.address, "CLIENT": f"127.0.0.1:{self.client_port}"}
        if needs_zookeeper(self.version):
            role = {"broker.id": str(self.node_id), "zookeeper.connect": quorum}
            # The usual 3 seconds are too short for the start of a broker on a busy machine.
            role["zookeeper.connection.timeout.ms"] = "30000"
        else:
            listeners["CONTROLLER"] = f"127.0.0.1:{self.controller_port}"
            role = {
                "node.id": str(self.node_id),
                "process.roles": "broker,controller",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": quorum,
            }
        own = {
            "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "advertised.listeners": f"PLAINTEXT://{self.address},CLIENT://127.0.0.1:{self.advertised_port}",
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / "log"),
        }
        write_properties(self.properties, {**_SETTINGS, **role, **own})
        if not needs_zookeeper(self.version):
            arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties)]
            run_to_end(java_command(self._jars, "kafka.tools.StorageTool", *arguments, heap=FORMAT_HEAP_MEGABYTES))

    def launch(self) -> None:
        """Start the process. Call this on the main thread: the process dies with the thread that started it."""
        command = java_command(self._jars, "kafka.Kafka", str(self.properties), heap=HEAP_MEGABYTES)
        self._process = JavaProcess(command, ready_line(self.version, self.node_id), self.directory)
        self.state = NodeState.RUNNING

    def wait_until_ready(self) -> None:
        """Wait until the node serves; RuntimeError with the end of its output if it ends instead."""
        assert self._process is not None
        self._process.wait_until_ready()

    def stop(self) -> None:
        """Send SIGTERM: the node moves its leaders to others, and ends."""
        self.thaw()
        self._end(kill=False)

    def kill(self) -> None:
        """Send SIGKILL, in every state."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        if self._process is not None:
            self._process.stop(kill=kill)
            self._process = None
        self.state = NodeState.STOPPED

    def freeze(self) -> None:
        """Send SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.state = NodeState.FROZEN

    def thaw(self) -> None:
        """Send SIGCONT, if it is frozen."""
        if self.state is NodeState.FROZEN:
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)
            self.state = NodeState.RUNNING


class JvmCluster:
    """Nodes 1 to 3 of one release, with their data in a temporary directory."""

    def __init__(self, version: str, nodes: int = 3) -> None:
        self.version = version
        self._directory = Path(tempfile.mkdtemp(prefix=f"kafka-cluster-{version}-"))
        self._zookeeper: JavaProcess | None = None
        self.nodes = {
            node_id: JvmNode(version, node_id, self._directory / f"node-{node_id}") for node_id in range(1, nodes + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def start(self) -> JvmCluster:
        """Format and start all nodes; returns once all serve."""
        quorum = ",".join(f"{node.node_id}@127.0.0.1:{node.controller_port}" for node in self.nodes.values())
        try:
            if needs_zookeeper(self.version):
                self._zookeeper, quorum = start_zookeeper(jars(self.version), self._directory)
            with ThreadPoolExecutor() as threads:
                list(threads.map(lambda node: node.format(quorum), self.nodes.values()))
            for node in self.nodes.values():  # no node serves before two of them are connected
                node.launch()
            for node in self.nodes.values():
                node.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all processes, and remove the data."""
        for node in self.nodes.values():
            node.kill()
        if self._zookeeper is not None:
            self._zookeeper.stop(kill=True)
        shutil.rmtree(self._directory, ignore_errors=True)
