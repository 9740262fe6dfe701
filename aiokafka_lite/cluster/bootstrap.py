"""The addresses that a client is given to begin with, and to begin again with when no known broker answers.

Names are not resolved here: a connector resolves whenever it connects, so each pass over the list sees the name
service's present answer (KIP-899).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..errors import ConfigurationError

_SETTING = "bootstrap_servers"
_EXPECTED = 'expected "host:port" (IPv6 as "[address]:port"), several separated by commas or as a list'


class Address(NamedTuple):
    """Where to connect to: a name or an IP address (IPv6 without brackets), and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Read ``"a:9092,b:9092"`` or a sequence of such texts; duplicates are left out, the order stays.

    Raises ConfigurationError that names the text it could not read, and why.
    """
    texts = [servers] if isinstance(servers, str) else list(servers)
    addresses: dict[Address, None] = {}
    for text in texts:
        if not isinstance(text, str):
            raise ConfigurationError(f"{_SETTING}: {text!r} is not text; {_EXPECTED}")
        for part in text.split(","):
            if part.strip():
                addresses[parse_address(part.strip())] = None
    if not addresses:
        raise ConfigurationError(f"{_SETTING}={servers!r} names no server; {_EXPECTED}")
    return tuple(addresses)


def parse_address(text: str) -> Address:
    """Read one ``host:port``. Raises ConfigurationError."""
    if "://" in text:
        scheme, _, rest = text.partition("://")
        address = rest.rstrip("/")
        raise _refused(text, f"{scheme}:// is not wanted: brokers speak Kafka's own protocol, so give {address!r}")
    if any(character.isspace() or character in "/@?#" for character in text):
        raise _refused(text, "it has characters that neither a host nor a port has")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise _refused(text, "the bracket of the IPv6 address is not closed")
        if ":" not in host:
            raise _refused(text, "only IPv6 addresses stand in brackets")
        if not rest.startswith(":"):
            raise _refused(text, "the port is missing")
        return Address(host, _parse_port(text, rest[1:]))
    host, colon, port = text.rpartition(":")
    if not colon:
        raise _refused(text, "the port is missing")
    if ":" in host:
        raise _refused(text, "an IPv6 address must stand in brackets")
    if not host:
        raise _refused(text, "the host is missing")
    return Address(host, _parse_port(text, port))


def shuffled(addresses: Iterable[Address], random: Callable[[], float] = random.random) -> list[Address]:
    """The addresses in an order drawn from ``random``, so that many clients do not all begin with the same broker."""
    return [address for _, address in sorted((random(), address) for address in addresses)]


def _parse_port(text: str, port: str) -> int:
    if not port:
        raise _refused(text, "the port is missing")
    if not (port.isascii() and port.isdigit()):
        raise _refused(text, f"the port {port!r} is not a number")
    if not 1 <= int(port) <= 65535:
        raise _refused(text, f"the port {port} is not from 1 to 65535")
    return int(port)


def _refused(text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{_SETTING}: cannot use {text!r}: {reason}; {_EXPECTED}")
