"""Wrong TLS and SASL settings raise an error in the constructor, and no error shows a secret."""

from __future__ import annotations

import re
import ssl
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.properties import client_settings
from aiokafka_lite.settings.security import Secret

SECRET = "hunter2"
SCRAM = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": SECRET}
OAUTH = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "token"}


def config(**settings: Any) -> ClientConfig:
    return ClientConfig(bootstrap_servers="a:1", **settings)


class Pem:
    """A CA and a certificate that it has issued, as paths."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode()))
        contents = {
            "ca": authority.cert_pem.bytes(),
            "certificate": b"".join(blob.bytes() for blob in issued.cert_chain_pems),
            "key": issued.private_key_pem.bytes(),
            "encrypted": key.private_bytes(*form),
            "both": issued.private_key_and_cert_chain_pem.bytes(),
            "other": authority.issue_cert("other").private_key_pem.bytes(),
            "jks": b"\xfe\xed\xfe\xed\0\0\0\2",
            "pkcs12": b"0\x82\x04\x00",
            "broken": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        }
        for name, content in contents.items():
            (directory / name).write_bytes(content)
        self.directory = directory

    def __getattr__(self, name: str) -> str:
        return str(self.directory / name)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    return Pem(tmp_path_factory.mktemp("pem"))


# Combinations.


@pytest.mark.parametrize(
    "settings, says",
    [
        (
            {"security_protocol": "TLS"},
            "^security_protocol must be one of 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL', got 'TLS'",
        ),
        ({"ssl_cafile": "ca.pem"}, "^ssl_cafile requires security_protocol=.SSL. .*got 'PLAINTEXT'"),
        ({"ssl_context": ssl.create_default_context()}, "^ssl_context requires security_protocol"),
        ({"security_protocol": "SASL_PLAINTEXT", **SCRAM, "ssl_key_password": SECRET}, "^ssl_key_password requires"),
        ({"security_protocol": "SSL", "ssl_context": "x"}, "^ssl_context must be an ssl.SSLContext, .* got 'x'"),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "ssl_certfile": "x"},
            "^ssl_certfile cannot be combined with ssl_context; load it into that context",
        ),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "ssl_check_hostname": False},
            "^ssl_check_hostname=False cannot be combined with ssl_context",
        ),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "^ssl_keyfile requires ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_key_password": SECRET}, "^ssl_key_password requires ssl_certfile"),
        (
            {"security_protocol": "SSL", "ssl_cafile": b"x"},
            "^ssl_cafile must be the path of a PEM file or PEM text, got bytes",
        ),
        ({"security_protocol": "SSL", "ssl_check_hostname": 0}, "^ssl_check_hostname must be True or False, got 0"),
        (SCRAM, '^sasl_mechanism requires security_protocol="SASL_SSL" or "SASL_PLAINTEXT", got'),
        (
            {"security_protocol": "SSL", "sasl_password": SECRET},
            '^sasl_password requires security_protocol="SASL_SSL", got',
        ),
        ({"security_protocol": "SASL_PLAINTEXT"}, "^sasl_mechanism is required .*: one of PLAIN, SCRAM-SHA-256"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "KERBEROS"},
            "^sasl_mechanism must be one of .*, got 'KERBEROS'",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "a"},
            "^sasl_password is required for PLAIN",
        ),
        ({"security_protocol": "SASL_SSL", **SCRAM, "sasl_password": ""}, "^sasl_password must not be empty"),
        (
            {"security_protocol": "SASL_SSL", **SCRAM, "sasl_password": b"hunter2"},
            "^sasl_password must be a string or a function, got bytes",
        ),
        ({"security_protocol": "SASL_SSL", **SCRAM, "sasl_username": 5}, "^sasl_username must be a string, got 5"),
        ({"security_protocol": "SASL_SSL", **SCRAM, "sasl_username": "a\0b"}, "^sasl_username must not contain NUL"),
        (
            {"security_protocol": "SASL_SSL", **SCRAM, "sasl_password": "hunter2\0"},
            "^sasl_password must not contain NUL",
        ),
        (
            {"security_protocol": "SASL_SSL", **SCRAM, "sasl_password": "hunter2\ud800"},
            "^sasl_password must be a string that UTF-8 can encode",
        ),
        (
            {"security_protocol": "SASL_SSL", **SCRAM, "sasl_oauth_token_provider": lambda: ""},
            "^sasl_oauth_token_provider is not for SCRAM-SHA-256, which takes sasl_username and sasl_password",
        ),
        ({"security_protocol": "SASL_SSL", **OAUTH, "sasl_username": "a"}, "^sasl_username is not for OAUTHBEARER"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_username": "a"},
            "^sasl_username is not for GSSAPI, which takes sasl_kerberos_service_name and",
        ),
        (
            {"security_protocol": "SASL_SSL", **SCRAM, "sasl_kerberos_keytab": "a.keytab"},
            "^sasl_kerberos_keytab is not for SCRAM-SHA-256",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_kerberos_principal": ""},
            "^sasl_kerberos_principal must be a string that is not empty",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_kerberos_keytab": "/no/such/file"},
            "^cannot read sasl_kerberos_keytab='/no/such/file': No such file",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_kerberos_keytab": __file__},
            "^sasl_kerberos_keytab=.* must be a keytab, as ktadd of kadmin or ktutil makes it",
        ),
        (
            {"security_protocol": "SASL_SSL", **OAUTH, "sasl_oauth_token_provider": 5},
            "^sasl_oauth_token_provider must be a function that returns a token, got int",
        ),
    ],
)
def test_a_wrong_combination_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        config(**settings)
    assert SECRET not in str(refused.value)


def test_kerberos_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigurationError, match=r"gssapi is not installed; run: pip install .*\[gssapi\]"):
        config(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI")


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_every_client_takes_them_and_shows_no_secret(kind: Any) -> None:
    client = kind("a:1", security_protocol="SASL_PLAINTEXT", **SCRAM)
    config = (client._core.client if isinstance(client, Consumer) else client._client).config
    assert config.sasl_password.encode() == SECRET.encode()
    assert SECRET not in f"{client!r} {config!r} {config.sasl_password} {config.sasl_password!r}"


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_a_secret_under_a_misspelled_name_is_not_shown(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="sasl_pasword") as refused:
        kind("a:1", sasl_pasword=SECRET)
    assert SECRET not in str(refused.value)


def test_a_custom_connector_cannot_be_combined_with_tls_settings() -> None:
    with pytest.raises(ConfigurationError, match=r"^connector cannot be combined with TLS"):
        Producer("a:1", connector=TcpConnector(), security_protocol="SSL")


# Certificates.


def tls(**settings: Any) -> ssl.SSLContext:
    context = config(security_protocol="SSL", **settings).ssl_context
    assert context is not None
    return context


def test_a_context_checks_certificates_and_host_names_by_default(pem: Pem) -> None:
    context = tls(ssl_cafile=pem.ca)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1
    unchecked = tls(ssl_cafile=pem.ca, ssl_check_hostname=False)
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_certificates_and_keys_may_be_paths_or_pem_in_one_file_or_several(pem: Pem) -> None:
    tls(ssl_certfile=pem.both)
    tls(ssl_certfile=Path(pem.certificate), ssl_keyfile=Path(pem.key))
    tls(ssl_certfile=pem.certificate, ssl_keyfile=pem.encrypted, ssl_key_password=SECRET)
    text = {name: Path(getattr(pem, name)).read_text() for name in ("ca", "certificate", "encrypted")}
    tls(ssl_cafile=text["ca"], ssl_certfile=text["certificate"], ssl_keyfile=text["encrypted"], ssl_key_password=SECRET)


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("setting", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
def test_pem_with_two_characters_for_a_line_break_says_so(
    pem: Pem, tmp_path: Path, setting: str, *, is_file: bool
) -> None:
    settings = {"ssl_cafile": pem.ca, "ssl_certfile": pem.certificate, "ssl_keyfile": pem.key}
    text = Path(settings[setting]).read_text().replace("\n", "\\n")
    (tmp_path / "escaped.pem").write_text(text)
    with pytest.raises(ConfigurationError, match=rf"{setting}.* has the two characters \\n in place of") as caught:
        tls(**{**settings, setting: str(tmp_path / "escaped.pem") if is_file else text})
    assert "replace them: text.replace('\\\\n', '\\n')" in str(caught.value)
    assert text[60:90] not in str(caught.value), "a key is no part of the text"


def test_pem_without_line_breaks_is_accepted(pem: Pem) -> None:
    joined = {
        name: Path(getattr(pem, name)).read_text().replace("\n", " ") for name in ("ca", "certificate", "encrypted")
    }
    settings: Any = client_settings(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": joined["ca"],
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": joined["certificate"],
            "ssl.keystore.key": joined["encrypted"],
            "ssl.key.password": SECRET,
        }
    )
    assert (
        len(tls(**{name: value for name, value in settings.items() if name != "security_protocol"}).get_ca_certs()) == 1
    )


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"ssl_cafile": "missing"}, "^cannot read ssl_cafile=.*missing': No such file"),
        (
            {"ssl_cafile": "jks"},
            "^ssl_cafile=.* must be PEM or PKCS#12, got a Java key store; convert it: keytool -importkeystore",
        ),
        ({"ssl_cafile": "pkcs12"}, "^ssl_cafile=.* cannot be read as PKCS#12: ssl_ca_password is not set, or the file"),
        ({"ssl_cafile": "broken"}, "^ssl_cafile=.* has no valid PEM certificates"),
        ({"ssl_cafile": "key"}, "^ssl_cafile=.* has no valid PEM certificates"),
        ({"ssl_certfile": "certificate"}, "^ssl_certfile=.* has no private key .*; set ssl_keyfile"),
        ({"ssl_certfile": "certificate", "ssl_keyfile": "ca"}, "^ssl_keyfile=.* has no private key"),
        (
            {"ssl_certfile": "certificate", "ssl_keyfile": "other"},
            "^ssl_certfile=.*no valid PEM certificate for the private key.*mismatch",
        ),
        (
            {"ssl_certfile": "certificate", "ssl_keyfile": "encrypted"},
            "^ssl_key_password is required, because the private key is encrypted",
        ),
        (
            {"ssl_certfile": "certificate", "ssl_keyfile": "encrypted", "ssl_key_password": "wrong"},
            "is ssl_key_password right",
        ),
    ],
)
def test_an_unusable_file_is_named_with_what_to_do(pem: Pem, settings: dict[str, str], says: str) -> None:
    settings = {name: value if name == "ssl_key_password" else getattr(pem, value) for name, value in settings.items()}
    with pytest.raises(ConfigurationError, match=says):
        tls(**settings)


def test_a_key_given_as_text_is_a_secret_and_leaves_no_file(
    pem: Pem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    original = ssl.SSLContext.load_cert_chain

    def load(self: ssl.SSLContext, certfile: str, keyfile: str, password: Any) -> None:
        modes.extend(stat.S_IMODE(Path(path).stat().st_mode) for path in (certfile, keyfile))
        original(self, certfile, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    key = Path(pem.key).read_text()
    settings = {"ssl_certfile": pem.certificate, "ssl_keyfile": key}
    config = ClientConfig(bootstrap_servers="a:1", security_protocol="SSL", **settings)  # type: ignore[arg-type]
    assert isinstance(config.ssl_keyfile, Secret)
    assert not re.search("PRIVATE KEY", repr(config))
    assert list(tmp_path.iterdir()) == []
    assert modes == [stat.S_IMODE(Path(pem.certificate).stat().st_mode), 0o600]
