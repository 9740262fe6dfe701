"""TLS on the listeners of the embedded cluster: generated and given certificates, and principals of clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tracemalloc
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin, ConfigResource
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster, Security
from aiokafka_lite.embedded.closing_log import ClosingLog
from aiokafka_lite.embedded.security.certificates import distinguished_name
from aiokafka_lite.embedded.settings import listeners
from aiokafka_lite.embedded.settings.listeners import Listener
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, KafkaError, ProtocolError
from aiokafka_lite.settings.client import ClientConfig
from tests.waiting import DEADLINE, until

USERS = {"alice": "alice-secret"}


async def failure(settings: dict[str, Any]) -> KafkaError:
    """Return the error of the start of a client."""
    admin = Admin(**settings, api_timeout=5.0)
    with pytest.raises(KafkaError) as failed:
        await admin.start()
    with pytest.raises(KafkaError):
        await admin.close()
    return failed.value


def principals(cluster: EmbeddedCluster) -> set[str]:
    return {connection.principal for node in cluster.nodes.values() for connection in node.connections}


@pytest.mark.parametrize("protocol, mechanism", [("SSL", None), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")])
async def test_a_client_writes_and_reads_over_tls(protocol: str, mechanism: str | None) -> None:
    security = Security(protocol, users=USERS) if mechanism else protocol
    async with EmbeddedCluster(brokers=2, security=security) as cluster:
        settings = cluster.client_settings(mechanism=mechanism)
        async with Producer(**settings) as producer:
            await producer.send("orders", b"two coffees" * 50_000)
            assert principals(cluster) == {"User:alice" if mechanism else "User:ANONYMOUS"}
        async with Consumer(topics=["orders"], group_id="billing", **settings) as consumer:
            assert (await anext(consumer)).value == b"two coffees" * 50_000


async def test_each_listener_names_its_own_ports() -> None:
    protocols = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    async with EmbeddedCluster(brokers=2, security=Security(protocols, users=USERS)) as cluster:
        for protocol in protocols:
            settings = cluster.client_settings(protocol=protocol)
            async with Admin(**settings) as admin:
                brokers = (await admin.cluster.describe()).brokers
            ports = [node.listeners[protocol].port for node in cluster.nodes.values()]
            assert [broker.port for broker in brokers] == ports
            assert settings["bootstrap_servers"] == ",".join(f"127.0.0.1:{port}" for port in ports)


async def test_a_certificate_is_for_the_address_that_the_brokers_advertise() -> None:
    config = ClusterConfig(advertised_host="localhost")
    async with (
        EmbeddedCluster(brokers=1, security="SSL", config=config) as cluster,
        Admin(**cluster.client_settings()) as admin,
    ):
        assert [broker.host for broker in (await admin.cluster.describe()).brokers] == ["localhost"]


async def test_a_client_that_does_not_trust_the_authority_is_not_connected() -> None:
    async with EmbeddedCluster(brokers=1, security="SSL") as cluster:
        settings = cluster.client_settings() | {"ssl_cafile": trustme.CA().cert_pem.bytes().decode()}
        error = await failure(settings)
    assert isinstance(error, AuthenticationError)
    assert "cannot be trusted" in str(error)


async def test_a_handshake_that_never_ends_does_not_outlive_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_TIMEOUT", 10 * DEADLINE)  # or it would end the connection
    async with EmbeddedCluster(brokers=1, security="SSL") as cluster:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.nodes[1].port)
        async with Admin(**cluster.client_settings()):
            pass  # the broker has accepted the connection before this one
    async with asyncio.timeout(DEADLINE):
        assert await reader.read() == b""
    writer.close()


async def test_a_failure_before_a_handshake_ends_its_connection_alone() -> None:
    def fails() -> asyncio.BaseProtocol:
        raise RuntimeError("no stream")

    listener = Listener("SSL", "127.0.0.1", 0)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    await listener.open(fails, context, "broker 1", ClosingLog(1, asyncio.get_running_loop().time))
    try:
        reader, writer = await asyncio.open_connection(listener.host, listener.port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    finally:
        listener.close()


async def test_a_connection_with_tls_takes_less_than_a_hundred_kilobytes() -> None:
    async with EmbeddedCluster(brokers=1, security="SSL") as cluster:
        node, context = cluster.nodes[1], ssl.create_default_context(cafile=cluster.client_settings()["ssl_cafile"])

        def connected() -> ssl.SSLSocket:
            plain = socket.create_connection(("127.0.0.1", node.port))
            return context.wrap_socket(plain, server_hostname="127.0.0.1")

        with ExitStack() as stack:
            tracemalloc.start()
            stack.callback(tracemalloc.stop)
            for _ in range(10):
                stack.enter_context(await asyncio.to_thread(connected))
            await until(lambda: len(node.connections) == 10, "all clients are connected")
            assert tracemalloc.get_traced_memory()[0] < 10 * 100_000


async def test_a_client_without_tls_is_not_connected() -> None:
    async with EmbeddedCluster(brokers=1, security="SSL") as cluster:
        error = await failure({"bootstrap_servers": cluster.bootstrap_servers})
    assert isinstance(error, ProtocolError)


# Certificates of clients.


async def test_the_subject_of_a_client_certificate_is_the_principal() -> None:
    async with (
        EmbeddedCluster(brokers=1, security=Security("SSL", client_auth="required")) as cluster,
        Admin(**cluster.client_settings("alice, the first")),
    ):
        assert principals(cluster) == {"User:CN=alice\\, the first"}


async def test_mapping_rules_make_a_principal_of_the_subject_or_refuse_the_client() -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(A[a-z]*)$/$1/L"}
    async with EmbeddedCluster(1, security=Security("SSL", client_auth="required"), configs=rules) as cluster:
        async with Admin(**cluster.client_settings("Alice")):
            assert principals(cluster) == {"User:alice"}
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", cluster.nodes[1].port, ssl=ClientConfig(**cluster.client_settings("Bob")).ssl_context
        )
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()


async def test_a_required_certificate_must_come_from_the_authority() -> None:
    async with EmbeddedCluster(brokers=1, security=Security("SSL", client_auth="required")) as cluster:
        settings = cluster.client_settings()
        own = settings.pop("ssl_certfile")
        assert isinstance(await failure(settings), AuthenticationError)
        other = trustme.CA().issue_cert("client.example").private_key_and_cert_chain_pem.bytes().decode()
        assert isinstance(await failure(settings | {"ssl_certfile": other}), AuthenticationError)
        async with Admin(**settings, ssl_certfile=own) as admin:
            assert await admin.topics.list() == ()


async def test_a_requested_certificate_may_be_missing() -> None:
    async with EmbeddedCluster(brokers=1, security=Security("SSL", client_auth="requested")) as cluster:
        settings = cluster.client_settings()
        async with Admin(**settings):
            assert principals(cluster) == {"User:CN=client"}
        del settings["ssl_certfile"]
        async with Admin(**settings) as admin:
            assert await admin.topics.list() == ()
            assert "User:ANONYMOUS" in principals(cluster)


@pytest.mark.parametrize(
    "subject, name",
    [
        (((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "x"),)), "CN=x,O=A\\, B,C=DE"),
        (((("commonName", "a"), ("userId", "b")),), "CN=a+UID=b"),
        (((("commonName", "#a\\b "),),), "CN=\\#a\\\\b\\ "),
        (((("emailAddress", "a@b"),),), "1.2.840.113549.1.9.1=#1603614062"),
    ],
)
def test_a_subject_has_the_form_of_rfc_2253(subject: Any, name: str) -> None:
    assert distinguished_name(subject) == name


# Given certificates.


class Given:
    """Certificates that another authority has issued, as files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.issue()

    def issue(self) -> None:
        """Replace the authority and the certificate."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.directory / "ca.pem"))
        issued = authority.issue_cert("127.0.0.1")
        (self.directory / "cert.pem").write_bytes(
            b"".join(cert_chain_pem.bytes() for cert_chain_pem in issued.cert_chain_pems)
        )
        issued.private_key_pem.write_to_path(str(self.directory / "key.pem"))

    def path(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def security(self, **changes: Any) -> Security:
        files = {f"ssl_{name}file": self.path(name) for name in ("cert", "key", "ca")}
        return Security("SSL", **{**files, **changes})


async def test_given_certificates_are_used_and_read_again_when_a_broker_restarts(tmp_path: Path) -> None:
    certificates = Given(tmp_path)
    async with EmbeddedCluster(brokers=1, security=certificates.security()) as cluster:
        async with Admin(**cluster.client_settings()) as admin:
            assert await admin.topics.list() == ()
        before = (tmp_path / "ca.pem").read_text()
        certificates.issue()
        await cluster.restart(1)
        async with Admin(**cluster.client_settings()) as admin:
            assert await admin.topics.list() == ()
        assert isinstance(await failure(cluster.client_settings() | {"ssl_cafile": before}), AuthenticationError)


async def test_a_client_reads_changed_certificates_when_it_connects_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Given(tmp_path)
    async with EmbeddedCluster(brokers=1, security=certificates.security()) as cluster:
        settings = cluster.client_settings() | {
            "ssl_certfile": certificates.path("cert"),
            "ssl_keyfile": certificates.path("key"),
        }
        async with Admin(**settings) as admin:
            certificates.issue()
            await cluster.restart(1)
            assert await admin.topics.list() == ()
            key = (tmp_path / "key.pem").read_text()
            (tmp_path / "key.pem").write_text("half a key")
            for node in cluster.nodes.values():
                for connection in node.connections:
                    connection.stream.reset()
            assert await admin.topics.list() == ()
            assert "could not read the changed certificates; the old ones stay in use: ssl_keyfile=" in caplog.text
            assert "half a key" not in caplog.text
            (tmp_path / "key.pem").write_text(key)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"protocols": "TLS"}, "protocols must be one or more of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, got 'TLS'"),
        ({"protocols": ["SSL", "SSL"]}, "protocols must be one or more of"),
        ({"protocols": []}, "protocols must be one or more of"),
        ({"protocols": "SASL_SSL"}, "users is required, such as"),
        (
            {"protocols": "SSL", "users": USERS},
            r"users requires SASL_PLAINTEXT or SASL_SSL in protocols, got \['SSL'\]",
        ),
        ({"protocols": "SASL_SSL", "users": ["alice"]}, "users must be a dict of names and passwords, got list"),
        ({"protocols": "SASL_SSL", "users": {"alice": ""}}, "the password of each user must be a string that is not"),
        ({"protocols": "SASL_SSL", "users": USERS, "mechanisms": ["GSSAPI"]}, "mechanisms must be a list of PLAIN"),
        ({"protocols": "SASL_SSL", "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}, "users is required for PLAIN"),
        ({"protocols": "SASL_SSL", "check_token": "token"}, "check_token must be a function, got a string"),
        ({"protocols": "SSL", "client_auth": "always"}, "client_auth must be one of none, requested, required"),
        ({"protocols": "PLAINTEXT", "client_auth": "required"}, "client_auth requires SSL or SASL_SSL in protocols"),
        ({"protocols": "SSL", "ssl_keyfile": "key.pem"}, "ssl_keyfile requires ssl_certfile, which is not set"),
        ({"protocols": "SSL", "ssl_certfile": "none.pem"}, "cannot read ssl_certfile='none.pem'"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Security(**arguments)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"security": "SSL", "tcp": False}, "security with TLS requires tcp=True"),
        (
            {"security": "SSL", "configs": {"ssl.client.auth": "required"}},
            r"configs\['ssl.client.auth'\] has no effect; pass security=Security\(..., client_auth=...\)",
        ),
        ({"security": ["SSL"]}, r'security must be a Security\(...\), or a security protocol such as "SSL"'),
    ],
)
def test_a_wrong_security_of_a_cluster_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        EmbeddedCluster(**arguments)


async def test_client_settings_name_what_the_cluster_has() -> None:
    async with EmbeddedCluster(brokers=1, security=Security("SASL_PLAINTEXT", users=USERS)) as cluster:
        for arguments, says in (
            ({"user": "bob"}, "user must be one of alice, got 'bob'"),
            ({"protocol": "SSL"}, "protocol must be one of SASL_PLAINTEXT, got 'SSL'"),
            ({"mechanism": "OAUTHBEARER"}, "mechanism must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, got"),
        ):
            with pytest.raises(ConfigurationError, match=says):
                cluster.client_settings(**arguments)
        assert "alice-secret" not in repr(Security("SASL_PLAINTEXT", users=USERS))


async def test_brokers_describe_their_security() -> None:
    security = Security(["SSL", "SASL_SSL"], users=USERS, mechanisms=["SCRAM-SHA-256"], client_auth="requested")
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        async with Admin(**cluster.client_settings()) as admin:
            described = (await admin.configs.describe([ConfigResource.broker(1)]))[ConfigResource.broker(1)]
        ssl, sasl = (listener.port for listener in cluster.nodes[1].listeners.values())
    assert described["advertised.listeners"].value == f"SSL://127.0.0.1:{ssl},SASL_SSL://127.0.0.1:{sasl}"
    assert described["sasl.enabled.mechanisms"].value == "SCRAM-SHA-256"
    assert described["ssl.client.auth"].value == "requested"
