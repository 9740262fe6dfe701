"""An error of TLS names the cause and the setting to change."""

from __future__ import annotations

import ssl

import pytest

from aiokafka_lite.errors import KafkaError
from aiokafka_lite.net.tls import alert, handshake_failure


def alert_error(reason: str) -> KafkaError | None:
    error = ssl.SSLError(1, "an alert")
    error.reason = reason
    return alert(error, "broker 1")


@pytest.mark.parametrize("reason", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE"])
def test_a_missing_client_certificate_is_asked_for(reason: str) -> None:
    assert "requires a client certificate" in str(alert_error(reason))
    assert "set ssl_certfile and ssl_keyfile" in str(alert_error(reason))


@pytest.mark.parametrize("reason", ["TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"])
def test_a_refused_client_certificate_is_named(reason: str) -> None:
    assert "refuses the client certificate of ssl_certfile" in str(alert_error(reason))


def test_an_alert_about_something_else_is_not_explained() -> None:
    assert alert_error("TLSV1_ALERT_INTERNAL_ERROR") is None


def test_an_expired_certificate_of_the_broker_is_answered_with_advice() -> None:
    error = ssl.SSLCertVerificationError(1, "expired")
    error.verify_code, error.verify_message = 10, "certificate has expired"
    assert "renew the certificate on the broker" in str(handshake_failure(error, "broker 1"))
