"""Suggests the nearest name for a setting that a broker refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ...errors import KafkaError

K = TypeVar("K")


def explained_settings(failed: Mapping[K, KafkaError], kind: str, names: Iterable[str]) -> dict[K, KafkaError]:
    """Return the errors, each INVALID_CONFIG with the nearest name of a setting that does not exist.

    ``names`` are the settings that were given for a resource of this kind, such as ``"topic"``. The names are those of
    the newest Kafka, so an older broker may refuse a setting for which there is no better name.
    """
    from ...errors import BrokerError, ErrorCode, KafkaError

    refusals = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    refused = {key for key, error in failed.items() if isinstance(error, BrokerError) and error.code in refusals}
    if not refused:
        return dict(failed)
    hints = "".join(setting_hint(kind, name) for name in names)
    return {
        # The embedded broker suggests a name by itself.
        key: KafkaError(f"{error}{hints}") if key in refused and hints and "did you mean" not in str(error) else error
        for key, error in failed.items()
    }


def setting_hint(kind: str, name: str) -> str:
    """Suggest the nearest name for a setting that Kafka does not have; an empty text if it has it."""
    from .topic_names import hint

    existing = _names(kind)
    return "" if name in existing else hint(name, existing)


def _names(kind: str) -> Collection[str]:
    """Return the names that Kafka has for the settings of a topic, a broker, the brokers or a group."""
    # The embedded broker knows Kafka's own names. To ask the cluster would need one more permission.
    from ...embedded.settings.broker_keys import BROKER_KEYS
    from ...embedded.settings.configs import TOPIC_KEYS
    from ...embedded.settings.resource_configs import GROUP_KEYS

    return {"topic": TOPIC_KEYS, "group": GROUP_KEYS, "broker": BROKER_KEYS, "brokers": BROKER_KEYS}.get(kind, ())
