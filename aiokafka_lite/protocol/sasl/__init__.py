"""The client's side of SASL: one file per mechanism, each a small state machine without I/O.

``begin()`` returns the first step, ``received(message)`` the step after a message of the broker. A step is bytes to
send, a key to derive, or None when the login is complete. A key takes long to derive, so the caller decides where to
run it. A message of the broker that the mechanism does not allow raises ``AuthenticationError``. Errors quote no
secret.
"""

from .gssapi import GssapiExchange, SecurityContext
from .machine import Derivation, SaslExchange, derive
from .oauthbearer import OAuthBearerExchange
from .plain import PlainExchange
from .scram import ScramExchange

__all__ = [
    "Derivation",
    "GssapiExchange",
    "OAuthBearerExchange",
    "PlainExchange",
    "SaslExchange",
    "ScramExchange",
    "SecurityContext",
    "derive",
]
