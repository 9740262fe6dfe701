"""A broker with one port for each security protocol, and the certificates for them.

The authority, certificates and users are made for one test run. ``LISTENERS`` says which port requires what.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import time
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from aiokafka_lite.embedded import ClusterConfig, Security
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.real.jvm import SCRAM_MECHANISMS, JvmKafka, Listener
from tests.real.releases import NEWEST, release

USERS = {"alice": "alice-secret", "zoe=": "pass wörd Ⅸ"}
"""The second name has characters that SCRAM escapes. SASLprep would change the second password."""

PLAIN_USER, PLAIN_PASSWORD = "bob", "bob-secret"

KEY_PASSWORD = "key-secret"
"""The password of ``Certificates.client_key``."""

SESSION_MILLISECONDS = 4000

LISTENERS = {
    "SASL": Listener("SASL_PLAINTEXT"),
    "SCRAMONLY": Listener("SASL_PLAINTEXT"),
    "SHORT": Listener("SASL_SSL", "localhost"),
    "TLS": Listener("SSL", "localhost"),
    "MUTUAL": Listener("SSL", "localhost"),
    "EXPIRED": Listener("SSL", "localhost"),
}
_LOGIN = "org.apache.kafka.common.security"


class Certificates:
    """A certificate authority, and PEM files of the certificates that it issued, with their keys."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self.authority_key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        self.ca = str(directory / "ca.pem")
        self._authority.cert_pem.write_to_path(self.ca)
        self.server = self._issue("server", "localhost")
        self.client = self._issue("client", "client.example")
        self.client_key = str(directory / "client.key")
        yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        self.expired = self._issue("expired", "localhost", not_after=yesterday)
        self.stranger = str(directory / "stranger.pem")
        trustme.CA().cert_pem.write_to_path(self.stranger)

    def _issue(self, name: str, identity: str, **period: datetime.datetime) -> str:
        issued = self._authority.issue_cert(identity, **period)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        path = self._directory / f"{name}.pem"
        path.write_bytes(_pkcs8(key, NoEncryption()) + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        if name == "client":
            encrypted = _pkcs8(key, BestAvailableEncryption(KEY_PASSWORD.encode()))
            (self._directory / "client.key").write_bytes(encrypted)
        return str(path)


def _pkcs8(key: PrivateKeyTypes, encryption: KeySerializationEncryption) -> bytes:
    """Return the only format in which Kafka reads a key."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


class SecuredKafka(JvmKafka):
    """The broker. Releases before 3.0 do not read a PEM key without a password: they get no ports with TLS."""

    def __init__(self, version: str, directory: Path, **settings: str) -> None:
        self.version = version
        with_tls = release(version) >= (3, 0)
        self.certificates = Certificates(directory)
        listeners = {
            name: listener
            for name, listener in LISTENERS.items()
            if with_tls or "SSL" not in listener.security_protocol
        }
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        secured = self._secured(listeners)
        super().__init__(version, settings={**secured, **settings}, listeners=listeners, users=USERS)

    def servers(self, listener: str, host: str | None = None) -> str:
        """Return the bootstrap servers of a port."""
        return f"{host or LISTENERS[listener].host}:{self.ports[listener]}"

    def _secured(self, listeners: dict[str, Listener]) -> dict[str, str]:
        settings = {}
        mechanisms: dict[str, tuple[str, ...]] = {
            "SASL": ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER"),
            "SCRAMONLY": ("SCRAM-SHA-512",),
            "SHORT": ("SCRAM-SHA-256", "OAUTHBEARER"),
        }
        if release(self.version) < (2, 0):
            mechanisms["SASL"] = ("PLAIN", *SCRAM_MECHANISMS)
        for name, listener in listeners.items():
            prefix = f"listener.name.{name.lower()}."
            if "SASL" in listener.security_protocol:
                settings |= {f"{prefix}{key}": value for key, value in _sasl(mechanisms[name]).items()}
            if "SSL" in listener.security_protocol:
                settings |= {
                    f"{prefix}ssl.keystore.type": "PEM",
                    f"{prefix}ssl.keystore.location": self.certificates.expired
                    if name == "EXPIRED"
                    else self.certificates.server,
                    f"{prefix}ssl.truststore.type": "PEM",
                    f"{prefix}ssl.truststore.location": self.certificates.ca,
                    f"{prefix}ssl.client.auth": "required" if name == "MUTUAL" else "none",
                }
        for mechanism in mechanisms["SHORT"]:
            name = f"listener.name.short.{mechanism.lower()}.connections.max.reauth.ms"
            settings[name] = str(SESSION_MILLISECONDS)
        return settings


class EmbeddedSecured:
    """The same ports at the embedded broker: one cluster for each, in a thread of its own, because each has its own
    certificates and sessions."""

    version = NEWEST

    def __init__(self, directory: Path) -> None:
        self.certificates = Certificates(directory)
        self._stack = contextlib.ExitStack()
        self._servers: dict[str, EmbeddedKafkaServer] = {}

    def start(self) -> None:
        certificates = self.certificates
        users = {**USERS, PLAIN_USER: PLAIN_PASSWORD}
        tls = {"ssl_certfile": certificates.server, "ssl_cafile": certificates.ca}
        short = {"connections.max.reauth.ms": str(SESSION_MILLISECONDS)}
        every = ["PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER"]
        securities: dict[str, tuple[Security, dict[str, str]]] = {
            "PLAINTEXT": (Security("PLAINTEXT"), {}),
            "SASL": (Security("SASL_PLAINTEXT", users=users, mechanisms=every), {}),
            "SCRAMONLY": (Security("SASL_PLAINTEXT", users=users, mechanisms=["SCRAM-SHA-512"]), {}),
            "SHORT": (Security("SASL_SSL", users=users, mechanisms=["SCRAM-SHA-256", "OAUTHBEARER"], **tls), short),
            "TLS": (Security("SSL", **tls), {}),
            "MUTUAL": (Security("SSL", client_auth="required", **tls), {}),
            "EXPIRED": (Security("SSL", ssl_certfile=certificates.expired), {}),
        }
        for name, (security, configs) in securities.items():
            config = ClusterConfig(advertised_host=LISTENERS[name].host if name in LISTENERS else None)
            server = EmbeddedKafkaServer(security=security, configs=configs, config=config)
            self._servers[name] = self._stack.enter_context(server)

    def stop(self) -> None:
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        return self._servers["PLAINTEXT"].bootstrap_servers

    def servers(self, listener: str, host: str | None = None) -> str:
        """Return the bootstrap servers of a port."""
        port = self._servers[listener].cluster.nodes[1].port
        return f"{host or LISTENERS[listener].host}:{port}"


def _sasl(mechanisms: tuple[str, ...]) -> dict[str, str]:
    modules = {
        "PLAIN": f'{_LOGIN}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";',
        "SCRAM-SHA-256": f"{_LOGIN}.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": f"{_LOGIN}.scram.ScramLoginModule required;",
        "OAUTHBEARER": f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }
    return {
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        **{f"{mechanism.lower()}.sasl.jaas.config": modules[mechanism] for mechanism in mechanisms},
    }


def token(seconds: float = 60.0, subject: str = "carol") -> str:
    """Return an unsigned token, valid for ``seconds``. A broker accepts it unless its settings are stricter."""
    now = time.time()
    claims = {"sub": subject, "iat": now - 1, "exp": now + seconds}  # the broker's clock has milliseconds
    return ".".join([_encoded({"alg": "none"}), _encoded(claims), ""])


def _encoded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
