"""Settings of one listener: ``listener.name.<listener>.<setting>``, some also ``....<mechanism>.<setting>``.

They override the setting without the prefix, for clients of this listener and mechanism. The name of a listener of an
embedded cluster is its security protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..arguments import must_be
from ..errors import ConfigurationError

ACTING = (
    "connections.max.reauth.ms",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
)
"""The settings that act under the prefix."""

_MECHANISM = r"(?:(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?"
_PREFIXED = re.compile(rf"listener\.name\.([^.]+)\.{_MECHANISM}(.+)")


def listener_prefix(listener: str) -> str:
    """The prefix of the settings of a listener."""
    return f"listener.name.{listener.lower()}."


def base_name(name: str) -> str | None:
    """The setting that a setting of a listener overrides; None for the name of any other setting."""
    found = _PREFIXED.fullmatch(name)
    return None if found is None else found[2]


def check_listener_configs(configs: Iterable[str], listeners: Sequence[str]) -> None:
    """Raise ConfigurationError for a setting of a listener that has no effect."""
    known = [each.lower() for each in listeners]
    for name in configs:
        found = _PREFIXED.fullmatch(name)
        if found is None:
            continue
        if found[1] not in known:
            raise ConfigurationError(f"configs[{name!r}]: {must_be('listener', f'one of {known}', found[1])}")
        if found[2] not in ACTING:
            raise ConfigurationError(
                f"configs[{name!r}] has no effect; the settings of a listener that act are {', '.join(ACTING)}"
            )


def without_prefix(configs: Mapping[str, str]) -> dict[str, str]:
    """The settings of no listener."""
    return {name: value for name, value in configs.items() if base_name(name) is None}
