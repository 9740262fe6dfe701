"""Describe and change quotas of users, client ids and addresses.

- An entity is one or two of ``user``, ``client-id`` and ``ip``; the quotas are ``producer_byte_rate``,
  ``consumer_byte_rate`` (bytes per second), ``request_percentage``, ``controller_mutation_rate`` and
  ``connection_creation_rate`` (KIP-546).
- v1 of both is flexible.
"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, float64, int8, int16, int32, message, since, string, struct


@struct
class AlterClientQuotasResponseEntity:
    """Part of an entity's name."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class AlterClientQuotasResponseEntry:
    """Whether the quotas of one entity were changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[AlterClientQuotasResponseEntity] = array(AlterClientQuotasResponseEntity)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse(Response):
    """A result for each entity."""

    throttle_time_ms: int = int32(default=0)
    entries: list[AlterClientQuotasResponseEntry] = array(AlterClientQuotasResponseEntry)


@struct
class AlterClientQuotasRequestEntity:
    """Part of an entity's name. A null name is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class AlterClientQuotasOperation:
    """A quota to set or to remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class AlterClientQuotasRequestEntry:
    """An entity and the changes of its quotas."""

    entity: list[AlterClientQuotasRequestEntity] = array(AlterClientQuotasRequestEntity)
    ops: list[AlterClientQuotasOperation] = array(AlterClientQuotasOperation)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    """Set and remove quotas."""

    INTRODUCED = since(0, kafka="2.6")

    entries: list[AlterClientQuotasRequestEntry] = array(AlterClientQuotasRequestEntry)
    validate_only: bool = boolean()


@struct
class DescribeClientQuotasEntity:
    """Part of an entity's name. A null name is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class DescribeClientQuotasValue:
    """A quota and its value."""

    key: str = string()
    value: float = float64()


@struct
class DescribeClientQuotasEntry:
    """An entity and its quotas."""

    entity: list[DescribeClientQuotasEntity] = array(DescribeClientQuotasEntity)
    values: list[DescribeClientQuotasValue] = array(DescribeClientQuotasValue)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse(Response):
    """The matching entities. Null after an error."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribeClientQuotasEntry] | None = array(DescribeClientQuotasEntry, nullable="0+")


@struct
class DescribeClientQuotasComponent:
    """A filter: match type 0 for this name, 1 for the default, 2 for any name."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    """Request the quotas of matching entities. With ``strict``, entities with other parts do not match."""

    INTRODUCED = since(0, kafka="2.6")

    components: list[DescribeClientQuotasComponent] = array(DescribeClientQuotasComponent)
    strict: bool = boolean()
