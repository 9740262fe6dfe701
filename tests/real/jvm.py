"""Apache Kafka as a plain Java process, for releases without a public image and machines without a container engine.

The jars come from Maven Central, once per release, and are kept in the user's cache directory, as those of Spark's own
connector are. Releases from 3.7 on run in KRaft mode, older ones beside a ZooKeeper from the same jars.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from aiokafka_lite.testing.ports import free_port
from tests.real.releases import release

HEAP_MEGABYTES = 512
START_TIMEOUT = 300.0
STOP_TIMEOUT = 15.0

# With one collector thread and only the quick compiler, a broker starts in half the time on a small machine.
_SMALL_JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j.ignoreTCL=true"]
_LOG_TO_STDOUT = ["-Dorg.slf4j.simpleLogger.logFile=System.out", "-Dorg.slf4j.simpleLogger.showDateTime=true"]

# The tools moved from Kafka's core to a module of their own, release by release.
_TOOLS = {
    "console-consumer": ("org.apache.kafka.tools.consumer.ConsoleConsumer", "kafka.tools.ConsoleConsumer"),
    "consumer-groups": (
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "kafka.admin.ConsumerGroupCommand",
    ),
    "console-share-consumer": ("org.apache.kafka.tools.consumer.ConsoleShareConsumer",),
    "share-groups": ("org.apache.kafka.tools.consumer.group.ShareGroupCommand",),
    "console-producer": ("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"),
    "configs": ("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand"),
    "delete-records": ("org.apache.kafka.tools.DeleteRecordsCommand", "kafka.admin.DeleteRecordsCommand"),
    "get-offsets": ("org.apache.kafka.tools.GetOffsetShell", "kafka.tools.GetOffsetShell"),
    "log-dirs": ("org.apache.kafka.tools.LogDirsCommand", "kafka.admin.LogDirsCommand"),
    "producer-perf-test": ("org.apache.kafka.tools.ProducerPerformance",),
    "transactional-message-copier": ("org.apache.kafka.tools.TransactionalMessageCopier",),
    "transactions": ("org.apache.kafka.tools.TransactionsCommand",),
    "topics": ("org.apache.kafka.tools.TopicCommand", "kafka.admin.TopicCommand"),
}

SPARK_CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""Spark's own connector, and what it needs beside Spark, in the versions of its project file."""

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

TOOL_TIMEOUT = 300.0
"""Seconds after which one of Kafka's tools counts as hanging."""

PATIENCE = {
    "console-producer": ("--request-timeout-ms", "60000"),
    "consumer-groups": ("--timeout", "60000"),
    "share-groups": ("--timeout", "60000"),
}
"""Options of tools that wait 1.5 or 5 seconds by default. When that is over on a busy machine, the producer loses its
lines without an error, and a description of groups is empty."""

_A_YEAR_MS = str(365 * 24 * 3600 * 1000)
NOTHING_EXPIRES = {
    "log.retention.check.interval.ms": _A_YEAR_MS,
    "log.initial.task.delay.ms": _A_YEAR_MS,
    "log.cleaner.backoff.ms": _A_YEAR_MS,
    "offsets.retention.check.interval.ms": str(2**31 - 1),
}
"""Settings of a broker that deletes nothing while tests run.

Tests write records with timestamps of years ago. With the default settings, a broker deletes expired records 30 seconds
after its start, and then every five minutes: in the middle of some test. Every ten minutes it also removes groups
without members and offsets. From topics with ``cleanup.policy=compact,delete`` its cleaner deletes them, every 15
seconds. Releases before 3.8 look after 30 seconds in any case: tests give their topics ``retention.ms=-1`` as well."""

CLUSTER_ID = "q1Jm0nZ8T6eLk3v5w7x9yA"  # any 16 bytes in URL-safe base 64


class JavaMissing(RuntimeError):
    """No Java or no Maven on this machine."""


def java_problem() -> str | None:
    """Return why no plain Java process can be started here, or None when one can."""
    if _java() is None:
        return "no java is installed"
    if shutil.which("mvn") is None:
        return "no mvn is installed"
    return None


