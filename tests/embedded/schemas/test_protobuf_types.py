"""Protobuf: the type of a record, imports, and messages that are no message of the type."""

from __future__ import annotations

import asyncio
import base64
from functools import cache
from typing import Any

import google.api.annotations_pb2
import google.protobuf.timestamp_pb2
import google.rpc.status_pb2
import google.type.money_pb2
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient as TheirClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.errors import ConfigurationError, DeserializationError
from aiokafka_lite.schemas import (
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_name,
)
from tests.embedded.schemas.formats import finished

FIELDS = {"Opened": "owner", "Closed": "reason", "Moved": "place"}
FILE = "acme/account.proto"


def types_of(*names: str, package: str = "acme", file: str = FILE) -> list[Any]:
    """Return the classes of a file with these message types, in this order. Each has a number 1 and a text 2."""
    descriptor = FileDescriptorProto(name=file, package=package, syntax="proto3")
    for name in names:
        message = descriptor.message_type.add(name=name)
        message.field.add(name="account", number=1, type=FieldDescriptorProto.TYPE_INT64, label=1)
        message.field.add(name=FIELDS[name], number=2, type=FieldDescriptorProto.TYPE_STRING, label=1)
    pool = DescriptorPool()
    pool.Add(descriptor)
    return [GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in names]


async def written(registry: SchemaRegistryClient, message: Any, topic: str = "accounts", **arguments: Any) -> bytes:
    serializer = ProtobufSerializer(registry, type(message), subject=record_name, **arguments)
    data: bytes = await finished(serializer.serialize(topic, message, []))
    return data


@pytest.mark.parametrize("id_in", ["prefix", "header"])
@pytest.mark.parametrize("asks", [False, True], ids=["without a registry", "with a registry"])
async def test_a_record_of_another_type_is_refused(
    cluster: EmbeddedCluster, registry: SchemaRegistryClient, id_in: Any, *, asks: bool
) -> None:
    opened, closed = types_of("Opened", "Closed")
    await cluster.create_topic("accounts")
    for message in (opened(account=7, owner="alice"), closed(account=8, reason="moved away")):
        serializer = ProtobufSerializer(registry, type(message), subject=record_name, id_in=id_in)
        async with Producer(cluster.bootstrap_servers, value_serializer=serializer) as producer:
            await producer.send("accounts", message)
    reader = ProtobufDeserializer(opened, registry=registry if asks else None)
    async with Consumer(cluster.bootstrap_servers, topics=["accounts"], value_deserializer=reader) as consumer:
        assert (await anext(consumer)).value.owner == "alice"
        text = (
            r"the record is a acme\.Closed, which is not acme\.Opened" if asks else r"the message type at \[1\] of its"
        )
        with pytest.raises(DeserializationError, match=text):
            await anext(consumer)
    both = ProtobufDeserializer([opened, closed], registry=registry if asks else None)
    async with Consumer(cluster.bootstrap_servers, topics=["accounts"], value_deserializer=both) as consumer:
        values = [(await anext(consumer)).value for _ in range(2)]
    assert [(type(value), value.account) for value in values] == [(opened, 7), (closed, 8)]


async def test_the_name_decides_if_the_writer_has_another_order_of_types(registry: SchemaRegistryClient) -> None:
    opened, closed = types_of("Opened", "Closed")
    data = [await written(registry, message) for message in (opened(account=7), closed(account=8))]
    (_, mine_closed, mine_opened) = types_of("Moved", "Closed", "Opened")
    reader = ProtobufDeserializer([mine_opened, mine_closed], registry=registry)
    values = [await finished(reader.for_part("value").deserialize("accounts", encoded, ())) for encoded in data]
    assert [(type(value), value.account) for value in values] == [(mine_opened, 7), (mine_closed, 8)]
    assert reader.deserialize("accounts", data[0], ()).account == 7, "the second record of a type needs no request"


