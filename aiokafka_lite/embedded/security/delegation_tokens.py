"""Delegation tokens of a cluster (KIP-48): their owners, the principals that may renew them, and their expiry.

A client proves with the HMAC of a token that it has the token. Only the cluster can make the HMAC, because only the
cluster has the key ``delegation.token.secret.key``. A client logs in by SCRAM, with the id of the token as the user
name and the HMAC in base64 as the password.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from ...errors import ErrorCode
from ...protocol.sasl.scram import HASHES
from ..metadata.controller import Refused
from ..settings.configs import BrokerSettings
from .scram_users import ScramCredential


@dataclass(slots=True)
class DelegationToken:
    """A token. Times are milliseconds since the epoch; ``latest_expiry`` cannot be extended.

    ``DelegationToken`` of ``admin`` is this token as a client reads it.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at: int
    expires_at: int
    latest_expiry: int

    def is_of(self, principal: str) -> bool:
        """Return whether the principal owns the token or may renew it."""
        return principal == self.owner or principal in self.renewers


class DelegationTokens:
    """The tokens of a cluster. Owner: the EmbeddedCluster. Its methods raise Refused."""

    def __init__(self, settings: BrokerSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._by_hmac: dict[bytes, DelegationToken] = {}
        self._credentials: dict[tuple[bytes, str], ScramCredential] = {}

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter(list(self._by_hmac.values()))

    def require_enabled(self) -> None:
        """Raise Refused if the cluster has no key."""
        if not self._secret:
            raise Refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set")

    @property
    def _secret(self) -> bytes:
        return self._settings.value("delegation.token.secret.key").encode()

    def find(self, token_id: str) -> DelegationToken | None:
        """Return the token with this id; None if there is none."""
        if not self._secret:  # without a key, everyone could compute the HMAC
            return None
        return next((token for token in self._by_hmac.values() if token.token_id == token_id), None)

    def credential(self, token: DelegationToken, mechanism: str) -> ScramCredential:
        """Return the credential that a login with the token is checked against. It is derived once."""
        key = (token.hmac, mechanism)
        # A login by token would otherwise take thousands of hashes each time, and a client may log in often.
        if key not in self._credentials:
            password = base64.b64encode(token.hmac).decode()
            self._credentials[key] = ScramCredential.of_password(mechanism, password)
        return self._credentials[key]

    def create(
        self, owner: str, requester: str, renewers: tuple[str, ...], max_lifetime_ms: int, now_ms: int
    ) -> DelegationToken:
        """Make a token. A lifetime that is not positive means the longest one."""
        self.require_enabled()
        self._remove_expired(now_ms)
        longest = self._settings.number("delegation.token.max.lifetime.ms")
        latest_expiry = now_ms + (min(longest, max_lifetime_ms) if max_lifetime_ms > 0 else longest)
        token_id = base64.urlsafe_b64encode(self._random.randbytes(16)).decode().rstrip("=")
        token = DelegationToken(
            token_id=token_id,
            hmac=self._hmac_of(token_id),
            owner=owner,
            requester=requester,
            renewers=renewers,
            issued_at=now_ms,
            expires_at=min(latest_expiry, now_ms + self._settings.number("delegation.token.expiry.time.ms")),
            latest_expiry=latest_expiry,
        )
        self._by_hmac[token.hmac] = token
        return token

    def renew(self, code: bytes, principal: str, period_ms: int, now_ms: int) -> int:
        """Extend the life of the token with this HMAC. Returns its expiry."""
        token = self._changeable(code, principal, now_ms)
        longest = self._settings.number("delegation.token.expiry.time.ms")
        period_ms = min(longest, period_ms) if period_ms > 0 else longest
        token.expires_at = min(token.latest_expiry, now_ms + period_ms)
        return token.expires_at

    def expire(self, code: bytes, principal: str, period_ms: int, now_ms: int) -> int:
        """End the token after a period; at once if the period is negative. Returns its expiry."""
        token = self._changeable(code, principal, now_ms)
        if period_ms < 0:
            self._remove(token)
            return period_ms  # as in Kafka
        token.expires_at = min(token.latest_expiry, now_ms + period_ms)
        return token.expires_at

    def _hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def saved(self) -> list[dict[str, Any]]:
        """Return the tokens without their HMACs: as in Kafka, only the key makes them."""
        tokens = [asdict(token) for token in self]
        for token in tokens:
            del token["hmac"]
        return tokens

    def restore(self, state: list[dict[str, Any]]) -> None:
        self._by_hmac.clear()
        for values in state:
            renewers = tuple(values["renewers"])
            token = DelegationToken(**{**values, "renewers": renewers}, hmac=self._hmac_of(values["token_id"]))
            self._by_hmac[token.hmac] = token

    def _changeable(self, code: bytes, principal: str, now_ms: int) -> DelegationToken:
        self.require_enabled()
        token = self._by_hmac.get(code)
        if token is None:
            raise Refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no token with this HMAC")
        if token.expires_at < now_ms:
            raise Refused(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"token {token.token_id} has expired")
        if not token.is_of(principal):
            raise Refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, f"{principal} may not change {token.token_id}")
        return token

    def _remove_expired(self, now_ms: int) -> None:
        """Remove tokens that expired longer ago than Kafka keeps them."""
        before = now_ms - self._settings.number("delegation.token.expiry.check.interval.ms")
        for token in self:
            if token.expires_at < before:
                self._remove(token)

    def _remove(self, token: DelegationToken) -> None:
        del self._by_hmac[token.hmac]
        for mechanism in HASHES:
            self._credentials.pop((token.hmac, mechanism), None)
