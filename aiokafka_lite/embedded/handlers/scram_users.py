"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that log in by SCRAM (KIP-554).

- Any node accepts these requests, as Kafka's brokers forward changes to the controller.
- A user that a request names twice gets DUPLICATE_RESOURCE, a credential that does not exist RESOURCE_NOT_FOUND.
- A request for no users, or for null, means all users.
"""

from __future__ import annotations

from collections import Counter

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol.messages import (
    MOST_SCRAM_ITERATIONS,
    SCRAM_MECHANISMS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...protocol.sasl.scram import FEWEST_ITERATIONS
from ..controller import Refused
from ..handling import RequestContext, handles
from ..scram_users import ScramUsers

_NUMBERS = {mechanism: number for number, mechanism in SCRAM_MECHANISMS.items()}


@handles(DescribeUserScramCredentialsRequest, requires=AclOperation.DESCRIBE)
def describe_users(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known = context.broker.scram_users.describe()
    counts = Counter(user.name for user in request.users or ()) or dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_described(name, count, known.get(name)) for name, count in counts.items()],
    )


def _described(name: str, count: int, iterations: dict[str, int] | None) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.NONE, error_message=None, credential_infos=[]
    )
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"the request names user {name!r} {count} times"
    elif iterations is None:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"user {name!r} has no SCRAM credential"
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=number)
            for mechanism, number in sorted(iterations.items())
        ]
    return result


@handles(AlterUserScramCredentialsRequest, requires=AclOperation.ALTER)
def alter_users(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    counts = Counter(change.name for change in changes)
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for change in changes:
        result = AlterUserScramCredentialsResult(user=change.name, error_code=ErrorCode.NONE, error_message=None)
        try:
            if counts[change.name] > 1:
                text = f"the request names user {change.name!r} {counts[change.name]} times"
                raise Refused(ErrorCode.DUPLICATE_RESOURCE, text)
            _apply(context.broker.scram_users, change)
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, str(refusal)
        results[change.name] = result
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=list(results.values()))


def _apply(users: ScramUsers, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
    """Set or remove a credential. Raises Refused."""
    mechanism = SCRAM_MECHANISMS.get(change.mechanism)
    if not change.name:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the name of a user must not be empty")
    if mechanism is None:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {change.mechanism}")
    if isinstance(change, ScramCredentialDeletion):
        if not users.remove(change.name, mechanism):
            raise Refused(ErrorCode.RESOURCE_NOT_FOUND, f"user {change.name!r} has no credential for {mechanism}")
        return
    if not FEWEST_ITERATIONS <= change.iterations <= MOST_SCRAM_ITERATIONS:
        text = f"iterations must be from {FEWEST_ITERATIONS} to {MOST_SCRAM_ITERATIONS}, got {change.iterations}"
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    users.set(change.name, mechanism, change.iterations, change.salt, change.salted_password)
