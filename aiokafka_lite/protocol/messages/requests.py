"""The requests by their API key. It imports every family, so code that needs few requests imports those by name."""

from __future__ import annotations

from typing import Any

from .. import messages
from ..schema import Request

_ALL: list[type[Request[Any]]] = [getattr(messages, name) for name in dir(messages) if name.endswith("Request")]

REQUESTS = {request.api_key: request for request in _ALL}
"""The request class of each supported API key."""
