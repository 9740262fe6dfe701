"""All settings of the clients, validated once, in one place. Seconds are floats, sizes are bytes.

A wrong setting raises ``ConfigurationError`` in the constructor: ``linger must be a number of seconds >= 0, got '5'``.
Errors about passwords and keys do not quote them. Defaults are the safe ones; docs/settings.md lists where they differ
from the Java client.
"""

from __future__ import annotations

import math
import os
import re
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict, get_args

from .. import disclosure
from ..arguments import INT32_MAX, INT64_MAX, is_whole, must_be
from ..errors import ConfigurationError
from ..extras import extra
from ..types import Compression, IsolationLevel
from .checks import (
    LONGEST_TIMER,
    credential,
    filled,
    ip_address,
    one_of,
    pauses,
    plain_strings,
    seconds,
    string,
    switch,
    whole,
    wrong,
)
from .security import (
    MECHANISMS,
    SECURITY_PROTOCOLS,
    Secret,
    TokenProvider,
    check_keytab,
    is_oauth_extension,
    is_pem,
    tls_context,
)

KIB = 1024
MIB = 1024 * KIB

Acks = Literal[0, 1, -1, "all"]
OffsetReset = str | timedelta
"""``"earliest"``, ``"latest"``, ``"none"``, or how far back: a timedelta, or Java's form, ``"by_duration:PT1H"``."""
OffsetResetName = Literal["earliest", "latest", "none"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IsolationName = Literal["read_committed", "read_uncommitted"]
GroupProtocolName = Literal["classic", "consumer", "auto"]


_DURATION = re.compile(
    r"by_duration:P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d*)?)S)?)?", re.IGNORECASE
)


def _duration(value: OffsetReset) -> float | None:
    """Return the seconds of ``by_duration:P1DT2H3M4.5S`` (ISO 8601, KIP-1106) or of a timedelta; None for anything
    else.
    """
    if isinstance(value, timedelta):
        return value.total_seconds() if value >= timedelta(0) else None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return total if math.isfinite(total) else None


def _servers(given: object) -> tuple[str, ...]:
    """Return the addresses, one per entry. Empty entries, as after a trailing comma, are left out."""
    if isinstance(given, Mapping):
        raise ConfigurationError("settings must be keyword arguments, got a dict as bootstrap_servers; pass **settings")
    texts = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    names = [name.strip() for text in texts if isinstance(text, str) for name in text.split(",") if name.strip()]
    if not names or not all(isinstance(text, str) for text in texts):
        what = '"host:port", several joined by commas, or a list of them'
        raise ConfigurationError(f"bootstrap_servers must be {what}, got {disclosure.addresses(given)}")
    return tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings that every client has: how to reach a cluster.

    When a broker throttles the client, the connection sends nothing for the time that the broker names, at most 60 s.
    """

    bootstrap_servers: str | Iterable[str]
    """The first brokers to contact: ``"host:port,host:port"`` or a sequence. A broker that responds names all
    others."""
    client_id: str = "aiokafka-lite"
    """The client's name in the brokers' logs, metrics and quotas."""
    client_rack: str = ""
    """The rack of this client. If it is set, consumers read from a replica in the same rack (KIP-392)."""
    request_timeout: float = 30.0
    """Seconds that one request waits for its response. After that time, the connection is closed."""
    api_timeout: float = 60.0
    """Seconds that a whole operation may take, retries included, if the call has no ``timeout``."""
    connect_timeout: float = 10.0
    """Seconds to open a connection, TLS handshake and login included."""
    retry_backoff: float = 0.1
    """Seconds before the first retry of a request, at least 0.001. The pause doubles, with jitter."""
    retry_backoff_max: float = 1.0
    """The longest pause between retries, in seconds."""
    retry_backoff_function: Callable[[int], float] | None = None
    """A function that replaces ``retry_backoff`` and ``retry_backoff_max``. It is called with the number of failed
    attempts, from 1 on, and returns the seconds to wait. If it raises, or does not return a number >= 0, the two
    settings apply, and one warning is logged."""
    reconnect_backoff: float = 0.05
    """Seconds before the client connects again to an unreachable broker. The pause doubles, with jitter."""
    reconnect_backoff_max: float = 10.0
    """The longest pause between connection attempts, in seconds."""
    metadata_max_age: float = 300.0
    """Seconds after which metadata is refreshed even if nothing has changed."""
    connections_max_idle: float = 540.0
    """Seconds after which an unused connection is closed."""
    max_response_size: int = 128 * MIB
    """The largest response in bytes that the client accepts. A larger response is a ProtocolError. The limit is 1 MiB
    until a connection has logged in."""
    response_memory: int | None = None
    """The maximum number of bytes that incomplete responses of all connections may have together, at least
    ``max_response_size``. The first 64 KiB of each response do not count. When the bytes are used up, connections stop
    reading until other responses are complete, so brokers send more slowly. None: four times ``max_response_size``."""
    max_open_requests: int = 100
    """The maximum number of requests of one connection without a response; further requests wait. Connections for
    Produce requests have ``max_in_flight_requests_per_connection`` instead; connections for Fetch requests send one at
    a time."""
    local_address: str | None = None
    """The IP address of this machine from which the client connects. With None, the operating system chooses it."""
    allow_auto_create_topics: bool = True
    """Whether using a topic may create it, if the broker allows that."""
    enable_metrics_push: bool = True
    """Whether producers, consumers and share consumers push metrics to brokers whose operator subscribes to them
    (KIP-714)."""
    security_protocol: str = "PLAINTEXT"
    """The protocol of the brokers' listener: ``"PLAINTEXT"``, ``"SSL"``, ``"SASL_PLAINTEXT"`` or ``"SASL_SSL"``."""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """A complete SSLContext, instead of the other ``ssl_`` settings. If None, one is made from them."""
    ssl_cafile: str | None = field(default=None, repr=False)
    """The trusted CA certificates: the path of a PEM file, or PEM text. If None, the system's certificates."""
    ssl_certfile: str | None = field(default=None, repr=False)
    """The client's certificate and its intermediate certificates: the path of a PEM file, or PEM text."""
    ssl_keyfile: str | None = field(default=None, repr=False)
    """The private key of the certificate: path or PEM text. If None, it is read from ``ssl_certfile``."""
    ssl_key_password: str | None = field(default=None, repr=False)
    """The password of an encrypted private key."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must match the host name that the client connects to."""
    sasl_mechanism: str | None = None
    """``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"``, ``"OAUTHBEARER"`` or ``"GSSAPI"`` (Kerberos)."""
    sasl_username: str | None = None
    """The user name for PLAIN and SCRAM."""
    sasl_password: str | None = field(default=None, repr=False)
    """The password for PLAIN and SCRAM."""
    sasl_tokenauth: bool = False
    """Whether SCRAM uses a delegation token (KIP-48): the user name is its id, the password its HMAC in base64."""
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, repr=False)
    """A function, sync or async, that returns a token for OAUTHBEARER. It is called for each login."""
    sasl_oauth_extensions: Mapping[str, str] | None = field(default=None, repr=False)
    """Pairs to send with each token of OAUTHBEARER (KIP-342), such as ``{"logicalCluster": "lkc-1"}``."""
    sasl_kerberos_service_name: str | None = None
    """The first part of the brokers' Kerberos principals, for GSSAPI. If None, it is ``"kafka"``."""
    sasl_kerberos_keytab: str | None = None
    """The path of a keytab for GSSAPI. If None, tickets are in the user's ticket cache, where kinit puts them."""
    sasl_kerberos_principal: str | None = None
    """The client's Kerberos principal, such as ``"orders@EXAMPLE.COM"``. If None, the keytab or the cache names it."""

    def __post_init__(self) -> None:
        plain_strings(self)
        object.__setattr__(self, "bootstrap_servers", _servers(self.bootstrap_servers))
        string(self, "client_id", "client_rack")
        seconds(self, "request_timeout", "api_timeout", zero=False)
        seconds(self, "connect_timeout", "metadata_max_age", "connections_max_idle", zero=False, most=LONGEST_TIMER)
        pauses(self, "retry_backoff")
        pauses(self, "reconnect_backoff")
        whole(self, "max_response_size", KIB)
        if self.response_memory is not None:
            whole(self, "response_memory", self.max_response_size)
        whole(self, "max_open_requests", 1)
        if self.retry_backoff_function is not None and not callable(self.retry_backoff_function):
            raise wrong("retry_backoff_function", "a function, or None", self.retry_backoff_function)
        if self.local_address is not None:
            ip_address(self, "local_address")
        switch(self, "allow_auto_create_topics", "enable_metrics_push", "sasl_tokenauth")
        _hide(self, "ssl_key_password", "sasl_password")
        _check_tls(self)
        _check_sasl(self)

    @property
    def servers(self) -> tuple[str, ...]:
        """``bootstrap_servers`` as a tuple of addresses."""
        return tuple(self.bootstrap_servers)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted. If so, ``ssl_context`` is set."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections log in with ``sasl_mechanism``."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


