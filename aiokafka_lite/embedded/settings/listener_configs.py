"""Settings of one listener: ``listener.name.<listener>.<setting>``, some also ``....<mechanism>.<setting>``.

They override the setting without the prefix, for clients of this listener and mechanism. The name of a listener of an
embedded cluster is its security protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ...arguments import must_be
from ...errors import ConfigurationError
from .listeners import WITH_SASL, WITH_TLS

ACTING = (
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
)
"""The settings that act under the prefix."""

OF_MECHANISM = "connections.max.reauth.ms"
"""The setting that can also be set for one mechanism."""

_MECHANISM = r"((?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?"
_PREFIXED = re.compile(rf"listener\.name\.([^.]+)\.{_MECHANISM}(.+)")


def listener_prefix(listener: str) -> str:
    return f"listener.name.{listener.lower()}."


def base_name(name: str) -> str | None:
    """Return the setting that a setting of a listener overrides; None for the name of any other setting."""
    match = _PREFIXED.fullmatch(name)
    return None if match is None else match[3]


def check_listener_configs(configs: Iterable[str], listeners: Sequence[str]) -> None:
    """Raise ConfigurationError for a setting of a listener that has no effect."""
    names = [listener.lower() for listener in listeners]
    for name in configs:
        match = _PREFIXED.fullmatch(name)
        if match is None:
            continue
        if match[1] not in names:
            raise ConfigurationError(f"configs[{name!r}]: {must_be('listener', f'one of {names}', match[1])}")
        reason = _no_effect(match[1].upper(), match[2], match[3])
        if reason is not None:
            raise ConfigurationError(f"configs[{name!r}] has no effect: {reason}")


def _no_effect(listener: str, mechanism: str | None, setting: str) -> str | None:
    """Return the reason why a setting of a listener has no effect; None if it has an effect."""
    if setting not in ACTING:
        return f"the settings of a listener that have an effect are {', '.join(ACTING)}"
    if mechanism is not None and setting != OF_MECHANISM:
        return f"only {OF_MECHANISM} can be set for one mechanism"
    if setting == "ssl.principal.mapping.rules":
        protocols: Sequence[str] = ("SSL",)  # on all others, the login gives the principal
    elif setting.startswith("ssl."):
        protocols = WITH_TLS
    elif setting.startswith("sasl.") or setting == OF_MECHANISM:
        protocols = WITH_SASL
    else:
        return None
    return None if listener in protocols else must_be("the listener", f"one of {', '.join(protocols)}", listener)


def without_prefix(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if base_name(name) is None}
