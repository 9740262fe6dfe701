"""Key stores of keytool, chains, encrypted keys and revocation, against real brokers and the embedded one."""

from __future__ import annotations

import datetime
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import AuthenticationError
from tests.end_to_end.conftest import missing
from tests.end_to_end.secured_kafka import Secured, only_on_the_newest, tls, with_tls
from tests.real.secured_broker import KEY_PASSWORD

STORE_PASSWORD = "store-secret"


def keytool(*arguments: str) -> None:
    program = shutil.which("keytool")
    if program is None:
        missing("keytool is not installed")
    assert program is not None
    subprocess.run([program, *arguments, "-storepass", STORE_PASSWORD], check=True, capture_output=True)


@with_tls
@only_on_the_newest
async def test_stores_of_openssl_and_keytool_are_let_in_with_mutual_tls(secured: Secured, tmp_path: Path) -> None:
    certificates = secured.certificates
    key_store, trust_store = str(tmp_path / "me.p12"), str(tmp_path / "trust.p12")
    export = ["-in", certificates.client, "-out", str(tmp_path / "openssl.p12"), "-passout", f"pass:{STORE_PASSWORD}"]
    subprocess.run(["openssl", "pkcs12", "-export", *export], check=True, capture_output=True)
    source = ["-srckeystore", str(tmp_path / "openssl.p12"), "-srcstorepass", STORE_PASSWORD]
    keytool("-importkeystore", *source, "-destkeystore", key_store, "-deststoretype", "PKCS12")
    trust = ["-importcert", "-noprompt", "-alias", "root", "-file", certificates.ca]
    keytool(*trust, "-keystore", trust_store, "-storetype", "PKCS12")
    stores = {"ssl_cafile": trust_store, "ssl_ca_password": STORE_PASSWORD, "ssl_key_password": STORE_PASSWORD}
    for store in (key_store, str(tmp_path / "openssl.p12")):
        async with Admin(**tls(secured, "MUTUAL", ssl_certfile=store, **stores)) as admin:
            assert await admin.topics.list() is not None


@with_tls
@only_on_the_newest
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
async def test_encrypted_keys_of_both_forms_are_let_in_with_mutual_tls(
    secured: Secured, form: PrivateFormat, tmp_path: Path
) -> None:
    key = load_pem_private_key(Path(secured.certificates.client_key).read_bytes(), KEY_PASSWORD.encode())
    path = tmp_path / "key.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"another-secret")))
    own: dict[str, Any] = {"ssl_certfile": secured.certificates.client, "ssl_keyfile": str(path)}
    async with Admin(**tls(secured, "MUTUAL", ssl_key_password="another-secret", **own)) as admin:
        assert await admin.topics.list() is not None


@with_tls
@only_on_the_newest
@pytest.mark.parametrize("is_revoked", [True, False])
async def test_a_context_of_the_program_may_check_revocation(
    secured: Secured, is_revoked: bool, tmp_path: Path
) -> None:
    """As docs/security.md says: OpenSSL reads lists of revoked certificates, and this client passes its context on."""
    certificates = secured.certificates
    server = x509.load_pem_x509_certificates(Path(certificates.server).read_bytes())[0]
    now = datetime.datetime.now(datetime.UTC)
    revoked = x509.RevokedCertificateBuilder().serial_number(server.serial_number).revocation_date(now).build()
    times = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=1))
    builder = x509.CertificateRevocationListBuilder().issuer_name(server.issuer)
    builder = builder.last_update(times[0]).next_update(times[1])
    if is_revoked:
        builder = builder.add_revoked_certificate(revoked)
    path = tmp_path / "crl.pem"
    path.write_bytes(builder.sign(certificates.authority_key, hashes.SHA256()).public_bytes(Encoding.PEM))

    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_verify_locations(cafile=str(path))
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    settings = {"bootstrap_servers": secured.servers("TLS"), "security_protocol": "SSL", "ssl_context": context}
    if not is_revoked:
        async with Admin(**settings) as admin:
            assert await admin.topics.list() is not None
        return
    with pytest.raises(AuthenticationError, match="cannot be trusted: certificate revoked"):
        await Admin(**settings).start()
