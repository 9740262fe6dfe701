"""The bootstrap addresses: where a client first connects, and connects again when no known broker answers.

Host names are not resolved here. The connector resolves them for each connection, so each pass over the list uses the
current addresses (KIP-899). ``sorted_settings`` distributes a client's keyword arguments to its configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from .. import disclosure
from ..errors import ConfigurationError

_SETTING = "bootstrap_servers"
_EXPECTED = 'expected "host:port" (IPv6: "[address]:port"), separated by commas or as a list'


class Address(NamedTuple):
    """A host name or an IP address (IPv6 without brackets), and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Parse ``"a:9092,b:9092"`` or several such strings. Removes duplicates and keeps the order.

    Raises ConfigurationError with the invalid part and the reason.
    """
    texts = [servers] if isinstance(servers, str) else list(servers)
    addresses: dict[Address, None] = {}
    for text in texts:
        if not isinstance(text, str):
            raise ConfigurationError(f"{_SETTING}: cannot use {disclosure.kind(text)}: it is not a string; {_EXPECTED}")
        for part in text.split(","):
            if part.strip():
                addresses[parse_address(part.strip())] = None
    if not addresses:
        raise ConfigurationError(f"{_SETTING} must name a server, got {disclosure.addresses(servers)}; {_EXPECTED}")
    return tuple(addresses)


def parse_address(text: str) -> Address:
    """Parse one ``host:port``. Raises ConfigurationError."""
    if "@" in text:
        raise _refused(text, "an address has no user and password; use the settings sasl_*")
    if ";" in text:
        raise _refused(text, "addresses are separated by commas, not by semicolons")
    if "://" in text:
        scheme, _, rest = text.partition("://")
        address = rest.rstrip("/")
        if not disclosure.is_scheme(scheme):
            raise _refused(text, "an address has no scheme")
        raise _refused(text, f"remove {scheme}://, as in {disclosure.address(address)}")
    if any(character.isspace() or character in "/?#" for character in text):
        raise _refused(text, "it has characters that are not allowed in a host or a port")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise _refused(text, "the bracket of the IPv6 address is not closed")
        if ":" not in host:
            raise _refused(text, "only an IPv6 address can be in brackets")
        if not rest.startswith(":"):
            raise _refused(text, "the port is missing")
        return Address(host, _parse_port(text, rest[1:]))
    host, colon, port = text.rpartition(":")
    if not colon:
        raise _refused(text, "the port is missing")
    if ":" in host:
        raise _refused(text, "an IPv6 address must be in brackets")
    if not host:
        raise _refused(text, "the host is missing")
    return Address(host, _parse_port(text, port))


def shuffled(addresses: Iterable[Address], random: Callable[[], float]) -> list[Address]:
    """Return the addresses in random order, so that many clients do not all start with the same broker."""
    return [address for _, address in sorted((random(), address) for address in addresses)]


def _parse_port(text: str, port: str) -> int:
    if not port:
        raise _refused(text, "the port is missing")
    if not (port.isascii() and port.isdigit()):
        raise _refused(text, "the port is not a number" if len(port) > 5 else f"the port {port!r} is not a number")
    if not 1 <= int(port) <= 65535:
        raise _refused(text, f"the port {port} is not from 1 to 65535")
    return int(port)


def _refused(text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{_SETTING}: cannot use {disclosure.address(text)}: {reason}; {_EXPECTED}")


def sorted_settings(
    settings: Mapping[str, object], *configs: type[Any], suggested: Iterable[str] = ()
) -> list[dict[str, object]]:
    """Return the settings that are fields of each of these configurations.

    Raises ConfigurationError for any other setting. The error may suggest a field, or one of the names ``suggested``.
    """
    unknown = dict(settings)
    sorted_by_config = [
        {field.name: unknown.pop(field.name) for field in fields(config) if field.name in unknown} for config in configs
    ]
    if unknown:
        from ..settings.names import unknown_setting  # imported here, because most programs have no wrong name

        raise unknown_setting(
            next(iter(unknown)), {*suggested, *(field.name for config in configs for field in fields(config))}
        )
    return sorted_by_config
