"""With ACLs, the embedded broker answers each API as Apache Kafka 4.3.1 does, from no permission to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from aiokafka_lite.acls import AclFilter, AclResourceType
from aiokafka_lite.admin import AclBinding, Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.embedded.settings.versions import KAFKA_RELEASES
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.testing.containers import EngineMissing, KafkaContainer, without_reaper
from aiokafka_lite.testing.ports import free_port
from tests.embedded.broker.permissions import COMMIT, NAMES, ROWS, Row, name_of
from tests.end_to_end.conftest import missing
from tests.end_to_end.differential.compared_brokers import Side, comparable, differences
from tests.end_to_end.differential.scenario_run import Excuse, is_excused
from tests.end_to_end.test_differential import EXCEPTIONS
from tests.real.kafka_servers import image
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.real, pytest.mark.long]

LOGIN_PORT = "9095"
ALICE = "User:alice"
UNANSWERED = (m.DescribeUserScramCredentialsRequest, m.ApiVersionsRequest)
"""Kafka sends no answer to the first without permission; the second has no permissions, and lists other APIs."""
EXCUSES = (
    *EXCEPTIONS,
    Excuse(r"DescribeConfigs\..*", "the two brokers have different settings"),
    Excuse(r"DescribeLogDirs\..*\.partition_size", "markers and offsets have other sizes"),
    Excuse(r"ShareGroupHeartbeat\.(member_epoch|assignment.*)", "Kafka assigns partitions a second after the join"),
    Excuse(r"ShareGroupDescribe\.groups.*", "only a member with partitions needs the permission for its topics"),
    Excuse(r"DescribeQuorum\.nodes.*", "the two have controllers at other addresses"),
)


@pytest.fixture(scope="module")
def container() -> Iterator[tuple[str, str]]:
    """Apache Kafka with ACLs: the addresses of a super user without a login, and of users with one."""
    without_reaper()
    name, port = image(NEWEST), free_port()
    assert name is not None
    try:
        kafka = KafkaContainer(name)
    except EngineMissing as problem:
        missing(str(problem))
    logins = ' user_alice="alice";'
    for variable, value in {
        "LISTENERS": f"PLAINTEXT://:9092,TOOLS://:19092,CONTROLLER://:9093,LOGIN://:{LOGIN_PORT}",
        "ADVERTISED_LISTENERS": (
            f"PLAINTEXT://127.0.0.1:{kafka.port},TOOLS://localhost:19092,LOGIN://127.0.0.1:{port}"
        ),
        "LISTENER_SECURITY_PROTOCOL_MAP": (
            "PLAINTEXT:PLAINTEXT,TOOLS:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT"
        ),
        "SASL_ENABLED_MECHANISMS": "PLAIN",
        "LISTENER_NAME_LOGIN_PLAIN_SASL_JAAS_CONFIG": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required{logins}"
        ),
        "AUTHORIZER_CLASS_NAME": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "SUPER_USERS": "User:ANONYMOUS",
    }.items():
        kafka.with_env(f"KAFKA_{variable}", value)
    kafka.ports[LOGIN_PORT] = ("127.0.0.1", port)
    with kafka:
        yield kafka.bootstrap_servers, f"127.0.0.1:{port}"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    security = Security(["PLAINTEXT", "SASL_PLAINTEXT"], users={"alice": "alice"}, mechanisms=["PLAIN"])
    configs = {"offsets.topic.num.partitions": "3"}
    async with EmbeddedCluster(1, security=security, super_users=["User:ANONYMOUS"], configs=configs) as cluster:
        yield cluster


async def test_each_api_answers_as_kafka_does_with_each_acl(
    cluster: EmbeddedCluster, container: tuple[str, str]
) -> None:
    by_login = cluster.client_settings("alice", protocol="SASL_PLAINTEXT")["bootstrap_servers"]
    without_login = cluster.client_settings(protocol="PLAINTEXT")["bootstrap_servers"]
    addresses = [(without_login, by_login), container]
    async with (
        Admin(addresses[0][0]) as first,
        Admin(addresses[1][0]) as second,
        Side("embedded", by_login, "alice") as embedded,
        Side("real", container[1], "alice") as real,
    ):
        admins = (first, second)
        differences = []
        await asyncio.gather(*(prepare(admin, servers) for admin, (servers, _) in zip(admins, addresses)))
        for row in ROWS:
            await in_force(admins, ())
            granted: list[AclBinding] = []
            for need in (None, *row.needs):
                if need is not None:
                    name = row.group if need[1] is AclResourceType.GROUP else NAMES[need[1]]
                    granted.append(AclBinding(need[1], name, ALICE, need[0]))
                    await in_force(admins, granted)
                elif isinstance(row.request, UNANSWERED):
                    continue
                differences += [
                    f"{name_of(row)} with {list(map(str, granted))}: {difference}"
                    for difference in await compare(row, embedded, real)
                ]
    assert not differences, "\n".join(differences)


async def prepare(admin: Admin, servers: str) -> None:
    """Make the topic, the group and the transactional id of the rows."""
    (await admin.topics.create("t")).raise_for_errors()
    async with Side("a super user", servers) as side, asyncio.timeout(DEADLINE):
        for kind, key in ((0, "g"), (1, "x")):
            find_coordinator = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            while (await side.ask(find_coordinator, 4)).coordinators[0].error_code:
                pass
        while (await side.ask(COMMIT, 9)).topics[0].partitions[0].error_code:
            pass
        while (
            await side.ask(m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 5)
        ).error_code:
            pass


async def in_force(admins: Sequence[Admin], acls: Sequence[AclBinding]) -> None:
    """Replace all ACLs, and wait until the brokers decide by the new ones."""
    for admin in admins:
        (await admin.acls.delete(AclFilter())).raise_for_errors()
        (await admin.acls.create(acls)).raise_for_errors()
        async with asyncio.timeout(DEADLINE):
            while set(await admin.acls.describe()) != set(acls):
                pass


async def compare(row: Row, embedded: Side, real: Side) -> list[Any]:
    """Return the differences between the two answers that no Excuse permits."""
    kind = type(row.request)
    newest = KAFKA_RELEASES[NEWEST][kind.api_key][1]
    version = min(newest, kind.versions.last) if row.version is None else row.version
    answers = [comparable(side, await side.try_to_ask(row.request, version)) for side in (embedded, real)]
    return [
        difference
        for difference in differences(kind.__name__.removesuffix("Request"), *answers)
        if not is_excused(difference, row.request, version, EXCUSES)
    ]
