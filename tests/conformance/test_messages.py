"""Every message equals Kafka's own definition: fields, order, types, versions, defaults, nulls, tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aiokafka_lite.protocol import messages
from aiokafka_lite.protocol.schema import MAX_VERSION, MISSING, ZERO_UUID, Message, Request, Response, Spec, Versions

from .kafka_definitions import definitions, without_comments

WIRE = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
    "string": "string",
    "bytes": "bytes",
    "records": "records",
}
ZERO = {"bool": False, "float64": 0.0, "uuid": ZERO_UUID, "string": "", "bytes": b"", "records": b""}

EARLIEST = {
    "OffsetCommit": 0,
    "OffsetFetch": 0,
    "ListOffsets": 0,
    "OffsetForLeaderEpoch": 0,
    "CreateTopics": 0,
    "DeleteTopics": 0,
    "DescribeConfigs": 0,
    "DescribeLogDirs": 0,
    "AlterReplicaLogDirs": 0,
    "WriteTxnMarkers": 0,
    "CreateAcls": 0,
    "DescribeAcls": 0,
    "DeleteAcls": 0,
    "CreateDelegationToken": 0,
    "DescribeDelegationToken": 0,
    "RenewDelegationToken": 0,
    "ExpireDelegationToken": 0,
}
"""The first versions of messages that go back further than Kafka 4."""
REMOVED = {"commit_timestamp", "is_default", "max_num_offsets", "old_style_offsets"}
"""Fields of those earlier versions, which Kafka 4 does not define any more."""

OURS = sorted(
    (
        value
        for value in (getattr(messages, name) for name in messages.__all__)
        if isinstance(value, type) and issubclass(value, Message) and value not in (Message, Request, Response)
    ),
    key=lambda cls: cls.__name__,
)


def snake_case(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def versions_of(text: str) -> Versions | None:
    return None if text == "none" else Versions.parse(text)


def test_every_message_is_compared() -> None:
    assert len(OURS) == 2 * len(messages.REQUESTS) + 2


def test_each_message_is_as_kafka_defines_it() -> None:
    complaints = [difference for cls in OURS for difference in differences(cls, definitions()[cls.__name__])]
    assert not complaints, "\n".join(complaints)


def test_no_message_of_a_supported_api_is_missing() -> None:
    by_key = {
        definition["apiKey"]: definition["name"]
        for definition in definitions().values()
        if definition["type"] == "request" and definition["apiKey"] in messages.REQUESTS
    }
    assert by_key == {key: request.__name__ for key, request in messages.REQUESTS.items()}


def test_comments_are_taken_out_and_strings_are_not() -> None:
    assert without_comments('{"a": "http://x", // why\n "b": 1}') == '{"a": "http://x", \n "b": 1}'


def differences(cls: type[Any], definition: Mapping[str, Any]) -> Iterator[str]:
    name = definition["name"]
    if cls.api_key != definition.get("apiKey", -1):
        yield f"{name}: API key {cls.api_key}, not {definition.get('apiKey', -1)}"
    valid = Versions.parse(definition["validVersions"])
    valid = valid._replace(first=EARLIEST.get(name.removesuffix("Request").removesuffix("Response"), valid.first))
    if cls.versions != valid:
        yield f"{name}: versions {cls.versions}, not {valid}"
    flexible = versions_of(definition["flexibleVersions"])
    if cls.flexible != (MAX_VERSION if flexible is None else flexible.first):
        yield f"{name}: flexible from {cls.flexible}, not {definition['flexibleVersions']}"
    common = {item["name"]: item["fields"] for item in definition.get("commonStructs", [])}
    yield from struct_differences(cls, definition["fields"], name, cls.versions, common)


def struct_differences(
    cls: type[Any], fields: list[Any], path: str, valid: Versions, common: Mapping[str, Any]
) -> Iterator[str]:
    ours = [spec for spec in cls.specs if spec not in REMOVED]
    theirs = [snake_case(field["name"]) for field in fields]
    if ours != theirs:
        yield f"{path}: fields {ours}, not {theirs}"
    for field in fields:
        spec = cls.specs.get(snake_case(field["name"]))
        if spec is not None:
            yield from field_differences(spec, field, f"{path}.{field['name']}", valid, common)


def field_differences(
    spec: Spec, field: Mapping[str, Any], path: str, valid: Versions, common: Mapping[str, Any]
) -> Iterator[str]:
    nullable = versions_of(field.get("nullableVersions", "none"))
    for what, ours, theirs in (
        ("versions", spec.versions, versions_of(field["versions"])),
        ("nullable", spec.nullable, nullable),
        ("tag", spec.tag, field.get("tag")),
        ("ignorable", spec.ignorable, field.get("ignorable", False)),
        ("flexible versions", None, field.get("flexibleVersions")),
    ):
        if ours != theirs:
            yield f"{path}: {what} {ours}, not {theirs}"
    if spec.tag is not None and versions_of(field["taggedVersions"]) != spec.versions:
        yield f"{path}: tagged in {field['taggedVersions']} only"
    yield from default_differences(spec, field, path, valid)
    yield from type_differences(spec, field["type"], field, path, valid, common)


def default_differences(spec: Spec, field: Mapping[str, Any], path: str, valid: Versions) -> Iterator[str]:
    """Yield differences of defaults. A field may require a value here if Kafka has no default for it, every version
    has it, and it is not tagged."""
    theirs = kafka_default(field, spec)
    everywhere = spec.versions.first <= valid.first and spec.versions.last >= valid.last
    if spec.default is MISSING:
        if "default" in field or not everywhere or spec.tag is not None:
            yield f"{path}: no default, not {theirs!r}"
    elif (type(spec.default), spec.default) != (type(theirs), theirs):
        yield f"{path}: default {spec.default!r}, not {theirs!r}"


def kafka_default(field: Mapping[str, Any], spec: Spec) -> Any:
    kind, text = field["type"], field.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind not in WIRE:
        return spec.item()
    if text is None or text == "":
        return ZERO.get(kind, 0)
    if kind == "bool":
        return str(text).lower() == "true"
    if kind in ("string", "float64"):
        return str(text) if kind == "string" else float(text)
    return int(str(text), 0)


def type_differences(
    spec: Spec, kind: str, field: Mapping[str, Any], path: str, valid: Versions, common: Mapping[str, Any]
) -> Iterator[str]:
    if kind.startswith("[]"):
        if spec.wire != "array":
            yield f"{path}: {spec.wire}, not an array"
        elif isinstance(spec.item, Spec):
            yield from type_differences(spec.item, kind[2:], field, path, valid, common)
        elif kind[2:] in WIRE:
            yield f"{path}: an array of structs, not of {kind[2:]}"
        else:
            yield from struct_differences(spec.item, field.get("fields") or common[kind[2:]], path, valid, common)
    elif kind in WIRE:
        if spec.wire != WIRE[kind]:
            yield f"{path}: {spec.wire}, not {kind}"
    elif spec.wire != "struct":
        yield f"{path}: {spec.wire}, not the struct {kind}"
    else:
        yield from struct_differences(spec.item, field.get("fields") or common[kind], path, valid, common)
