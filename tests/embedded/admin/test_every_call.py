"""Every public coroutine of the families of ``Admin``, cancelled at every turn of the event loop that it takes.

Whether the cancelled call reached the broker or not, the next one works, and no task is left. The calls about groups
and transactions have tests of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.acls import AclBinding, AclFilter, AclOperation, AclResourceType
from aiokafka_lite.admin import (
    Acls,
    Admin,
    Cluster,
    ConfigResource,
    Configs,
    FeatureChange,
    Leaders,
    LogDirs,
    NewTopic,
    OffsetsOfPartitions,
    OffsetSpec,
    QuotaEntity,
    Quotas,
    Reassignments,
    Records,
    Replica,
    Tokens,
    Topics,
    Users,
)
from aiokafka_lite.admin.results import Results
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import BrokerError
from aiokafka_lite.types import TopicPartition
from tests.cancelling import at_every_turn, public_coroutines, until_no_other_tasks

ORDERS = ConfigResource.topic("orders")
FIRST = TopicPartition("orders", 0)
ANN = QuotaEntity(user="ann")
READ = AclBinding(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
SECURITY = Security("SASL_PLAINTEXT", users={"alice": "a"}, mechanisms=["PLAIN"])

Call = Callable[[Admin], Awaitable[Any]]

FAMILIES = (
    Acls,
    Cluster,
    Configs,
    Leaders,
    LogDirs,
    OffsetsOfPartitions,
    Quotas,
    Reassignments,
    Records,
    Topics,
    Users,
)
INTERNAL = {"OffsetsOfPartitions.look_up"}
"""A step of other calls."""


async def new_topic(admin: Admin) -> None:
    await admin.topics.delete("new")


async def known_user(admin: Admin) -> None:
    await admin.users.set_passwords({"ann": "secret"})


async def known_binding(admin: Admin) -> None:
    await admin.acls.create(READ)


async def leader_of_quorum(admin: Admin) -> int:
    return (await admin.cluster.quorum()).leader


CALLS: dict[str, tuple[Call | None, Call]] = {
    "Acls.create": (lambda admin: admin.acls.delete(AclFilter()), lambda admin: admin.acls.create(READ)),
    "Acls.delete": (known_binding, lambda admin: admin.acls.delete(AclFilter())),
    "Acls.describe": (known_binding, lambda admin: admin.acls.describe()),
    "Cluster.api_versions": (None, lambda admin: admin.cluster.api_versions()),
    "Cluster.describe": (None, lambda admin: admin.cluster.describe()),
    "Cluster.features": (None, lambda admin: admin.cluster.features()),
    "Cluster.quorum": (None, leader_of_quorum),
    "Cluster.update_features": (
        None,
        lambda admin: admin.cluster.update_features(
            {"transaction.version": 1}, change=FeatureChange.SAFE_DOWNGRADE, validate_only=True
        ),
    ),
    "Configs.alter": (None, lambda admin: admin.configs.alter({ORDERS: {"retention.ms": "5000"}})),
    "Configs.describe": (None, lambda admin: admin.configs.describe(ORDERS)),
    "Configs.list": (None, lambda admin: admin.configs.list()),
    "Leaders.elect": (None, lambda admin: admin.leaders.elect([FIRST])),
    "LogDirs.alter": (None, lambda admin: admin.log_dirs.alter({Replica(FIRST, 1): "/missing"})),
    "LogDirs.describe": (None, lambda admin: admin.log_dirs.describe(partitions=[FIRST])),
    "OffsetsOfPartitions.ends_of_epochs": (None, lambda admin: admin.offsets.ends_of_epochs({FIRST: 0})),
    "OffsetsOfPartitions.list": (None, lambda admin: admin.offsets.list({FIRST: OffsetSpec.LATEST})),
    "Quotas.alter": (None, lambda admin: admin.quotas.alter({ANN: {"consumer_byte_rate": 5000.0}})),
    "Quotas.describe": (None, lambda admin: admin.quotas.describe(user="ann")),
    "Reassignments.alter": (None, lambda admin: admin.reassignments.alter({FIRST: [1, 2, 3]})),
    "Reassignments.list": (None, lambda admin: admin.reassignments.list()),
    "Records.delete": (None, lambda admin: admin.records.delete({FIRST: 2})),
    "Topics.add_partitions": (None, lambda admin: admin.topics.add_partitions({"orders": 5}, validate_only=True)),
    "Topics.create": (new_topic, lambda admin: admin.topics.create(NewTopic("new", 1))),
    "Topics.delete": (lambda admin: admin.topics.create("new"), lambda admin: admin.topics.delete("new")),
    "Topics.describe": (None, lambda admin: admin.topics.describe("orders")),
    "Topics.list": (None, lambda admin: admin.topics.list()),
    "Users.describe": (known_user, lambda admin: admin.users.describe("ann")),
    "Users.remove": (known_user, lambda admin: admin.users.remove("ann")),
    "Users.set_passwords": (None, lambda admin: admin.users.set_passwords({"ann": "secret"})),
}
"""What each call needs before, and the call."""


def plain(result: Any) -> object:
    """Return a result that can be compared: an error and a topic's id are new in each one."""
    if not isinstance(result, Results):
        return result
    return [(key, getattr(value, "name", value)) for key, value in result.done.items()], list(result.failed)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers that keep ACLs, with a topic of three records."""
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, super_users=["User:ANONYMOUS"]) as cluster:
        await cluster.create_topic("orders", 1, 3)
        for _ in range(3):
            await cluster.produce("orders", b"x")
        yield cluster


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_cancelled_can_be_repeated(admin: Admin, name: str) -> None:
    prepare, call = CALLS[name]

    async def before() -> None:
        await asyncio.sleep(1.0)  # refreshes of the metadata have a pace, and turns take no time
        if prepare is not None:
            await prepare(admin)

    await before()
    expected = plain(await call(admin))  # all connections are open now
    tasks = asyncio.all_tasks()
    results = await at_every_turn(lambda: call(admin), before)
    assert plain(results[-1]) == expected
    await before()
    assert plain(await call(admin)) == expected
    await until_no_other_tasks(tasks)


async def test_a_broker_is_unregistered_after_a_cancelled_call(cluster: EmbeddedCluster, admin: Admin) -> None:
    await cluster.stop(3)
    tasks = asyncio.all_tasks()

    async def unregister() -> None:
        with suppress(BrokerError):  # a cancelled call has done it
            await admin.cluster.unregister_broker(3)

    assert await at_every_turn(unregister, pause=0.1)
    assert (await admin.cluster.describe(include_fenced=True)).fenced == ()
    await until_no_other_tasks(tasks)


async def test_a_call_about_tokens_that_is_cancelled_can_be_repeated() -> None:
    secret = {"delegation.token.secret.key": "secret"}
    async with EmbeddedCluster(1, tcp=False, security=SECURITY, super_users=["User:alice"], configs=secret) as cluster:
        settings = cluster.client_settings("alice", mechanism="PLAIN")
        async with Admin(**settings) as admin:
            token = await admin.tokens.create(lifetime=7200)
            tasks = asyncio.all_tasks()
            assert await at_every_turn(lambda: admin.tokens.renew(token.hmac, period=60))
            assert all(map(len, await at_every_turn(lambda: admin.tokens.describe())))
            created = await at_every_turn(lambda: admin.tokens.create(lifetime=60))
            await admin.tokens.expire(created[-1].hmac)
            for token in await admin.tokens.describe():
                await admin.tokens.expire(token.hmac)
            assert await admin.tokens.describe() == ()
            await until_no_other_tasks(tasks)


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(*FAMILIES) - INTERNAL == {*CALLS, "Cluster.unregister_broker"}
    assert public_coroutines(Tokens) == {f"Tokens.{name}" for name in ("create", "describe", "expire", "renew")}
