"""``groups`` and ``quotas``: offsets and members are removed, quotas are set."""

from __future__ import annotations

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.admin import Admin
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine


def test_the_offsets_of_a_group_are_deleted(cli: CommandLine, server: EmbeddedKafkaServer) -> None:
    async def commit() -> None:
        await server.cluster.create_topic("orders", 3)
        async with Admin(server.bootstrap_servers) as admin:
            offsets = {TopicPartition("orders", number): 0 for number in range(3)}
            (await admin.groups.alter_offsets("billing", offsets)).raise_for_errors()

    def committed() -> list[str]:
        return [row[2] for row in cli.rows("groups", "describe", "billing")]

    server.call(commit)
    cli.ask("groups", "delete-offsets", "billing", "orders:1")
    assert committed() == ["0", "2"]
    cli.ask("groups", "delete-offsets", "billing", "orders", "--yes")
    assert "has no committed offsets in orders" in cli.fails("groups", "delete-offsets", "billing", "orders")


def test_a_member_is_removed_from_its_group(cli: CommandLine, server: EmbeddedKafkaServer) -> None:
    async def join() -> Consumer:
        async with Producer(server.bootstrap_servers) as producer:
            await producer.send("tasks", b"one")
        consumer = Consumer(
            server.bootstrap_servers, topics=["tasks"], group_id="workers", group_instance_id="worker-1"
        )
        await consumer.start()
        await anext(consumer)
        return consumer

    consumer = server.call(join)
    try:
        (member,) = cli.objects("groups", "describe", "workers", "--members")
        assert member["instance_id"] == "worker-1"
        assert "UNKNOWN_MEMBER_ID" in cli.fails("groups", "remove-member", "workers", "--member", "worker-2")
        cli.ask("groups", "remove-member", "workers", "--instance", "worker-1")
        assert member["consumer_id"] not in {
            object_["consumer_id"] for object_ in cli.objects("groups", "describe", "workers", "--members")
        }
    finally:
        server.call(consumer.close)
    assert "requires --member or --instance" in cli.fails("groups", "remove-member", "workers", status=2)


def test_a_member_of_the_consumer_protocol_shows_its_epoch_and_target(
    cli: CommandLine, server: EmbeddedKafkaServer
) -> None:
    async def join() -> Consumer:
        await server.cluster.create_topic("shipments", 2)
        consumer = Consumer(
            server.bootstrap_servers, topics=["shipments"], group_id="couriers", group_protocol="consumer"
        )
        await consumer.start()
        await consumer.wait_assigned()
        return consumer

    consumer = server.call(join)
    try:
        (member,) = cli.objects("groups", "describe", "couriers", "--members")
        (state,) = cli.objects("groups", "describe", "couriers", "--state")
    finally:
        server.call(consumer.close)
    assert member["assignment"] == member["target_assignment"] == "shipments(0,1)"
    assert (state["type"], state["epoch"]) == ("Consumer", member["epoch"])


def test_quotas_are_set_listed_and_removed(cli: CommandLine) -> None:
    cli.ask("quotas", "alter", "--user", "alice", "--set", "producer_byte_rate=1000", "--set", "request_percentage=5.5")
    cli.ask("quotas", "alter", "--user", "<default>", "--client-id", "reports", "--set", "consumer_byte_rate=7")
    assert cli.rows("quotas", "list") == [
        ["<default>", "reports", "-", "consumer_byte_rate", "7.0"],
        ["alice", "-", "-", "producer_byte_rate", "1000.0"],
        ["alice", "-", "-", "request_percentage", "5.5"],
    ]
    cli.ask("quotas", "alter", "--user", "alice", "--unset", "producer_byte_rate")
    assert cli.objects("quotas", "list", "--user", "alice") == [
        {"user": "alice", "client_id": None, "ip": None, "quota": "request_percentage", "value": 5.5}
    ]
    for options, message in (
        (("--set", "producer_byte_rate=1"), "requires --user, --client-id or --ip"),
        (("--user", "alice"), "requires --set or --unset"),
        (("--user", "alice", "--set", "x=1", "--unset", "x"), "x must not be both set and unset"),
        (("--user", "alice", "--set", "producer_byte_rate=fast"), "producer_byte_rate must be a number, got 'fast'"),
    ):
        assert message in cli.fails("quotas", "alter", *options, status=2)
