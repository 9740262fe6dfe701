"""The address of a proxy in the settings, such as ``socks5://user:password@proxy.example:1080``."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from .. import disclosure
from ..errors import ConfigurationError
from .security import Secret

SCHEMES = {"socks5": "SOCKS5", "socks5h": "SOCKS5", "http": "HTTP"}
"""The proxies by the scheme of their address. socks5h is curl's name for names that the proxy resolves, as here
always."""

_EXPECTED = '"socks5://host:port" or "http://host:port", with user:password@ before the host if it requires them'
_LONGEST_CREDENTIAL = 255  # SOCKS has one byte for the length (RFC 1929)


class ProxyAddress(NamedTuple):
    """A checked address."""

    scheme: str
    host: str
    port: int
    username: str
    password: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<ProxyAddress {self}>"


def parse_proxy(text: object) -> ProxyAddress:
    """Parse the address of a proxy. Raises ConfigurationError, which quotes neither user nor password."""
    if not isinstance(text, str):
        raise ConfigurationError(f"proxy must be {_EXPECTED}, got {disclosure.kind(text)}")
    try:
        parts = urlsplit(text.encode().decode())  # a Secret is a str whose formatting hides it
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        rest = parts.path.strip("/") + parts.query + parts.fragment
    except ValueError:  # a port that is no number, or a bracket that is not closed
        scheme, host, port, user, password, rest = "", None, None, "", "", ""
    if scheme == "https":
        raise ConfigurationError("proxy must not be https://: a connection to the proxy itself by TLS is not supported")
    if scheme == "socks4":
        raise ConfigurationError("proxy must not be socks4://, which knows no host names; use socks5://")
    if scheme not in SCHEMES or not host or not port or rest or not re.fullmatch(r"[\w.:%-]+", host):
        raise ConfigurationError(f"proxy must be {_EXPECTED}, got {disclosure.kind(text)}")
    if password and not user:
        raise ConfigurationError("proxy must have a user name before its password")
    if scheme != "http":
        _check_socks_credentials(user, password)
    elif ":" in user:
        raise ConfigurationError("the user name of proxy must have no colon, which HTTP does not allow")
    return ProxyAddress(scheme, host, port, user, Secret(password))


def _check_socks_credentials(user: str, password: str) -> None:
    for name, part in (("user name", user), ("password", password)):
        if not part.isascii() or len(part) > _LONGEST_CREDENTIAL:
            raise ConfigurationError(
                f"the {name} of proxy must be at most {_LONGEST_CREDENTIAL} characters of ASCII for SOCKS"
            )
    if user and not password:
        raise ConfigurationError("proxy must have a password after its user name, which SOCKS requires")
