"""Key stores and trust stores in PKCS#12: as openssl and keytool make them, with chains, and with wrong passwords."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ConfigurationError
from aiokafka_lite.net.tls import RenewedContext
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.pkcs12 import read_key_store
from aiokafka_lite.settings.properties import client_settings
from tests.embedded.security.test_tls import failure

PASSWORD = "hunter2"


class Stores:
    """PKCS#12 files: a key with a chain of two issuers, and a trust store of the root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        root = trustme.CA()
        issuer = root.create_child_ca()
        issued = issuer.issue_cert("client.example")
        self.root = root
        self.key: Any = load_pem_private_key(issued.private_key_pem.bytes(), None)
        leaf, issuing = (x509.load_pem_x509_certificate(blob.bytes()) for blob in issued.cert_chain_pems)
        top = x509.load_pem_x509_certificate(root.cert_pem.bytes())
        self.chain = [leaf, issuing, top]
        encryption = BestAvailableEncryption(PASSWORD.encode())
        # The issuers are in the wrong order, which TLS does not allow.
        self._write("key.p12", serialize_key_and_certificates(b"me", self.key, leaf, [top, issuing], encryption))
        self._write("open.p12", serialize_key_and_certificates(b"me", self.key, leaf, None, NoEncryption()))
        self._write("trust.p12", serialize_java_truststore([PKCS12Certificate(top, b"root")], encryption))
        self._write("certificates.p12", serialize_key_and_certificates(None, None, None, [top], encryption))
        self._write("cut.p12", (directory / "key.p12").read_bytes()[:-20])
        self._write("ca.pem", root.cert_pem.bytes())
        self._write("both.pem", issued.private_key_and_cert_chain_pem.bytes())

    def _write(self, name: str, content: bytes) -> None:
        (self.directory / name).write_bytes(content)

    def __getitem__(self, name: str) -> str:
        return str(self.directory / name)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def config(**settings: Any) -> ClientConfig:
    return ClientConfig(bootstrap_servers="localhost:9093", security_protocol="SSL", **settings)


def test_a_chain_is_sent_in_the_order_of_its_issuers(stores: Stores) -> None:
    content = Path(stores["key.p12"]).read_bytes()
    store = read_key_store("x", content, PASSWORD, "ssl_key_password")
    assert x509.load_pem_x509_certificates(store.pem.encode()) == stores.chain
    assert "BEGIN ENCRYPTED PRIVATE KEY" in store.pem
    assert store.password != PASSWORD


async def test_a_client_with_a_key_store_and_a_trust_store_is_let_in(stores: Stores) -> None:
    broker = stores.root.issue_cert("127.0.0.1")
    pem = broker.private_key_and_cert_chain_pem.bytes().decode()
    security = Security("SSL", client_auth="required", ssl_certfile=pem, ssl_cafile=stores["ca.pem"])
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        settings: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": stores["trust.p12"],
            "ssl_ca_password": PASSWORD,
        }
        async with Admin(**settings, ssl_certfile=stores["key.p12"], ssl_key_password=PASSWORD) as admin:
            assert await admin.topics.list() == ()
        assert isinstance(await failure(settings), AuthenticationError)


async def test_the_embedded_broker_takes_a_key_store_too(stores: Stores) -> None:
    security = Security("SSL", ssl_certfile=stores["key.p12"], ssl_key_password=PASSWORD)
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        error = await failure(
            {
                "bootstrap_servers": cluster.bootstrap_servers,
                "security_protocol": "SSL",
                "ssl_cafile": stores["ca.pem"],
            }
        )
        assert "IP address mismatch" in str(error), "the chain is trusted, and only its name differs"


