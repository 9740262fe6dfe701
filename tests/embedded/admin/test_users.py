"""SCRAM users are added, described, changed and removed by the admin client."""

from __future__ import annotations

import pytest

from aiokafka_lite import BrokerError
from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ErrorCode, UnsupportedVersion


async def test_users_are_added_described_and_removed(admin: Admin) -> None:
    (await admin.users.set_passwords({"alice": "secret", "bob": "hidden"})).raise_for_errors()
    (await admin.users.set_passwords({"bob": "x"}, mechanism="SCRAM-SHA-256", iterations=8192)).raise_for_errors()
    assert (await admin.users.describe()).done == {
        "alice": {"SCRAM-SHA-512": 4096},
        "bob": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096},
    }
    (await admin.users.remove(["alice"])).raise_for_errors()
    described = await admin.users.describe(["alice", "bob"])
    assert list(described.done) == ["bob"]
    with pytest.raises(BrokerError, match="describing user 'alice'") as caught:
        described["alice"]
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_a_user_that_was_added_can_log_in_until_it_is_removed() -> None:
    security = Security("SASL_PLAINTEXT", users={"admin": "admin"}, mechanisms=["SCRAM-SHA-512"])
    async with (
        EmbeddedCluster(brokers=1, tcp=False, security=security) as cluster,
        Admin(**cluster.client_settings()) as admin,
    ):
        (await admin.users.set_passwords({"alice": "secret"})).raise_for_errors()
        as_alice = {**cluster.client_settings(), "sasl_username": "alice", "sasl_password": "secret"}
        async with Admin(**as_alice) as other:
            assert await other.topics.list() == ()
        (await admin.users.remove("alice")).raise_for_errors()
        with pytest.raises(AuthenticationError):
            async with Admin(**as_alice) as other:
                await other.topics.list()


async def test_a_removed_user_cannot_be_removed_again(admin: Admin) -> None:
    results = await admin.users.remove(["nemo"])
    with pytest.raises(BrokerError, match=r"removing user 'nemo'.*RESOURCE_NOT_FOUND"):
        results["nemo"]


async def test_an_old_cluster_has_no_users(old_admin: Admin) -> None:
    with pytest.raises(UnsupportedVersion, match=r"2\.7"):
        await old_admin.users.describe()


async def test_wrong_arguments_are_refused_and_no_password_is_shown(admin: Admin) -> None:
    with pytest.raises(ValueError, match="mechanism must be one of SCRAM-SHA-256, SCRAM-SHA-512, got 'PLAIN'"):
        await admin.users.set_passwords({"alice": "secret"}, mechanism="PLAIN")
    with pytest.raises(ValueError, match="iterations must be a whole number >= 4096 and <= 16384, got 1"):
        await admin.users.set_passwords({"alice": "secret"}, iterations=1)
    with pytest.raises(TypeError, match="the password of 'alice' must be a string that is not empty") as caught:
        await admin.users.set_passwords({"alice": b"secret"})  # type: ignore[dict-item]
    assert "secret" not in str(caught.value)
