"""Delegation tokens are created, renewed, described and expired by the admin client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite import BrokerError
from aiokafka_lite.acls import AclBinding, AclOperation, AclResourceType
from aiokafka_lite.admin import Admin
from aiokafka_lite.admin.tokens import DelegationToken
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, ErrorCode

HOUR_MS = 3_600_000
SECRET = {"delegation.token.secret.key": "secret"}
SECURITY = Security("SASL_PLAINTEXT", users={"alice": "a", "bob": "b"}, mechanisms=["PLAIN", "SCRAM-SHA-256"])


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A broker with logins, ACLs and the key for tokens."""
    async with EmbeddedCluster(1, tcp=False, security=SECURITY, super_users=[], configs=SECRET) as cluster:
        yield cluster


@pytest.fixture
async def alice(cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with Admin(**cluster.client_settings("alice")) as admin:
        yield admin


@pytest.fixture
async def bob(cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with Admin(**cluster.client_settings("bob")) as admin:
        yield admin


async def test_a_token_is_created_renewed_and_expired(alice: Admin) -> None:
    token = await alice.tokens.create(lifetime=7200)
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ())
    assert token.latest_expiry == token.expires_at == token.issued_at + 2 * HOUR_MS
    assert await alice.tokens.renew(token.hmac, period=60) <= token.latest_expiry
    (described,) = await alice.tokens.describe()
    assert (described.token_id, described.hmac) == (token.token_id, token.hmac)
    await alice.tokens.expire(token.hmac)
    assert await alice.tokens.describe() == ()
    with pytest.raises(BrokerError, match="DELEGATION_TOKEN_NOT_FOUND"):
        await alice.tokens.expire(token.hmac)


async def test_only_the_owner_and_the_renewers_see_and_renew_a_token(alice: Admin, bob: Admin) -> None:
    private = await alice.tokens.create()
    shared = await alice.tokens.create(renewers=["User:bob"])
    assert [token.token_id for token in await bob.tokens.describe("User:alice")] == [shared.token_id]
    assert await bob.tokens.describe("User:bob") == ()
    await bob.tokens.renew(shared.hmac)
    with pytest.raises(BrokerError) as caught:
        await bob.tokens.renew(private.hmac)
    assert caught.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_a_token_for_another_owner_requires_an_acl(cluster: EmbeddedCluster, alice: Admin, bob: Admin) -> None:
    with pytest.raises(BrokerError, match="DELEGATION_TOKEN_AUTHORIZATION_FAILED"):
        await alice.tokens.create(owner="User:bob")
    assert cluster.authorizer.acls is not None
    create = AclBinding(AclResourceType.USER, "User:bob", "User:alice", AclOperation.CREATE_TOKENS)
    cluster.authorizer.acls.create(create)
    token = await alice.tokens.create(owner="User:bob")
    assert (token.owner, token.requester) == ("User:bob", "User:alice")
    assert await alice.tokens.describe() == ()
    assert [visible.token_id for visible in await bob.tokens.describe()] == [token.token_id]
    cluster.authorizer.acls.create(
        AclBinding(AclResourceType.USER, "User:bob", "User:alice", AclOperation.DESCRIBE_TOKENS)
    )
    assert [visible.token_id for visible in await alice.tokens.describe()] == [token.token_id]


async def test_an_expired_token_cannot_be_renewed(cluster: EmbeddedCluster, alice: Admin) -> None:
    token = await alice.tokens.create(lifetime=60)
    cluster.skew_clock(1, 61.0)
    with pytest.raises(BrokerError, match="DELEGATION_TOKEN_EXPIRED"):
        await alice.tokens.renew(token.hmac)


async def test_without_a_login_or_without_a_key_there_are_no_tokens() -> None:
    async with (
        EmbeddedCluster(1, tcp=False, configs=SECRET) as open_to_all,
        Admin(open_to_all.bootstrap_servers, connector=open_to_all.connector) as anonymous,
    ):
        with pytest.raises(BrokerError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
            await anonymous.tokens.create()
    async with (
        EmbeddedCluster(1, tcp=False, security=SECURITY) as without_key,
        Admin(**without_key.client_settings("alice")) as alice,
    ):
        with pytest.raises(BrokerError, match="DELEGATION_TOKEN_AUTH_DISABLED"):
            await alice.tokens.create()


async def test_wrong_arguments_are_named(alice: Admin) -> None:
    with pytest.raises(ValueError, match="owner must be a principal such as User:alice, got 'bob'"):
        await alice.tokens.create(owner="bob")
    with pytest.raises(ValueError, match="lifetime must be a number of seconds > 0, got -1"):
        await alice.tokens.create(lifetime=-1)
    with pytest.raises(TypeError, match="hmac must be bytes"):
        await alice.tokens.renew("abc")  # type: ignore[arg-type]


def by_token(cluster: EmbeddedCluster, token: DelegationToken) -> dict[str, Any]:
    """Return the settings of a client that logs in with a token."""
    return cluster.client_settings(mechanism="SCRAM-SHA-256") | {
        "sasl_username": token.token_id,
        "sasl_password": token.password,
        "sasl_tokenauth": True,
    }


async def test_a_client_logs_in_with_a_token_and_acts_as_its_owner(cluster: EmbeddedCluster, alice: Admin) -> None:
    token = await alice.tokens.create()
    async with Admin(**by_token(cluster, token)) as client:
        await client.topics.describe(["orders"])
        assert [connection.principal for connection in cluster.nodes[1].connections].count("User:alice") > 1
        for refused in (client.tokens.create(), client.tokens.describe(), client.tokens.renew(token.hmac)):
            with pytest.raises(BrokerError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
                await refused


async def test_a_token_that_has_ended_is_refused(cluster: EmbeddedCluster, alice: Admin) -> None:
    token = await alice.tokens.create()
    await alice.tokens.expire(token.hmac)
    with pytest.raises(AuthenticationError, match=r"refused the login by SCRAM-SHA-256 as '.*': Authentication failed"):
        await Admin(**by_token(cluster, token)).start()
    with pytest.raises(ConfigurationError, match=r"sasl_tokenauth requires sasl_mechanism SCRAM-SHA-256 or .*'PLAIN'"):
        Admin(**by_token(cluster, token) | {"sasl_mechanism": "PLAIN"})
