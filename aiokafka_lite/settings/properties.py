"""Converts Kafka's client properties to keyword arguments of this package's clients.

The names are the Java client's, and librdkafka's for certificates and credentials; the fields of the configurations
declare them. A value may be a reference: ``file:/path`` stands for the content of a file, ``env:NAME`` for an
environment variable. References are resolved when the settings are made, on the machine that makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import NamedTuple, get_args, get_type_hints

from .. import disclosure
from ..arguments import must_be
from ..errors import ConfigurationError
from .client import ClientConfig
from .consumer import ConsumerConfig
from .group import GroupConfig
from .java import EXPECTED, Java, Librdkafka, OwnProperty, Reader, to_bool, to_number, to_seconds, to_text
from .producer import ProducerConfig
from .property_files import read_properties, resolve
from .property_logins import ENDPOINT, LOGIN_PROPERTIES, TOKEN_PROVIDER, add_credentials, check_stores

__all__ = ["client_settings", "consumer_settings", "producer_settings", "read_properties", "without_effect"]


class _Meaning(NamedTuple):
    """The keyword argument for a property, and the function that parses its value."""

    setting: str
    read: Reader


def _meanings(config: type) -> dict[str, _Meaning]:
    """Return the meaning of each property that a field of this configuration declares."""
    return {
        name: _Meaning(setting, read or _reader(get_args(hint)[0]))
        for setting, hint in get_type_hints(config, include_extras=True).items()
        for name, read in _properties_of(get_args(hint)[1:])
    }


def _properties_of(annotations: Iterable[object]) -> Iterator[tuple[str, Reader | None]]:
    for annotation in annotations:
        match annotation:
            case Java(names=str(names), is_property=True):
                yield from ((name, annotation.read) for name in names.split(", "))
            case Librdkafka() | OwnProperty():
                yield annotation


def _reader(kind: object) -> Reader:
    """Return the function that parses a property for a field of this type."""
    for field_type, read in ((bool, to_bool), (int, to_number), (float, to_seconds)):
        if field_type is kind or field_type in get_args(kind):
            return read
    return to_text


def _strategies(value: str) -> tuple[str, ...]:
    """Split the names of strategies. The consumer checks them, because it alone has the list of valid names."""
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise ValueError("no names")
    return names


_CLIENT = _meanings(ClientConfig)
# Admin clients do not take this one. librdkafka's producer has the property, and Java's does not.
_OF_TOPIC_USERS = {"allow.auto.create.topics": _CLIENT.pop("allow.auto.create.topics")}
_PRODUCER = {**_OF_TOPIC_USERS, **_meanings(ProducerConfig)}
_CONSUMER = {**_OF_TOPIC_USERS, **_meanings(ConsumerConfig)}
_GROUP = {**_meanings(GroupConfig), "partition.assignment.strategy": _Meaning("strategies", _strategies)}

_GROUP_ID = "group.id"
_EXPECTED = {**EXPECTED, _strategies: "one or more names of assignment strategies, as in RangeAssignor"}

MEANINGS = {**_CLIENT, **_PRODUCER, **_CONSUMER, **_GROUP}
_PROPERTIES = frozenset({*MEANINGS, _GROUP_ID, *LOGIN_PROPERTIES})

_INSTEAD = {
    "max.poll.records": "pass max_records to the call that reads",
    "key.serializer": "pass key_serializer to the producer",
    "value.serializer": "pass value_serializer to the producer",
    "key.deserializer": "pass key_deserializer to the consumer",
    "value.deserializer": "pass value_deserializer to the consumer",
    "partitioner.class": "pass partitioner to the producer",
    "interceptor.classes": "pass interceptors to the producer or the consumer",
    "sasl.login.callback.handler.class": f"set {ENDPOINT}, or {TOKEN_PROVIDER} to a function that returns the token",
    "sasl.client.callback.handler.class": "set sasl.username and sasl.password, as file:/path or env:NAME",
    "ssl.engine.factory.class": "set ssl.truststore.location and ssl.keystore.location to PEM or PKCS#12 files",
}
"""Properties of Java's client that do not exist here, and what to do instead."""

