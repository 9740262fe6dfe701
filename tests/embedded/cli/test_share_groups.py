"""``share-groups``: a group is listed, described, moved and deleted."""

from __future__ import annotations

import pytest

from aiokafka_lite import Admin, Producer, ShareConsumer
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine


def test_a_share_group_is_shown_moved_and_deleted(cli: CommandLine, server: EmbeddedKafkaServer) -> None:
    async def consume() -> ShareConsumer:
        servers = server.bootstrap_servers
        changes = {ConfigResource.group("billing"): {"share.auto.offset.reset": "earliest"}}
        async with Admin(servers) as admin, Producer(servers) as producer:
            (await admin.configs.alter(changes)).raise_for_errors()
            await producer.send("orders", b"one")
        consumer = ShareConsumer(servers, topics=["orders"], group_id="billing")
        await consumer.start()
        await anext(consumer)
        await consumer.commit()
        return consumer

    def lag() -> int:
        return sum(object_["lag"] or 0 for object_ in cli.objects("share-groups", "describe", "billing"))

    consumer = server.call(consume)
    try:
        (member,) = cli.objects("share-groups", "describe", "billing", "--members")
        assert member["consumer_id"] == consumer.member_id
        (state,) = cli.objects("share-groups", "describe", "--all", "--state")
        assert (state["state"], state["members"]) == ("Stable", 1)
        assert "NON_EMPTY_GROUP" in cli.fails("share-groups", "reset-offsets", "billing", "--to", "earliest")
    finally:
        server.call(consumer.close)
    assert cli.rows("share-groups", "list") == [["billing", "Empty"]]
    assert lag() == 0
    cli.ask("share-groups", "reset-offsets", "billing", "--topic", "orders", "--to", "earliest", "--execute")
    assert lag() == 1
    cli.ask("share-groups", "delete", "billing")
    assert "there is no group 'billing'" in cli.fails("share-groups", "describe", "billing")


def test_printed_records_are_accepted_and_others_are_released(cli: CommandLine, server: EmbeddedKafkaServer) -> None:
    async def write() -> None:
        changes = {ConfigResource.group("printers"): {"share.auto.offset.reset": "earliest"}}
        async with Admin(server.bootstrap_servers) as admin, Producer(server.bootstrap_servers) as producer:
            (await admin.configs.alter(changes)).raise_for_errors()
            await producer.send_many("jobs", [b"one", b"two", b"three"])

    server.call(write)
    consume = ("consume", "jobs", "--share", "--group", "printers", "--max-messages")
    assert cli.ask(*consume, "2") == "one\ntwo\n"
    assert cli.ask(*consume, "1", "--format", "%t-%p:%o %s") == "jobs-0:2 three"


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["jobs"], "--share requires --group"),
        (["--group", "printers"], "--share requires topics"),
        (["jobs", "--group", "printers", "--from", "earliest", "--until", "end"], "--share excludes --from, --until: "),
    ],
)
def test_options_that_a_share_group_lacks_are_refused(cli: CommandLine, arguments: list[str], problem: str) -> None:
    assert problem in cli.fails("consume", "--share", *arguments, status=2)