async def test_a_mapping_gives_the_class_of_each_name(registry: SchemaRegistryClient) -> None:
    (old,) = types_of("Opened", package="acme.v1")
    (new,) = types_of("Opened")
    reader = ProtobufDeserializer({"acme.v1.Opened": new, "acme.Opened": new}, registry=registry)
    for message in (old(account=7), new(account=7)):
        data = await written(registry, message)
        assert await finished(reader.deserialize("accounts", data, ())) == new(account=7)


async def test_types_with_the_same_place_need_a_registry(registry: SchemaRegistryClient) -> None:
    (opened,) = types_of("Opened")
    (closed,) = types_of("Closed", file="acme/closed.proto")
    with pytest.raises(ConfigurationError, match=r"acme\.Opened and acme\.Closed have the same place in their files"):
        ProtobufDeserializer([opened, closed])
    with pytest.raises(ConfigurationError, match="a mapping of names to types requires registry"):
        ProtobufDeserializer({"acme.Opened": opened})
    for wrong in ([], {}, "acme.Opened", dict, [dict], None):
        with pytest.raises(ConfigurationError, match="message_type must be a class of messages"):
            ProtobufDeserializer(wrong)  # type: ignore[arg-type]
    reader = ProtobufDeserializer([opened, closed], registry=registry)
    for message in (opened(account=7), closed(account=7)):
        data = await written(registry, message)
        assert await finished(reader.deserialize("accounts", data, ())) == message


TEXT = """
syntax = "proto3";
package acme;
message Moved { int64 account = 1; string place = 2; }
message Opened { int64 account = 1; string owner = 2; }
"""


async def test_the_newest_schema_decides_the_place_of_the_type(registry: SchemaRegistryClient) -> None:
    opened, closed = types_of("Opened", "Closed")
    await registry.register("acme.Opened", Schema(TEXT, "PROTOBUF"))
    data = await written(registry, opened(account=7), resolve="latest")
    assert data[5:7] == b"\2\2", "the second type of the registered file, although it is the first one of ours"
    reader = ProtobufDeserializer(opened, registry=registry)
    assert await finished(reader.deserialize("accounts", data, ())) == opened(account=7)
    await registry.register("acme.Closed", Schema(TEXT, "PROTOBUF"))
    with pytest.raises(ConfigurationError, match=r"the schema has no message type acme\.Closed"):
        await written(registry, closed(), resolve="latest")


async def test_a_place_that_the_schema_does_not_have_is_refused(registry: SchemaRegistryClient) -> None:
    (opened,) = types_of("Opened")
    data = await written(registry, opened(account=7))
    reader = ProtobufDeserializer(opened, registry=registry)
    with pytest.raises(ValueError, match=r"the schema of the record has no message type at \[3\]"):
        await finished(reader.deserialize("accounts", data[:5] + b"\2\6" + data[6:], ()))
    json = await registry.register("json", Schema("{}", "JSON"))
    with pytest.raises(ConfigurationError, match="requires a schema of type PROTOBUF"):
        await finished(reader.deserialize("accounts", b"\0\0\0\0" + bytes([json.schema_id]) + data[5:], ()))


@pytest.mark.parametrize("value", [{"account": 7}, b"\x08\x07", None, "text"])
async def test_only_messages_of_the_type_are_written(registry: SchemaRegistryClient, value: object) -> None:
    opened, closed = types_of("Opened", "Closed")
    for wrong in (value, closed(account=7)):
        with pytest.raises(TypeError, match="the message must be of type Opened, got "):
            await finished(ProtobufSerializer(registry, opened).serialize("accounts", wrong, []))


async def test_fields_that_a_class_does_not_know_are_kept(registry: SchemaRegistryClient) -> None:
    (opened,) = types_of("Opened")
    message = opened.FromString(b"\x08\x07\x1a\x01x")  # the field 3 is of a newer file
    assert (await written(registry, message)).endswith(b"\x08\x07\x1a\x01x")