@pytest.mark.parametrize(
    "settings, says",
    [
        (
            {"ssl_certfile": "key.p12", "ssl_key_password": "wrong-word"},
            "^ssl_certfile=.*key.p12' cannot be read as PKCS#12: ssl_key_password may be wrong, or the file is",
        ),
        ({"ssl_certfile": "key.p12"}, "cannot be read as PKCS#12: ssl_key_password is not set, or"),
        ({"ssl_certfile": "cut.p12", "ssl_key_password": PASSWORD}, "ssl_key_password may be wrong, or the file is"),
        ({"ssl_certfile": "trust.p12", "ssl_key_password": PASSWORD}, "trust.p12' has no private key; a store with"),
        (
            {"ssl_certfile": "key.p12", "ssl_keyfile": "both.pem", "ssl_key_password": PASSWORD},
            "^ssl_keyfile must not be set: the key is in ssl_certfile=",
        ),
        ({"ssl_certfile": "both.pem", "ssl_keyfile": "key.p12"}, "^ssl_keyfile=.*key.p12' must be PEM$"),
        ({"ssl_cafile": "trust.p12", "ssl_ca_password": "wrong-word"}, "^ssl_cafile=.* ssl_ca_password may be wrong"),
        ({"ssl_cafile": "trust.p12"}, "^ssl_cafile=.* ssl_ca_password is not set"),
        ({"ssl_cafile": "ca.pem", "ssl_ca_password": PASSWORD}, "^ssl_ca_password is for a PKCS#12 store"),
        ({"ssl_ca_password": PASSWORD}, "^ssl_ca_password requires ssl_cafile"),
        ({"ssl_cafile": "ca.pem", "ssl_ca_password": 7}, "^ssl_ca_password must be a string, got int"),
    ],
)
def test_a_store_that_cannot_be_used_is_named_without_its_password(
    stores: Stores, settings: dict[str, Any], says: str
) -> None:
    files = {name: stores[value] if name.endswith("file") else value for name, value in settings.items()}
    with pytest.raises(ConfigurationError, match=says) as refusal:
        config(**files)
    for secret in (PASSWORD, "wrong-word"):
        assert secret not in str(refusal.value)


def test_stores_without_a_password_and_without_keys_are_read(stores: Stores) -> None:
    config(ssl_certfile=stores["open.p12"])
    context = config(ssl_cafile=stores["certificates.p12"], ssl_ca_password=PASSWORD).ssl_context
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_a_renewed_store_is_read_for_the_next_connection(stores: Stores, tmp_path: Path) -> None:
    store = tmp_path / "me.p12"
    shutil.copy(stores["key.p12"], store)
    settings = config(ssl_certfile=str(store), ssl_key_password=PASSWORD)
    assert settings.ssl_context is not None
    renewed = RenewedContext(settings, settings.ssl_context)
    first = renewed()
    shutil.copy(stores["cut.p12"], store)
    assert renewed() is first, "a store that is being written does not end the client"
    shutil.copy(stores["key.p12"], store)
    assert renewed() is not first


# As other programs make them.


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("old", [[], ["-keypbe", "AES-256-CBC", "-certpbe", "AES-256-CBC", "-macalg", "SHA256"]])
def test_a_store_of_openssl_is_read(stores: Stores, tmp_path: Path, old: list[str]) -> None:
    store = str(tmp_path / "store.p12")
    source = ["-in", stores["both.pem"], "-out", store, "-passout", f"pass:{PASSWORD}"]
    subprocess.run(["openssl", "pkcs12", "-export", *source, *old], check=True, capture_output=True)
    config(ssl_certfile=store, ssl_key_password=PASSWORD)


# In the files of Kafka's tools.


def test_the_properties_of_kafkas_tools_are_enough(stores: Stores) -> None:
    properties = {
        "bootstrap.servers": "localhost:9093",
        "security.protocol": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": stores["key.p12"],
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.location": stores["trust.p12"],
        "ssl.truststore.password": PASSWORD,
    }
    settings = client_settings(properties)
    assert PASSWORD not in repr(settings)
    context = ClientConfig(**settings).ssl_context  # type: ignore[arg-type]
    assert isinstance(context, ssl.SSLContext)
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(ConfigurationError, match=r"^ssl.keystore.password and ssl.key.password differ") as refusal:
        client_settings(properties | {"ssl.key.password": "another"})
    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_password_of_a_store_in_pem_is_refused(store: str) -> None:
    properties = {f"ssl.{store}.type": "PEM", f"ssl.{store}.password": PASSWORD}
    with pytest.raises(ConfigurationError, match=f"^ssl.{store}.password is not supported: a store in PEM form"):
        client_settings({"bootstrap.servers": "localhost:9093", **properties})
