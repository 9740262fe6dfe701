"""Certificates for the listeners of an embedded cluster, and the principals in certificates of clients.

The authority lives as long as the cluster. Its certificates are in a temporary directory. No client trusts it by
default.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...extras import extra

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_BEFORE, _AFTER = timedelta(days=1), timedelta(days=365)
"""The time for which a certificate is valid before and after its issue, because clocks differ."""


class CertificateAuthority:
    """A new authority, and the certificates that it issues, as PEM files in a directory.

    Raises ConfigurationError if the package ``cryptography`` is not installed.
    """

    def __init__(self, directory: Path) -> None:
        extra("cryptography", "embedded-tls")
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Embedded Kafka test authority")
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
        builder = self._builder(self._name, self._key).add_extension(identifier, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.cafile: str = self._write("ca", self._sign(builder.add_extension(_usage(signs=True), critical=True)))

    def __repr__(self) -> str:
        return f"<CertificateAuthority {self.cafile}>"

    def issue(self, common_name: str, hosts: Sequence[str] = ()) -> str:
        """Make a certificate for ``hosts`` (names or addresses). Return the path of a PEM file with it and its key."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_name(common_name), key)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(self._identifier, critical=False)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
            builder = builder.add_extension(names, critical=False)
        file = f"{len(list(self._directory.iterdir()))}"
        return self._write(file, self._sign(builder), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        from cryptography import x509

        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _AFTER)
        )

    def _sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        from cryptography.hazmat.primitives import hashes

        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | None = None) -> str:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        content = certificate.public_bytes(Encoding.PEM)
        if key is not None:
            # PKCS #8 is the form that Java's clients read too.
            content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + content
        path = self._directory / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_bytes(content)
        return str(path)


def _name(common_name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Return the purposes of a key: to sign certificates, or for a handshake."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


# Principals.

_KEYWORDS = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def subject_of(connection: ssl.SSLObject | None) -> str | None:
    """Return the subject of the client's certificate as in RFC 2253, the last part first; None if there is none."""
    certificate: dict[str, Any] | None = None if connection is None else connection.getpeercert()
    return distinguished_name(certificate["subject"]) if certificate else None


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Return a subject, as Python's ssl module returns it, in the form of RFC 2253."""
    return ",".join("+".join(_attribute(*attribute) for attribute in part) for part in reversed(subject))


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":  # RFC 2253 has no keyword for email addresses, so Java prints a number
        encoded = value.encode()
        return f"1.2.840.113549.1.9.1=#16{len(encoded):02x}{encoded.hex()}"
    escaped = "".join(f"\\{char}" if char in ',+"\\<>;' else char for char in value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{_KEYWORDS.get(name, name)}={escaped}"
