"""GSSAPI (RFC 4752): the context, then the broker's offer of security layers, of which the client takes none."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import AuthenticationError
from aiokafka_lite.protocol.sasl import GssapiExchange


class TwoSteps:
    """The security context of a library: complete after one message of the broker. It marks wrapped messages."""

    def __init__(self) -> None:
        self.complete = False

    def step(self, message: bytes) -> bytes:
        if message != b"proof":
            raise AuthenticationError("not the broker of the ticket")
        self.complete = True
        return b""

    def unwrap(self, message: bytes) -> bytes:
        assert message.startswith(b"signed ")
        return message.removeprefix(b"signed ")

    def wrap(self, content: bytes) -> bytes:
        return b"signed " + content


def begun() -> GssapiExchange:
    exchange = GssapiExchange(TwoSteps(), b"ticket")
    assert exchange.begin() == b"ticket"
    return exchange


def test_the_client_takes_no_security_layer_and_no_name_of_another_user() -> None:
    exchange = begun()
    assert exchange.received(b"proof") == b""
    assert exchange.received(b"signed \x07\x00\xff\xff") == b"signed \x01\x00\x00\x00"
    assert exchange.received(b"") is None
    assert exchange.objection == ""


def test_a_broker_that_cannot_read_the_ticket_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="not the broker of the ticket"):
        begun().received(b"guess")


@pytest.mark.parametrize(
    "offer, says",
    [
        (b"\x06\x00\xff\xff", "requires a security layer of Kerberos"),
        (b"", "does not have four bytes"),
        (b"\x01\x00\x00", "does not have four bytes"),
        (b"\x01\x00\x00\x00alice", "does not have four bytes"),
    ],
)
def test_an_offer_without_the_choice_of_no_layer_ends_the_login(offer: bytes, says: str) -> None:
    exchange = begun()
    exchange.received(b"proof")
    with pytest.raises(AuthenticationError, match=says):
        exchange.received(b"signed " + offer)
