"""Which Apache Kafka the tests run on, and by what means: given, in a container, or as a plain Java process."""

from __future__ import annotations

import os
from typing import Protocol

import pytest

from aiokafka_lite.testing.containers import EngineMissing, KafkaContainer, engine_problem, without_reaper
from tests.real.jvm import JavaMissing, JvmKafka, java_problem, release, run_tool

MATRIX = ("4.3.1", "4.1.1", "4.0.1", "3.9.1", "3.3.2", "2.8.2", "2.4.1", "1.1.1")
NEWEST = MATRIX[0]
DEFAULT = (NEWEST, "2.8.2", "1.1.1")
IN_CI = os.environ.get("CI") == "true"

_FIRST_PUBLIC_IMAGE = (3, 7)


class Server(Protocol):
    """A running broker of a known release."""

    @property
    def bootstrap_servers(self) -> str: ...

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str: ...

    def stop(self) -> None: ...


class Unavailable(RuntimeError):
    """This release cannot be run on this machine; the message says why."""


def wanted(option: str) -> list[str]:
    """The brokers that ``--kafka`` asks for: ``embedded``, ``given`` (by KAFKA_BOOTSTRAP), and releases."""
    if option == "default":
        return ["embedded", "given"] if "KAFKA_BOOTSTRAP" in os.environ else ["embedded", *DEFAULT]
    if option == "all":
        return ["embedded", *MATRIX]
    return option.split(",")


class GivenKafka:
    """The broker that KAFKA_BOOTSTRAP names. It belongs to somebody: it is neither started nor stopped here."""

    bootstrap_servers = os.environ.get("KAFKA_BOOTSTRAP", "")

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        return run_tool(NEWEST, name, self.bootstrap_servers, *arguments, stdin=stdin)

    def stop(self) -> None:
        pass


class Servers:
    """Starts each broker when the first test asks for it; one runs at a time, which small machines are grateful for."""

    def __init__(self) -> None:
        self._current: tuple[str, Server, str] | None = None
        self._problems: dict[str, Unavailable] = {}
        self.used: list[str] = []

    @property
    def problems(self) -> list[str]:
        return [f"{name}: {problem}" for name, problem in self._problems.items()]

    def get(self, name: str) -> tuple[Server, str]:
        """The server of that name and its kind (``given``, ``container`` or ``jvm``); Unavailable says why not."""
        if name in self._problems:
            raise self._problems[name]
        if self._current is not None and self._current[0] == name:
            return self._current[1:]
        self.stop()
        try:
            server, kind = self._start(name)
        except Unavailable as problem:
            self._problems[name] = problem
            raise
        self._current = (name, server, kind)
        self.used.append(f"{name} ({kind})")
        return server, kind

    def stop(self) -> None:
        if self._current is not None:
            self._current[1].stop()
            self._current = None

    def _start(self, name: str) -> tuple[Server, str]:
        if name == "given":
            return GivenKafka(), "given"
        no_container = _container_problem(name)
        if no_container is None:
            return _container(name), "container"
        if IN_CI and name == NEWEST:
            raise Unavailable(no_container)
        try:
            return JvmKafka(name).start(), "jvm"
        except JavaMissing as no_java:
            raise Unavailable(f"{no_container}; {no_java}") from None


def _container_problem(version: str) -> str | None:
    if release(version) < _FIRST_PUBLIC_IMAGE:
        return "this release has no public image"
    if (problem := engine_problem()) is not None:
        return problem
    # Only the newest is worth a download where Java can run the others from jars.
    if version != NEWEST and java_problem() is None and not _has_image(version):
        return f"the image apache/kafka:{version} is not here"
    return None


def _has_image(version: str) -> bool:
    import docker
    from docker.errors import ImageNotFound

    client = docker.from_env()
    try:
        client.images.get(f"apache/kafka:{version}")
    except ImageNotFound:
        return False
    finally:
        client.close()
    return True


def _container(version: str) -> Server:
    without_reaper()
    try:
        return KafkaContainer(f"apache/kafka:{version}").start()
    except EngineMissing as error:
        raise Unavailable(str(error)) from error


SERVERS = pytest.StashKey[list[Servers]]()
"""Where a test run keeps the brokers that it started, for the line about them at its end."""
