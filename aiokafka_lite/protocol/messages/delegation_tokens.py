"""Create, renew, expire and describe delegation tokens (KIP-48). The HMAC of a token is its password.

All times are in milliseconds. v2 is flexible, v3 adds tokens for another owner (KIP-373).
"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, int16, int32, int64, message, since, string, struct


@message(key=38, versions=(0, 3), flexible=2)
class CreateDelegationTokenResponse(Response):
    """The new token."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = blob()
    throttle_time_ms: int = int32(default=0)


@struct
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@message(key=38, versions=(0, 3), flexible=2)
class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    """Create a token. Its owner is the requesting principal, unless another owner is named."""

    INTRODUCED = since(0, kafka="1.1")
    OWNER = since(3, kafka="3.3")

    owner_principal_type: str | None = string("3+", nullable="3+", default="")
    owner_principal_name: str | None = string("3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@message(key=39, versions=(0, 2), flexible=2)
class RenewDelegationTokenResponse(Response):
    """The new expiry of the token."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)


@message(key=39, versions=(0, 2), flexible=2)
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    """Extend the life of a token."""

    INTRODUCED = since(0, kafka="1.1")

    hmac: bytes = blob()
    renew_period_ms: int = int64()


@message(key=40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenResponse(Response):
    """The new expiry of the token."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)


@message(key=40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    """Set the remaining life of a token; a negative period ends it now."""

    INTRODUCED = since(0, kafka="1.1")

    hmac: bytes = blob()
    expiry_time_period_ms: int = int64()


@struct
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@struct
class DescribedDelegationToken:
    """A token."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = blob()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message(key=41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenResponse(Response):
    """The tokens that the client may see."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32(default=0)


@struct
class DescribeDelegationTokenOwner:
    """An owner of tokens."""

    principal_type: str = string()
    principal_name: str = string()


@message(key=41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    """Request the tokens of owners; null means all tokens."""

    INTRODUCED = since(0, kafka="1.1")
    REQUESTER = since(3, kafka="3.3")

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")
