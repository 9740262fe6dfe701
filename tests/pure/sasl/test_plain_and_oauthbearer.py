"""The mechanisms with one message: PLAIN and OAUTHBEARER."""

from __future__ import annotations

import tracemalloc

import pytest

from aiokafka_lite.errors import AuthenticationError
from aiokafka_lite.protocol.sasl import OAuthBearerExchange, PlainExchange
from aiokafka_lite.settings.security import Secret


def test_plain_sends_name_and_password_in_one_message() -> None:
    exchange = PlainExchange("alice", Secret("pass wörd"))
    assert exchange.begin() == "\0alice\0pass wörd".encode()
    assert exchange.received(b"") is None
    assert "pass" not in repr(exchange)


def test_oauthbearer_sends_the_token_in_one_message() -> None:
    exchange = OAuthBearerExchange(Secret("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="))
    first_message = b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert exchange.begin() == first_message
    assert exchange.received(b"") is None
    assert "vF9" not in repr(exchange)


def test_the_reason_for_a_refused_token_takes_little_memory() -> None:
    exchange = OAuthBearerExchange("eyJh.eyJz.c2ln")
    exchange.begin()
    message = b'{"status": "x", "a": [' + b"[]," * 1_000_000 + b"[]]}"
    tracemalloc.start()
    exchange.received(message)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
    assert exchange.objection.startswith('{"status": "x", ')


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
def test_the_reason_for_a_refused_token_is_acknowledged(message: bytes, objection: str) -> None:
    exchange = OAuthBearerExchange("eyJh.eyJz.c2ln")
    exchange.begin()
    assert exchange.received(message) == b"\x01"
    assert exchange.objection == objection
    with pytest.raises(AuthenticationError, match="the broker refused the token"):
        exchange.received(b"")


@pytest.mark.parametrize("token", ["", "hunter 2", "hunter\x01auth=2", "hunter\n2", "=hunter2", "huntér2", "hunter=2"])
def test_an_invalid_token_is_not_sent(token: str) -> None:
    with pytest.raises(AuthenticationError, match="the token must consist of") as refused:
        OAuthBearerExchange(token)
    assert "hunt" not in str(refused.value)
