"""The certificates of a connection, and explanations of a failure of TLS: its cause, and the setting to change.

OpenSSL and the peer's alerts name a detail of TLS, but not Kafka's ports or the client's settings. If one side does not
trust the other, the error is an AuthenticationError, which is not retried: the next attempt would fail as well.
"""

from __future__ import annotations

import logging
import os
import ssl

from ..errors import AuthenticationError, ConfigurationError, ConnectionLost, KafkaError
from ..protocol.framing import WrongProtocol
from ..settings.client import ClientConfig
from ..settings.security import is_pem, tls_context

logger = logging.getLogger(__name__)


class RenewedContext:
    """The TLS context of a client.

    After a certificate or key file has changed, the next connection gets a new context. A program that renews
    certificates may replace one file after the other. Until the new files match, the client keeps the old
    certificates.
    """

    def __init__(self, config: ClientConfig, context: ssl.SSLContext) -> None:
        self._context = context
        self._config = config
        settings = (config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile)
        self._files = [file for file in settings if file is not None and not is_pem(file)]
        self._stamps = self._read_stamps()

    def __repr__(self) -> str:
        return f"<RenewedContext files={self._files}>"

    def __call__(self) -> ssl.SSLContext:
        stamps = self._read_stamps()
        if stamps != self._stamps:
            # Set before the files are read, so that wrong files are not read again for each connection.
            self._stamps = stamps
            try:
                self._context = tls_context(
                    cafile=self._config.ssl_cafile,
                    ca_password=self._config.ssl_ca_password,
                    certfile=self._config.ssl_certfile,
                    keyfile=self._config.ssl_keyfile,
                    key_password=self._config.ssl_key_password,
                    check_hostname=self._config.ssl_check_hostname,
                )
                logger.info("read changed certificates: %s", ", ".join(self._files))
            except ConfigurationError as error:
                logger.warning("could not read the changed certificates; the old ones stay in use: %s", error)
        return self._context

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        """Return the modification time, size and inode of each file; None for a file that cannot be read now."""
        return [_stamp(file) for file in self._files]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


_OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_OUTSIDE_VALIDITY = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED

_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNEXPECTED_MESSAGE",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
)
# The alerts of a broker that got no client certificate. Its TLS library decides which one it sends.
_NO_CERTIFICATE = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE")
_CLIENT_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


def handshake_failure(error: OSError, peer: str) -> KafkaError:
    """Return the error to raise for a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrusted(error, peer)
    if not isinstance(error, ssl.SSLError):
        if isinstance(error, TimeoutError) or "taking longer" in str(error):
            return _lost(f"{peer} did not finish the TLS handshake in time")
        return _lost(f"{peer} closed the connection during the TLS handshake")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _lost(f"{peer} closed the connection during the TLS handshake")
    reason = error.reason or str(error)
    if reason in _NOT_TLS:
        return WrongProtocol(f"{peer} does not speak TLS on this port; {_WITHOUT_TLS}")
    return alert(error, peer) or _refused(error, peer)


_WITHOUT_TLS = 'if the port does not use TLS, set security_protocol to "PLAINTEXT" or "SASL_PLAINTEXT"'


def _lost(what: str) -> ConnectionLost:
    return ConnectionLost(f"{what}; {_WITHOUT_TLS}", sent=False)


def alert(error: ssl.SSLError, peer: str) -> KafkaError | None:
    """Return the error for an alert about the client's certificate, perhaps after the handshake; None for other
    alerts."""
    reason = error.reason or ""
    if "_ALERT_" not in reason or not any(word in reason for word in _CLIENT_CERTIFICATE):
        return None
    description = reason.partition("_ALERT_")[2]
    if description in _NO_CERTIFICATE:
        does = "requires a client certificate that it trusts"
        advice = "set ssl_certfile and ssl_keyfile"
    else:
        does = "refuses the client certificate of ssl_certfile"
        advice = "the certificate must be valid today, and the broker must trust the authority that issued it"
    return AuthenticationError(f"{peer} {does} (its alert: {_words(description)}); {advice}")


def _refused(error: ssl.SSLError, peer: str) -> KafkaError:
    text = _words(error.reason) if error.reason else str(error)
    return AuthenticationError(f"the TLS handshake with {peer} failed: {text}")


def _distrusted(error: ssl.SSLCertVerificationError, peer: str) -> AuthenticationError:
    hint = ""
    if error.verify_code in _OTHER_NAME:
        hint = "; it must be for the host name of the broker, unless ssl_check_hostname is off"
    elif error.verify_code in _UNKNOWN_ISSUER:
        hint = "; set ssl_cafile to the certificate of the authority that issued it"
    elif error.verify_code in _OUTSIDE_VALIDITY:
        hint = "; renew the certificate on the broker, or correct the clock of this machine"
    text = error.verify_message.rstrip(".")
    return AuthenticationError(f"the certificate of {peer} cannot be trusted: {text}{hint}")


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")
