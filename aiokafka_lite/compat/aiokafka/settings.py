"""Converts aiokafka's settings to settings of this client."""

from __future__ import annotations

import inspect
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypedDict, TypeVar

from ...arguments import must_be
from ...settings.checks import FromMilliseconds
from ...settings.spelling import spelled
from .abc import AbstractTokenProvider
from .errors import translating

P = ParamSpec("P")
T = TypeVar("T")


class ConnectionSettings(TypedDict, total=False):
    """The arguments that producers, consumers and admin clients have in common.

    ``loop`` and ``api_version`` do nothing: a client runs in the event loop in which it is started, and versions are
    negotiated.
    """

    loop: object
    api_version: object
    bootstrap_servers: str | Sequence[str]
    client_id: str | None
    metadata_max_age_ms: float
    request_timeout_ms: float
    retry_backoff_ms: float
    connections_max_idle_ms: float
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None


def listing_settings(method: Callable[P, T]) -> Callable[P, T]:
    """Give a constructor a signature that names each setting of ``**settings``, because frameworks read the names."""
    signature = inspect.signature(method)
    parameters = [item for item in signature.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...)
        for name in ConnectionSettings.__annotations__
    ]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method


DEFAULT_REQUEST_TIMEOUT_MS = 40_000

_PORT = re.compile(r":\d+$")

_SECONDS = {
    "metadata_max_age_ms": "metadata_max_age",
    "retry_backoff_ms": "retry_backoff",
    "connections_max_idle_ms": "connections_max_idle",
}
_AS_THEY_ARE = ("client_id", "security_protocol", "ssl_context")
_SASL = {
    "sasl_mechanism": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
}
_NAMES = {
    **{ours: name for name, ours in _SECONDS.items()},
    **{ours: name for name, ours in _SASL.items()},
    "request_timeout": "request_timeout_ms",
    "compression": "compression_type",
    "batch_size": "max_batch_size",
    "idempotence": "enable_idempotence",
    "linger": "linger_ms",
    "transaction_timeout": "transaction_timeout_ms",
    "fetch_max_wait": "fetch_max_wait_ms",
    "auto_commit": "enable_auto_commit",
    "auto_commit_interval": "auto_commit_interval_ms",
    "max_poll_interval": "max_poll_interval_ms",
    "rebalance_timeout": "rebalance_timeout_ms",
    "session_timeout": "session_timeout_ms",
    "heartbeat_interval": "heartbeat_interval_ms",
    "strategies": "partition_assignment_strategy",
}
"""aiokafka's names of this client's settings, where they differ."""
_WITHOUT_EFFECT = ("loop", "api_version")
_OF_CONSUMERS = (
    *("fetch_max_bytes", "fetch_min_bytes", "max_partition_fetch_bytes"),
    *("auto_offset_reset", "check_crcs", "isolation_level"),
)


def connection_settings(settings: ConnectionSettings) -> dict[str, Any]:
    """Convert settings to those of this client, with ``bootstrap_servers``. Raises TypeError for an unknown name."""
    remaining: dict[str, Any] = dict(settings)
    timeout = seconds("request_timeout_ms", remaining.pop("request_timeout_ms", DEFAULT_REQUEST_TIMEOUT_MS))
    native: dict[str, Any] = {
        "bootstrap_servers": _with_ports(remaining.pop("bootstrap_servers", "localhost")),
        "request_timeout": timeout,
        "api_timeout": timeout,
        "connect_timeout": min(10.0, timeout),
    }
    for name in _WITHOUT_EFFECT:
        remaining.pop(name, None)
    for name in _AS_THEY_ARE:
        if (value := remaining.pop(name, None)) is not None:
            native[name] = value
    for name, ours in _SECONDS.items():
        if (value := remaining.pop(name, None)) is not None:
            native[ours] = seconds(name, value)
    native["retry_backoff_max"] = max(1.0, native.get("retry_backoff", 0.0))
    native |= _sasl_settings(remaining, native.get("security_protocol"))
    if remaining:
        raise TypeError(f"got an unexpected keyword argument {next(iter(remaining))!r}")
    return native


def consumer_settings(arguments: Mapping[str, Any], connection: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of ``AIOKafkaConsumer``, and add those of ``connection_settings``."""
    # This client refuses a wait after which the response comes too late.
    wait = min(seconds("fetch_max_wait_ms", arguments["fetch_max_wait_ms"]), connection["request_timeout"] / 2)
    native = {**connection, "fetch_max_wait": wait, "client_rack": arguments["client_rack"] or ""}
    native |= {name: arguments[name] for name in _OF_CONSUMERS}
    return native if arguments["group_id"] is None else native | _group_settings(arguments)


def _group_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    times = ["auto_commit_interval", "max_poll_interval", "session_timeout", "heartbeat_interval"]
    if arguments["rebalance_timeout_ms"] is not None:
        times.append("rebalance_timeout")
    native: dict[str, Any] = {ours: seconds(_NAMES[ours], arguments[_NAMES[ours]]) for ours in times}
    native.setdefault("rebalance_timeout", native["session_timeout"])
    same = {name: arguments[name] for name in ("group_id", "group_instance_id")}
    return {**same, "auto_commit": arguments["enable_auto_commit"], **native}


def _sasl_settings(settings: dict[str, Any], protocol: object) -> dict[str, Any]:
    """Take the SASL settings out of ``settings``. Other security protocols ignore them, as aiokafka does."""
    sasl = {ours: settings.pop(name, None) for name, ours in _SASL.items()}
    provider = settings.pop("sasl_oauth_token_provider", None)
    service = settings.pop("sasl_kerberos_service_name", None)
    domain = settings.pop("sasl_kerberos_domain_name", None)
    if not isinstance(protocol, str) or not protocol.startswith("SASL"):
        return {}
    sasl["sasl_mechanism"] = sasl["sasl_mechanism"] or "PLAIN"
    native = {name: value for name, value in sasl.items() if value is not None}
    if sasl["sasl_mechanism"] == "GSSAPI":
        if domain is not None:
            raise NotImplementedError(
                "sasl_kerberos_domain_name is not supported, because a ticket names the broker's host; remove it"
            )
        native["sasl_kerberos_service_name"] = service
    if provider is not None:
        native["sasl_oauth_token_provider"] = provider.token
        native["sasl_oauth_extensions"] = provider.extensions() or None
    return native


def _with_ports(servers: str | Sequence[str]) -> list[str]:
    """Add Kafka's usual port to the addresses that have none."""
    addresses = servers.split(",") if isinstance(servers, str) else servers
    return [server if _PORT.search(server) else f"{server}:9092" for server in map(str.strip, addresses)]


def seconds(name: str, milliseconds: object) -> float:
    """Convert milliseconds to seconds. Raises TypeError for other types."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        raise TypeError(must_be(name, "a number of milliseconds", milliseconds))
    return FromMilliseconds(milliseconds / 1000)


def changed(values: Mapping[str, object], defaults: Mapping[str, object] | None) -> dict[str, object]:
    """Return the times in ``values`` that differ from the defaults, in the unit in which they were passed."""
    return {
        name: values[name]
        for name, default in (defaults or {}).items()
        if name.endswith("_ms") and values[name] != default
    }


@contextmanager
def naming(keywords: Mapping[str, object]) -> Iterator[None]:
    """Raise aiokafka's exceptions. An error about a setting names aiokafka's keyword.

    ``keywords`` has the keywords that the program passed.
    """
    with translating(), spelled(_NAMES, {name: value for name, value in keywords.items() if value is not None}):
        yield
