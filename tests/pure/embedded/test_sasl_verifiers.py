"""The broker's side of each mechanism, tested with the client's side and with bad messages."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.embedded.security.access_tokens import unsecured_token
from aiokafka_lite.embedded.security.delegation_tokens import DelegationTokens
from aiokafka_lite.embedded.security.sasl_verifiers import (
    Accepted,
    LoginRefused,
    OAuthBearerVerifier,
    PlainVerifier,
    SaslVerifier,
    ScramVerifier,
)
from aiokafka_lite.embedded.security.scram_users import ScramUsers
from aiokafka_lite.embedded.settings.configs import ClusterSettings
from aiokafka_lite.errors import AuthenticationError
from aiokafka_lite.protocol.sasl import (
    Derivation,
    OAuthBearerExchange,
    PlainExchange,
    SaslExchange,
    ScramExchange,
    derive,
)

NOW = 1_000_000.0
USERS = {"alice": "pencil", "zoe=,": "pass wörd Ⅸ"}


def no_tokens() -> DelegationTokens:
    settings = ClusterSettings({"delegation.token.secret.key": "secret"})
    return DelegationTokens(settings.of(), Random(1))


def scram(mechanism: str = "SCRAM-SHA-256", tokens: DelegationTokens | None = None) -> ScramVerifier:
    users = ScramUsers()
    for name, password in USERS.items():
        users.set_password(name, password)
    return ScramVerifier(mechanism, users, tokens or no_tokens())


def bearer() -> OAuthBearerVerifier:
    return OAuthBearerVerifier(None, lambda: NOW)


def log_in(client: SaslExchange, verifier: SaslVerifier) -> Accepted | None:
    """Exchange messages until the client is content. Raises the error of the side that refuses first."""
    step = client.begin()
    while step is not None:
        if isinstance(step, Derivation):
            step = client.derived(derive(step))
        else:
            step = client.received(verifier.received(step))
    return verifier.accepted


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_both_sides_of_scram_accept_each_other(mechanism: str, user: str) -> None:
    client = ScramExchange(mechanism, user, USERS[user], "nonce")
    assert log_in(client, scram(mechanism)) == Accepted(user)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_with_a_token_is_one_of_its_owner(mechanism: str) -> None:
    tokens = no_tokens()
    token = tokens.create("User:zoe=,", "User:bob", (), -1, int(NOW * 1000))
    password = base64.b64encode(token.hmac).decode()
    client = ScramExchange(mechanism, token.token_id, password, "nonce", tokenauth=True)
    assert log_in(client, scram(mechanism, tokens)) == Accepted("zoe=,", token.expires_at / 1000, by_token=True)


@pytest.mark.parametrize(
    "user, password, tokenauth",
    [("alice", "pencil", True), ("token", "password", False), ("token", "pencil", True), ("gone", "password", True)],
)
def test_tokens_are_not_users_and_users_are_not_tokens(user: str, password: str, tokenauth: bool) -> None:
    tokens = no_tokens()
    token = tokens.create("User:alice", "User:alice", (), -1, int(NOW * 1000))
    gone = tokens.create("User:alice", "User:alice", (), -1, int(NOW * 1000))
    tokens.expire(gone.hmac, "User:alice", -1, int(NOW * 1000))
    name = {"token": token.token_id, "gone": gone.token_id}.get(user, user)
    secret = base64.b64encode((gone if user == "gone" else token).hmac).decode() if password == "password" else password
    with pytest.raises(LoginRefused):
        log_in(ScramExchange("SCRAM-SHA-256", name, secret, "nonce", tokenauth=tokenauth), scram(tokens=tokens))


@pytest.mark.parametrize("user, password", [("alice", "eraser"), ("mallory", "pencil")])
def test_a_client_cannot_tell_a_wrong_user_from_a_wrong_password_of_scram(user: str, password: str) -> None:
    with pytest.raises(LoginRefused) as refused:
        log_in(ScramExchange("SCRAM-SHA-256", user, password, "nonce"), scram())
    assert refused.value.shown is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"y,,n=alice,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,,n=al=ice,r=nonce",
        b"n,,n=alice,r=no nce",
        b"n,,n=al\xffice,r=nonce",
        b"n,a=bob,n=alice,r=nonce",
    ],
)
def test_a_first_message_of_scram_that_no_client_should_send_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        scram().received(message)


@pytest.mark.parametrize("proof", [b"", b"QUJD", b"AAAA" * 10 + b"AAA="])
def test_a_proof_of_another_key_is_refused(proof: bytes) -> None:
    verifier = scram()
    nonce = verifier.received(b"n,,n=alice,r=nonce").split(b",")[0]
    with pytest.raises(LoginRefused, match="the password of 'alice' is wrong"):
        verifier.received(b"c=biws," + nonce + b",p=" + proof)
    assert verifier.accepted is None


def test_a_proof_for_another_nonce_is_refused() -> None:
    verifier = scram()
    verifier.received(b"n,,n=alice,r=nonce")
    with pytest.raises(LoginRefused, match="nonce"):
        verifier.received(b"c=biws,r=nonce,p=QUJD")


def test_both_sides_of_plain_accept_each_other() -> None:
    assert log_in(PlainExchange("zoe=,", USERS["zoe=,"]), PlainVerifier(USERS)) == Accepted("zoe=,")


@pytest.mark.parametrize(
    "message, shown",
    [
        (b"\0alice\0eraser", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0pencil", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0pencil", "Authentication failed: Client requested an authorization id that is different from"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0pencil", "Authentication failed: username not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\xff\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0pencil\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_plain_refuses_in_the_words_of_kafka(message: bytes, shown: str) -> None:
    verifier = PlainVerifier(USERS)
    with pytest.raises(LoginRefused) as refused:
        verifier.received(message)
    assert verifier.accepted is None
    assert (refused.value.shown or "").startswith(shown)


def test_both_sides_of_oauthbearer_accept_each_other() -> None:
    token = unsecured_token("carol", issued_at=NOW, lifetime=60.0)
    assert log_in(OAuthBearerExchange(token), bearer()) == Accepted("carol", NOW + 60.0)


def jws(claims: Any, *, alg: str = "none", signature: str = "") -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": alg}, claims)
    ]
    return ".".join([*parts, signature])


GOOD = {"sub": "carol", "exp": NOW + 60.0}


@pytest.mark.parametrize(
    "token",
    [
        "abc",
        "a.b.c.d",
        jws(GOOD, alg="HS256"),
        jws(GOOD, signature="c2ln"),
        jws([]),
        jws({**GOOD, "sub": None}),
        jws({**GOOD, "sub": " "}),
        jws({**GOOD, "exp": None}),
        jws({**GOOD, "exp": NOW}),
        jws({**GOOD, "exp": "soon"}),
        jws({**GOOD, "exp": True}),
        jws({**GOOD, "iat": NOW + 1.0}),
    ],
)
def test_a_token_that_is_not_valid_is_refused_after_its_status(token: str) -> None:
    verifier = bearer()
    with pytest.raises(LoginRefused) as refused:
        log_in(OAuthBearerExchange(token), verifier)
    assert refused.value.shown == '{"status":"invalid_token"}'
    assert verifier.accepted is None


def test_a_function_checks_tokens_of_any_form() -> None:
    def check(token: str) -> dict[str, object]:
        if token != "opaque":
            raise ValueError("unknown token")
        return {"sub": "carol"}

    assert log_in(OAuthBearerExchange("opaque"), OAuthBearerVerifier(check, lambda: NOW)) == Accepted("carol")
    with pytest.raises(LoginRefused, match=r"check_token raised ValueError$"):
        log_in(OAuthBearerExchange("other"), OAuthBearerVerifier(check, lambda: NOW))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,auth=Bearer abc",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01traceId=7\x01\x01",
        b"n,a=bob,\x01auth=Bearer " + unsecured_token("carol", issued_at=NOW).encode() + b"\x01\x01",
    ],
)
def test_a_first_message_of_oauthbearer_that_no_client_should_send_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        bearer().received(message)


@given(st.lists(st.binary(max_size=100), max_size=3))
def test_any_message_is_answered_or_refused(messages: list[bytes]) -> None:
    for verifier in (PlainVerifier(USERS), scram(), bearer()):
        try:
            for message in messages:
                verifier.received(message)
        except LoginRefused:
            pass
        assert verifier.accepted is None


def test_the_client_rejects_a_broker_that_does_not_know_the_password() -> None:
    class FalseBroker(ScramVerifier):
        def received(self, message: bytes) -> bytes:
            return b"v=" + base64.b64encode(bytes(32)) if message.startswith(b"c=") else super().received(message)

    users = ScramUsers()
    users.set_password("alice", "guess")
    with pytest.raises(AuthenticationError, match="it does not know the password"):
        log_in(
            ScramExchange("SCRAM-SHA-256", "alice", "pencil", "nonce"), FalseBroker("SCRAM-SHA-256", users, no_tokens())
        )
