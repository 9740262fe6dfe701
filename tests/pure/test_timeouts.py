"""Each public call that waits takes ``timeout``, or is in the list of calls that another limit bounds."""

from __future__ import annotations

import inspect
from importlib import import_module

from aiokafka_lite import Admin

MODULES = ("", ".admin", ".consumer", ".embedded", ".processing", ".producer", ".schemas", ".share")

BOUNDED_OTHERWISE = {
    "AsyncSerializer": "the user's code",
    "Consumer.assign_gradually": "the number of partitions; it waits for no broker",
    "ConsumerGroup.consume": "it runs until it is cancelled or closed",
    "ConsumerGroupHandler": "the user's code; rebalance_timeout bounds it",
    "Delivery.wait": "delivery_timeout",
    "EmbeddedCluster": "it runs in this process",
    "EmbeddedSchemaRegistry": "it runs in this process",
    "ExactlyOnce": "api_timeout of the producer, and transaction_timeout",
    "ExactlyOnceInto.run": "it runs until it is cancelled or stopped",
    "MemoryConnector": "connect_timeout",
    "OffsetsOfPartitions.look_up": "the deadline of the call that it is a step of",
    "RebalanceListener": "the user's code; time_to_revoke bounds it",
    "SchemaRegistryClient": "timeout of the constructor",
    "Workers": "methods that ConsumerGroup calls; timeout of the constructor bounds a record",
    **dict.fromkeys(("AvroSerializer", "JsonSchemaSerializer", "ProtobufSerializer"), "timeout of the registry client"),
    **dict.fromkeys(("AvroDeserializer", "JsonSchemaDeserializer"), "timeout of the registry client"),
}


def coroutines(owner: type) -> set[str]:
    """Return the names of the public coroutines of a class that do not take ``timeout``, by themselves or in
    ``options``.
    """
    return {
        name
        for name, method in inspect.getmembers(owner, inspect.iscoroutinefunction)
        if not name.startswith("_") and not {"timeout", "options"} & {*inspect.signature(method).parameters}
    }


def test_each_public_call_that_waits_takes_a_timeout() -> None:
    modules = [import_module(f"aiokafka_lite{part}") for part in MODULES]
    public = [getattr(module, name) for module in modules for name in names_of(module)]
    classes = {cls for cls in public if isinstance(cls, type) and cls.__module__.startswith("aiokafka_lite.")}
    classes |= {type(family) for name, family in vars(Admin("localhost:9092")).items() if not name.startswith("_")}
    without = {(owner.__name__, name) for owner in classes for name in coroutines(owner)}
    excused = {(owner, name) for owner, name in without if {owner, f"{owner}.{name}"} & {*BOUNDED_OTHERWISE}}
    assert sorted(without - excused) == []
    named = {key for owner, name in excused for key in (owner, f"{owner}.{name}")}
    assert sorted({*BOUNDED_OTHERWISE} - named) == [], "these take a timeout now, or are gone"


def names_of(module: object) -> list[str]:
    return list(getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]))
