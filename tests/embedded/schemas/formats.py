"""The same orders in each format: schemas, messages, and the serializers of this package and of confluent-kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from aiokafka_lite.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistryClient,
)

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
JSON: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id"],
}
ORDER = {"id": 7, "item": "two coffees"}


@cache
def order_type() -> Any:
    """Return the class of ``shop.Orders.Order``, a type within a type, whose file imports another one."""
    item = FileDescriptorProto(name="shop/item.proto", package="shop", syntax="proto3")
    item.message_type.add(name="Item").field.add(
        name="name", number=1, type=FieldDescriptorProto.TYPE_STRING, label=FieldDescriptorProto.LABEL_OPTIONAL
    )
    file = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/item.proto"])
    file.message_type.add(name="Unused")
    orders = file.message_type.add(name="Orders")
    orders.nested_type.add(name="Unused")
    order = orders.nested_type.add(name="Order")
    optional = FieldDescriptorProto.LABEL_OPTIONAL
    order.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=optional)
    order.field.add(
        name="item", number=2, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".shop.Item", label=optional
    )
    pool = DescriptorPool()
    pool.Add(item)
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Orders.Order"))


class Format(NamedTuple):
    """One format: an order, and how to make the serializers for it. Theirs are for values."""

    order: Callable[[], Any]
    serializer: Callable[..., Any]
    """Of a client, with ``id_in`` and other arguments."""
    deserializer: Callable[[SchemaRegistryClient], Any]
    their_serializer: Callable[[Any, dict[str, Any]], Any]
    """Of their client and their settings."""
    their_deserializer: Callable[[Any], Any]


FORMATS = {
    "avro": Format(
        lambda: ORDER,
        lambda registry, **arguments: AvroSerializer(registry, AVRO, **arguments),
        AvroDeserializer,
        lambda client, conf: TheirAvroSerializer(client, json.dumps(AVRO), conf=conf),
        TheirAvroDeserializer,
    ),
    "json": Format(
        lambda: ORDER,
        lambda registry, **arguments: JsonSchemaSerializer(registry, JSON, **arguments),
        JsonSchemaDeserializer,
        lambda client, conf: JSONSerializer(json.dumps(JSON), client, conf=conf),
        lambda client: JSONDeserializer(json.dumps(JSON), schema_registry_client=client),
    ),
    "protobuf": Format(
        lambda: order_type()(id=7, item={"name": "two coffees"}),
        lambda registry, **arguments: ProtobufSerializer(registry, order_type(), **arguments),
        lambda registry: ProtobufDeserializer(order_type()),
        lambda client, conf: TheirProtobufSerializer(order_type(), client, {**conf, "use.deprecated.format": False}),
        lambda client: TheirProtobufDeserializer(order_type(), {"use.deprecated.format": False}, client),
    ),
}

THEIR_PLACES = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}


async def finished(result: Any) -> Any:
    """Return the result of a serializer, awaited if necessary."""
    return await result if asyncio.iscoroutine(result) else result
