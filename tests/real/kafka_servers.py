"""The Apache Kafka that the tests run on: given by KAFKA_BOOTSTRAP, in a container, or as a plain Java process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from aiokafka_lite.testing.containers import EngineMissing, KafkaContainer, engine_problem, without_reaper
from tests.real.jvm import NOTHING_EXPIRES, PATIENCE, START_TIMEOUT, JavaMissing, JvmKafka, java_problem, run_tool
from tests.real.releases import NEWEST, release

IN_CI = os.environ.get("CI") == "true"

OWN_IMAGE = "aiokafka-lite/kafka"
"""The image that tests/real/image/build makes, tagged with the release. It is not Apache's image: it has its own
name."""
PUBLIC_IMAGE = "apache/kafka"
_FIRST_PUBLIC_IMAGE = (3, 7)


class Server(Protocol):
    """A running broker of a known release."""

    @property
    def bootstrap_servers(self) -> str: ...

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str: ...

    def stop(self) -> None: ...


class Unavailable(RuntimeError):
    """This machine cannot run this release. The message has the reason."""


class GivenKafka:
    """The broker that KAFKA_BOOTSTRAP names. The tests neither start nor stop it."""

    bootstrap_servers = os.environ.get("KAFKA_BOOTSTRAP", "")

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        return run_tool(NEWEST, name, self.bootstrap_servers, *arguments, stdin=stdin)

    def stop(self) -> None:
        pass


class PatientContainer(KafkaContainer):
    """A container whose start and whose tools may take long, because the machine is busy."""

    def __init__(self, image: str, settings: dict[str, str]) -> None:
        super().__init__(image, settings=settings, start_timeout=START_TIMEOUT)

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        return super().tool(name, *arguments, *PATIENCE.get(name, ()), stdin=stdin)


class Servers:
    """Starts each broker when a test first asks for it, with ``settings``. One runs at a time, to save memory."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**NOTHING_EXPIRES, **(settings or {})}
        self._current: tuple[str, Server, str] | None = None
        self._problems: dict[str, Unavailable] = {}
        self.used: list[str] = []

    @property
    def problems(self) -> list[str]:
        return [f"{name}: {problem}" for name, problem in self._problems.items()]

    def get(self, name: str) -> tuple[Server, str]:
        """Return the server of that name and its kind (``given``, ``container`` or ``jvm``); Unavailable says why
        not."""
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
            return _container(name, self._settings), "container"
        if IN_CI and name == NEWEST:
            raise Unavailable(no_container)
        try:
            return JvmKafka(name, settings=self._settings).start(), "jvm"
        except JavaMissing as no_java:
            raise Unavailable(f"{no_container}; {no_java}") from None


def image(version: str) -> str | None:
    """Return the image of a release: an image that this machine has, or, for the newest release, the public image,
    which is downloaded. None for another release if Java can run it from jars, which is the smaller download.
    """
    for name in (OWN_IMAGE, PUBLIC_IMAGE):
        if _has_image(f"{name}:{version}"):
            return f"{name}:{version}"
    return f"{PUBLIC_IMAGE}:{version}" if version == NEWEST or java_problem() is not None else None


def _container_problem(version: str) -> str | None:
    if release(version) < _FIRST_PUBLIC_IMAGE:
        return "this release has no public image"
    if (problem := engine_problem()) is not None:
        return problem
    return None if image(version) is not None else f"this machine has no image of Kafka {version}"


def _has_image(name: str) -> bool:
    import docker
    from docker.errors import ImageNotFound

    client = docker.from_env()
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    finally:
        client.close()
    return True


def _container(version: str, settings: dict[str, str]) -> Server:
    without_reaper()
    name = image(version)
    assert name is not None, "_container_problem has looked for it"
    try:
        return PatientContainer(name, settings).start()
    except EngineMissing as error:
        raise Unavailable(str(error)) from error
