"""Describe and change the SCRAM credentials of users (KIP-554).

A client sends the salted password, never the password.
"""

from __future__ import annotations

from ..schema import Request, Response, array, blob, int8, int16, int32, message, since, string, struct

SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The numbers of the mechanisms."""
MOST_SCRAM_ITERATIONS = 16_384
"""Brokers refuse credentials with more iterations, or with fewer than 4,096."""


@struct
class CredentialInfo:
    """A credential of a user."""

    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse(Response):
    """A result for each user."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


@struct
class UserName:
    """The name of a user."""

    name: str = string()


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    """Request the credentials of users. Null, or an empty list, means all users."""

    INTRODUCED = since(0, kafka="2.7")

    users: list[UserName] | None = array(UserName, nullable="0+")


@struct
class AlterUserScramCredentialsResult:
    """Whether the credentials of one user were changed."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse(Response):
    """A result for each user."""

    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)


@struct
class ScramCredentialDeletion:
    """A credential to remove."""

    name: str = string()
    mechanism: int = int8()


@struct
class ScramCredentialUpsertion:
    """A credential to set."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = blob()
    salted_password: bytes = blob()


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    """Set and remove credentials."""

    INTRODUCED = since(0, kafka="2.7")

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)