_TLS_PARTS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password")
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PASSWORD = ("sasl_username", "sasl_password")
_OAUTH = ("sasl_oauth_token_provider", "sasl_oauth_extensions")
_KERBEROS = ("sasl_kerberos_service_name", "sasl_kerberos_keytab", "sasl_kerberos_principal")
_CREDENTIALS = (*_PASSWORD, *_OAUTH, *_KERBEROS)
_OPTIONAL = ("sasl_oauth_extensions", *_KERBEROS)
_OF_MECHANISM = {"OAUTHBEARER": _OAUTH, "GSSAPI": _KERBEROS}


def _hide(settings: object, *names: str) -> None:
    """Make strings ``Secret``, so that no error or log can quote them."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{name} must be a string, got {_kind(value)}")
        if value is not None:
            object.__setattr__(settings, name, Secret(value))


def _check_tls(settings: ClientConfig) -> None:
    one_of(settings, "security_protocol", SECURITY_PROTOCOLS)
    switch(settings, "ssl_check_hostname")
    given = [name for name in ("ssl_context", *_TLS_PARTS) if getattr(settings, name) is not None]
    if not settings.uses_tls:
        if given:
            raise ConfigurationError(
                f'{given[0]} requires security_protocol="SSL" or "SASL_SSL", got {settings.security_protocol!r}'
            )
        return
    if settings.ssl_context is not None:
        _check_ready_context(settings, given[1:])
        return
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        _check_pem(settings, name)
    if settings.ssl_certfile is None and len(given) > (settings.ssl_cafile is not None):
        raise ConfigurationError(f"{given[-1]} requires ssl_certfile, which is not set")
    context = tls_context(
        cafile=settings.ssl_cafile,
        certfile=settings.ssl_certfile,
        keyfile=settings.ssl_keyfile,
        key_password=settings.ssl_key_password,
        check_hostname=settings.ssl_check_hostname,
    )
    object.__setattr__(settings, "ssl_context", context)


def _check_ready_context(settings: ClientConfig, others: list[str]) -> None:
    if not isinstance(settings.ssl_context, ssl.SSLContext):
        raise wrong("ssl_context", "an ssl.SSLContext, as ssl.create_default_context() makes", settings.ssl_context)
    if others:
        raise ConfigurationError(f"{others[0]} cannot be combined with ssl_context; load it into that context")
    if not settings.ssl_check_hostname:
        raise ConfigurationError(
            "ssl_check_hostname=False cannot be combined with ssl_context; set check_hostname of that context"
        )


def _check_pem(settings: ClientConfig, name: str) -> None:
    """A path or PEM text. The PEM text of a key is a secret."""
    value = getattr(settings, name)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
        object.__setattr__(settings, name, value)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{name} must be the path of a PEM file or PEM text, got {_kind(value)}")
    if value is not None and is_pem(value) and name == "ssl_keyfile":
        object.__setattr__(settings, name, Secret(value))


def _check_sasl(settings: ClientConfig) -> None:
    given = [name for name in ("sasl_mechanism", *_CREDENTIALS) if getattr(settings, name) is not None]
    if settings.sasl_tokenauth and settings.sasl_mechanism not in _SCRAM:
        found = settings.sasl_mechanism
        what = " or ".join(_SCRAM)
        raise ConfigurationError(
            f"sasl_tokenauth requires {must_be('sasl_mechanism', what, found).replace(' must be ', ' ', 1)}"
        )
    if not settings.uses_sasl:
        if given:
            needed = '"SASL_SSL"' if settings.uses_tls else '"SASL_SSL" or "SASL_PLAINTEXT"'
            raise ConfigurationError(
                f"{given[0]} requires security_protocol={needed}, got {settings.security_protocol!r}"
            )
        return
    if settings.sasl_mechanism is None:
        raise ConfigurationError(
            f"sasl_mechanism is required with security_protocol={settings.security_protocol!r}: "
            f"one of {', '.join(MECHANISMS)}"
        )
    one_of(settings, "sasl_mechanism", MECHANISMS)
    _check_credentials(settings, settings.sasl_mechanism, given)


def _check_credentials(settings: ClientConfig, mechanism: str, given: Collection[str]) -> None:
    needed_here = _OF_MECHANISM.get(mechanism, _PASSWORD)
    for name in _CREDENTIALS:
        if name in needed_here and name not in given and name not in _OPTIONAL:
            raise ConfigurationError(f"{name} is required for {mechanism}")
        if name in given and name not in needed_here:
            raise ConfigurationError(f"{name} is not for {mechanism}, which takes {' and '.join(needed_here)}")
    if mechanism == "OAUTHBEARER":
        _check_provider(settings.sasl_oauth_token_provider)
        _check_extensions(settings.sasl_oauth_extensions)
    elif mechanism == "GSSAPI":
        _check_kerberos(settings)
    else:
        string(settings, "sasl_username")
        for name in needed_here:
            credential(settings, name)


def _check_provider(provider: object) -> None:
    if not callable(provider):  # the value is not quoted: it may be a token
        raise ConfigurationError(
            f"sasl_oauth_token_provider must be a function that returns a token, got {_kind(provider)}"
        )


def _check_extensions(extensions: object) -> None:
    pairs = extensions.items() if isinstance(extensions, Mapping) else [] if extensions is None else [("", "")]
    if not all(is_oauth_extension(name, value) for name, value in pairs):
        what = 'a dict of names of letters, except "auth", and values of printable ASCII'
        raise wrong("sasl_oauth_extensions", what, extensions)


def _check_kerberos(settings: ClientConfig) -> None:
    keytab: object = settings.sasl_kerberos_keytab
    if isinstance(keytab, os.PathLike):
        object.__setattr__(settings, "sasl_kerberos_keytab", os.fspath(keytab))
    for name in _KERBEROS:
        if getattr(settings, name) is not None:
            filled(settings, name)
    if settings.sasl_kerberos_keytab is not None:
        check_keytab("sasl_kerberos_keytab", settings.sasl_kerberos_keytab)
    extra("gssapi", "gssapi")


def _kind(value: object) -> str:
    """Return the type of a value that may be a secret."""
    return "an empty string" if value == "" else type(value).__name__


class ClientSettings(TypedDict, total=False):
    """The settings of `ClientConfig` that every client takes as keyword arguments."""

    client_id: str
    """The client's name in the brokers' logs, metrics and quotas. Default: ``"aiokafka-lite"``."""
    client_rack: str
    """The rack of this client. If it is set, consumers read from a replica in the same rack (KIP-392). Default:
    empty."""
    request_timeout: float
    """Seconds that one request waits for its response. After that time, the connection is closed. Default: 30 s."""
    api_timeout: float
    """Seconds that a whole operation may take, retries included, if the call has no ``timeout``. Default: 60 s."""
    connect_timeout: float
    """Seconds to open a connection, TLS handshake and login included. Default: 10 s."""
    retry_backoff: float
    """Seconds before the first retry of a request, at least 0.001. The pause doubles, with jitter. Default: 0.1 s."""
    retry_backoff_max: float
    """The longest pause between retries, in seconds. Default: 1 s."""
    retry_backoff_function: Callable[[int], float] | None
    """A function that replaces ``retry_backoff`` and ``retry_backoff_max``. It is called with the number of failed
    attempts, from 1 on, and returns the seconds to wait. If it raises, or does not return a number >= 0, the two
    settings apply, and one warning is logged. Default: none."""
    reconnect_backoff: float
    """Seconds before the client connects again to an unreachable broker. The pause doubles, with jitter. Default: 50
    ms."""
    reconnect_backoff_max: float
    """The longest pause between connection attempts, in seconds. Default: 10 s."""
    metadata_max_age: float
    """Seconds after which metadata is refreshed even if nothing has changed. Default: 300 s."""
    connections_max_idle: float
    """Seconds after which an unused connection is closed. Default: 540 s."""
    max_response_size: int
    """The largest response in bytes that the client accepts. A larger response is a ProtocolError. The limit is 1 MiB
    until a connection has logged in. Default: 128 MiB."""
    response_memory: int | None
    """The maximum number of bytes that incomplete responses of all connections may have together, at least
    ``max_response_size``. The first 64 KiB of each response do not count. When the bytes are used up, connections stop
    reading until other responses are complete, so brokers send more slowly. None: four times ``max_response_size``.
    Default: four times ``max_response_size``."""
    max_open_requests: int
    """The maximum number of requests of one connection without a response; further requests wait. Connections for
    Produce requests have ``max_in_flight_requests_per_connection`` instead; connections for Fetch requests send one at
    a time. Default: 100."""
    local_address: str | None
    """The IP address of this machine from which the client connects. With None, the operating system chooses it.
    Default: none."""
    enable_metrics_push: bool
    """Whether producers, consumers and share consumers push metrics to brokers whose operator subscribes to them
    (KIP-714). Default: ``True``."""
    security_protocol: SecurityProtocol
    """The protocol of the brokers' listener: ``"PLAINTEXT"``, ``"SSL"``, ``"SASL_PLAINTEXT"`` or ``"SASL_SSL"``.
    Default: ``"PLAINTEXT"``."""
    ssl_context: ssl.SSLContext | None
    """A complete SSLContext, instead of the other ``ssl_`` settings. If None, one is made from them. Default: made from
    the next settings."""
    ssl_cafile: str | None
    """The trusted CA certificates: the path of a PEM file, or PEM text. If None, the system's certificates. Default:
    the system's certificates."""
    ssl_certfile: str | None
    """The client's certificate and its intermediate certificates: the path of a PEM file, or PEM text. Default:
    none."""
    ssl_keyfile: str | None
    """The private key of the certificate: path or PEM text. If None, it is read from ``ssl_certfile``. Default:
    none."""
    ssl_key_password: str | None
    """The password of an encrypted private key. Default: none."""
    ssl_check_hostname: bool
    """Whether a broker's certificate must match the host name that the client connects to. Default: ``True``."""
    sasl_mechanism: Mechanism | None
    """``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"``, ``"OAUTHBEARER"`` or ``"GSSAPI"`` (Kerberos). Default:
    none."""
    sasl_username: str | None
    """The user name for PLAIN and SCRAM. Default: none."""
    sasl_password: str | None
    """The password for PLAIN and SCRAM. Default: none."""
    sasl_tokenauth: bool
    """Whether SCRAM uses a delegation token (KIP-48): the user name is its id, the password its HMAC in base64.
    Default: ``False``."""
    sasl_oauth_token_provider: TokenProvider | None
    """A function, sync or async, that returns a token for OAUTHBEARER. It is called for each login. Default: none."""
    sasl_oauth_extensions: Mapping[str, str] | None
    """Pairs to send with each token of OAUTHBEARER (KIP-342), such as ``{"logicalCluster": "lkc-1"}``. Default:
    none."""
    sasl_kerberos_service_name: str | None
    """The first part of the brokers' Kerberos principals, for GSSAPI. If None, it is ``"kafka"``. Default: none."""
    sasl_kerberos_keytab: str | None
    """The path of a keytab for GSSAPI. If None, tickets are in the user's ticket cache, where kinit puts them. Default:
    none."""
    sasl_kerberos_principal: str | None
    """The client's Kerberos principal, such as ``"orders@EXAMPLE.COM"``. If None, the keytab or the cache names it.
    Default: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How records are batched, sent and retried."""

    acks: Acks = "all"
    """The replicas that must have a record before it counts as written: ``"all"`` or -1 (all in-sync replicas), 1 (the
    leader), or 0 (none)."""
    transactional_id: str | None = None
    """The name under which the producer writes transactions. It stays the same over restarts: a new producer of this
    name ends the open transaction of the old one, and fences it. None means no transactions."""
    transaction_timeout: float = 60.0
    """Seconds after which the coordinator aborts a transaction that is still open, and fences its producer."""
    idempotence: bool | None = None
    """Whether brokers drop duplicates that retries cause. None means True if ``acks="all"`` and ``retries`` > 0."""
    retries: int = INT32_MAX
    """How often a batch is sent again after a retriable error, within ``delivery_timeout``. 0 means never."""
    linger: float = 0.0
    """Seconds that a batch waits for more records, from its first one. With 0, a batch has the records of one turn of
    the event loop."""
    batch_size: int = 64 * KIB
    """The largest batch of one partition in bytes, estimated after compression."""
    max_request_size: int = MIB
    """The largest record and the largest request, in bytes."""
    buffer_memory: int = 32 * MIB
    """Bytes of unacknowledged records. When it is full, ``send`` waits and ``send_nowait`` raises BufferFull."""
    max_in_flight_requests_per_connection: int = 5
    """Requests to a broker without a response yet, at most 5 with idempotence."""
    compression: str | Compression = Compression.NONE
    """The codec of batches: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``."""
    compression_level: int | None = None
    """The level of the codec: gzip 0 to 9, lz4 0 to 17, zstd -131072 to 22. None is the codec's default."""
    delivery_timeout: float = 120.0
    """Seconds from accepting a record until it fails with KafkaTimeout, if it is not acknowledged."""
    max_block: float = 60.0
    """Seconds that ``send`` waits for metadata, for room in the buffer, and for an async serializer."""

    def __post_init__(self) -> None:
        plain_strings(self)
        one_of(self, "acks", (0, 1, -1, "all"))
        try:
            object.__setattr__(self, "compression", Compression.parse(self.compression))
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        if self.idempotence is not None and not isinstance(self.idempotence, bool):
            raise wrong("idempotence", "True, False, or None", self.idempotence)
        whole(self, "retries", 0)
        if self.idempotence:
            self._check_idempotence("idempotence=True")
        if self.transactional_id is not None:
            self._check_transactions()
        seconds(self, "transaction_timeout", zero=False)
        is_idempotent = self.waits_for_all and self.retries > 0 if self.idempotence is None else self.idempotence
        object.__setattr__(self, "idempotence", is_idempotent)
        seconds(self, "linger", "max_block", most=LONGEST_TIMER)
        seconds(self, "delivery_timeout", zero=False)
        if self.linger >= self.delivery_timeout:
            raise wrong("linger", f"less than delivery_timeout={self.delivery_timeout!r}", self.linger)
        whole(self, "batch_size", 1)
        whole(self, "max_request_size", KIB)
        whole(self, "buffer_memory", KIB, INT64_MAX)
        whole(self, "max_in_flight_requests_per_connection", 1)
        # Brokers remember 5 batches of each producer.
        if self.idempotence and self.max_in_flight_requests_per_connection > 5:
            what = "at most 5 with idempotence (or set idempotence=False)"
            raise wrong("max_in_flight_requests_per_connection", what, self.max_in_flight_requests_per_connection)
        if self.compression_level is not None and not is_whole(self.compression_level):
            raise wrong("compression_level", "a whole number, or None", self.compression_level)

    def _check_transactions(self) -> None:
        filled(self, "transactional_id")
        if self.idempotence is False:
            raise ConfigurationError("transactional_id requires idempotence=True or None, got False")
        self._check_idempotence("transactional_id")

    def _check_idempotence(self, what: str) -> None:
        """Check the requirements of idempotence. ``what`` is the setting that asks for idempotence."""
        if not self.waits_for_all:
            raise ConfigurationError(f'{what} requires acks="all", got acks={self.acks!r}')
        if not self.retries:
            raise ConfigurationError(f"{what} requires retries >= 1, got retries=0")

    @property
    def waits_for_all(self) -> bool:
        """Whether all in-sync replicas must acknowledge a record."""
        return self.acks in (-1, "all")

    @property
    def required_acks(self) -> int:
        """``acks`` as the protocol's number."""
        return -1 if self.acks == "all" else self.acks


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How records are fetched and returned to the user."""

    auto_offset_reset: OffsetReset = "earliest"
    """The start without a committed offset: ``"earliest"``, ``"latest"``, ``"none"`` (raise), or a time span back."""
    isolation_level: IsolationName = "read_committed"
    """``"read_committed"`` skips records of open and aborted transactions. ``"read_uncommitted"`` returns all."""
    fetch_min_bytes: int = 1
    """Bytes that a broker collects before it responds to a fetch."""
    fetch_max_bytes: int = 50 * MIB
    """The maximum number of bytes in one response, less than ``max_response_size``. A larger first batch is still
    returned whole."""
    fetch_max_wait: float = 0.5
    """Seconds that a broker waits for ``fetch_min_bytes``."""
    fetch_memory: int | None = None
    """The maximum number of bytes to buffer from all brokers together, in compressed form. Each broker has an equal
    part of it, at most ``fetch_max_bytes``. None: ``fetch_max_bytes`` from each broker."""
    max_partition_fetch_bytes: int = MIB
    """The maximum number of bytes of one partition in one response. A larger first batch is still returned whole."""
    check_crcs: bool = True
    """Whether the checksums of batches are verified."""
    max_decompressed_size: int = 128 * MIB
    """The maximum number of bytes of one batch after decompression. A larger batch raises CorruptRecord."""

    def __post_init__(self) -> None:
        plain_strings(self)
        reset = self.auto_offset_reset
        if reset not in ("earliest", "latest", "none") and self.reset_duration is None:
            what = "'earliest', 'latest', 'none', a timedelta >= 0, or a duration such as 'by_duration:PT1H'"
            raise wrong("auto_offset_reset", what, reset)
        one_of(self, "isolation_level", ("read_committed", "read_uncommitted"))
        whole(self, "fetch_min_bytes", 0)
        whole(self, "fetch_max_bytes", 1)
        if self.fetch_memory is not None:
            whole(self, "fetch_memory", 1)
        whole(self, "max_partition_fetch_bytes", 1)
        whole(self, "max_decompressed_size", 1)
        seconds(self, "fetch_max_wait")
        switch(self, "check_crcs")

    @property
    def reset_duration(self) -> float | None:
        """The seconds of ``auto_offset_reset``, None if it is not a time span."""
        return _duration(self.auto_offset_reset)

    @property
    def isolation(self) -> IsolationLevel:
        """``isolation_level`` as the protocol's number."""
        return IsolationLevel[self.isolation_level.upper()]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How a consumer takes part in its group."""

    group_id: str
    """The name of the group."""
    group_instance_id: str | None = None
    """A name that makes the member static (KIP-345): it keeps its partitions when it restarts."""
    session_timeout: float = 45.0
    """Seconds without a heartbeat after which the coordinator removes the member from the group."""
    heartbeat_interval: float = 3.0
    """Seconds between heartbeats. It must be less than ``session_timeout``, and should be at most a third."""
    max_poll_interval: float = 300.0
    """The longest time between two reads, in seconds. After that time, the member leaves the group until it reads
    again."""
    rebalance_timeout: float | None = None
    """Seconds that other members wait for this member to revoke partitions and join. None is ``max_poll_interval``."""
    auto_commit: bool = True
    """Whether marked records are committed automatically: on a timer, before partitions are revoked, and on close."""
    auto_commit_interval: float = 5.0
    """Seconds between automatic commits."""
    group_protocol: GroupProtocolName = "classic"
    """``"classic"``, ``"consumer"`` or ``"auto"``. With ``"consumer"`` (KIP-848), the brokers assign the partitions,
    and set session timeout and heartbeat interval. ``"auto"`` is ``"consumer"`` if the cluster has it."""
    group_remote_assignor: str | None = None
    """The brokers' assignment strategy under the consumer protocol: ``"uniform"`` or ``"range"``. None: their
    default."""

    def __post_init__(self) -> None:
        plain_strings(self)
        filled(self, "group_id")
        if self.group_instance_id is not None:
            filled(self, "group_instance_id")
        seconds(self, "session_timeout", "heartbeat_interval", "max_poll_interval", zero=False)
        seconds(self, "auto_commit_interval", zero=False)
        if self.rebalance_timeout is not None:
            seconds(self, "rebalance_timeout", zero=False)
        if self.heartbeat_interval >= self.session_timeout:
            raise wrong(
                "heartbeat_interval", f"less than session_timeout={self.session_timeout!r}", self.heartbeat_interval
            )
        switch(self, "auto_commit")
        one_of(self, "group_protocol", get_args(GroupProtocolName))
        if self.group_remote_assignor is not None:
            filled(self, "group_remote_assignor")
            if self.group_protocol == "classic":
                raise ConfigurationError('group_remote_assignor requires group_protocol "consumer" or "auto"')

    @property
    def time_to_rebalance(self) -> float:
        """``rebalance_timeout`` or its default, in seconds."""
        return self.max_poll_interval if self.rebalance_timeout is None else self.rebalance_timeout

    @property
    def time_to_revoke(self) -> float:
        """Seconds that the user may hold partitions that must be revoked, before the member joins without waiting.

        The time counts from the last heartbeat before the rebalance. It is shorter than the rebalance timeout, because
        this member has to join again within that timeout. The coordinator counts that timeout from the first member's
        JoinGroup.
        """
        limit = self.time_to_rebalance
        return max(limit / 2, limit - self.heartbeat_interval)
