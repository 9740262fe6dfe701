"""Quotas of users, client ids and addresses: describe and alter (KIP-546). Since Kafka 2.6.

A quota is for an entity: a user, a client id, both together, or an address. Each part may be the default, which is for
all who have no quota of their own. Names of quotas are Kafka's: ``producer_byte_rate`` and ``consumer_byte_rate``
(bytes a second), ``request_percentage``, ``controller_mutation_rate``, ``connection_creation_rate``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ..errors import KafkaError, error_for
from ..protocol.messages import (
    AlterClientQuotasOperation,
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    DescribeClientQuotasComponent,
    DescribeClientQuotasRequest,
)
from . import arguments
from .calls import Calls, Peer, answer_of
from .results import Results


class Match(Enum):
    """What may stand in place of a name."""

    DEFAULT = 1
    """Those who have no quota of their own."""
    ANY = 2
    """Whoever it is; only to ask with."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for; a part that is None is not part of it."""

    user: str | Match | None = None
    client_id: str | Match | None = None
    ip: str | Match | None = None

    @property
    def parts(self) -> Mapping[str, str | Match]:
        """The parts under the names that the protocol has for them."""
        named = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return {kind: part for kind, part in named.items() if part is not None}

    def __post_init__(self) -> None:
        for kind, part in self.parts.items():
            if not isinstance(part, str | Match):
                raise TypeError(f"{kind}={part!r} is neither a name nor Match.DEFAULT")
            if isinstance(part, str):
                arguments.text(kind, part)

    def __str__(self) -> str:
        return ", ".join(f"{kind}={part if isinstance(part, str) else part.name}" for kind, part in self.parts.items())


class Quotas:
    """What ``admin.quotas`` does."""

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
        """The quotas of entities whose parts match; ``strict`` leaves out those that have other parts as well.

        Without any part, all quotas there are.
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
            peer.require(DescribeClientQuotasRequest, 0, "describing quotas by request", "2.6")
            answer = await peer.send(DescribeClientQuotasRequest(components=components, strict=strict))
            if answer.error_code:
                raise error_for(answer.error_code, f"describing quotas: {answer.error_message or ''}".rstrip(": "))
            return {
                _entity({part.entity_type: part.entity_name for part in entry.entity}): {
                    each.key: each.value for each in entry.values
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
        """Set the quotas that are named, remove those that are None, and leave the others."""
        arguments.mapping(changes, "QuotaEntity")
        entries = {entity: _entry(entity, changes[entity]) for entity in changes}

        async def ask(peer: Peer, items: list[QuotaEntity]) -> Mapping[QuotaEntity, KafkaError | None]:
            peer.require(AlterClientQuotasRequest, 0, "changing quotas by request", "2.6")
            request = AlterClientQuotasRequest(entries=[entries[item] for item in items], validate_only=validate_only)
            answers: dict[QuotaEntity, KafkaError | None] = {}
            for each in (await peer.send(request)).entries:
                entity = _entity({part.entity_type: part.entity_name for part in each.entity})
                answers[entity] = answer_of(each.error_code, f"changing quotas of {entity}", None, each.error_message)
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("changing quotas", entries, self._calls.controller, ask, deadline)


def _entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    named = {kind: Match.DEFAULT if name is None else name for kind, name in parts.items()}
    return QuotaEntity(named.get("user"), named.get("client-id"), named.get("ip"))


def _entry(entity: QuotaEntity, changes: Mapping[str, float | None]) -> AlterClientQuotasRequestEntry:
    if not isinstance(entity, QuotaEntity):
        raise TypeError(f"{entity!r} is not a QuotaEntity")
    if not entity.parts:
        raise ValueError("a quota is for somebody: QuotaEntity needs a user, a client_id or an ip")
    if Match.ANY in entity.parts.values():
        raise ValueError(f"{entity}: quotas are changed for one entity, or for Match.DEFAULT")
    arguments.mapping(changes, "quota to number")
    for key, value in changes.items():
        arguments.text("quota", key)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise TypeError(f"{key}={value!r} is not a number, nor None to remove the quota")
        if value is not None and not abs(value) <= sys.float_info.max:
            raise ValueError(f"{key}={value!r}: a finite number")
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
