"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that log in by SCRAM (KIP-554).

- Any node accepts these requests, as Kafka's brokers forward changes to the controller.
- A user that a request names twice gets DUPLICATE_RESOURCE, a credential that does not exist RESOURCE_NOT_FOUND.
- A request for no users, or for null, means all users.
"""

from __future__ import annotations

from collections import Counter

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ...protocol.sasl.scram import FEWEST_ITERATIONS
from ..metadata.controller import Refused
from ..request_context import RequestContext, handles
from ..security.scram_users import ScramUsers

_NUMBERS = {mechanism: number for number, mechanism in m.SCRAM_MECHANISMS.items()}


@handles(m.DescribeUserScramCredentialsRequest, requires=AclOperation.DESCRIBE)
def describe_users(
    context: RequestContext, request: m.DescribeUserScramCredentialsRequest
) -> m.DescribeUserScramCredentialsResponse:
    credentials = context.broker.scram_users.describe()
    counts = Counter(user.name for user in request.users or ()) or dict.fromkeys(credentials, 1)
    return m.DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_described(name, count, credentials.get(name)) for name, count in counts.items()],
    )


def _described(name: str, count: int, iterations: dict[str, int] | None) -> m.DescribeUserScramCredentialsResult:
    result = m.DescribeUserScramCredentialsResult(
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
            m.CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=number)
            for mechanism, number in sorted(iterations.items())
        ]
    return result


@handles(m.AlterUserScramCredentialsRequest, requires=AclOperation.ALTER)
def alter_users(
    context: RequestContext, request: m.AlterUserScramCredentialsRequest
) -> m.AlterUserScramCredentialsResponse:
    users = context.broker.scram_users
    accepted: dict[str, m.ScramCredentialDeletion | m.ScramCredentialUpsertion] = {}
    refused: dict[str, Refused] = {}
    changes: list[m.ScramCredentialDeletion | m.ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for change in changes:
        if change.name in refused:
            continue
        try:
            if accepted.pop(change.name, None) is not None:
                raise Refused(ErrorCode.DUPLICATE_RESOURCE, f"the request changes user {change.name!r} twice")
            _check(users, change)
            accepted[change.name] = change
        except Refused as refusal:
            refused[change.name] = refusal
    for change in accepted.values():
        _apply(users, change)
    context.broker.controller.metadata_changed()
    results = [_result(name, ErrorCode.NONE, None) for name in accepted]
    results += [_result(name, refusal.code, str(refusal)) for name, refusal in refused.items()]
    return m.AlterUserScramCredentialsResponse(results=results)


def _result(name: str, code: ErrorCode, message: str | None) -> m.AlterUserScramCredentialsResult:
    return m.AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)


def _check(users: ScramUsers, change: m.ScramCredentialDeletion | m.ScramCredentialUpsertion) -> None:
    """Raise Refused unless the credential can be set or removed."""
    mechanism = m.SCRAM_MECHANISMS.get(change.mechanism)
    if not change.name:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the name of a user must not be empty")
    if mechanism is None:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {change.mechanism}")
    if isinstance(change, m.ScramCredentialDeletion):
        if users.get(change.name, mechanism) is None:
            raise Refused(ErrorCode.RESOURCE_NOT_FOUND, f"user {change.name!r} has no credential for {mechanism}")
    elif not FEWEST_ITERATIONS <= change.iterations <= m.MOST_SCRAM_ITERATIONS:
        text = f"iterations must be from {FEWEST_ITERATIONS} to {m.MOST_SCRAM_ITERATIONS}, got {change.iterations}"
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    elif not change.salted_password:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salted password must not be empty")


def _apply(users: ScramUsers, change: m.ScramCredentialDeletion | m.ScramCredentialUpsertion) -> None:
    mechanism = m.SCRAM_MECHANISMS[change.mechanism]
    if isinstance(change, m.ScramCredentialDeletion):
        users.remove(change.name, mechanism)
    else:
        users.set(change.name, mechanism, change.iterations, change.salt, change.salted_password)
