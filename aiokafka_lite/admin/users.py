"""Users that log in by SCRAM: describe them, set their passwords, remove them (KIP-554). Requires Kafka 2.7.

A user has one credential for each mechanism. The password never leaves this process: brokers get its salted hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Mapping

from .. import arguments
from ..errors import KafkaError, UnsupportedVersion
from ..protocol.messages import (
    MOST_SCRAM_ITERATIONS,
    SCRAM_MECHANISMS,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from ..protocol.sasl.scram import FEWEST_ITERATIONS, HASHES
from .answers import answer_of, raise_for, results_of
from .calls import Calls
from .peer import Peer
from .results import Results

DEFAULT_MECHANISM = "SCRAM-SHA-512"
_SALT_BYTES = 20
_NUMBERS = {mechanism: number for number, mechanism in SCRAM_MECHANISMS.items()}


class Users:
    """The calls of ``admin.users``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(
        self, names: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Results[str, Mapping[str, int]]:
        """Describe the mechanisms of users, by default of all, with the number of iterations of each mechanism.

        A result is ``{"SCRAM-SHA-512": 4096}``. A user without a credential fails with RESOURCE_NOT_FOUND. Raises
        UnsupportedVersion with ``bootstrap_controllers``.
        """
        user_names = None if names is None else arguments.names(names, "user")
        if user_names == []:
            return Results({}, {})

        async def ask(peer: Peer) -> Results[str, Mapping[str, int]]:
            peer.require(DescribeUserScramCredentialsRequest.INTRODUCED, "describing users")
            users = None if user_names is None else [UserName(name=name) for name in user_names]
            answer = await peer.send(DescribeUserScramCredentialsRequest(users=users))
            raise_for(answer.error_code, "describing users", answer.error_message)
            return results_of({result.user: _described(result) for result in answer.results})

        if self._calls.asks_controllers:
            # Controllers of Kafka 4.3 offer this API, and never answer it.
            raise UnsupportedVersion("controllers do not describe users: ask a broker, with bootstrap_servers")
        deadline = self._calls.deadline(timeout)
        return await self._calls.one("describing users", self._calls.any_broker, ask, deadline)

    async def set_passwords(
        self,
        passwords: Mapping[str, str],
        *,
        mechanism: str = DEFAULT_MECHANISM,
        iterations: int = FEWEST_ITERATIONS,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Add users, or change their passwords for one mechanism, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.

        With more ``iterations`` (4,096 to 16,384), a login takes longer, and a stolen credential is harder to break.
        """
        _number(mechanism)
        arguments.whole("iterations", iterations, FEWEST_ITERATIONS, MOST_SCRAM_ITERATIONS)
        for name, password in arguments.mapping("passwords", passwords, "users to passwords").items():
            arguments.text("user", name)
            if not isinstance(password, str) or not password:
                raise TypeError(f"the password of {name!r} must be a string that is not empty")
        deadline = self._calls.deadline(timeout)
        upsertions = {}
        for name, password in passwords.items():
            upsertions[name] = _salted(name, password, mechanism, iterations)
            await asyncio.sleep(0)  # a hash takes up to 15 ms

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, KafkaError | None]:
            return await _alter(peer, "setting the password of", upsertions=[upsertions[item] for item in items])

        return await self._calls.settle("setting passwords", upsertions, self._calls.controller, ask, deadline)

    async def remove(
        self, names: str | Iterable[str], *, mechanism: str = DEFAULT_MECHANISM, timeout: float | None = None
    ) -> Results[str, None]:
        """Remove the users' credentials for one mechanism, so that they can no longer log in by it."""
        number = _number(mechanism)
        users = arguments.names(names, "user")

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, KafkaError | None]:
            deletions = [ScramCredentialDeletion(name=item, mechanism=number) for item in items]
            return await _alter(peer, "removing", deletions=deletions)

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("removing users", users, self._calls.controller, ask, deadline)


def _number(mechanism: str) -> int:
    """Return the number of a mechanism in requests. Raises ValueError for a name that is not a mechanism."""
    number = _NUMBERS.get(mechanism)
    if number is None:
        raise ValueError(arguments.must_be("mechanism", f"one of {', '.join(_NUMBERS)}", mechanism))
    return number


def _salted(name: str, password: str, mechanism: str, iterations: int) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(_SALT_BYTES)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=_NUMBERS[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations),
    )


async def _alter(
    peer: Peer,
    what: str,
    *,
    deletions: Iterable[ScramCredentialDeletion] = (),
    upsertions: Iterable[ScramCredentialUpsertion] = (),
) -> Mapping[str, KafkaError | None]:
    peer.require(AlterUserScramCredentialsRequest.INTRODUCED, "changing users")
    request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
    return {
        result.user: answer_of(result.error_code, f"{what} user {result.user!r}", None, result.error_message)
        for result in (await peer.send(request)).results
    }


def _described(result: DescribeUserScramCredentialsResult) -> Mapping[str, int] | KafkaError:
    iterations = {
        SCRAM_MECHANISMS.get(
            credential_info.mechanism, f"mechanism {credential_info.mechanism}"
        ): credential_info.iterations
        for credential_info in result.credential_infos
    }
    return answer_of(result.error_code, f"describing user {result.user!r}", iterations, result.error_message)
