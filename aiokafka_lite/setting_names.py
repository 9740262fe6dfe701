"""What to say about a keyword argument that no client here has: mostly it is another client's name for one.

Java's names, with dots or with underscores, mean what they mean in a file of properties; the tables here have what is
left of the names that aiokafka, kafka-python and confluent-kafka use.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .errors import ConfigurationError
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
}
"""Names for which no rule gives the one that is used here."""

_INSTEAD = {
    "retries": "a record is sent again until delivery_timeout is over",
    "max_poll_records": "give max_records to the call that reads",
    "consumer_timeout_ms": "give timeout to poll()",
    "transactional_id": "transactions are not there",
    "transaction_timeout_ms": "transactions are not there",
    "group_protocol": "members join by the classic protocol, which all brokers speak; leave it out",
    "api_version": "versions are agreed on with each broker; leave it out",
    "loop": "a client belongs to the event loop that it is started in; leave it out",
}
"""Names that other clients know and that mean nothing here, with what to do."""


def unknown_setting(name: str, known: Iterable[str]) -> ConfigurationError:
    """The error for a keyword argument that is none of ``known``; without its value, which may be a password."""
    names = sorted(known)
    underscored = name.replace(".", "_")
    if underscored in _INSTEAD:
        return ConfigurationError(f"{name}: no such setting: {_INSTEAD[underscored]}")
    renamed = _RENAMED.get(underscored, underscored if underscored in names else None)
    setting, unit = (renamed, "") if renamed is not None else setting_of(underscored.replace("_", "."))
    if setting in names:
        return ConfigurationError(f"{name}: no such setting; here it is {setting}{unit}")
    near = get_close_matches(name, names, 1)
    if near:
        return ConfigurationError(f"{name}: no such setting; did you mean {near[0]}?")
    return ConfigurationError(f"{name}: no such setting; there are {', '.join(names)}")
