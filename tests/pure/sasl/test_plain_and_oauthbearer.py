"""The mechanisms of one message: a password as it is, and a token that somebody else issued."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import AuthenticationError
from aiokafka_lite.protocol.sasl import OAuthBearerExchange, PlainExchange
from aiokafka_lite.security import Secret


def test_plain_says_name_and_password_and_needs_no_answer() -> None:
    exchange = PlainExchange("alice", Secret("pass wörd"))
    assert exchange.begin() == "\0alice\0pass wörd".encode()
    assert exchange.received(b"") is None
    assert "pass" not in repr(exchange)


def test_oauthbearer_says_the_token_and_needs_no_answer() -> None:
    exchange = OAuthBearerExchange(Secret("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="))
    said = b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert exchange.begin() == said
    assert exchange.received(b"") is None
    assert "vF9" not in repr(exchange)


@pytest.mark.parametrize(
    "message, objection",
    [
        (b'{"status":"invalid_token","scope":"x"}', "invalid_token"),
        (b'{"status":5}', '{"status":5}'),
        (b'{"status":"a\\nb"}', "a\N{REPLACEMENT CHARACTER}b"),
        (b"no\xff\x01", "no\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (b"[" * 100_000, "[" * 200 + "…"),
    ],
)
def test_a_token_that_is_not_wanted_is_acknowledged_and_then_refused(message: bytes, objection: str) -> None:
    exchange = OAuthBearerExchange("token")
    exchange.begin()
    assert exchange.received(message) == b"\x01"
    assert exchange.objection == objection
    with pytest.raises(AuthenticationError, match="the broker refused the token"):
        exchange.received(b"")


@pytest.mark.parametrize("token", ["", "hunter 2", "hunter\x01auth=2", "hunter\n2", "=hunter2", "huntér2", "hunter=2"])
def test_what_cannot_be_a_token_is_not_said(token: str) -> None:
    with pytest.raises(AuthenticationError, match="the token must consist of") as refused:
        OAuthBearerExchange(token)
    assert "hunt" not in str(refused.value)
