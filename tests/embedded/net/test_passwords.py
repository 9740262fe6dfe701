"""A function may return the password of a login, and ``set_credentials`` replaces it; both with wrong values."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite import Consumer, ConsumerGroup, ConsumerGroupHandler, Producer, ShareConsumer
from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, ConnectionLost, KafkaError, KafkaTimeout
from aiokafka_lite.net.login import Login
from aiokafka_lite.settings.client import ClientConfig
from tests.embedded.net.scripted_broker import Peer, end
from tests.embedded.net.test_login import Doorkeeper, connection_to, open_to, refused
from tests.virtual import in_virtual_time
from tests.waiting import DEADLINE, until

LISTENER: Any = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


def asking(password: Any, username: str = "alice") -> Login:
    return Login("PLAIN", username=username, password=password)


async def give() -> str:
    return "hunter2"


async def test_a_password_may_come_from_a_function_of_any_kind_at_each_login() -> None:
    calls = 0

    class Provider:
        async def __call__(self) -> str:
            return "hunter2"

    def count() -> str:
        nonlocal calls
        calls += 1
        return "hunter2"

    for provider in (give, Provider(), lambda: give(), count):
        login = asking(provider)
        for _ in range(2):
            await end(await open_to(Peer(Doorkeeper()), login))
    assert calls == 2


async def test_a_function_may_return_the_user_name_too() -> None:
    login = asking(lambda: ("alice", "hunter2"), username="")
    await end(await open_to(Peer(Doorkeeper()), login))
    assert str(login) == "PLAIN as 'alice'"


@pytest.mark.parametrize(
    "value, says",
    [
        (None, "its password must be a string, got NoneType"),
        (b"hunter2", "its password must be a string, got bytes"),
        ("", "its password must not be empty"),
        ("hunter2\0", "its password must not contain NUL"),
        (("alice", 7), "its password must be a string, got int"),
        ((7, "hunter2"), "its user name must be a string, got int"),
        (("alice", "hunter2", "more"), "got a tuple of 3 items"),
    ],
)
@in_virtual_time
async def test_a_wrong_value_of_the_function_is_an_authentication_error_without_the_value(
    value: object, says: str
) -> None:
    async def gives() -> Any:
        return value

    error = await refused(Doorkeeper(), asking(gives))
    assert isinstance(error, AuthenticationError)
    assert "sasl_password must return a password, or a tuple of a user name and a password" in str(error)
    assert says in str(error)
    assert "hunter2" not in str(error)


@in_virtual_time
async def test_a_password_without_any_user_name_is_an_authentication_error() -> None:
    error = await refused(Doorkeeper(), asking(give, username=""))
    assert str(error) == "sasl_password must return (username, password), because sasl_username is not set"


def raises(error: BaseException) -> Callable[[], str]:
    def ask() -> str:
        raise error

    return ask


@pytest.mark.parametrize("raised", [OSError("no vault"), StopIteration(), asyncio.CancelledError(), SystemExit(1)])
async def test_a_function_that_raises_is_a_lost_connection_so_the_client_tries_again(raised: BaseException) -> None:
    error = await refused(Doorkeeper(), asking(raises(raised)))
    assert isinstance(error, ConnectionLost)
    assert str(error).startswith("sasl_password failed: it raised ")


@in_virtual_time
async def test_an_async_function_that_raises_cancelled_error_is_a_lost_connection() -> None:
    async def ask() -> str:
        raise asyncio.CancelledError

    error = await refused(Doorkeeper(), asking(ask))
    assert str(error) == "sasl_password failed: it raised CancelledError"


@in_virtual_time
async def test_an_authentication_error_of_the_function_is_raised_as_it_is() -> None:
    async def ask() -> str:
        raise AuthenticationError("the vault is sealed")

    assert str(await refused(Doorkeeper(), asking(ask))) == "the vault is sealed"


async def test_a_function_that_blocks_ends_the_attempt_in_time_and_has_one_thread_only() -> None:
    proceed = threading.Event()
    threads: list[str] = []

    def ask() -> str:
        threads.append(threading.current_thread().name)
        proceed.wait(DEADLINE)
        return "hunter2"

    login = asking(ask)
    says = "the login to broker 2 .* did not end within 1 s: the function sasl_password has not returned"
    for _ in range(3):
        connection = connection_to(Peer(Doorkeeper()), login)
        with pytest.raises(KafkaTimeout, match=says):
            await connection.connect(1.0)
        await connection.wait_closed()
    assert threads == ["sasl_password"]
    proceed.set()
    for _ in range(2):
        await end(await open_to(Peer(Doorkeeper()), login))
    assert len(threads) > 1, "a later login asks again"


async def test_a_function_that_never_returns_does_not_delay_the_end_of_the_event_loop() -> None:
    proceed = threading.Event()

    async def log_in() -> None:
        connection = connection_to(Peer(Doorkeeper()), asking(lambda: proceed.wait(DEADLINE)))
        with pytest.raises(KafkaTimeout):
            await connection.connect(1.0)
        await connection.wait_closed()

    await asyncio.wait_for(asyncio.to_thread(asyncio.run, log_in()), DEADLINE / 2)
    proceed.set()
    await until(lambda: "sasl_password" not in {thread.name for thread in threading.enumerate()})


# Settings.


def test_a_function_needs_no_user_name() -> None:
    config = ClientConfig(bootstrap_servers="localhost:9092", sasl_password=give, **LISTENER)
    assert config.sasl_username is None
    assert "give" not in repr(config)


def test_a_user_name_is_checked_with_a_function_too() -> None:
    with pytest.raises(ConfigurationError, match="sasl_username must be a string, got bytes"):
        ClientConfig(bootstrap_servers="localhost:9092", sasl_username=b"alice", sasl_password=give, **LISTENER)  # type: ignore[arg-type]


@pytest.mark.parametrize("password", [7, b"hunter2", ["hunter2"]])
def test_a_password_of_a_wrong_type_is_refused_without_quoting_it(password: Any) -> None:
    with pytest.raises(ConfigurationError, match="sasl_password must be a string or a function, got ") as refusal:
        ClientConfig(bootstrap_servers="localhost:9092", sasl_username="alice", sasl_password=password, **LISTENER)
    assert "hunter2" not in str(refusal.value)


# set_credentials.

USERS = {"alice": "alice-secret", "bob": "bob-secret"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_credentials_that_are_set_are_for_the_next_connections(mechanism: str) -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=[mechanism])
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        wrong = cluster.client_settings("alice", mechanism=mechanism) | {"sasl_password": "wrong"}
        clients: list[Any] = [
            Producer(**wrong),
            Consumer(topics=["orders"], **wrong),
            ShareConsumer(topics=["orders"], group_id="billing", **wrong),
            Admin(**wrong),
        ]
        for client in clients:
            client.set_credentials("bob", "bob-secret")
            async with client:
                assert {connection.principal for connection in cluster.nodes[1].connections} == {"User:bob"}
            await until(lambda: not cluster.nodes[1].connections)


async def test_a_consumer_group_keeps_the_credentials_for_its_next_consume() -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=["PLAIN"])
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        await cluster.create_topic("orders")
        settings = cluster.client_settings("alice") | {"sasl_password": "wrong"}
        async with ConsumerGroup(group_id="billing", **settings) as group:
            with pytest.raises(AuthenticationError):
                await group.consume(["orders"], ConsumerGroupHandler())
            group.set_credentials("bob", "bob-secret")
            consuming = asyncio.create_task(group.consume(["orders"], ConsumerGroupHandler()))
            await until(lambda: {c.principal for c in cluster.nodes[1].connections} == {"User:bob"})
            group.set_credentials("alice", "alice-secret")
        await consuming


@pytest.mark.parametrize(
    "username, password, says",
    [
        ("", "x", "sasl_username must not be empty"),
        (None, "x", "sasl_username must be a string, got NoneType"),
        ("alice", b"x", "sasl_password must be a string, got bytes"),
        ("alice", "x\0", "sasl_password must not contain NUL"),
        ("alice", give, "sasl_password must be a string, got function"),
    ],
)
def test_wrong_credentials_are_refused_and_change_nothing(username: Any, password: Any, says: str) -> None:
    config = ClientConfig(bootstrap_servers="localhost:9092", sasl_username="a", sasl_password="b", **LISTENER)
    with pytest.raises(ConfigurationError, match=says):
        config.with_credentials(username, password)


@pytest.mark.parametrize(
    "settings, says",
    [
        ({}, "requires a login, and security_protocol is 'PLAINTEXT'"),
        ({**LISTENER, "sasl_password": give}, "cannot be combined with a function as sasl_password"),
        (
            {**LISTENER, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": give},
            "is for PLAIN and SCRAM, and sasl_mechanism is 'OAUTHBEARER'",
        ),
    ],
)
async def test_a_client_without_a_password_has_no_credentials_to_set(settings: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Producer("localhost:9092", **settings).set_credentials("alice", "x")


async def test_the_password_that_was_set_is_in_no_repr_and_no_error() -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, mechanisms=["PLAIN"])
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        admin = Admin(**cluster.client_settings("alice"))
        admin.set_credentials("alice", "hunter2")
        with pytest.raises(KafkaError) as refusal:
            await admin.start()
        assert "hunter2" not in str(refusal.value) + repr(admin)