_WITHOUT_EFFECT = frozenset(
    (
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "exclude.internal.topics",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "receive.buffer.bytes",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)
"""Properties of Java's clients that a program can leave out: it reads and writes the same records without them.

The clients refuse them. A Spark query, which moves over with all its options, drops them with a warning.
"""


def without_effect(names: Iterable[str]) -> list[str]:
    """Return the given names that are properties of Java's clients without a counterpart here, sorted."""
    return sorted(_WITHOUT_EFFECT.intersection(names))


def setting_of(name: str) -> tuple[str | None, str]:
    """Return the keyword argument for a property, None if there is none, and a note if its unit differs."""
    meaning = MEANINGS.get(name)
    if meaning is None:
        return None, ""
    return meaning.setting, ", in seconds" if meaning.read is to_seconds else ""


def client_settings(properties: Mapping[str, str]) -> dict[str, object]:
    """Convert properties to the settings that every client takes, such as ``Admin``: servers, timeouts, security.

    Secrets are ``Secret``. Properties of producers and consumers are ignored, so that one file may serve all clients.
    Raises ConfigurationError for an unknown property (with the nearest known one), for a wrong value, and for a
    reference that cannot be resolved. No error quotes a secret, or the value behind ``file:`` or ``env:``.
    """
    check_known(properties)
    check_stores(properties)
    settings = _settings(properties, _CLIENT)
    add_credentials(properties, settings)
    for name in ("retry_backoff", "reconnect_backoff"):
        _raise_maximum(settings, name)
    return settings


def producer_settings(properties: Mapping[str, str]) -> dict[str, object]:
    """Convert properties to the settings of a ``Producer``; see ``client_settings``."""
    return {**client_settings(properties), **_settings(properties, _PRODUCER)}


def consumer_settings(properties: Mapping[str, str], *, group_id: str | None = None) -> dict[str, object]:
    """Convert properties to the settings of a ``Consumer``; see ``client_settings``.

    ``group_id`` overrides ``group.id``. Without a group, the properties of group members are ignored. ``strategies``
    are names.
    """
    settings = {**client_settings(properties), **_settings(properties, _CONSUMER)}
    group = group_id if group_id is not None else resolve(_GROUP_ID, properties.get(_GROUP_ID, ""))
    if group:
        settings |= {"group_id": group, **_settings(properties, _GROUP)}
    return settings


def check_known(properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a name that is no property of a client, with the nearest known name."""
    for name, value in properties.items():
        if name in _INSTEAD:
            raise ConfigurationError(f"{name} is not supported: {_INSTEAD[name]}")
        if name in _WITHOUT_EFFECT:
            raise ConfigurationError(f"{name} is a property of Java's client that has no counterpart here; remove it")
        if name not in _PROPERTIES:
            near = get_close_matches(name, sorted(_PROPERTIES | _WITHOUT_EFFECT), 1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigurationError(f"{disclosure.setting(name)} is not a property of a Kafka client{hint}")
        if not isinstance(value, str):
            raise ConfigurationError(f"{name} must be a string, got {type(value).__name__}")


def _settings(properties: Mapping[str, str], meanings: Mapping[str, _Meaning]) -> dict[str, object]:
    settings: dict[str, object] = {}
    names: dict[str, str] = {}
    for name, value in properties.items():
        meaning = meanings.get(name)
        if meaning is None:
            continue
        if meaning.setting in names:
            raise ConfigurationError(f"{name} and {names[meaning.setting]} are the same setting; remove one of them")
        names[meaning.setting] = name
        text = resolve(name, value)
        try:
            settings[meaning.setting] = meaning.read(text)
        except (KeyError, ValueError, OverflowError):
            wrong = must_be(name, _EXPECTED[meaning.read], value)
        else:
            continue
        raise ConfigurationError(wrong)  # outside of the handler, whose error may quote a secret
    return settings


def _raise_maximum(settings: dict[str, object], name: str) -> None:
    """Raise the maximum of a backoff to a longer first pause. As in Java, the pause is constant then."""
    pause, longest = settings.get(name), f"{name}_max"
    default = {field.name: field.default for field in fields(ClientConfig)}[longest]
    if longest not in settings and isinstance(pause, float) and isinstance(default, float) and pause > default:
        settings[longest] = pause
