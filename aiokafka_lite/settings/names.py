"""The error for an unknown keyword argument, which is usually the name of a setting in another client.

Names of the Java client, with dots or underscores, are translated as in a properties file. The tables here translate
the remaining names of aiokafka, kafka-python and confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ..errors import ConfigurationError
from .properties import setting_of

_RENAMED = {
    "topic": "topics",
    "group": "group_id",
    "max_batch_size": "batch_size",
    "enable_idempotence": "idempotence",
    "rebalance_timeout_ms": "rebalance_timeout",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_oauth_token_provider_cb": "sasl_oauth_token_provider",
    "ssl_password": "ssl_key_password",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "timeout": "api_timeout",
    "proxy_url": "proxy",
    "socks5_proxy": "proxy",
}
"""Other clients' names of settings that no rule translates."""

_INSTEAD = {
    "max_poll_records": "pass max_records to the call that reads",
    "consumer_timeout_ms": "pass timeout to poll()",
    "api_version": "versions are negotiated with each broker; remove it",
    "loop": "a client uses the event loop that it is started in; remove it",
}
"""Settings of other clients that do not exist here, and what to do instead."""


def unknown_setting(name: str, settings: Iterable[str]) -> ConfigurationError:
    """Make the error for an unknown keyword argument. It never shows the value, which may be a password."""
    names = sorted(settings)
    underscored = name.replace(".", "_")
    if name == "request_timeout_ms" and "delivery_timeout" in names:  # in aiokafka it ends a send
        meanings = "delivery_timeout for a send, request_timeout for a request"
        return ConfigurationError(f"{name} is not a setting of this client; use {meanings}")
    if underscored in _INSTEAD:
        return ConfigurationError(f"{name} is not a setting of this client: {_INSTEAD[underscored]}")
    renamed = _RENAMED.get(underscored, underscored if underscored in names else None)
    setting, unit = (renamed, "") if renamed is not None else setting_of(underscored.replace("_", "."))
    if setting in names:
        return ConfigurationError(f"{name} is not a setting of this client; use {setting}{unit}")
    near = get_close_matches(name, names, 1)
    if near:
        return ConfigurationError(f"{name} is not a setting of this client; did you mean {near[0]}?")
    return ConfigurationError(f"{name} is not a setting of this client; settings are {', '.join(names)}")
