"""A program: every public call of every client in a forked process that runs its parent's event loop.

Prints one line of JSON for each call of the child: the object, the name, and the outcome. Then it prints what the
parent's calls returned afterwards, and the records in the log.
"""

# ruff: noqa: T201 - the test reads what these programs print

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from aiokafka_lite import (
    Admin,
    Consumer,
    ConsumerGroup,
    EmbeddedCluster,
    ExactlyOnce,
    Producer,
    Record,
    ShareConsumer,
    TopicPartition,
    Workers,
)
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka_lite.compat.aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka_lite.consumer import RebalanceListener
from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.group.offsets import Offsets
from aiokafka_lite.protocol.messages import ProduceRequest
from aiokafka_lite.schemas import Schema, SchemaRegistryClient
from aiokafka_lite.types import GroupMetadata

FIRST = TopicPartition("orders", 0)

# Facts that do not depend on the process, and the parts of the admin client, which are tried one by one.
HARMLESS = {
    "state",
    "is_final",
    "decoded",
    "config",
    "last_poll_timestamp",
    "max_poll_interval",
    "client_id",
    "auto_commit",
    "bootstrap_servers",
    "client_settings",
    "client",
    "topic_partition",
    "retry_topics",
}
# Functions that a group or a producer calls, not a program.
NO_CALLS = {
    *("setup", "consume_claim", "before_commit", "cleanup"),
    *("revoked", "lost", "create_batch", "add", "end", "batch_result"),
}
OFFSETS = {"commit", "commit_marked", "fetch", "mark", "reset"}  # the documented calls of ``Offsets``
FOR_ALL = {
    "partitions": [FIRST],
    "partition": FIRST,
    "topics": ["orders"],
    "topic": "orders",
    "names": ["orders"],
    "name": "orders",
    "value": b"x",
    "values": [b"x"],
    "records": None,
    "record": None,
    "offset": 0,
    "offsets": {FIRST: 0},
    "timestamps": {FIRST: 0},
    "listener": RebalanceListener(),
    "node": 1,
    "number": 0,
    "request": ProduceRequest,
    "last": 9,
    "level": 1,
    "seconds": 1.0,
    "isr": [1],
    "subject": "orders-value",
    "schema": Schema('"string"'),
    "schema_id": 1,
    "guid": "0" * 32,
    "version": 1,
    "mode": "READWRITE",
    "groups": ["billing"],
    "group": "billing",
    "group_metadata": GroupMetadata("billing", 1, "member", None),
    "group_id": "billing",
}
FOR_ONE: dict[str, dict[str, Any]] = {
    "Producer.send_many": {"values": [b"x"]},
    "SchemaRegistryClient.set_compatibility": {"level": "NONE"},
    "AIOKafkaProducer.send": {"value": b"x"},
    "AIOKafkaProducer.send_and_wait": {"value": b"x"},
    "AIOKafkaProducer.send_offsets_to_transaction": {"group_id": "billing"},
    "AIOKafkaConsumer.subscribe": {"topics": ["dishes"]},
    "AIOKafkaAdminClient.alter_configs": {"config_resources": []},
    "AIOKafkaAdminClient.describe_configs": {"config_resources": []},
    "AIOKafkaAdminClient.create_partitions": {"topic_partitions": {"orders": NewPartitions(2)}},
    "AIOKafkaAdminClient.create_topics": {"new_topics": [NewTopic("dishes", 1, 1)]},
    "AIOKafkaAdminClient.delete_topics": {"topics": ["orders"]},
    "AIOKafkaAdminClient.delete_records": {"records_to_delete": {FIRST: RecordsToDelete(0)}},
    "AIOKafkaAdminClient.describe_consumer_groups": {"group_ids": ["billing"]},
    "EmbeddedCluster.produce": {"partition": 0},
    "EmbeddedCluster.state_of": {"partition": 0},
    "EmbeddedCluster.leader_of": {"partition": 0},
    "EmbeddedCluster.move_leader": {"partition": 0},
    "EmbeddedCluster.set_isr": {"partition": 0},
    "EmbeddedCluster.hold_markers": {"partition": 0},
    "EmbeddedCluster.set_feature": {"name": "transaction.version"},
}


def refusal(error: BaseException) -> str:
    """Return the outcome of a call that raised."""
    text = f"{type(error).__name__}: {error}"
    return "refused" if type(error).__name__ == "IllegalStateError" and "belongs to another process" in text else text


