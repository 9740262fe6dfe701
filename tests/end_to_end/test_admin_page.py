"""The examples on the page about administration, run as they are printed; only the address is the broker's."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import FunctionType

import pytest

from aiokafka_lite import Admin, EmbeddedCluster, ShareConsumer
from aiokafka_lite.admin import ConfigResource
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.test_admin import until
from tests.end_to_end.test_readme import until_it_prints
from tests.pure.documents import blocks

PAGE = Path(__file__).parents[2] / "docs" / "admin.md"


async def test_the_examples_of_the_page_run_one_after_the_other(
    kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    if kafka.speaks("2.3") and not kafka.speaks("2.5"):
        pytest.skip("Kafka 2.4 fails to append to a setting without a value")
    first, *others = [block.text for block in blocks(PAGE)]
    printed = await until_it_prints("too-wide failed", "-c", first.replace("localhost:9092", kafka.bootstrap_servers))
    assert "orders was created" in printed
    async with Admin(kafka.bootstrap_servers) as admin:
        for number, example in enumerate(others, 1):
            if "admin.transactions" in example and not kafka.speaks("3.0"):
                continue  # brokers describe transactions since Kafka 3.0
            if "admin.acls" in example or ("admin.users" in example and not kafka.speaks("2.7")):
                continue  # these brokers have no authorizer; users are there since Kafka 2.7
            if "admin.share_groups" in example:
                continue  # here is no share group
            names: dict[str, object] = {"admin": admin}
            code = compile(example, f"{PAGE.name}, example {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = FunctionType(code, names)()
            if inspect.isawaitable(running):
                await running

            async def has_six_leaders() -> bool:
                topic = (await admin.topics.describe("orders")).done.get("orders")
                return (
                    topic is not None and [partition.leader is not None for partition in topic.partitions] == [True] * 6
                )

            await until(has_six_leaders)

        async def is_compacted() -> bool:
            settings = (await admin.configs.describe(orders))[orders]
            return settings["cleanup.policy"].value == "delete,compact"

        orders = ConfigResource.topic("orders")
        await until(is_compacted)
        (await admin.topics.delete("orders")).raise_for_errors()
    printed = capsys.readouterr().out
    assert "orders,0,0" in printed


async def test_the_example_about_acls_runs_on_a_cluster_that_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [block.text for block in blocks(PAGE) if "admin.acls" in block.text]
    async with (
        EmbeddedCluster(brokers=1, super_users=["User:ANONYMOUS"]) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        names: dict[str, object] = {"admin": admin}
        await FunctionType(compile(example, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)()
        assert await admin.acls.describe() == ()
    assert capsys.readouterr().out == "ALLOW User:alice from * READ on TOPIC orders\n"


async def test_the_example_about_share_groups_runs_on_a_cluster_that_has_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = [block.text for block in blocks(PAGE) if "admin.share_groups" in block.text]
    async with EmbeddedCluster(brokers=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await cluster.create_topic("orders", partitions=1)
        async with ShareConsumer(cluster.bootstrap_servers, topics=["orders"], group_id="billing") as consumer:
            await consumer.poll(timeout=1.0)
        names: dict[str, object] = {"admin": admin}
        await FunctionType(compile(example, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)()
    assert "billing" in capsys.readouterr().out
