"""SaslHandshake and SaslAuthenticate on a connection that is logged in already, or on a listener without logins.

The login itself is in ``authentication``. Requests that it does not handle come here, and are refused.
"""

from __future__ import annotations

from ...errors import ErrorCode
from ...protocol import messages as m
from ..request_context import RequestContext, handles


@handles(m.SaslHandshakeRequest)
def sasl_handshake(context: RequestContext, request: m.SaslHandshakeRequest) -> m.SaslHandshakeResponse:
    return m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


@handles(m.SaslAuthenticateRequest)
def sasl_authenticate(context: RequestContext, request: m.SaslAuthenticateRequest) -> m.SaslAuthenticateResponse:
    return m.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
