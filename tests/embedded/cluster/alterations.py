"""Alterations of responses: one field gets a value that a broker should never send, and stays well formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka_lite.protocol.schema import Request, Response, Spec, Struct

LAST = {"b": 2**7 - 1, "h": 2**15 - 1, "i": 2**31 - 1, "q": 2**63 - 1}

NOT_ALTERED = {"throttle_time_ms", "error_code", "error_message", "cluster_authorized_operations"}
"""Fields whose values are all legal."""


@dataclass(frozen=True)
class Alteration:
    """Set ``field`` of every struct ``owner`` in a response to ``value``. "doubled" repeats the elements of a list."""

    owner: type[Struct]
    field: str
    value: Any

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.field}={self.value!r}"

    def __call__(self, response: Any) -> Any:
        return self._copied(response)

    def _copied(self, value: Any) -> Any:
        if hasattr(value, "specs"):  # a message, or a struct in one
            fields = {name: self._copied(getattr(value, name)) for name in value.specs}
            if type(value) is self.owner:
                before = fields[self.field]
                if before is None:  # a field of another version
                    pass
                elif self.value == "doubled":
                    fields[self.field] = before * 2
                else:
                    fields[self.field] = self.value
            return type(value)(**fields)
        if isinstance(value, list):
            return [self._copied(item) for item in value]
        return value


def with_topic_id(topic_id: bytes) -> Callable[[Any], Any]:
    """Give every topic of an assignment in a heartbeat response this id."""

    def change(response: Any) -> Any:
        for topic in response.assignment.topic_partitions if response.assignment else ():
            topic.topic_id = topic_id
        return response

    return change


def alterations(request: type[Request[Any]], version: int | None = None) -> Iterator[Alteration]:
    """Yield all alterations of the response to a request, in a version, by default the newest."""
    response: type[Response] = request.response
    yield from _of_struct(response, request.versions.last if version is None else version)


def _of_struct(owner: type[Struct], version: int) -> Iterator[Alteration]:
    for name, spec in owner.specs.items():
        if version not in spec.versions or name in NOT_ALTERED:
            continue
        for value in _values(spec, version):
            yield Alteration(owner, name, value)
        if isinstance(spec.item, type):
            yield from _of_struct(spec.item, version)


def _values(spec: Spec, version: int) -> list[Any]:
    if spec.wire in LAST:
        return [-1, 0, LAST[spec.wire]]
    if spec.wire == "string":
        return ["", "another"] + [None] * spec.is_nullable(version)
    if spec.wire == "16s":
        return [bytes(16), b"another topic id"]
    if spec.wire in ("bytes", "records"):
        return [b"", b"\xff" * 20]
    if spec.wire == "array":
        return [[], "doubled"]
    return []
