"""Our encoded messages equal the messages of kafka-python and aiokafka."""

from __future__ import annotations

import importlib
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka_lite.protocol.codec import decode_message, encode_message
from aiokafka_lite.protocol.connection import ClientProtocol
from aiokafka_lite.protocol.messages import (
    AbortedTransaction,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from aiokafka_lite.protocol.schema import Message, Spec
from tests.case_notes import for_each

from .strategies import MESSAGES, struct_in, versions_of

SETTINGS = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
RECORDS = bytes(range(61))

EXAMPLES: list[Message] = [
    ApiVersionsRequest(client_software_name="aiokafka-lite", client_software_version="1.0"),
    ApiVersionsResponse(
        error_code=0, api_keys=[ApiVersion(api_key=3, min_version=0, max_version=13)], throttle_time_ms=7
    ),
    MetadataRequest(topics=None),
    MetadataRequest(topics=[]),
    MetadataRequest(topics=[MetadataRequestTopic(name="größe")]),
    MetadataResponse(
        throttle_time_ms=1,
        brokers=[MetadataResponseBroker(node_id=1, host="kafka-1", port=9092, rack=None)],
        cluster_id="cluster",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name="orders",
                is_internal=True,
                partitions=[
                    MetadataResponsePartition(
                        error_code=9,
                        partition_index=0,
                        leader_id=1,
                        leader_epoch=4,
                        replica_nodes=[1, 2],
                        isr_nodes=[1],
                    )
                ],
            )
        ],
    ),
    ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            ProduceRequestTopic(name="orders", partition_data=[ProduceRequestPartition(index=2, records=RECORDS)])
        ],
    ),
    ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name="orders",
                partition_responses=[
                    ProduceResponsePartition(
                        index=2, error_code=0, base_offset=2**40, log_append_time_ms=5, log_start_offset=3
                    )
                ],
            )
        ],
        throttle_time_ms=2,
    ),
    FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        isolation_level=1,
        topics=[
            FetchRequestTopic(
                topic="orders",
                partitions=[
                    FetchRequestPartition(
                        partition=1, fetch_offset=77, current_leader_epoch=3, partition_max_bytes=1048576
                    )
                ],
            )
        ],
    ),
    FetchResponse(
        throttle_time_ms=3,
        responses=[
            FetchResponseTopic(
                topic="orders",
                partitions=[
                    FetchResponsePartition(
                        partition_index=1,
                        error_code=0,
                        high_watermark=90,
                        last_stable_offset=80,
                        aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=70)],
                        records=RECORDS,
                    )
                ],
            )
        ],
    ),
]


def encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    encode_message(message, version, out)
    return bytes(out)


# kafka-python: classes made from Kafka's definitions, for every message and version.

