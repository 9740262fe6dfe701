"""Quotas of users, client ids and IP addresses: describe and alter (KIP-546). Requires Kafka 2.6.

A quota is for an entity: a user, a client id, both together, or an IP address. Each part may be ``Match.DEFAULT``, for
all clients without a quota of their own. Quotas have Kafka's names: ``producer_byte_rate`` and ``consumer_byte_rate``
(bytes per second), ``request_percentage``, ``controller_mutation_rate``, ``connection_creation_rate``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .. import arguments
from ..errors import KafkaError
from ..protocol.messages import (
    AlterClientQuotasOperation,
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    DescribeClientQuotasComponent,
    DescribeClientQuotasRequest,
)
from .answers import answer_of, raise_for
from .calls import Calls
from .peer import Peer
from .results import Results


class Match(Enum):
    """A special value instead of a name."""

    DEFAULT = 1
    """All clients without a quota of their own."""
    ANY = 2
    """Any name. Only for ``describe``."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that a quota is for. A part that is None is not compared."""

    user: str | Match | None = None
    client_id: str | Match | None = None
    ip: str | Match | None = None

    @property
    def parts(self) -> Mapping[str, str | Match]:
        """The parts that are not None, by their names in the protocol."""
        by_kind = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return {kind: part for kind, part in by_kind.items() if part is not None}

    def __post_init__(self) -> None:
        for kind, part in self.parts.items():
            if not isinstance(part, str | Match):
                raise TypeError(arguments.must_be(kind, "a string or Match.DEFAULT", part))
            if isinstance(part, str):
                arguments.text(kind, part)

    def __str__(self) -> str:
        return ", ".join(f"{kind}={part if isinstance(part, str) else part.name}" for kind, part in self.parts.items())


class Quotas:
    """The calls of ``admin.quotas``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(
        self,
        *,
        user: str | Match | None = None,
        client_id: str | Match | None = None,
        ip: str | Match | None = None,
        strict: bool = False,
        timeout: float | None = None,
    ) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Describe the quotas of entities whose parts match; all quotas if no part is given.

        ``strict`` leaves out entities that also have a part that was not given.
        """
        components = [
            DescribeClientQuotasComponent(
                entity_type=kind,
                match_type=part.value if isinstance(part, Match) else 0,
                match=None if isinstance(part, Match) else part,
            )
            for kind, part in QuotaEntity(user, client_id, ip).parts.items()
        ]

        async def ask(peer: Peer) -> Mapping[QuotaEntity, Mapping[str, float]]:
            peer.require(DescribeClientQuotasRequest.INTRODUCED, "describing quotas")
            answer = await peer.send(DescribeClientQuotasRequest(components=components, strict=strict))
            raise_for(answer.error_code, "describing quotas", answer.error_message)
            return {
                _entity({part.entity_type: part.entity_name for part in entry.entity}): {
                    value.key: value.value for value in entry.values
                }
                for entry in answer.entries or ()
            }

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing quotas", self._calls.any_broker, ask, deadline)

    async def alter(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[QuotaEntity, None]:
        """Set these quotas. A value of None removes the quota. All other quotas stay."""
        arguments.mapping("changes", changes, "QuotaEntity to quotas")
        entries = {entity: _entry(entity, changes[entity]) for entity in changes}

        async def ask(peer: Peer, items: list[QuotaEntity]) -> Mapping[QuotaEntity, KafkaError | None]:
            peer.require(AlterClientQuotasRequest.INTRODUCED, "changing quotas")
            request = AlterClientQuotasRequest(entries=[entries[item] for item in items], validate_only=validate_only)
            answers: dict[QuotaEntity, KafkaError | None] = {}
            for entry in (await peer.send(request)).entries:
                entity = _entity({part.entity_type: part.entity_name for part in entry.entity})
                answers[entity] = answer_of(entry.error_code, f"changing quotas of {entity}", None, entry.error_message)
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("changing quotas", entries, self._calls.controller, ask, deadline)


def _entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    by_kind = {kind: Match.DEFAULT if name is None else name for kind, name in parts.items()}
    return QuotaEntity(by_kind.get("user"), by_kind.get("client-id"), by_kind.get("ip"))


def _entry(entity: QuotaEntity, changes: Mapping[str, float | None]) -> AlterClientQuotasRequestEntry:
    if not isinstance(entity, QuotaEntity):
        raise TypeError(arguments.must_be("entity", "a QuotaEntity", entity))
    if not entity.parts:
        raise ValueError("entity must have a user, a client_id or an ip, got QuotaEntity()")
    if Match.ANY in entity.parts.values():
        raise ValueError(f"entity must have names or Match.DEFAULT, got {entity}; Match.ANY is only for describe")
    arguments.mapping(f"changes of {entity}", changes, "quota names to numbers")
    for key, value in changes.items():
        arguments.text("quota", key)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise TypeError(arguments.must_be(key, "a number, or None to remove the quota", value))
        if value is not None and not abs(value) <= sys.float_info.max:
            raise ValueError(arguments.must_be(key, "a finite number", value))
    return AlterClientQuotasRequestEntry(
        entity=[
            AlterClientQuotasRequestEntity(entity_type=kind, entity_name=part if isinstance(part, str) else None)
            for kind, part in entity.parts.items()
        ],
        ops=[
            AlterClientQuotasOperation(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in changes.items()
        ],
    )
