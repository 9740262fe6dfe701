"""A password is rotated while clients run: a function returns the new one, or the program sets it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import AuthenticationError
from tests.end_to_end.secured_kafka import Secured, only_on_the_newest, over_tls
from tests.real.secured_broker import SESSION_MILLISECONDS, USERS
from tests.waiting import DEADLINE, until

SESSION = SESSION_MILLISECONDS / 1000


async def set_password(kafka: Secured, old: str, new: str) -> None:
    async with Admin(**{**over_tls(kafka), "sasl_password": old}) as admin:
        (await admin.users.set_passwords({"alice": new}, mechanism="SCRAM-SHA-256")).raise_for_errors()


@only_on_the_newest
@pytest.mark.parametrize("how", ["a function", "set_credentials"])
async def test_a_client_uses_the_rotated_password_when_its_sessions_are_renewed(secured: Secured, how: str) -> None:
    old, new = USERS["alice"], "rotated"
    topic = f"rotated-{how.replace(' ', '-')}"
    passwords = [old]
    calls = 0

    def password() -> str:
        nonlocal calls
        calls += 1
        return passwords[-1]

    settings: dict[str, Any] = over_tls(secured)
    if how == "a function":
        settings["sasl_password"] = password
    try:
        async with Producer(**settings) as producer, Consumer(topics=[topic], **settings) as consumer:
            await producer.send(topic, b"before")
            assert (await anext(consumer)).value == b"before"
            await set_password(secured, old, new)
            passwords.append(new)
            if how == "set_credentials":
                producer.set_credentials("alice", new)
                consumer.set_credentials("alice", new)
            before = calls
            ends = asyncio.get_running_loop().time() + 1.5 * SESSION  # each session is renewed at least once
            while asyncio.get_running_loop().time() < ends:
                await producer.send(topic, b"after")
                assert [record.value for record in await consumer.poll(timeout=DEADLINE)] == [b"after"]
                await asyncio.sleep(0.05)
        assert how == "set_credentials" or calls >= before + 2
        with pytest.raises(AuthenticationError, match="refused the login by SCRAM-SHA-256 as 'alice'"):
            await Admin(**over_tls(secured)).start()
    finally:
        await set_password(secured, new, old)


@only_on_the_newest
async def test_a_function_may_return_the_user_name_too(secured: Secured) -> None:
    async def credentials() -> tuple[str, str]:
        return "alice", USERS["alice"]

    settings = {**over_tls(secured), "sasl_username": None, "sasl_password": credentials}
    async with Admin(**settings) as admin:
        assert await admin.topics.list() is not None


@only_on_the_newest
async def test_a_client_with_a_refused_password_goes_on_with_the_right_one(secured: Secured) -> None:
    settings = over_tls(secured)
    async with Producer(**settings, metadata_max_age=0.1, reconnect_backoff_max=0.2) as producer:
        await producer.send("refused", b"1")
        producer.set_credentials("alice", "wrong")
        await until(lambda: "refused the login" in str(producer.health().problems), within=DEADLINE)
        producer.set_credentials("alice", USERS["alice"])
        assert (await producer.send("refused", b"2")).offset == 1
