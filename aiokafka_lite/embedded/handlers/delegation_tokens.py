"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48).

- A client must have logged in, by SASL or by a certificate. A client that has logged in with a token is refused.
- A token for another owner requires CREATE_TOKENS on that user (KIP-373).
- A principal sees the tokens that it owns or may renew. It also sees tokens if it has DESCRIBE on the token, or
  DESCRIBE_TOKENS on the owner.
"""

from __future__ import annotations

from collections.abc import Callable

from ...acls import AclOperation, AclResourceType
from ...errors import ErrorCode
from ...protocol import messages as m
from ..metadata.controller import Refused
from ..request_context import RequestContext, handles
from ..security.authorizer import Resource
from ..security.delegation_tokens import DelegationToken
from ..security.security import ANONYMOUS

USER = "User"
NEVER = -1


@handles(m.CreateDelegationTokenRequest)
def create_token(context: RequestContext, request: m.CreateDelegationTokenRequest) -> m.CreateDelegationTokenResponse:
    requester = context.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    response = m.CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=_type(owner),
        principal_name=_name(owner),
        issue_timestamp_ms=NEVER,
        expiry_timestamp_ms=NEVER,
        max_timestamp_ms=NEVER,
        token_id="",
        hmac=b"",
    )
    if context.version >= m.CreateDelegationTokenRequest.OWNER:
        response.token_requester_principal_type = _type(requester)
        response.token_requester_principal_name = _name(requester)
    try:
        _require_login(context)
        of_owner = Resource(AclResourceType.USER, owner)
        if owner != requester and not context.allows(AclOperation.CREATE_TOKENS, of_owner):
            raise Refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, f"CREATE_TOKENS is denied on {owner}")
        tokens = context.broker.tokens
        tokens.require_enabled()
        if any(renewer.principal_type != USER for renewer in request.renewers):
            raise Refused(ErrorCode.INVALID_PRINCIPAL_TYPE, "a renewer must be a user")
        renewers = tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers)
        token = tokens.create(owner, requester, renewers, request.max_lifetime_ms, context.broker.now_ms())
        context.broker.controller.metadata_changed()
    except Refused as refusal:
        response.error_code = refusal.code
        return response
    response.issue_timestamp_ms = token.issued_at
    response.expiry_timestamp_ms = token.expires_at
    response.max_timestamp_ms = token.latest_expiry
    response.token_id, response.hmac = token.token_id, token.hmac
    return response


@handles(m.RenewDelegationTokenRequest)
def renew_token(context: RequestContext, request: m.RenewDelegationTokenRequest) -> m.RenewDelegationTokenResponse:
    code, expiry = _changed(context, context.broker.tokens.renew, request.hmac, request.renew_period_ms)
    return m.RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry)


@handles(m.ExpireDelegationTokenRequest)
def expire_token(context: RequestContext, request: m.ExpireDelegationTokenRequest) -> m.ExpireDelegationTokenResponse:
    code, expiry = _changed(context, context.broker.tokens.expire, request.hmac, request.expiry_time_period_ms)
    return m.ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry)


@handles(m.DescribeDelegationTokenRequest)
def describe_tokens(
    context: RequestContext, request: m.DescribeDelegationTokenRequest
) -> m.DescribeDelegationTokenResponse:
    response = m.DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=[])
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    try:
        _require_login(context)
        context.broker.tokens.require_enabled()
        response.tokens = [
            _described(token, shows_requester=context.version >= m.DescribeDelegationTokenRequest.REQUESTER)
            for token in context.broker.tokens
            if (owners is None or token.owner in owners) and _is_visible(context, token)
        ]
    except Refused as refusal:
        response.error_code = refusal.code
    return response


def _changed(
    context: RequestContext, change: Callable[[bytes, str, int, int], int], hmac: bytes, period_ms: int
) -> tuple[ErrorCode, int]:
    """Return the error of a change of a token, and the token's expiry, in milliseconds since the epoch."""
    try:
        _require_login(context)
        expiry = change(hmac, context.principal, period_ms, context.broker.now_ms())
        context.broker.controller.metadata_changed()
        return ErrorCode.NONE, expiry
    except Refused as refusal:
        # Kafka's brokers answer -1 as the expiry, and its controller 0.
        return refusal.code, NEVER if refusal.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def _require_login(context: RequestContext) -> None:
    """Raise Refused for an anonymous client, and for a client that has logged in with a token."""
    if context.principal == ANONYMOUS:
        raise Refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "the client has not logged in")
    if context.client.has_token:
        raise Refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "the client has logged in with a token")


def _is_visible(context: RequestContext, token: DelegationToken) -> bool:
    return (
        token.is_of(context.principal)
        or context.allows(AclOperation.DESCRIBE, Resource(AclResourceType.DELEGATION_TOKEN, token.token_id))
        or context.allows(AclOperation.DESCRIBE_TOKENS, Resource(AclResourceType.USER, token.owner))
    )


def _described(token: DelegationToken, *, shows_requester: bool) -> m.DescribedDelegationToken:
    return m.DescribedDelegationToken(
        principal_type=_type(token.owner),
        principal_name=_name(token.owner),
        token_requester_principal_type=_type(token.requester) if shows_requester else "",
        token_requester_principal_name=_name(token.requester) if shows_requester else "",
        issue_timestamp=token.issued_at,
        expiry_timestamp=token.expires_at,
        max_timestamp=token.latest_expiry,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=[
            m.DescribedDelegationTokenRenewer(principal_type=_type(renewer), principal_name=_name(renewer))
            for renewer in token.renewers
        ],
    )


def _type(principal: str) -> str:
    return principal.partition(":")[0]


def _name(principal: str) -> str:
    return principal.partition(":")[2]
