"""Responses in which everything failed with one error code, derived from the declarations of the messages.

Kafka answers in this way when a handler breaks, and ``Fault.fail`` answers in this way on demand. Four rules:

 1. The code goes into the outermost ``error_code`` fields that the version has; arrays below such a field stay empty.
 2. A struct without an ``error_code`` repeats an array of the request, element by element. This is the array of the
    same name; if there is none, the topics; if there are none, all arrays of that level. Names, ids and partition
    numbers are copied from it.
 3. A struct with an ``error_code`` has the code's description as its message. Every other field is absent: its default,
    else -1, null or empty.
 4. Fetch, Metadata, ElectLeaders and AlterPartitionReassignments have a code for the whole response, in addition to the
    codes of topics. They repeat the topics wherever the request names any; in Fetch, a code that is meant for a topic
    must not end the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ErrorCode
from ..protocol.messages import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    FetchResponse,
    MetadataResponse,
    ProduceRequest,
)
from ..protocol.schema import MISSING, Request, Response, Spec

_CODES = ("error_code", "partition_error_code")
"""The names of an error code in messages. AddPartitionsToTxn has its own name."""
_PARTITION = ("partition_index", "partition", "partition_id", "index")
_IDENTITY = {
    *("name", "topic", "topic_id", "key", "group_id", "member_id"),
    *("transactional_id", "user"),
    *("resource_type", "resource_name", "entity", "entity_type", "entity_name"),
    *_PARTITION,
}
"""The fields that identify an element of a response."""
_WITH_TOPICS = (FetchResponse, MetadataResponse, ElectLeadersResponse, AlterPartitionReassignmentsResponse)
"""Responses of rule 4."""
_NO_BROKER = ("node_id", "port")
"""Fields that are -1 if there is no broker, even if their default is different."""
LONGEST_MESSAGE = 1_000
"""Characters of an error message of a response that is too long otherwise."""


def error_response(request: Request[Any], code: ErrorCode, version: int) -> Response | None:
    """Return the response in which all of ``request`` failed with ``code``.

    None for a produce request with acks=0. It has no response: only a closed connection reports the error.
    """
    if isinstance(request, ProduceRequest) and request.acks == 0:
        return None
    response: Response = _failed(type(request).response, request, int(code), version)
    if isinstance(response, FetchResponse) and response.responses:
        response.error_code = ErrorCode.NONE
    return response


def shorten_messages(part: Any) -> None:
    """Cut the texts of errors and states that are too long for a string of the protocol. ``part`` is a response, or a
    part of it. A message may quote a name of the request: 30,000 control characters are quoted with 120,000 characters.
    """
    if isinstance(part, list):
        for element in part:
            shorten_messages(element)
    for name in getattr(part, "specs", ()):
        value = getattr(part, name)
        if isinstance(value, str) and name.endswith(("error_message", "status_detail")):
            setattr(part, name, value if len(value) <= LONGEST_MESSAGE else f"{value[:LONGEST_MESSAGE]}…")
        else:
            shorten_messages(value)


def _failed(answer: type[Any], request: Any, code: int, version: int) -> Any:
    """Return the struct ``answer`` to the struct ``request``, which is a bare name or number in some arrays."""
    specs: dict[str, Spec] = answer.specs
    has_code = _has_code(specs, version)
    repeats = not has_code or answer in _WITH_TOPICS
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if name in _CODES:
            values[name] = code if has_code else ErrorCode.NONE
        elif name == "error_message" and has_code and version in spec.versions:
            values[name] = ErrorCode.of(code).description
        elif spec.wire == "array" and version in spec.versions:
            # All other arrays stay empty (rule 1): arrays below a code, and arrays without codes, such as brokers.
            is_repeated = name in _IDENTITY or (repeats and _holds_code(spec, version))
            elements = _repeated(request, name, version) if is_repeated else ()
            values[name] = [_failed(spec.item, element, code, version) for element in elements]
        else:
            copied = _copied(name, spec, request, version)
            values[name] = _absent(name, spec, version) if copied is None else copied
    return answer(**values)


def _has_code(specs: Mapping[str, Spec], version: int) -> bool:
    """Return whether a struct with these fields has an error code in this version."""
    return any(name in specs and version in specs[name].versions for name in _CODES)


def _holds_code(array: Spec, version: int) -> bool:
    """Return whether elements of the array, or of an array in them, have an error code."""
    if not isinstance(array.item, type):
        return False
    specs: dict[str, Spec] = array.item.specs  # type: ignore[attr-defined]
    return any(name in specs for name in _CODES) or any(
        spec.wire == "array" and version in spec.versions and _holds_code(spec, version) for spec in specs.values()
    )


def _repeated(request: Any, array_name: str, version: int) -> list[Any]:
    """Return the elements of the request that an array of the response answers."""
    specs: dict[str, Spec] = getattr(type(request), "specs", {})
    arrays = [field for field, spec in specs.items() if spec.wire == "array" and version in spec.versions]
    if array_name not in arrays:
        arrays = ["topics"] if len(arrays) > 1 and "topics" in arrays else arrays
    else:
        arrays = [array_name]
    return [element for array in arrays for element in getattr(request, array) or ()]


def _copied(name: str, spec: Spec, request: Any, version: int) -> Any:
    """Return the value of the field ``name`` in the request. Fields of partitions and users may have other names there.

    None without a value, and for a field that does not identify an element.
    """
    if name not in _IDENTITY or version not in spec.versions:
        return None
    if isinstance(request, str | int):
        return request if isinstance(request, str) == (spec.wire == "string") else None
    names = _PARTITION if name in _PARTITION else ("name" if name == "user" else name,)
    return next((getattr(request, attribute) for attribute in names if hasattr(request, attribute)), None)


def _absent(name: str, spec: Spec, version: int) -> Any:
    """Return the value of a field without information."""
    if name in _NO_BROKER and version in spec.versions:
        return -1
    if spec.default is not MISSING:
        return spec.default() if isinstance(spec.default, type) else spec.default
    if spec.wire == "string":
        return None if spec.nullable is not None and version in spec.nullable else ""
    absent: dict[str, Any] = {"bytes": b"", "records": b"", "array": [], "?": False, "16s": bytes(16)}
    return absent.get(spec.wire, -1)