async def test_a_message_without_its_required_field_is_refused(registry: SchemaRegistryClient) -> None:
    file = FileDescriptorProto(name="old.proto", syntax="proto2")
    file.message_type.add(name="Old").field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=2)
    pool = DescriptorPool()
    pool.Add(file)
    old = GetMessageClass(pool.FindMessageTypeByName("Old"))
    with pytest.raises(Exception, match=r"missing required fields?: id"):
        await written(registry, old())


@cache
def report_type() -> Any:
    """Return a class whose file imports files of Google: some of which a registry has, and some of which it has not."""
    file = FileDescriptorProto(
        name="acme/report.proto",
        package="acme",
        syntax="proto3",
        dependency=[
            "google/rpc/status.proto",
            "google/api/annotations.proto",
            "google/type/money.proto",
            "google/protobuf/timestamp.proto",
        ],
    )
    message = file.message_type.add(name="Report")
    message.field.add(name="status", number=1, type=11, label=1, type_name=".google.rpc.Status")
    Default().AddSerializedFile(file.SerializeToString())
    return GetMessageClass(Default().FindMessageTypeByName("acme.Report"))


async def test_imports_that_no_registry_has_are_registered_as_confluent_does(
    registry: SchemaRegistryClient, embedded_schema_registry: EmbeddedSchemaRegistry
) -> None:
    message = report_type()(status=google.rpc.status_pb2.Status(code=3))
    ours = await finished(ProtobufSerializer(registry, report_type()).serialize("reports", message, []))
    references = (await registry.latest("reports-value")).schema.references
    assert [reference.name for reference in references] == ["google/rpc/status.proto", "google/api/annotations.proto"]
    assert await registry.subjects("google/") == [
        "google/api/annotations.proto",
        "google/api/http.proto",
        "google/rpc/status.proto",
    ]
    client = TheirClient({"url": embedded_schema_registry.url})
    serializer = TheirSerializer(report_type(), client, {"auto.register.schemas": False})
    context = SerializationContext("reports", MessageField.VALUE)
    assert await asyncio.to_thread(serializer, message, context) == ours
    client.close()


@pytest.mark.parametrize("normalize", [False, True])
async def test_a_type_beside_a_map_has_the_place_that_the_schema_has(
    registry: SchemaRegistryClient, *, normalize: bool
) -> None:
    file = FileDescriptorProto(name="acme/maps.proto", package="acme", syntax="proto3")
    outer = file.message_type.add(name="Outer")
    entry = outer.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=FieldDescriptorProto.TYPE_INT64, label=1)
    outer.field.add(name="counts", number=1, type=11, label=3, type_name=".acme.Outer.CountsEntry")
    outer.nested_type.add(name="Inner")
    pool = DescriptorPool()
    pool.Add(file)
    inner = GetMessageClass(pool.FindMessageTypeByName("acme.Outer.Inner"))
    data = await written(registry, inner(), normalize=normalize)
    assert data[5:] == (b"\4\0\0" if normalize else b"\4\0\2"), "a normalized schema has a map, no nested type"
    for reader in (ProtobufDeserializer(inner), ProtobufDeserializer(inner, registry=registry)):
        assert await finished(reader.deserialize("accounts", data, ())) == inner()


async def test_an_import_of_an_import_is_a_reference_of_it(registry: SchemaRegistryClient) -> None:
    pool = DescriptorPool()
    for name, *imports in (("a.proto",), ("b.proto", "a.proto"), ("c.proto", "b.proto")):
        file = FileDescriptorProto(name=name, package="acme", syntax="proto3", dependency=imports)
        file.message_type.add(name=f"Of{name[0].upper()}")
        pool.Add(file)
    of_c = GetMessageClass(pool.FindMessageTypeByName("acme.OfC"))
    await finished(ProtobufSerializer(registry, of_c).serialize("letters", of_c(), []))
    newest = await registry.latest("letters-value")
    assert newest.schema.references == (SchemaReference("b.proto", "b.proto", 1),)
    assert (await registry.latest("b.proto")).schema.references == (SchemaReference("a.proto", "a.proto", 1),)
    assert FileDescriptorProto.FromString(base64.b64decode(newest.schema.text)).name == "c.proto"
