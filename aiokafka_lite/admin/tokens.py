"""Delegation tokens: create, renew, expire and describe them (KIP-48). Requires Kafka 1.1, and a client that logs in.

A token lets a program act as the owner of the token, without the owner's password. Its HMAC is the secret.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from .. import arguments
from ..protocol.messages import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from .answers import raise_for
from .calls import Calls
from .peer import Peer

_BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Times are milliseconds since the epoch; ``latest_expiry`` cannot be extended.

    Principals are ``User:<name>``. ``requester`` is the owner before Kafka 3.3.

    A client logs in with the token by ``sasl_tokenauth=True``, ``sasl_username=token.token_id`` and
    ``sasl_password=token.password``.

    ``DelegationToken`` of ``embedded`` is the token as the brokers keep it.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at: int
    expires_at: int
    latest_expiry: int

    @property
    def password(self) -> str:
        """The HMAC in base64, which is the password of the token."""
        return base64.b64encode(self.hmac).decode()


class Tokens:
    """The calls of ``admin.tokens``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        lifetime: float | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a token for the client's own principal, or for another ``owner`` (since Kafka 3.3).

        ``renewers`` are principals who may renew and expire the token, like the owner. ``lifetime`` is in seconds; its
        default and its maximum are the brokers' ``delegation.token.max.lifetime.ms``.
        """
        checked_renewers = arguments.several(renewers, "renewers")
        kind, name = ("", "") if owner is None else _parts("owner", owner)
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in (_parts("renewer", renewer) for renewer in checked_renewers)
            ],
            max_lifetime_ms=_milliseconds("lifetime", lifetime),
        )

        async def ask(peer: Peer) -> DelegationToken:
            peer.require(CreateDelegationTokenRequest.INTRODUCED, "creating a delegation token")
            if owner is not None:
                peer.require(CreateDelegationTokenRequest.OWNER, "a delegation token for another owner")
            answer = await peer.send(request)
            raise_for(answer.error_code, "creating a delegation token")
            return _created(answer, tuple(checked_renewers))

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("creating a delegation token", self._calls.controller, ask, deadline)

    async def renew(self, hmac: bytes, *, period: float | None = None, timeout: float | None = None) -> int:
        """Extend the life of a token by ``period`` seconds from now. Returns its expiry in milliseconds.

        The default and the maximum are the brokers' ``delegation.token.expiry.time.ms``.
        """
        request = RenewDelegationTokenRequest(hmac=_hmac(hmac), renew_period_ms=_milliseconds("period", period))

        async def ask(peer: Peer) -> int:
            peer.require(RenewDelegationTokenRequest.INTRODUCED, "renewing a delegation token")
            answer = await peer.send(request)
            raise_for(answer.error_code, "renewing a delegation token")
            return answer.expiry_timestamp_ms

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("renewing a delegation token", self._calls.controller, ask, deadline)

    async def expire(self, hmac: bytes, *, timeout: float | None = None) -> None:
        """Make a token invalid now."""
        request = ExpireDelegationTokenRequest(hmac=_hmac(hmac), expiry_time_period_ms=-1)

        async def ask(peer: Peer) -> None:
            peer.require(ExpireDelegationTokenRequest.INTRODUCED, "expiring a delegation token")
            raise_for((await peer.send(request)).error_code, "expiring a delegation token")

        deadline = self._calls.deadline(timeout)
        await self._calls.one("expiring a delegation token", self._calls.controller, ask, deadline)

    async def describe(
        self, owners: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> tuple[DelegationToken, ...]:
        """Describe the tokens of these owners (all by default) that the client may see."""
        request_owners = None
        if owners is not None:
            request_owners = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in (_parts("owner", name) for name in arguments.names(owners, "owner"))
            ]

        async def ask(peer: Peer) -> tuple[DelegationToken, ...]:
            peer.require(DescribeDelegationTokenRequest.INTRODUCED, "describing delegation tokens")
            answer = await peer.send(DescribeDelegationTokenRequest(owners=request_owners))
            raise_for(answer.error_code, "describing delegation tokens")
            return tuple(map(_described, answer.tokens))

        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing delegation tokens", self._calls.any_broker, ask, deadline)


def _parts(name: str, principal: str) -> tuple[str, str]:
    kind, colon, user = arguments.text(name, principal).partition(":")
    if not (kind and colon and user):
        raise ValueError(arguments.must_be(name, "a principal such as User:alice", principal))
    return kind, user


def _milliseconds(name: str, seconds: float | None) -> int:
    if seconds is None:
        return _BROKER_DEFAULT
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < arguments.INT32_MAX:
        raise ValueError(arguments.must_be(name, "a number of seconds > 0", seconds))
    return max(1, round(seconds * 1000))


def _hmac(hmac: bytes) -> bytes:
    if not isinstance(hmac, bytes):
        raise TypeError("hmac must be bytes: the HMAC of a token")
    return hmac


def _created(answer: CreateDelegationTokenResponse, renewers: tuple[str, ...]) -> DelegationToken:
    owner = f"{answer.principal_type}:{answer.principal_name}"
    return DelegationToken(
        token_id=answer.token_id,
        hmac=answer.hmac,
        owner=owner,
        requester=_requester(answer, owner),
        renewers=renewers,
        issued_at=answer.issue_timestamp_ms,
        expires_at=answer.expiry_timestamp_ms,
        latest_expiry=answer.max_timestamp_ms,
    )


def _described(token: DescribedDelegationToken) -> DelegationToken:
    owner = f"{token.principal_type}:{token.principal_name}"
    return DelegationToken(
        token_id=token.token_id,
        hmac=token.hmac,
        owner=owner,
        requester=_requester(token, owner),
        renewers=tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
        issued_at=token.issue_timestamp,
        expires_at=token.expiry_timestamp,
        latest_expiry=token.max_timestamp,
    )


def _requester(answer: CreateDelegationTokenResponse | DescribedDelegationToken, owner: str) -> str:
    name = answer.token_requester_principal_name
    return f"{answer.token_requester_principal_type}:{name}" if name else owner
