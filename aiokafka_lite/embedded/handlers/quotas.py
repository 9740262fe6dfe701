"""DescribeClientQuotas and AlterClientQuotas: limits for users and client ids (KIP-546).

- An entity is a user, a client id, both, or an IP address. A null name is the default for names without a limit.
- The parts of an entity are listed in the order of their types, its values in the order of Java's HashMap.
- A filter matches a name exactly (0), the default (1) or any name (2). A strict filter allows no other parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from ipaddress import ip_address

from ...acls import AclOperation
from ...arguments import INT32_MAX, INT64_MAX, must_be
from ...errors import ErrorCode
from ...protocol import messages as m
from ..quotas import CLIENT_ID, CONNECTIONS, FETCH, IP, KEYS, PRODUCE, USER, Entity
from ..request_context import RequestContext, handles

EXACT = 0
DEFAULT = 1
ANY = 2


@handles(m.DescribeClientQuotasRequest)
def describe_client_quotas(
    context: RequestContext, request: m.DescribeClientQuotasRequest
) -> m.DescribeClientQuotasResponse:
    if not context.allows(AclOperation.DESCRIBE_CONFIGS):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wrong = [
        component.entity_type for component in request.components if component.entity_type not in (USER, CLIENT_ID, IP)
    ]
    if problem := _problem_of_filter(request.components):
        return _refused(ErrorCode.INVALID_REQUEST, problem)
    if wrong:
        return _refused(ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {wrong[0]!r}")
    entries = [
        m.DescribeClientQuotasEntry(
            entity=[m.DescribeClientQuotasEntity(entity_type=kind, entity_name=name) for kind, name in _sorted(entity)],
            values=[m.DescribeClientQuotasValue(key=key, value=limits[key]) for key in _as_listed(limits)],
        )
        for entity, limits in context.broker.quota_limits
        if _matches(dict(entity), request)
    ]
    return m.DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=entries)


def _problem_of_filter(components: Sequence[m.DescribeClientQuotasComponent]) -> str | None:
    kinds = [component.entity_type for component in components]
    if "" in kinds or len(set(kinds)) != len(kinds):
        return f"each component must have another entity type, got {kinds}"
    if IP in kinds and len(kinds) > 1:
        return f"the entity type ip must be alone, got {kinds}"
    for component in components:
        if component.match_type not in (EXACT, DEFAULT, ANY) or (component.match is None) == (
            component.match_type == EXACT
        ):
            return f"match type {component.match_type} is not valid with the name {component.match!r}"
    return None


def _refused(code: ErrorCode, message: str | None = None) -> m.DescribeClientQuotasResponse:
    return m.DescribeClientQuotasResponse(error_code=code, error_message=message or code.description, entries=None)


def _sorted(entity: Entity) -> list[tuple[str, str | None]]:
    return sorted(entity, key=lambda part: part[0])


def _as_listed(keys: Collection[str]) -> list[str]:
    """Return the keys in Kafka's order: by the buckets of Java's HashMap."""
    buckets = 1
    while len(keys) > 0.75 * buckets:
        buckets *= 2
    # Kafka collects the changes in a HashMap of 16 buckets, and then copies them to a HashMap that grows.
    return sorted(keys, key=lambda key: (_java_hash(key) % buckets, _java_hash(key) % 16))


def _java_hash(text: str) -> int:
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code ^ (code >> 16)


def _matches(entity: dict[str, str | None], request: m.DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    return all(_matches_part(entity, component) for component in request.components)


def _matches_part(entity: dict[str, str | None], component: m.DescribeClientQuotasComponent) -> bool:
    if component.entity_type not in entity:
        return False
    name = entity[component.entity_type]
    if component.match_type == DEFAULT:
        return name is None
    return component.match_type == ANY or name == component.match


@handles(m.AlterClientQuotasRequest, requires=AclOperation.ALTER_CONFIGS)
def alter_client_quotas(context: RequestContext, request: m.AlterClientQuotasRequest) -> m.AlterClientQuotasResponse:
    entries = []
    counts = Counter(map(_entity_of, request.entries))
    by_entity = {_entity_of(entry): entry for entry in request.entries}
    for entity, entry in by_entity.items():
        problem = _wrong_entity(entry) or _wrong_change(entry)
        if counts[entity] > 1:
            problem = f"the request names the entity {counts[entity]} times"
        if problem is None and not request.validate_only:
            _apply(context, entry)
        entries.append(
            m.AlterClientQuotasResponseEntry(
                error_code=ErrorCode.NONE if problem is None else ErrorCode.INVALID_REQUEST,
                error_message=problem,
                entity=[
                    m.AlterClientQuotasResponseEntity(entity_type=kind, entity_name=name)
                    for kind, name in _sorted(entity)
                ],
            )
        )
    context.broker.controller.metadata_changed()
    return m.AlterClientQuotasResponse(entries=entries)


def _entity_of(entry: m.AlterClientQuotasRequestEntry) -> Entity:
    """Return the entity; as in Kafka, the last name of each type counts."""
    return frozenset({part.entity_type: part.entity_name for part in entry.entity}.items())


def _wrong_entity(entry: m.AlterClientQuotasRequestEntry) -> str | None:
    kinds = {part.entity_type for part in entry.entity}
    if not kinds or not (kinds <= {USER, CLIENT_ID} or kinds == {IP}):
        return f"an entity of {sorted(kinds)} cannot have quotas"
    if any(part.entity_name == "" for part in entry.entity):
        return "the name of an entity must not be empty; the default is null"
    for part in entry.entity:
        if part.entity_type == IP and part.entity_name is not None and not _is_address(part.entity_name):
            return must_be("the name of an entity of the type ip", "an IP address", part.entity_name)
    return None


def _wrong_change(entry: m.AlterClientQuotasRequestEntry) -> str | None:
    if len({change.key for change in entry.ops}) != len(entry.ops):
        return "each quota must be named once"
    of_address = any(part.entity_type == IP for part in entry.entity)
    changes = [change for change in entry.ops if not change.remove]
    return next((problem for change in changes if (problem := _wrong_value(change, of_address))), None)


def _is_address(name: str) -> bool:
    """Return whether the name is an IP address. Kafka also accepts every host name that it can resolve."""
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


def _wrong_value(change: m.AlterClientQuotasOperation, of_address: bool) -> str | None:
    if change.key not in KEYS or (change.key == CONNECTIONS) is not of_address:
        return f"unknown quota {change.key!r}"
    if not change.value > 0:
        return must_be(change.key, "> 0", change.value)
    if change.key in (PRODUCE, FETCH, CONNECTIONS):
        largest = INT32_MAX if change.key == CONNECTIONS else INT64_MAX
        if change.value > largest or change.value % 1:
            return must_be(change.key, f"a whole number <= {largest}", change.value)
    return None


def _apply(context: RequestContext, entry: m.AlterClientQuotasRequestEntry) -> None:
    limits = context.broker.quota_limits
    entity = _entity_of(entry)
    for change in entry.ops:
        if change.remove:
            limits.remove(entity, change.key)
        else:
            limits.set(entity, change.key, change.value)