@cache
def _java() -> str | None:
    """Find Java 17 if there is one: all releases from 1.1 to 4.x run on it, but some do not run on a newer Java."""
    for directory in sorted(Path("/usr/lib/jvm").glob("*17*")):
        if (directory / "bin" / "java").exists():
            return str(directory / "bin" / "java")
    return shutil.which("java")


def jars(version: str) -> Path:
    """Return the directory with the release's jars, fetched if it is not there yet."""
    return _fetched(f"kafka-{version}", _pom(version))


def connector_jars() -> list[Path]:
    """Return the jars of Spark's own connector to Kafka, fetched if they are not there yet. PySpark has the others."""
    dependencies = "".join(_dependency(*artifact, _NOTHING_ELSE) for artifact in SPARK_CONNECTOR)
    return sorted(_fetched(f"spark-connector-{SPARK_CONNECTOR[0][2]}", _project(dependencies)).glob("*.jar"))


def _fetched(name: str, pom: str) -> Path:
    if (problem := java_problem()) is not None:
        raise JavaMissing(problem)
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache_home / "aiokafka_lite" / name
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        project = Path(scratch) / "pom.xml"
        project.write_text(pom)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={scratch}/jars"]
        run_to_end(["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(project), *goal])
        for pattern in ("slf4j-reload4j-*.jar", "slf4j-log4j12-*.jar", "log4j-slf4j-impl-*.jar"):
            for other_log_binding in (Path(scratch) / "jars").glob(pattern):
                other_log_binding.unlink()
        # Another run may have fetched the same jars meanwhile; either copy works.
        with contextlib.suppress(OSError):
            (Path(scratch) / "jars").rename(home)
    return home


def run_to_end(command: Sequence[str]) -> str:
    """Run the command and return its standard output; RuntimeError with all its output if it fails."""
    # Java decodes its arguments by the locale.
    spoken = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=spoken)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def _pom(version: str) -> str:
    scala = "2.13" if release(version) >= (2, 4) else "2.12"
    artifacts = [("org.apache.kafka", f"kafka_{scala}", version), ("org.slf4j", "slf4j-simple", "1.7.36")]
    if release(version) >= (3, 0):
        artifacts.append(("org.apache.kafka", "kafka-tools", version))
    # The tools module depends on Kafka Connect, which the tools used here do not need.
    exclusions = "".join(
        f"<exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-{part}</artifactId></exclusion>"
        for part in ("api", "json", "runtime", "transforms")
    )
    return _project("".join(_dependency(*artifact, exclusions) for artifact in artifacts))


_NOTHING_ELSE = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"


def _dependency(group: str, artifact: str, version: str, exclusions: str) -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>"
    )


def _project(dependencies: str) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def run_source(version: str, name: str, *arguments: str) -> str:
    """Run a program of ``tests/real/java`` with the jars of a release and return its standard output.

    Raises JavaMissing if Java is here without its compiler, and RuntimeError if the program fails.
    """
    home, java = jars(version), _java()
    if java is None or not (Path(java).resolve().parent / "javac").exists():
        raise JavaMissing("no Java compiler is installed")
    source = Path(__file__).parent / "java" / f"{name}.java"
    return run_to_end(java_command(home, str(source), *arguments, heap=256, quiet=True))