MISSING_IN_KAFKA_PYTHON = {
    f"{api}{kind}"
    for api in (
        *(
            "ConsumerGroupDescribe",
            "ConsumerGroupHeartbeat",
            "GetTelemetrySubscriptions",
            "PushTelemetry",
            "SaslAuthenticate",
            "SaslHandshake",
            "StreamsGroupDescribe",
            "StreamsGroupHeartbeat",
        ),
        *("AddRaftVoter", "RemoveRaftVoter", "UnregisterBroker"),
        *(f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")),
        *("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"),
        *(f"{verb}ShareGroupOffsets" for verb in ("Describe", "Alter", "Delete")),
        *(f"{verb}ShareGroupState" for verb in ("Initialize", "Read", "Write", "Delete")),
        "ReadShareGroupStateSummary",
    )
    for kind in ("Request", "Response")
}


class NotThere(Exception):
    """The other client has no class of this name."""


def theirs(name: str) -> Any:
    for package in ("metadata", "producer", "consumer", "admin"):
        module = pytest.importorskip(f"kafka.protocol.{package}", reason="kafka-python is not installed")
        if hasattr(getattr(module, name, None), "_struct"):
            return getattr(module, name)
    raise NotThere(name)


def to_kafka_python(value: Any, theirs: Any, version: int) -> Any:
    """Return the same value in their class. A tagged field is set only if it differs from its default."""
    arguments = {}
    for name, spec in type(value).specs.items():
        item = getattr(value, name)
        if version in spec.versions and not (spec.tag is not None and item == spec.default):
            if name.endswith("authorized_operations") and "authorized_operations" in theirs._struct.fields:
                # a set of bits, mostly under one name for all
                arguments["authorized_operations"] = {bit for bit in range(32) if item >> bit & 1}
            else:
                arguments[name] = convert(item, spec, theirs._struct.fields[name], version)
    return theirs(version=version, **arguments)


def convert(value: Any, spec: Spec, field: Any, version: int) -> Any:
    if value is None:
        return None
    if spec.wire == "16s":
        return uuid.UUID(bytes=value)
    if spec.wire == "struct":
        return to_kafka_python(value, field.data_class, version)
    if spec.wire == "array" and not isinstance(spec.item, Spec):
        return [to_kafka_python(item, field.data_class, version) for item in value]
    return value


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_kafka_python_writes_the_same_bytes(message: Message) -> None:
    other = theirs(type(message).__name__)
    for version in versions_of(type(message))[: other.max_version + 1]:
        if version > other.max_version:
            break
        wire = encodable(message, version)
        if wire is not None:
            assert to_kafka_python(message, other, version).encode(version=version) == wire, f"v{version}"


def test_kafka_python_has_the_messages_that_it_is_compared_in() -> None:
    missing = set()
    for cls in MESSAGES:
        if cls.api_key >= 0:
            try:
                theirs(cls.__name__)
            except NotThere:
                missing.add(cls.__name__)
    assert missing <= MISSING_IN_KAFKA_PYTHON


@pytest.mark.thorough
@for_each(
    [cls for cls in MESSAGES if cls.api_key >= 0 and cls.__name__ not in MISSING_IN_KAFKA_PYTHON],
    name=lambda cls: cls.__name__,
)
@given(data=st.data())
@SETTINGS
def test_kafka_python_writes_any_message_to_the_same_bytes(cls: type[Any], data: st.DataObject) -> None:
    other = theirs(cls.__name__)
    version = data.draw(st.sampled_from([version for version in versions_of(cls) if version <= other.max_version]))
    message = data.draw(struct_in(cls, version))
    assert to_kafka_python(message, other, version).encode(version=version) == encoded(message, version)


def encodable(message: Message, version: int) -> bytes | None:
    """Return the message's bytes, or None if the version cannot carry this example."""
    try:
        return encoded(message, version)
    except ValueError:
        return None


# aiokafka: hand-written classes, one per version, positional.

AIOKAFKA = {
    "ApiVersionsRequest": ("admin", "ApiVersionRequest"),
    "ApiVersionsResponse": ("admin", "ApiVersionResponse"),
    "MetadataRequest": ("metadata", "MetadataRequest"),
    "MetadataResponse": ("metadata", "MetadataResponse"),
    "ProduceRequest": ("produce", "ProduceRequest"),
    "ProduceResponse": ("produce", "ProduceResponse"),
    "FetchRequest": ("fetch", "FetchRequest"),
    "FetchResponse": ("fetch", "FetchResponse"),
}


def as_tuple(value: Any, version: int) -> tuple[Any, ...]:
    differences = []
    for name, spec in type(value).specs.items():
        if version in spec.versions:
            field = getattr(value, name)
            if spec.wire == "array" and field is not None and not isinstance(spec.item, Spec):
                # where a struct has one field in a version, aiokafka has an array of that field
                field = [as_tuple(item, version) for item in field]
                if all(len(item) == 1 for item in field) and type(value) is MetadataRequest:
                    field = [item[0] for item in field]
            differences.append(field)
    return tuple(differences)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_aiokafka_writes_the_same_bytes_and_we_read_them(message: Message) -> None:
    pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    module_name, class_name = AIOKAFKA[type(message).__name__]
    module = importlib.import_module(f"aiokafka.protocol.{module_name}")
    compared = 0
    for version in versions_of(type(message)):
        other = getattr(module, f"{class_name}_v{version}", None)
        wire = encodable(message, version)
        if other is None or wire is None:
            continue
        written = other(*as_tuple(message, version)).encode()
        assert written == wire, f"v{version}"
        assert encoded(decode_message(type(message), version, written)[0], version) == wire
        compared += 1
    assert compared


def test_whole_request_frames_are_those_of_kafka_python() -> None:
    other = theirs("MetadataRequest")
    for version in (1, 8, 9, 12):
        request = other(topics=None, version=version)
        request.with_header(correlation_id=0, client_id="me")
        ours = ClientProtocol[None]("broker").encode_request(MetadataRequest(topics=None), version, "me", None)
        assert request.encode(version=version, header=True, framed=True) == bytes(ours)
