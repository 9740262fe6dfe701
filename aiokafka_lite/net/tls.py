"""What a failure of TLS means, in words that say what to set.

OpenSSL and the peer's alerts name what they tripped over, and not what that is in terms of Kafka's ports and of our
settings. A peer that cannot be trusted, or does not trust us, is an ``AuthenticationError``: it will be no other soon.
"""

from __future__ import annotations

import ssl

from ..errors import AuthenticationError, ConnectionLost, KafkaError
from ..protocol.framing import WrongProtocol

_OF_ANOTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OF_NO_KNOWN_ISSUER = (2, 18, 19, 20, 21)

_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNEXPECTED_MESSAGE",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
)
_ABOUT_OUR_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


def handshake_failure(error: OSError, peer: str) -> KafkaError:
    """The error to raise for what a handshake ended with."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrusted(error, peer)
    if not isinstance(error, ssl.SSLError):
        if isinstance(error, TimeoutError) or "taking longer" in str(error):
            return _hung_up(f"{peer} did not end the TLS handshake in time")
        return _hung_up(f"{peer} hung up during the TLS handshake")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _hung_up(f"{peer} hung up during the TLS handshake")
    reason = error.reason or str(error)
    if reason in _NOT_TLS:
        return WrongProtocol(f"{peer} does not speak TLS on this port; {_WITHOUT_TLS}")
    return alert(error, peer) or _refused(error, peer)


_WITHOUT_TLS = 'if the port is one without it, set security_protocol to "PLAINTEXT" or "SASL_PLAINTEXT"'


def _hung_up(what: str) -> ConnectionLost:
    return ConnectionLost(f"{what}; {_WITHOUT_TLS}", sent=False)


def alert(error: ssl.SSLError, peer: str) -> KafkaError | None:
    """What the peer's alert means, which may come after the handshake when it is about our certificate; or None."""
    reason = error.reason or ""
    if "_ALERT_" not in reason or not any(word in reason for word in _ABOUT_OUR_CERTIFICATE):
        return None
    said = _words(reason.partition("_ALERT_")[2])
    return AuthenticationError(
        f"{peer} wants a certificate that it can trust, and says of ours: {said}; set ssl_certfile and ssl_keyfile"
    )


def _refused(error: ssl.SSLError, peer: str) -> KafkaError:
    said = _words(error.reason) if error.reason else str(error)
    return AuthenticationError(f"{peer} and this client cannot agree on TLS: {said}")


def _distrusted(error: ssl.SSLCertVerificationError, peer: str) -> AuthenticationError:
    hint = ""
    if error.verify_code in _OF_ANOTHER_NAME:
        hint = "; it must be for the name that the broker is called by (ssl_check_hostname=False would not look)"
    elif error.verify_code in _OF_NO_KNOWN_ISSUER:
        hint = "; set ssl_cafile to the certificate of the authority that issued it"
    said = error.verify_message.rstrip(".")
    return AuthenticationError(f"the certificate of {peer} cannot be trusted: {said}{hint}")


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")
