"""Error responses derived from the declarations: each API, each version, each named topic, partition and group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from aiokafka_lite.embedded.error_responses import LONGEST_MESSAGE, error_response, shorten_messages
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.codec import decode_message, encode_message
from aiokafka_lite.protocol.messages import (
    REQUESTS,
    FetchRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    OffsetFetchRequest,
    ProduceRequest,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
)
from aiokafka_lite.protocol.schema import MISSING, Request, Spec

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


def sample(cls: type[Any], version: int, numbers: Iterator[int]) -> Any:
    """Return a message with two elements in each array, and another value in each field."""
    values: dict[str, Any] = {}
    specs: dict[str, Spec] = cls.specs
    for name, spec in specs.items():
        if version in spec.versions:
            values[name] = sample_value(spec, version, numbers)
        elif spec.default is MISSING:
            values[name] = [] if spec.wire == "array" else "" if spec.wire == "string" else 0
    return cls(**values)


def sample_value(spec: Any, version: int, numbers: Iterator[int]) -> Any:
    if isinstance(spec, type):
        return sample(spec, version, numbers)
    match spec.wire:
        case "array":
            return [sample_value(spec.item, version, numbers) for _ in range(2)]
        case "struct":
            return sample(spec.item, version, numbers)
        case "string":
            return f"s{next(numbers)}"
        case "bytes" | "records":
            return b""
        case "16s":
            return bytes([next(numbers) % 256]) * 16
    return next(numbers) % 100


def test_every_api_has_an_error_response_that_its_version_can_encode() -> None:
    for cls in REQUESTS.values():
        for version in range(cls.versions.first, cls.versions.last + 1):
            response = failed(sample(cls, version, itertools.count(1)), version)
            assert int(CODE) in codes(response), f"{cls.__name__} v{version}: {response}"


def failed(request: Request[Any], version: int) -> Any:
    """Return the error response, after it was encoded and decoded."""
    response = error_response(request, CODE, version)
    assert response is not None
    encoded = bytearray()
    encode_message(response, version, encoded)
    return decode_message(type(response), version, bytes(encoded))[0]


def codes(message: Any) -> set[int]:
    """Return all error codes in a message."""
    numbers: set[int] = set()
    for name in type(message).specs:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            numbers.add(value)
        for element in value if isinstance(value, list) else [value]:
            if hasattr(type(element), "specs"):
                numbers |= codes(element)
    return numbers


def test_each_partition_of_a_produce_request_has_the_code() -> None:
    request = sample(ProduceRequest, 9, itertools.count(1))
    response = failed(request, 9)
    assert [topic.name for topic in response.responses] == [topic.name for topic in request.topic_data]
    for topic, answered in zip(request.topic_data, response.responses):
        assert [
            (partition_response.index, partition_response.error_code, partition_response.base_offset)
            for partition_response in answered.partition_responses
        ] == [(partition.index, CODE, -1) for partition in topic.partition_data]


def test_a_fetch_error_of_a_partition_does_not_end_the_session() -> None:
    request = sample(FetchRequest, 13, itertools.count(1))
    response = failed(request, 13)
    assert response.error_code == ErrorCode.NONE
    assert [topic.topic_id for topic in response.responses] == [topic.topic_id for topic in request.topics]
    assert {part.error_code for topic in response.responses for part in topic.partitions} == {CODE}
    request.topics = []
    assert failed(request, 13).error_code == CODE


def test_the_code_is_in_the_outermost_field_of_the_version() -> None:
    for cls, version, outer in ((OffsetFetchRequest, 2, True), (OffsetFetchRequest, 8, False)):
        response = failed(sample(cls, version, itertools.count(1)), version)
        assert (response.error_code == CODE) is outer
        assert [group.error_code for group in response.groups] == ([] if outer else [CODE, CODE])
    coordinators = failed(sample(FindCoordinatorRequest, 4, itertools.count(1)), 4).coordinators
    assert [(coordinator.error_code, coordinator.node_id) for coordinator in coordinators] == [(CODE, -1), (CODE, -1)]
    metadata = failed(sample(MetadataRequest, 13, itertools.count(1)), 13)
    assert (metadata.error_code, [topic.error_code for topic in metadata.topics]) == (CODE, [CODE, CODE])


def test_a_produce_request_with_acks_0_has_no_response() -> None:
    request = sample(ProduceRequest, 9, itertools.count(1))
    request.acks = 0
    assert error_response(request, CODE, 9) is None


def test_a_text_that_no_string_can_hold_is_cut() -> None:
    answer = StreamsGroupHeartbeatResponse(
        error_code=0,
        error_message="x" * 40_000,
        member_id="a",
        member_epoch=1,
        heartbeat_interval_ms=0,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[StreamsStatus(status_code=3, status_detail="y" * 40_000)],
        endpoint_information_epoch=0,
    )
    shorten_messages(answer)
    assert answer.status is not None
    assert [answer.error_message, answer.status[0].status_detail] == [f"{letter * LONGEST_MESSAGE}…" for letter in "xy"]