class JavaProcess:
    """One Java process. Its output is read until the line that says that it is ready."""

    def __init__(self, command: Sequence[str], ready: str, directory: Path) -> None:
        self._ready = ready
        self._settled = threading.Event()
        self._is_ready = False
        self._tail: list[str] = []
        # A test run that is killed takes its brokers with it, if the system has setpriv.
        dies_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self._process = subprocess.Popen(
            [*dies_with_us, *command],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._tail = [*self._tail[-40:], line]
            if self._ready in line:
                self._is_ready = True
                self._settled.set()
        self._settled.set()

    def wait_until_ready(self) -> None:
        self._settled.wait(START_TIMEOUT)
        if not self._is_ready:
            self.stop()
            raise RuntimeError("it did not start:\n" + "".join(self._tail))

    def send_signal(self, number: int) -> None:
        """Send it a signal; does nothing after it has ended."""
        self._process.send_signal(number)

    def stop(self, *, kill: bool = False) -> None:
        """End it, by SIGTERM or by SIGKILL, and wait until it has ended. Does nothing if it was stopped before."""
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Listener(NamedTuple):
    """One more port of a broker: its security protocol, and the host name that the broker advertises for it."""

    security_protocol: str
    host: str = "127.0.0.1"


class JvmKafka:
    """One broker of a given release on a free loopback port, with its data in a temporary directory.

    ``listeners`` are further ports by name; ``settings`` has their settings. ``users`` are SCRAM users with their
    passwords. ``options`` are options of Java, such as ``-Dname=value``.
    """

    def __init__(
        self,
        version: str,
        *,
        settings: dict[str, str] | None = None,
        listeners: Mapping[str, Listener] | None = None,
        users: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.version = version
        self.port = free_port()
        self.controller_port = free_port()
        self.ports = {name: free_port() for name in listeners or {}}
        self._listeners = listeners or {}
        self._users = users or {}
        self._settings = settings or {}
        self._options = options
        self._directory: Path | None = None
        self._processes: list[JavaProcess] = []
        self._jars = jars(version)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> JvmKafka:
        self._directory = Path(tempfile.mkdtemp(prefix=f"kafka-{self.version}-"))
        try:
            if needs_zookeeper(self.version):
                self._start_with_zookeeper(self._directory)
            else:
                self._start_kraft(self._directory)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop without a clean shutdown, which takes longer, because the data is removed as well."""
        for process in reversed(self._processes):
            process.stop(kill=True)
        self._processes.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        return run_tool(self.version, name, self.bootstrap_servers, *arguments, stdin=stdin)

    def _start_kraft(self, directory: Path) -> None:
        controller = f"127.0.0.1:{self.controller_port}"
        properties = write_properties(
            directory / "server.properties",
            {
                "node.id": "1",
                "process.roles": "broker,controller",
                **self._bound(f"CONTROLLER://{controller}"),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@{controller}",
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
                **self._common(directory),
            },
        )
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(properties)]
        for mechanism, name, password in self._credentials():
            arguments += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
        run_to_end(self._command("kafka.tools.StorageTool", *arguments, heap=256))
        self._launch(directory, properties)

    def _start_with_zookeeper(self, directory: Path) -> None:
        process, keeper = start_zookeeper(self._jars, directory)
        self._processes.append(process)
        properties = write_properties(
            directory / "server.properties",
            {
                "broker.id": "1",
                **self._bound(),
                "zookeeper.connect": keeper,
                "zookeeper.connection.timeout.ms": "30000",
                **self._common(directory),
            },
        )
        for name, password in self._users.items():
            added = ",".join(f"{mechanism}=[password={password}]" for mechanism in SCRAM_MECHANISMS)
            entity = ["--entity-type", "users", "--entity-name", name]
            configs = ["--zookeeper", keeper, "--alter", *entity, "--add-config", added]
            run_to_end(self._command(_tool_class(self._jars, "configs"), *configs, heap=256))
        self._launch(directory, properties)

    def _bound(self, *controllers: str) -> dict[str, str]:
        """Return the ports, their security protocols, and the addresses that clients get."""
        bound = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        bound += [f"{name}://127.0.0.1:{self.ports[name]}" for name in self._listeners]
        told = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        told += [f"{name}://{listener.host}:{self.ports[name]}" for name, listener in self._listeners.items()]
        spoken = ["PLAINTEXT:PLAINTEXT", *("CONTROLLER:PLAINTEXT" for _ in controllers)]
        spoken += [f"{name}:{listener.security_protocol}" for name, listener in self._listeners.items()]
        return {
            "listeners": ",".join([*bound, *controllers]),
            "advertised.listeners": ",".join(told),
            "listener.security.protocol.map": ",".join(spoken),
        }

    def _credentials(self) -> Iterator[tuple[str, str, str]]:
        for name, password in self._users.items():
            for mechanism in SCRAM_MECHANISMS:
                yield mechanism, name, password

    def _common(self, directory: Path) -> dict[str, str]:
        return {
            "log.dirs": str(directory / "log"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "group.streams.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2097152",
            **NOTHING_EXPIRES,
            **self._settings,
        }

    def _command(self, main_class: str, *arguments: str, heap: int) -> list[str]:
        return java_command(self._jars, main_class, *arguments, heap=heap)

    def _launch(self, directory: Path, properties: Path) -> None:
        command = self._command("kafka.Kafka", str(properties), heap=HEAP_MEGABYTES)
        command[1:1] = self._options
        process = JavaProcess(command, ready_line(self.version, 1), directory)
        self._processes.append(process)
        try:
            process.wait_until_ready()
        except RuntimeError as error:
            raise RuntimeError(f"Kafka {self.version}: {error}") from None


def needs_zookeeper(version: str) -> bool:
    """Return whether brokers of this release run beside a ZooKeeper here."""
    return release(version) < (3, 7)


def ready_line(version: str, node_id: int) -> str:
    """Return the log line of a broker that is ready."""
    return f"[KafkaServer id={node_id}] started" if needs_zookeeper(version) else "Kafka Server started"


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def start_zookeeper(home: Path, directory: Path) -> tuple[JavaProcess, str]:
    """Start a ZooKeeper from a release's jars, with its data in ``directory``. Returns its process and its address."""
    port = free_port()
    properties = write_properties(
        directory / "zookeeper.properties",
        {
            "dataDir": str(directory / "zookeeper"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "tickTime": "1000",  # the shortest session that it grants is twice as long
        },
    )
    command = java_command(home, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(properties), heap=128)
    process = JavaProcess(command, "binding to port", directory)
    process.wait_until_ready()
    return process, f"127.0.0.1:{port}"


def run_tool(version: str, name: str, bootstrap_servers: str, *arguments: str, stdin: str = "") -> str:
    """Run one of a Kafka release's own tools against any broker and return its standard output; RuntimeError if it
    fails."""
    home = jars(version)
    is_old = name == "console-producer" and release(version) < (2, 5)
    option = "--broker-list" if is_old or name == "transactional-message-copier" else "--bootstrap-server"
    words = (option, bootstrap_servers, *arguments, *PATIENCE.get(name, ()))
    command = java_command(home, _tool_class(home, name), *words, heap=256, quiet=True)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} of Kafka {version} failed with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


@cache
def _tool_class(home: Path, name: str) -> str:
    present = {entry for jar in home.glob("kafka*.jar") for entry in zipfile.ZipFile(jar).namelist()}
    for candidate in _TOOLS[name]:
        if candidate.replace(".", "/") + ".class" in present:
            return candidate
    raise LookupError(f"no {name} among {home}")


def java_command(home: Path, main_class: str, *arguments: str, heap: int, quiet: bool = False) -> list[str]:
    """Return the command line that runs a class of a release's jars. ``heap`` is in megabytes."""
    java = _java()
    if java is None:
        raise JavaMissing("no java is installed")
    log = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"] if quiet else _LOG_TO_STDOUT
    return [
        java,
        f"-Xmx{heap}m",
        *_SMALL_JVM,
        "-Dzookeeper.jmx.log4j.disable=true",  # ZooKeeper 3.4 looks for log4j, which is replaced here
        *log,
        "-cp",
        f"{home}/*",
        main_class,
        *arguments,
    ]


def main() -> None:
    """Run the command line: ``python -m tests.real.jvm jars 4.3.1`` prints where the jars are, ``connector``
    those of Spark's connector, ``run 2.8.2`` runs a broker until Enter."""
    import sys

    match sys.argv[1:]:
        case ["jars", version]:
            print(jars(version))
        case ["connector"]:
            print(*connector_jars(), sep=",")
        case ["run", version]:
            broker = JvmKafka(version).start()
            with contextlib.suppress(EOFError, KeyboardInterrupt):
                input(f"{broker.bootstrap_servers}; Enter stops it\n")
            broker.stop()
        case _:
            sys.exit(main.__doc__)


if __name__ == "__main__":
    main()
