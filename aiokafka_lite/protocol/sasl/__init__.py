"""SASL as a client speaks it: one file per mechanism, each a small machine of bytes in and bytes out.

Nothing here does I/O or knows how the bytes travel. A machine is asked what to say first, is told what the broker said,
and returns what to do about it: say these bytes, derive a key (which takes long, so the caller decides where), or
nothing more. It raises ``AuthenticationError`` for whatever a broker says that it may not, and quotes no secret.
"""

from .machine import Derivation, Exchange, derive
from .oauthbearer import OAuthBearerExchange
from .plain import PlainExchange
from .scram import ScramExchange

__all__ = ["Derivation", "Exchange", "OAuthBearerExchange", "PlainExchange", "ScramExchange", "derive"]
