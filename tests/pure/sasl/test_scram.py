"""SCRAM proves the password to a broker that knows it, and rejects a broker that does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite.errors import AuthenticationError
from aiokafka_lite.protocol.sasl import Derivation, ScramExchange, derive

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={SERVER_NONCE},s={SALT},i=4096".encode()


def exchange(mechanism: str = "SCRAM-SHA-256", username: str = "user", password: str = "pencil") -> ScramExchange:
    return ScramExchange(mechanism, username, password, NONCE)


def test_the_first_message_of_a_login_with_a_token_says_so() -> None:
    first = ScramExchange("SCRAM-SHA-256", "token-id", "hmac", NONCE, tokenauth=True).begin()
    assert first == b"n,,n=token-id,r=" + NONCE.encode() + b",tokenauth=true"


def proved(exchange: ScramExchange, server_first: bytes = SERVER_FIRST) -> bytes:
    """Return the message with the proof."""
    exchange.begin()
    step = exchange.received(server_first)
    assert isinstance(step, Derivation)
    client_message = exchange.derived(derive(step))
    assert isinstance(client_message, bytes)
    return client_message


class Server:
    """The broker's side, by the formulas of RFC 5802, section 3."""

    def __init__(self, hash_name: str, password: str, *, iterations: int = 4096) -> None:
        self.hash_name = hash_name
        self.salt = b"\x01salt\xff"
        self.iterations = iterations
        self.key = hashlib.pbkdf2_hmac(hash_name, password.encode(), self.salt, iterations)
        self.said = b""

    def sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)

    def first(self, client_first: bytes) -> bytes:
        bare = client_first.removeprefix(b"n,,")
        nonce = bare.partition(b",r=")[2] + b"-and-ours"
        first = b"r=%s,s=%s,i=%d" % (nonce, base64.b64encode(self.salt), self.iterations)
        self.said = bare + b"," + first
        return first

    def final(self, client_final: bytes) -> bytes:
        without_proof, _, proof = client_final.partition(b",p=")
        signed = self.said + b"," + without_proof
        stored_key = hashlib.new(self.hash_name, self.sign(self.key, b"Client Key")).digest()
        signature = self.sign(stored_key, signed)
        client_key = bytes(one ^ other for one, other in zip(base64.b64decode(proof), signature))
        if hashlib.new(self.hash_name, client_key).digest() != stored_key:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(self.sign(self.sign(self.key, b"Server Key"), signed))


