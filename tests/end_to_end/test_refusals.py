"""Permissions and users that are removed and added again under clients at work, on both brokers.

The embedded broker has a matrix of all momentary errors (``tests/embedded/momentary``). Here are the important ones on
Apache Kafka 4.3.1: nothing momentary is final, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest

from aiokafka_lite.admin import AclBinding, AclFilter, AclOperation, AclResourceType, Admin, NewTopic
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, AuthorizationError, KafkaError
from aiokafka_lite.group import MemberState
from aiokafka_lite.producer import Producer
from aiokafka_lite.testing.containers import EngineMissing, KafkaContainer, without_reaper
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import missing
from tests.real.kafka_servers import image
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

LOGIN_PORT = "9095"
SESSION = 3.0
"""Seconds after which a login has to be renewed, so that a user who is removed is refused soon."""

RECOVERS = 60.0
_numbers = count(1)
MECHANISM, USER, PASSWORD = "SCRAM-SHA-256", "alice", "alice-password"

pytestmark = pytest.mark.long


class Brokers(NamedTuple):
    """The addresses of a super user without a login, and of users with one."""

    super_user: str
    login: str

    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.login,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_username": USER,
            "sasl_password": PASSWORD,
            "metadata_max_age": 1.0,
        }


@pytest.fixture(scope="module")
def container() -> Iterator[Brokers]:
    """Apache Kafka with ACLs and SCRAM."""
    without_reaper()
    name, port = image(NEWEST), free_port()
    assert name is not None
    try:
        kafka = KafkaContainer(name)
    except EngineMissing as problem:
        missing(str(problem))
    for variable, value in {
        "LISTENERS": f"PLAINTEXT://:9092,TOOLS://:19092,CONTROLLER://:9093,LOGIN://:{LOGIN_PORT}",
        "ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{kafka.port},TOOLS://localhost:19092,LOGIN://127.0.0.1:{port}",
        "LISTENER_SECURITY_PROTOCOL_MAP": (
            "PLAINTEXT:PLAINTEXT,TOOLS:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT"
        ),
        "SASL_ENABLED_MECHANISMS": MECHANISM,
        "LISTENER_NAME_LOGIN_SCRAM___SHA___256_SASL_JAAS_CONFIG": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "CONNECTIONS_MAX_REAUTH_MS": str(round(SESSION * 1000)),
        "AUTHORIZER_CLASS_NAME": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "SUPER_USERS": "User:ANONYMOUS",
    }.items():
        kafka.with_env(f"KAFKA_{variable}", value)
    kafka.ports[LOGIN_PORT] = ("127.0.0.1", port)
    with kafka:
        yield Brokers(kafka.bootstrap_servers, f"127.0.0.1:{port}")


@pytest.fixture(params=["embedded", pytest.param(NEWEST, marks=pytest.mark.real)])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[Brokers]:
    if request.param != "embedded":
        yield request.getfixturevalue("container")
        return
    security = Security(["PLAINTEXT", "SASL_PLAINTEXT"], users={USER: PASSWORD}, mechanisms=[MECHANISM])
    configs = {"connections.max.reauth.ms": str(round(SESSION * 1000))}
    async with EmbeddedCluster(1, security=security, super_users=["User:ANONYMOUS"], configs=configs) as cluster:
        settings = cluster.client_settings(protocol="SASL_PLAINTEXT")
        yield Brokers(cluster.client_settings(protocol="PLAINTEXT")["bootstrap_servers"], settings["bootstrap_servers"])


def permissions(topics: list[str], group: str) -> dict[str, list[AclBinding]]:
    both = (AclOperation.READ, AclOperation.WRITE)
    granted = {
        name: [AclBinding(AclResourceType.TOPIC, name, f"User:{USER}", operation) for operation in both]
        for name in topics
    }
    granted[group] = [AclBinding(AclResourceType.GROUP, group, f"User:{USER}", AclOperation.READ)]
    return granted


class Work:
    """A producer and a member of a group at work on two topics: what was acknowledged, read, and raised."""

    def __init__(self, topics: list[str], producer: Producer, consumer: Consumer) -> None:
        self.errors: list[KafkaError] = []
        self.acknowledged: set[bytes] = set()
        self.read: Counter[bytes] = Counter()
        self._topics, self._producer, self._consumer = topics, producer, consumer
        self._number = 0

    async def go_on(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await self._step()

    async def go_on_until(self, condition: Callable[[], bool]) -> None:
        """Work until the condition holds. A busy machine needs more time for it than usual."""
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await self._step()

    def has_raised(self, kind: type[KafkaError]) -> bool:
        return any(isinstance(error, kind) for error in self.errors)

    async def _step(self) -> None:
        for topic in self._topics:
            self._number += 1
            value = b"%d" % self._number
            try:
                await self._producer.send(topic, value)
                self.acknowledged.add(value)
            except KafkaError as error:
                self.errors.append(error)
        await self._poll()

    async def _poll(self) -> None:
        try:
            for record in await self._consumer.poll(timeout=0.2):
                self.read[record.value or b""] += 1
        except KafkaError as error:
            self.errors.append(error)
            await asyncio.sleep(0.1)

    async def recover(self) -> None:
        """Work until nothing is raised for a second, and everything acknowledged is read."""
        async with asyncio.timeout(RECOVERS):
            while True:
                self.errors.clear()
                await self.go_on(1.0)
                if not self.errors:
                    break
            while not self.acknowledged <= self.read.keys():
                await self._poll()


@pytest.fixture(params=["classic", "consumer"])
async def work(request: pytest.FixtureRequest, brokers: Brokers) -> AsyncIterator[tuple[Work, Admin, Consumer, Any]]:
    protocol = request.param
    number = next(_numbers)
    topics, group = [f"a-{number}", f"b-{number}"], f"group-{number}"
    granted = permissions(topics, group)
    async with Admin(brokers.super_user) as admin:
        (await admin.topics.create([NewTopic(name, 1, 1) for name in topics])).raise_for_errors()
        (await admin.users.set_passwords({USER: PASSWORD}, mechanism=MECHANISM)).raise_for_errors()
        (await admin.acls.create([binding for of_one in granted.values() for binding in of_one])).raise_for_errors()
        settings = brokers.settings()
        member = {"group_id": group, "group_protocol": protocol, "auto_commit_interval": 0.5}
        if protocol == "classic":
            member["heartbeat_interval"] = 0.5
        async with (
            Producer(**settings, delivery_timeout=20.0) as producer,
            Consumer(topics=topics, **settings, **member) as consumer,
        ):
            working = Work(topics, producer, consumer)
            await working.recover()
            yield working, admin, consumer, granted


@pytest.mark.parametrize("what", ["topic", "group"])
async def test_a_permission_that_is_gone_for_seconds_ends_nothing(work: Any, what: str) -> None:
    working, admin, consumer, granted = work
    bindings = list(granted.values())[1 if what == "topic" else 2]
    for binding in bindings:
        await admin.acls.delete([AclFilter(binding.resource_type, binding.resource_name)])
    await working.go_on(SESSION)
    if what == "topic":
        await working.go_on_until(lambda: working.has_raised(AuthorizationError))
    await working.go_on_until(lambda: any("AUTHORIZATION_FAILED" in problem for problem in consumer.health().problems))
    assert consumer.health().is_live
    (await admin.acls.create(bindings)).raise_for_errors()
    await working.recover()
    assert consumer.membership is MemberState.STABLE
    assert consumer.health().is_live


async def test_a_user_that_is_gone_for_seconds_ends_nothing(work: Any) -> None:
    working, admin, consumer, _ = work
    (await admin.users.remove([USER], mechanism=MECHANISM)).raise_for_errors()
    await working.go_on(3 * SESSION)
    await working.go_on_until(lambda: working.has_raised(AuthenticationError))
    await working.go_on_until(lambda: not consumer.health().is_ready)
    assert consumer.health().is_live
    (await admin.users.set_passwords({USER: PASSWORD}, mechanism=MECHANISM)).raise_for_errors()
    await working.recover()
    assert consumer.health().is_live
