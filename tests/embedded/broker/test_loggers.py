"""Clients list and change the levels of a broker's loggers, which are Python's. Its end restores them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping

import pytest

from aiokafka_lite import Admin
from aiokafka_lite.admin import ConfigResource, ConfigResourceType
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.metadata.broker_loggers import LEVELS
from aiokafka_lite.errors import BrokerError, ErrorCode

LOGGERS = ConfigResource(ConfigResourceType.BROKER_LOGGER, "1")
ROOT = logging.getLogger("aiokafka_lite.embedded")
OF_CONTROLLER = logging.getLogger("aiokafka_lite.embedded.metadata.controller")


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with (
        EmbeddedCluster(brokers=2, tcp=False) as cluster,
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
    ):
        yield admin


async def levels(admin: Admin) -> Mapping[str, str | None]:
    described = (await admin.configs.describe([LOGGERS])).raise_for_errors()[LOGGERS]
    return {name: entry.value for name, entry in described.items()}


async def change(admin: Admin, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
    (await admin.configs.alter({LOGGERS: changes}, validate_only=validate_only)).raise_for_errors()


async def test_a_broker_lists_its_loggers_with_the_levels_in_force(admin: Admin) -> None:
    level_of = await levels(admin)
    assert {"root", OF_CONTROLLER.name} <= set(level_of)
    assert all(name == "root" or name.startswith("aiokafka_lite.embedded.") for name in level_of)
    assert level_of["root"] == "WARN"


async def test_a_level_is_set_is_inherited_and_is_removed(admin: Admin) -> None:
    await change(admin, {"root": "ERROR"})
    assert (ROOT.level, (await levels(admin))[OF_CONTROLLER.name]) == (logging.ERROR, "ERROR")
    await change(admin, {OF_CONTROLLER.name: "DEBUG"})
    assert OF_CONTROLLER.isEnabledFor(logging.DEBUG)
    assert (await levels(admin))[OF_CONTROLLER.name] == "DEBUG"
    await change(admin, {OF_CONTROLLER.name: None})
    assert (OF_CONTROLLER.level, (await levels(admin))[OF_CONTROLLER.name]) == (logging.NOTSET, "ERROR")


async def test_the_levels_are_restored_when_the_cluster_ends() -> None:
    before = [ROOT.level, OF_CONTROLLER.level]
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
            await change(admin, {"root": "TRACE", OF_CONTROLLER.name: "FATAL"})
        assert [ROOT.level, OF_CONTROLLER.level] != before
    assert [ROOT.level, OF_CONTROLLER.level] == before


@pytest.mark.parametrize("first", [0, 1])
async def test_the_levels_are_restored_when_the_last_cluster_that_changed_them_ends(first: int) -> None:
    before = ROOT.level
    clusters = [EmbeddedCluster(brokers=1, tcp=False) for _ in range(2)]
    for cluster, level in zip(clusters, ("DEBUG", "TRACE"), strict=True):
        await cluster.start()
        async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
            await change(admin, {"root": level})
    await clusters[first].close()
    assert ROOT.level == LEVELS["TRACE"]
    await clusters[1 - first].close()
    assert ROOT.level == before


async def test_a_check_changes_nothing(admin: Admin) -> None:
    before = await levels(admin)
    await change(admin, {"root": "DEBUG"}, validate_only=True)
    assert await levels(admin) == before


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"root": "LOUD"}, ErrorCode.INVALID_CONFIG),
        ({"root": "debug"}, ErrorCode.INVALID_CONFIG),
        ({"root": None}, ErrorCode.INVALID_REQUEST),
        ({"aiokafka_lite.net": "DEBUG"}, ErrorCode.INVALID_CONFIG),
        ({"root": "DEBUG", "no.such.logger": "DEBUG"}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_change_that_kafka_refuses_is_refused_as_a_whole(
    admin: Admin, changes: Mapping[str, str | None], code: ErrorCode
) -> None:
    before = await levels(admin)
    with pytest.raises(BrokerError) as refused:
        await change(admin, changes)
    assert refused.value.code is code
    assert await levels(admin) == before