def test_the_example_of_rfc_7677() -> None:
    client = exchange()
    assert client.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    step = client.received(SERVER_FIRST)
    assert isinstance(step, Derivation)
    assert (step.hash_name, step.salt, step.iterations) == ("sha256", base64.b64decode(SALT), 4096)
    assert client.derived(derive(step)) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.received(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize("mechanism, hash_name", [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
@pytest.mark.parametrize("password", ["pencil", "pass wörd Ⅸ", "a,b=c"])
def test_a_broker_that_knows_the_password_is_accepted(mechanism: str, hash_name: str, password: str) -> None:
    client, server = exchange(mechanism, "al=i,ce", password), Server(hash_name, password)
    first = client.begin()
    assert first == b"n,,n=al=3Di=2Cce,r=rOprNGfwEbeRWgbNEkqO"
    step = client.received(server.first(first))
    assert isinstance(step, Derivation)
    proof = client.derived(derive(step))
    assert isinstance(proof, bytes)
    assert client.received(server.final(proof)) is None


def test_another_password_is_refused_by_the_broker() -> None:
    client, server = exchange(password="pencil"), Server("sha256", "eraser")
    first = client.begin()
    assert isinstance(first, bytes)
    step = client.received(server.first(first))
    assert isinstance(step, Derivation)
    proof = client.derived(derive(step))
    assert isinstance(proof, bytes)
    with pytest.raises(AuthenticationError, match="the broker refused the credentials: invalid-proof"):
        client.received(server.final(proof))


@pytest.mark.parametrize(
    "message, says",
    [
        (b"", "is not r=...,s=...,i=..."),
        (b"\x00\xff" * 50, "is not r="),
        (b"r=" + SERVER_NONCE.encode(), "is not r="),
        (b"s=QQ==,r=x,i=4096", "is not r="),
        (b"m=ext,r=x,s=QQ==,i=4096", "an extension of SCRAM that is not supported"),
        (b"e=other\r\nerror", "the broker refused the login: other\N{REPLACEMENT CHARACTER}+error"),
        (f"r={NONCE},s={SALT},i=4096".encode(), "does not begin with the client"),
        (f"r=x{SERVER_NONCE},s={SALT},i=4096".encode(), "does not begin with the client"),
        (f"r={SERVER_NONCE}\x7f,s={SALT},i=4096".encode(), "characters that are not allowed"),
        (f"r={SERVER_NONCE},s=***,i=4096".encode(), "salt is not base64"),
        (f"r={SERVER_NONCE},s=,i=4096".encode(), "salt is empty"),
        (f"r={SERVER_NONCE},s={SALT},i=1".encode(), "requests 1 iterations; 4096 to 1000000"),
        (f"r={SERVER_NONCE},s={SALT},i=4095".encode(), "requests 4095 iterations"),
        (f"r={SERVER_NONCE},s={SALT},i=50000000".encode(), "requests 50000000 iterations"),
        (f"r={SERVER_NONCE},s={SALT},i=".encode() + b"9" * 10_000, "not a number of at most 10 digits"),
        (f"r={SERVER_NONCE},s={SALT},i=-4096".encode(), "not a number"),
        (f"r={SERVER_NONCE},s={SALT},i=+4096".encode(), "not a number"),
        (f"r={SERVER_NONCE},s={SALT},i=4096.0".encode(), "not a number"),
        (f"r={SERVER_NONCE},s={SALT},i=٤٠٩٦".encode(), "not a number"),
    ],
)
def test_a_first_message_that_no_broker_should_send_ends_the_login(message: bytes, says: str) -> None:
    client = exchange()
    client.begin()
    with pytest.raises(AuthenticationError, match=says):
        client.received(message)


@pytest.mark.parametrize(
    "message, says",
    [
        (b"", "neither a signature nor an error"),
        (b"x=1", "neither a signature nor an error"),
        (b"v=", "it does not know the password"),
        (b"v=!", "signature is not base64"),
        (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl85G4=", "it does not know the password"),
        (b"e=unknown-user", "refused the credentials: unknown-user"),
        (b"e=" + b"x" * 10_000, "x{200}…$"),
    ],
)
def test_a_last_message_without_the_right_signature_ends_the_login(message: bytes, says: str) -> None:
    client = exchange()
    proved(client)
    with pytest.raises(AuthenticationError, match=says):
        client.received(message)


def test_nothing_may_come_after_the_signature() -> None:
    client = exchange()
    proved(client)
    client.received(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(AuthenticationError, match="after its last one"):
        client.received(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_message_of_a_broker_gives_a_step_or_an_authentication_error(messages: list[bytes]) -> None:
    client = exchange()
    client.begin()
    try:
        for message in messages:
            step = client.received(message)
            if isinstance(step, Derivation):
                client.derived(bytes(32))
    except AuthenticationError:
        pass


def test_neither_password_nor_key_is_shown() -> None:
    client = exchange(password="hunter2")
    client.begin()
    step = client.received(SERVER_FIRST)
    assert not re.search("hunter2", f"{client!r} {step!r}")


@pytest.mark.parametrize("password", ["pa\u00a0ss", "\u00adpass", "ﬁsh", "passe\u0301"])
def test_a_password_is_not_changed_by_saslprep(password: str) -> None:
    """As with Java's client and Kafka's tools: each of these would be another password after SASLprep."""
    exchange = ScramExchange("SCRAM-SHA-256", "alice", password, "nonce")
    exchange.begin()
    step = exchange.received(b"r=nonceserver,s=QUJD,i=4096")
    assert isinstance(step, Derivation)
    assert step.password == password.encode()
