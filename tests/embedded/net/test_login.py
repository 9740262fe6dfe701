"""A connection logs in before its first request and again before its session ends; requests wait, and none is lost."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLost,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    UnsupportedVersion,
)
from aiokafka_lite.net.broker import Broker
from aiokafka_lite.net.connection import Connection
from aiokafka_lite.net.login import Login
from aiokafka_lite.protocol.connection import RequestHeader
from aiokafka_lite.protocol.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.state_machine import ConnectionState
from aiokafka_lite.types import Node
from tests.embedded.net.scripted_broker import Owner, Peer, Served, ask, end, usual
from tests.virtual import in_virtual_time

PASSWORD = "hunter2"
PLAIN = b"\0alice\0hunter2"


class Doorkeeper:
    """The script of a broker that accepts ``PLAIN`` for ``lifetime`` seconds, and can delay its answers."""

    def __init__(self, *, lifetime: float = 0.0, mechanisms: tuple[str, ...] = ("PLAIN",)) -> None:
        self.lifetime = lifetime
        self.mechanisms = mechanisms
        self.handshake_error = 0
        self.refusal: SaslAuthenticateResponse | None = None
        self.accepted = PLAIN
        self.logins = 0
        self.silent = False
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def __call__(self, served: Served, header: RequestHeader, request: Any) -> None:
        if self.silent and not isinstance(request, ApiVersionsRequest):
            return
        if self.holds:
            self.held.append(lambda: self.answer(served, header, request))
        else:
            self.answer(served, header, request)

    def answer(self, served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, SaslHandshakeRequest):
            error = self.handshake_error or (0 if request.mechanism in self.mechanisms else 33)
            served.answer(header, SaslHandshakeResponse(error_code=error, mechanisms=list(self.mechanisms)))
        elif isinstance(request, SaslAuthenticateRequest):
            served.answer(header, self.outcome(request.auth_bytes))
        else:
            usual(served, header, request)

    def outcome(self, said: bytes) -> SaslAuthenticateResponse:
        if self.refusal is not None:
            return self.refusal
        if said != self.accepted:
            return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed", auth_bytes=b"")
        self.logins += 1
        lifetime = round(self.lifetime * 1000)
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=lifetime)

    def release(self) -> None:
        self.holds = False
        for answer in self.held:
            answer()
        self.held.clear()


def plain(password: str = PASSWORD) -> Login:
    return Login("PLAIN", username="alice", password=password)


def connection_to(peer: Peer, login: Login | None = None, **settings: Any) -> Connection:
    return Connection(
        "127.0.0.1", 9092, connector=peer, client_id="tester", node_id=2, login=login or plain(), **settings
    )


async def open_to(peer: Peer, login: Login | None = None, **settings: Any) -> Connection:
    connection = connection_to(peer, login, **settings)
    await connection.connect(10.0)
    return connection


# Opening.


@in_virtual_time
async def test_it_logs_in_before_the_first_request() -> None:
    peer = Peer(Doorkeeper())
    connection = await open_to(peer)
    assert [type(request) for request in peer.requests] == [
        ApiVersionsRequest,
        SaslHandshakeRequest,
        SaslAuthenticateRequest,
    ]
    assert connection.session_ends == 0.0
    assert (await connection.send(ask("orders"))).cluster_id == "orders"
    await end(connection)


async def refused(door: Doorkeeper, login: Login | None = None) -> KafkaError:
    """Return the error of opening."""
    peer = Peer(door)
    connection = connection_to(peer, login)
    with pytest.raises(KafkaError) as failed:
        await connection.connect(10.0)
    assert connection.state is ConnectionState.CLOSED
    assert connection.closed.result() is failed.value
    await connection.wait_closed()
    return failed.value


@in_virtual_time
async def test_the_error_for_a_wrong_password_is_one_line_without_the_password() -> None:
    error = await refused(Doorkeeper(), plain("hunter3"))
    assert isinstance(error, AuthenticationError)
    assert str(error) == "broker 2 (127.0.0.1:9092) refused the login by PLAIN as 'alice': Authentication failed"


@in_virtual_time
async def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are() -> None:
    error = await refused(Doorkeeper(mechanisms=("SCRAM-SHA-256", "GSS\nAPI")))
    assert isinstance(error, AuthenticationError)
    offered = "it offers SCRAM-SHA-256, GSS\N{REPLACEMENT CHARACTER}API"
    assert f"does not offer sasl_mechanism='PLAIN' on this port; {offered}" in str(error)


@in_virtual_time
async def test_the_error_for_a_port_without_login_names_the_setting() -> None:
    door = Doorkeeper()
    door.handshake_error = ErrorCode.ILLEGAL_SASL_STATE
    error = await refused(door)
    assert isinstance(error, AuthenticationError)
    assert "accepts no login on this port: set security_protocol to PLAINTEXT or SSL" in str(error)


@in_virtual_time
async def test_another_error_during_the_login_is_a_broker_error() -> None:
    door = Doorkeeper()
    door.refusal = SaslAuthenticateResponse(error_code=-1, error_message="out of\r\nluck", auth_bytes=b"")
    error = await refused(door)
    assert isinstance(error, BrokerError)
    assert "failed during the login by PLAIN as 'alice': out of" in str(error)
    assert "\n" not in str(error)


@in_virtual_time
async def test_a_garbage_sasl_message_is_an_authentication_error_that_names_the_broker() -> None:
    door = Doorkeeper(mechanisms=("SCRAM-SHA-256",))
    door.refusal = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"\xff garbage")
    error = await refused(door, Login("SCRAM-SHA-256", username="alice", password=PASSWORD))
    assert isinstance(error, AuthenticationError)
    what = "the login to broker 2 (127.0.0.1:9092) by SCRAM-SHA-256 as 'alice' failed"
    assert f"{what}: the broker's first message" in str(error)


@in_virtual_time
async def test_a_login_without_an_answer_times_out() -> None:
    door = Doorkeeper()
    door.silent = True
    error = await refused(door)
    assert isinstance(error, KafkaTimeout)
    assert "the login to broker 2 (127.0.0.1:9092) by PLAIN as 'alice' did not end within 10 s" in str(error)


@in_virtual_time
async def test_a_broker_without_sasl_authenticate_is_too_old() -> None:
    def old(served: Served, header: RequestHeader, request: Any) -> None:
        keys = [
            ApiVersion(api_key=17, min_version=0, max_version=0),
            ApiVersion(api_key=18, min_version=0, max_version=4),
        ]
        served.answer(header, ApiVersionsResponse(error_code=0, api_keys=keys))

    peer = Peer(old)
    with pytest.raises(
        UnsupportedVersion, match=r"does not support SaslAuthenticate requests, which came with Kafka 1\.0"
    ):
        await open_to(peer)


@in_virtual_time
async def test_the_error_without_a_login_says_that_one_may_be_required() -> None:
    def hangs_up(served: Served, header: RequestHeader, request: Any) -> None:
        if isinstance(request, ApiVersionsRequest):
            usual(served, header, request)
        else:
            served.transport.close()

    connection = Connection("127.0.0.1", 9092, connector=Peer(hangs_up), client_id=None)
    await connection.connect(10.0)
    with pytest.raises(
        ConnectionLost, match='at the first request; if it requires a login, set security_protocol to "SASL'
    ):
        await connection.send(ask("a"))
    await connection.wait_closed()


# Tokens.


def oauth(provider: Callable[[], str | Awaitable[str]]) -> Login:
    return Login("OAUTHBEARER", token_provider=provider)


def door_for(token: str) -> Doorkeeper:
    door = Doorkeeper(mechanisms=("OAUTHBEARER",))
    door.accepted = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    return door


async def give_one() -> str:
    return "one"


async def test_a_token_may_come_from_a_function_of_any_kind() -> None:
    class Provider:
        async def __call__(self) -> str:
            return "one"

    provider: Any
    for provider in (give_one, Provider(), lambda: "one", lambda: give_one()):
        connection = await open_to(Peer(door_for("one")), oauth(provider))
        await end(connection)


@in_virtual_time
async def test_a_token_of_a_wrong_type_is_an_authentication_error() -> None:
    async def gives_nothing() -> Any:
        return None

    error = await refused(door_for("one"), oauth(gives_nothing))
    assert isinstance(error, AuthenticationError)
    assert str(error) == "sasl_oauth_token_provider must return a str, got NoneType"


@in_virtual_time
async def test_a_failing_token_provider_is_a_lost_connection() -> None:
    async def fails() -> str:
        raise OSError("the issuer is down")

    error = await refused(door_for("one"), oauth(fails))
    assert isinstance(error, ConnectionLost)
    assert "sasl_oauth_token_provider failed: it raised OSError" in str(error)
    assert isinstance(error.__cause__, OSError)


@in_virtual_time
async def test_a_refused_token_is_acknowledged_so_that_the_broker_sends_its_error() -> None:
    class Refusing(Doorkeeper):
        def outcome(self, said: bytes) -> SaslAuthenticateResponse:
            if said != b"\x01":
                body = b'{"status":"invalid_token"}'
                return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=body)
            return SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")

    error = await refused(Refusing(mechanisms=("OAUTHBEARER",)), oauth(give_one))
    assert isinstance(error, AuthenticationError)
    assert str(error).endswith("refused the login by OAUTHBEARER: no; invalid_token")


# Sessions.


@in_virtual_time
async def test_requests_wait_while_it_logs_in_again_and_those_in_flight_are_answered() -> None:
    door = Doorkeeper(lifetime=60.0)
    peer = Peer(door)
    connection = await open_to(peer)
    door.holds = True
    before = [connection.send_nowait(ask(f"before-{number}")) for number in range(3)]
    await peer.got(6)
    again = asyncio.create_task(connection.reauthenticate())
    await peer.got(7)
    assert connection.state is ConnectionState.AUTHENTICATING
    assert connection.ready
    after = [connection.send_nowait(ask(f"after-{number}")) for number in range(3)]
    assert connection.in_flight >= 6
    door.release()
    await again
    assert [(await promise).cluster_id for promise in before] == ["before-0", "before-1", "before-2"]
    assert [(await promise).cluster_id for promise in after] == ["after-0", "after-1", "after-2"]
    kinds = [type(request).__name__.removesuffix("Request") for request in peer.requests[3:]]
    assert kinds == ["Metadata"] * 3 + ["SaslHandshake", "SaslAuthenticate"] + ["Metadata"] * 3
    assert (door.logins, peer.accepted) == (2, 1)
    await end(connection)


@in_virtual_time
async def test_a_throttle_time_longer_than_the_login_holds_requests_back() -> None:
    class Throttling(Doorkeeper):
        def answer(self, served: Served, header: RequestHeader, request: Any) -> None:
            if isinstance(request, MetadataRequest) and request.topics[0].name == "throttled":  # type: ignore[index]
                slow = MetadataResponse(throttle_time_ms=5000, brokers=[], cluster_id="x", controller_id=1, topics=[])
                served.answer(header, slow)
            else:
                super().answer(served, header, request)

    door = Throttling(lifetime=60.0)
    connection = await open_to(Peer(door))
    clock = asyncio.get_running_loop().time
    await connection.send(ask("throttled"))
    await asyncio.sleep(1)
    await connection.reauthenticate()
    assert (door.logins, clock()) == (2, pytest.approx(1.0))
    assert (await connection.send(ask("later"))).cluster_id == "later"
    assert clock() == pytest.approx(5.0)
    await end(connection)


@in_virtual_time
async def test_a_refused_second_login_closes_the_connection() -> None:
    door = Doorkeeper(lifetime=60.0)
    connection = await open_to(Peer(door))
    door.accepted = b"another"
    again = asyncio.create_task(connection.reauthenticate())
    await asyncio.sleep(0)
    waiting = connection.send_nowait(ask("a"))
    await again
    assert isinstance(connection.closed.result(), AuthenticationError)
    with pytest.raises(ConnectionLost) as lost:
        await waiting
    assert not lost.value.sent
    await connection.wait_closed()


@in_virtual_time
async def test_an_unanswered_second_login_closes_the_connection() -> None:
    door = Doorkeeper(lifetime=60.0)
    connection = await open_to(Peer(door), request_timeout=5.0)
    door.silent = True
    await connection.reauthenticate()
    assert asyncio.get_running_loop().time() == pytest.approx(5.0, abs=0.1)
    assert isinstance(connection.closed.result(), KafkaTimeout)
    await connection.wait_closed()


@in_virtual_time
async def test_a_cancelled_second_login_closes_the_connection() -> None:
    door = Doorkeeper(lifetime=60.0)
    connection = await open_to(Peer(door))
    door.silent = True
    again = asyncio.create_task(connection.reauthenticate())
    await asyncio.sleep(1)
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again
    assert connection.state is ConnectionState.CLOSED
    await connection.wait_closed()


async def owned_broker(peer: Peer, owner: Owner, **settings: Any) -> Broker:
    await owner.start()
    config = ClientConfig(
        bootstrap_servers="a:1",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password=PASSWORD,
        **settings,
    )
    node = Node(2, "127.0.0.1", 9092)
    return Broker(node, config=config, connector=peer, spawn=owner.spawn, login=Login.of(config), random=lambda: 0.5)


@in_virtual_time
async def test_sessions_are_renewed_in_time_while_the_connection_is_open() -> None:
    door = Doorkeeper(lifetime=100.0)
    peer, owner = Peer(door), Owner()
    broker = await owned_broker(peer, owner)
    connection = await broker.connection()
    await asyncio.sleep(89)
    assert door.logins == 1
    await asyncio.sleep(2)
    assert door.logins == 2
    assert connection.session_ends == pytest.approx(190.0, abs=0.1)
    await asyncio.sleep(181)
    assert (door.logins, peer.accepted) == (4, 1)
    broker.close()
    await broker.wait_closed()
    await owner.close()


@in_virtual_time
async def test_a_very_short_session_is_renewed_once_a_second() -> None:
    door = Doorkeeper(lifetime=0.01)
    peer, owner = Peer(door), Owner()
    broker = await owned_broker(peer, owner)
    await broker.connection()
    await asyncio.sleep(10)
    assert door.logins == 10
    broker.close()
    await broker.wait_closed()
    await owner.close()


@in_virtual_time
async def test_refused_logins_are_attempted_with_backoff() -> None:
    door = Doorkeeper()
    door.accepted = b"another"
    peer, owner = Peer(door), Owner()
    broker = await owned_broker(peer, owner, reconnect_backoff=1.0)
    for _ in range(3):
        with pytest.raises(AuthenticationError):
            await broker.connection()
    assert asyncio.get_running_loop().time() > 1.5
    broker.close()
    await owner.close()


# Keys and secrets.


async def test_a_slow_key_derivation_does_not_block_the_loop() -> None:
    login = Login("SCRAM-SHA-512", username="alice", password=PASSWORD)
    exchange = await login.exchange("127.0.0.1")
    first = exchange.begin()
    assert isinstance(first, bytes)
    nonce = first.partition(b",r=")[2]
    step: Any = exchange.received(b"r=" + nonce + b"x,s=QUJD,i=400000")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    counting = asyncio.create_task(count())
    key = await login.key(step)
    counting.cancel()
    assert turns > 10
    assert await login.key(step) is key, "the same key is not derived twice"


ECHOES = [
    "bad password hunter2!",
    "hunter2",
    f"cannot use {base64.b64encode(PLAIN).decode()}",
    f"Basic {base64.urlsafe_b64encode(b'alice:hunter2').decode()}",
]


@pytest.mark.parametrize("said", ECHOES)
@pytest.mark.parametrize("code", [58, 34, 1, 87])
async def test_a_password_that_the_broker_echoes_is_hidden(
    said: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    door = Doorkeeper()
    door.refusal = SaslAuthenticateResponse(error_code=code, error_message=said, auth_bytes=b"")
    error = await refused(door)
    for text in (str(error), repr(error), caplog.text):
        assert "***" in text
        assert "hunter2" not in text
        assert "aHVudGVyM" not in text
        assert "odW50ZXIy" not in text
        assert "h1bnRlcj" not in text


@pytest.mark.parametrize("length", [4, 20, 300, 5000])
async def test_a_token_that_the_broker_echoes_is_hidden_although_it_is_cut(
    length: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = "T0K3N." + "".join(chr(ord("a") + number * 7 % 26) for number in range(length))
    door = Doorkeeper(mechanisms=("OAUTHBEARER",))
    said = f"invalid header: n,,^Aauth=Bearer {token}"
    door.refusal = SaslAuthenticateResponse(error_code=58, error_message=said, auth_bytes=b"")
    error = await refused(door, Login("OAUTHBEARER", token_provider=lambda: token))
    assert "T0K3N" not in str(error) + repr(error) + caplog.text
    assert "invalid header" in str(error)


class Echo(Doorkeeper):
    """Answers CreateTopics with errors that quote the password in all ways."""

    def answer(self, served: Served, header: RequestHeader, request: Any) -> None:
        if not isinstance(request, CreateTopicsRequest):
            super().answer(served, header, request)
            return
        topics = [
            CreatableTopicResult(name=f"t{number}", error_code=44, error_message=f"{said}: refused")
            for number, said in enumerate(ECHOES)
        ]
        served.answer(header, CreateTopicsResponse(topics=topics))


@in_virtual_time
async def test_a_secret_that_the_broker_echoes_after_the_login_is_hidden() -> None:
    connection = await open_to(Peer(Echo(lifetime=60.0)))
    for _ in range(2):
        response = await connection.send(CreateTopicsRequest(topics=[], timeout_ms=1000))
        assert len(response.topics) == len(ECHOES)
        for topic in response.topics:
            assert topic.error_message is not None
            assert topic.error_message.endswith(": refused")
            assert "***" in topic.error_message
            assert "hunter2" not in topic.error_message
            assert "aHVudGVyM" not in topic.error_message
        await connection.reauthenticate()
    await end(connection)


async def test_a_scram_error_that_quotes_the_password_is_hidden() -> None:
    exchange = await Login("SCRAM-SHA-256", username="alice", password=PASSWORD).exchange("127.0.0.1")
    exchange.begin()
    with pytest.raises(AuthenticationError) as failed:
        exchange.received(b"e=wrong password hunter2")
    assert str(failed.value) == "the broker refused the login: wrong password ***"


async def test_no_secret_is_in_any_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    door = Doorkeeper(lifetime=60.0)
    connection = await open_to(Peer(door))
    await connection.reauthenticate()
    logging.getLogger("test").debug("%r %r %r", plain(), connection, SaslAuthenticateRequest(auth_bytes=PLAIN))
    await end(connection)
    await refused(Doorkeeper(), plain("hunter3"))
    assert "by PLAIN as 'alice'" in caplog.text
    assert "hunter" not in caplog.text