async def outcome(call: Callable[[], Any]) -> str:
    """Return what a call did: "refused" if it raised the error that is expected."""
    try:
        result = call()
        async with asyncio.timeout(0.5):
            if inspect.isawaitable(result):
                result = await result
            elif hasattr(result, "__anext__"):
                result = await anext(result)
            elif hasattr(result, "__aenter__"):
                await result.__aenter__()
    except (TypeError, NotImplementedError) as error:
        return f"no call: {error}"
    except BaseException as error:  # noqa: BLE001 - any error is a fact to print
        return refusal(error)
    return f"returned {result!r:.60}"


def calls_of(owner: object, values: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the public calls and properties of an object, with arguments."""
    calls: dict[str, Callable[[], Any]] = {}
    kind = type(owner)
    for name in dir(kind):
        declared = inspect.getattr_static(kind, name)
        is_internal = isinstance(owner, Offsets) and name not in OFFSETS
        if name.startswith("_") or name in HARMLESS | NO_CALLS or is_internal:
            continue
        if isinstance(declared, property):
            calls[name] = lambda name=name: getattr(owner, name)  # type: ignore[misc]
        elif inspect.isfunction(declared):
            arguments = {}
            for parameter in list(inspect.signature(declared).parameters.values())[1:]:
                if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.VAR_KEYWORD:
                    continue
                chosen = FOR_ONE.get(f"{kind.__name__}.{name}", {})
                if parameter.default is parameter.empty or parameter.name in chosen:
                    arguments[parameter.name] = chosen.get(
                        parameter.name, values.get(parameter.name, FOR_ALL.get(parameter.name))
                    )
            calls[name] = lambda name=name, arguments=arguments: call(owner, name, arguments)  # type: ignore[misc]
    if hasattr(kind, "__anext__"):
        calls["__anext__"] = lambda: owner.__anext__()  # type: ignore[attr-defined]
    return calls


def call(owner: object, name: str, arguments: dict[str, Any]) -> Any:
    """Call a method; parameters that have no keyword are passed by position."""
    method = getattr(owner, name)
    parameters = inspect.signature(method).parameters
    by_position = [
        arguments[argument] for argument in arguments if parameters[argument].kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    by_name = {
        argument: arguments[argument]
        for argument in arguments
        if parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY
    }
    return method(*by_position, **by_name)


async def wait_for_record(records: list[Record[Any, Any]]) -> None:
    while not records:
        await asyncio.sleep(0.01)


class Fixture:
    """All clients, started in the parent."""

    async def start(self) -> None:
        self.cluster = EmbeddedCluster(1, seed=1, configs={"group.initial.rebalance.delay.ms": "0"})
        await self.cluster.start()
        await self.cluster.create_topic("orders")
        servers = self.cluster.bootstrap_servers
        self.registry = EmbeddedSchemaRegistry()
        await self.registry.start()
        self.schemas = SchemaRegistryClient(self.registry.url)
        await self.schemas.register("orders-value", Schema('"string"'))
        self.producer = Producer(servers)
        await self.producer.start()
        self.acknowledged = [(await self.producer.send("orders", b"0")).offset]
        self.transactional = Producer(servers, transactional_id="billing")
        await self.transactional.start()
        self.consumer = Consumer(servers, topics=["orders"], group_id="billing", auto_commit=False)
        await self.consumer.start()
        self.record = await anext(self.consumer)
        self.assigned = Consumer(servers)
        self.assigned.assign([FIRST])
        await self.assigned.start()
        self.reader = self.assigned.partition("orders", 0)
        self.admin = Admin(servers)
        await self.admin.start()
        await self.admin.configs.alter({ConfigResource.group("shared"): {"share.auto.offset.reset": "earliest"}})
        self.share = ShareConsumer(servers, topics=["orders"], group_id="shared")
        await self.share.start()
        self.seen: list[Record[Any, Any]] = []
        self.group = ConsumerGroup(servers, group_id="workers")
        self.workers: Workers[Any, Any] = Workers(self.handle)
        self.consuming = asyncio.create_task(self.group.consume(["orders"], self.workers))
        await wait_for_record(self.seen)
        once = Consumer(servers, topics=["orders"], group_id="once", auto_commit=False)
        writer = Producer(servers, transactional_id="once")
        await once.start()
        await writer.start()
        self.once = ExactlyOnce(once, writer)
        await anext(self.once)
        self.their_producer = AIOKafkaProducer(bootstrap_servers=servers)
        await self.their_producer.start()
        await self.their_producer.partitions_for("orders")
        self.their_consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, group_id="theirs"
        )
        await self.their_consumer.start()
        self.their_admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await self.their_admin.start()
        self.delivery = self.producer.send_nowait("orders", b"1")  # not written yet, because the loop has no turn

    async def handle(self, record: Record[Any, Any]) -> None:
        self.seen.append(record)
        if os.getpid() != PARENT:
            print(json.dumps(["Workers", "handle", "the child processed a record"]), flush=True)

    async def try_all(self) -> None:
        """Make every call, and print the outcome of each."""
        offsets = self.consumer_offsets
        group = GroupMetadata("billing", 1, "member", None)
        owners: dict[str, object] = {
            "Producer": self.producer,
            "Producer (transactional)": self.transactional,
            "Failures": self.failures,
            "Delivery": self.delivery,
            "Transaction": self.transaction,
            "Consumer": self.consumer,
            "Consumer (assigned)": self.assigned,
            "Offsets": offsets,
            "PartitionReader": self.reader,
            "Batches": self.batches,
            "ConsumerGroup": self.group,
            "GroupErrors": self.errors,
            "Workers": self.workers,
            "ShareConsumer": self.share,
            "Admin": self.admin,
            "ExactlyOnce": self.once,
            "EmbeddedCluster": self.cluster,
            "SchemaRegistryClient": self.schemas,
            "AIOKafkaProducer": self.their_producer,
            "AIOKafkaConsumer": self.their_consumer,
            "AIOKafkaAdminClient": self.their_admin,
        }
        arguments = {"record": self.record, "group": group, "handler": self.workers}
        for name, owner in owners.items():
            # close() comes last: after it, other calls could be refused for another reason.
            calls = calls_of(owner, arguments)
            for method in sorted(calls, key=lambda name: name in ("close", "stop")):
                print(json.dumps([name, method, await outcome(calls[method])]), flush=True)
        print(json.dumps(["Delivery", "await", await outcome(lambda: self.delivery)]), flush=True)
        print(json.dumps(["Admin", "a family", await outcome(lambda: self.admin.topics.list())]), flush=True)

    async def prepare(self) -> None:
        """Make the objects that clients return, before the fork."""
        self.failures = self.producer.failures()
        self.transaction = self.transactional.transaction()
        await self.transaction.__aenter__()
        self.consumer_offsets = self.consumer.offsets
        self.batches = self.assigned.batches()
        self.errors = self.group.errors()

    async def end(self) -> None:
        """Use and close all clients in the parent."""
        self.acknowledged.append((await self.delivery).offset)
        self.acknowledged.append((await self.producer.send("orders", b"2")).offset)
        await self.transaction.send("orders", b"3")
        await self.transaction.__aexit__(None, None, None)
        assert (await anext(self.consumer)).value == b"1"
        assert len(await self.share.poll(10, timeout=30.0)) > 0
        assert await self.admin.topics.list()
        assert (await self.schemas.subjects()) == ["orders-value"]
        await self.once.commit()
        await self.their_producer.send_and_wait("orders", b"4")
        async with asyncio.timeout(30):
            while len(self.seen) < 5:
                await asyncio.sleep(0.01)
        await self.group.close()
        await self.consuming
        values = [record.value for record in self.cluster.records("orders")]
        print(json.dumps(["parent", "log", [str(value, "ascii") for value in values if value is not None]]), flush=True)
        closing = [
            self.producer, self.transactional, self.consumer, self.assigned, self.share, self.admin, self.schemas
        ]  # fmt: skip
        for client in closing:
            await client.close()  # type: ignore[attr-defined]
        await self.once._consumer.close()
        await self.once._producer.close()
        await self.their_producer.stop()
        await self.their_consumer.stop()
        await self.their_admin.close()
        await self.registry.close()
        await self.cluster.close()
        print(json.dumps(["parent", "end", "closed"]), flush=True)


PARENT = os.getpid()

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    loop = asyncio.new_event_loop()
    fixture = Fixture()
    loop.run_until_complete(fixture.start())
    loop.run_until_complete(fixture.prepare())
    child = os.fork()
    if child == 0:
        loop.run_until_complete(fixture.try_all())
        sys.exit(0)  # with all handlers and finalizers of an orderly exit
    # The parent's loop runs meanwhile: a loop that was blocked is a warning.
    _, status = loop.run_until_complete(asyncio.to_thread(os.waitpid, child, 0))
    print(json.dumps(["child", "exit", status]), flush=True)
    loop.run_until_complete(fixture.end())
    loop.close()
