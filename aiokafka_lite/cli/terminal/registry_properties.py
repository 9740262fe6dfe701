"""The properties of a schema registry, which stand beside those of Kafka's clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping

URL = "schema.registry.url"
USER = "schema.registry.basic.auth.user.info"
TOKEN = "schema.registry.bearer.auth.token"
CA = "schema.registry.ssl.ca.location"
PROPERTIES = (URL, USER, TOKEN, CA)
"""The properties of a registry, with the names of Confluent's clients. They stand beside those of Kafka's clients."""


def divided(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of Kafka's clients, and those of the registry. Raises ConfigurationError for unknown ones
    of a registry.
    """
    registry = {name: value for name, value in properties.items() if name.startswith("schema.registry.")}
    for name in registry:
        if name not in PROPERTIES:
            from difflib import get_close_matches

            from ... import disclosure
            from ...errors import ConfigurationError

            near = get_close_matches(name, PROPERTIES, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(PROPERTIES)}"
            raise ConfigurationError(f"{disclosure.setting(name)} is not a property of a schema registry{hint}")
    return {name: value for name, value in properties.items() if name not in registry}, registry
