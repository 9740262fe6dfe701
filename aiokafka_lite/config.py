"""Every setting, validated once, in one place. Seconds are floats, sizes are bytes.

A wrong setting raises ``ConfigurationError`` from the constructor, with the setting's name, the value given, and what
is allowed. Defaults are the safe ones; the docs list where they differ from the Java client.
"""

from __future__ import annotations

import math
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict

from .errors import ConfigurationError
from .security import MECHANISMS, SECURITY_PROTOCOLS, Secret, TokenProvider, is_pem, tls_context
from .types import Compression, IsolationLevel

KIB = 1024
MIB = 1024 * KIB
INT32_MAX = 2**31 - 1
LONGEST_TEXT = 2**15 - 1
"""Bytes of UTF-8 that a short string of the protocol can have."""

SHORTEST_PAUSE = 0.001
"""Seconds; without a pause between failures, a closed port would keep the loop busy with nothing else."""

Acks = Literal[0, 1, -1, "all"]
OffsetReset = str | timedelta
"""``"earliest"``, ``"latest"``, ``"none"``, or how far back: a timedelta, or in Java's form, ``"by_duration:PT1H"``."""
IsolationName = Literal["read_committed", "read_uncommitted"]


def _wrong(name: str, value: object, allowed: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={value!r}: {allowed}")


def _seconds(settings: object, *names: str, zero: bool = True) -> None:
    """Each is a finite number of seconds, and above zero unless ``zero`` allows it."""
    for name in names:
        value = getattr(settings, name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < 0 or (value == 0 and not zero):
            raise _wrong(name, value, f"a number of seconds {'from 0' if zero else 'above 0'} up")


def check_timeout(timeout: float | None) -> None:
    """Raise ConfigurationError unless it is a number of seconds, or None. One below zero is over at once."""
    if timeout is None:
        return
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or math.isnan(timeout):
        raise _wrong("timeout", timeout, "a number of seconds, or None")


def _whole(settings: object, name: str, low: int, high: int = INT32_MAX) -> None:
    value = getattr(settings, name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _wrong(name, value, f"a whole number from {low} to {high}")


def _pauses(settings: object, name: str) -> None:
    """A backoff: a first pause, and the longest one under the same name with ``_max``."""
    longest = f"{name}_max"
    _seconds(settings, name, longest)
    for each in (name, longest):
        if getattr(settings, each) < SHORTEST_PAUSE:
            raise _wrong(each, getattr(settings, each), f"at least {SHORTEST_PAUSE:g} seconds")
    value, maximum = getattr(settings, name), getattr(settings, longest)
    if value > maximum:
        raise _wrong(name, value, f"at most {longest}, which is {maximum!r}")


def _one_of(settings: object, name: str, allowed: Iterable[object]) -> None:
    value, choices = getattr(settings, name), tuple(allowed)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise _wrong(name, value, f"one of {', '.join(map(repr, choices))}")


def _switch(settings: object, name: str) -> None:
    value = getattr(settings, name)
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")


_DURATION = re.compile(
    r"by_duration:P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d*)?)S)?)?", re.IGNORECASE
)


def _duration(value: OffsetReset) -> float | None:
    """The seconds of ``by_duration:P1DT2H3M4.5S`` (ISO 8601, KIP-1106) or of a timedelta; None for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds() if value >= timedelta(0) else None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _text(settings: object, name: str) -> None:
    value = getattr(settings, name)
    if not isinstance(value, str):
        raise _wrong(name, value, "a string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise _wrong(name, value, f"it cannot be written as UTF-8: {error.reason}") from None
    if size > LONGEST_TEXT:
        raise ConfigurationError(f"{name}={value[:20] + '…'!r}: {size} bytes, and at most {LONGEST_TEXT} can be sent")


def _servers(given: object) -> tuple[str, ...]:
    """An entry each; empty ones, as after a last comma, are left out."""
    if isinstance(given, Mapping):
        raise _wrong("bootstrap_servers", sorted(map(str, given)), "settings are keyword arguments, not a dict of them")
    texts = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    names = [name.strip() for text in texts if isinstance(text, str) for name in text.split(",") if name.strip()]
    if not names or not all(isinstance(text, str) for text in texts):
        raise _wrong("bootstrap_servers", given, 'use "host:port", several joined by commas, or a list of them')
    return tuple(names)


def check_methods(name: str, value: object, *methods: str) -> None:
    """Raise ConfigurationError unless ``value`` is an object with these methods, and not the class of such objects."""
    if isinstance(value, type):
        raise _wrong(name, value, f"an object is needed, and this is a class, so it may be {value.__name__}()")
    if not all(callable(getattr(value, method, None)) for method in methods):
        raise _wrong(name, value, f"an object that has {' and '.join(f'{method}()' for method in methods)} is needed")


def check_function(name: str, value: object, purpose: str) -> None:
    """Raise ConfigurationError unless ``value`` can be called."""
    if not callable(value):
        raise _wrong(name, value, f"a function that {purpose} is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client needs to reach a cluster.

    When a broker throttles, nothing is sent on that connection for as long as it says, at most a minute.
    """

    bootstrap_servers: str | Iterable[str]
    """Brokers to begin with: ``"host:port,host:port"``, or a sequence. Any one that answers tells of the others."""
    client_id: str = "aiokafka-lite"
    """A name for the brokers' logs, metrics and quotas."""
    client_rack: str = ""
    """Where this client is; with it, consumers read from a replica in the same rack (KIP-392)."""
    request_timeout: float = 30.0
    """How long one request on one connection waits for its answer; then the connection is closed."""
    api_timeout: float = 60.0
    """How long a whole operation may take, with its retries, when the call gives no ``timeout``."""
    connect_timeout: float = 10.0
    """How long a connection may take until it can be used, handshake included."""
    retry_backoff: float = 0.1
    """The first pause before a request is tried again, a millisecond at least; it doubles, with jitter."""
    retry_backoff_max: float = 1.0
    """The longest such pause."""
    reconnect_backoff: float = 0.05
    """The first pause before a broker that could not be reached is tried again; it doubles, with jitter."""
    reconnect_backoff_max: float = 10.0
    """The longest such pause."""
    metadata_max_age: float = 300.0
    """How old metadata gets before it is asked for again without a reason."""
    connections_max_idle: float = 540.0
    """A connection that was not used for so long is closed."""
    max_response_size: int = 128 * MIB
    """The largest frame that is accepted from a broker; a larger one is a ProtocolError."""
    allow_auto_create_topics: bool = True
    """Whether using a topic may create it, where the broker allows that."""
    security_protocol: str = "PLAINTEXT"
    """``"PLAINTEXT"``, ``"SSL"``, ``"SASL_PLAINTEXT"`` or ``"SASL_SSL"``: what the brokers' port speaks."""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """A context that is ready, instead of the other ``ssl_`` settings; if None, one is made of them."""
    ssl_cafile: str | None = field(default=None, repr=False)
    """Whom to trust: the path of a PEM file, or PEM itself; if None, whom the system trusts."""
    ssl_certfile: str | None = field(default=None, repr=False)
    """Who we are: our certificate and those between it and the CA, in the same form."""
    ssl_keyfile: str | None = field(default=None, repr=False)
    """The certificate's private key, in the same form; if None, it is where the certificate is."""
    ssl_key_password: str | None = field(default=None, repr=False)
    """What the private key is encrypted with, if it is."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must be for the host name that it is called by."""
    sasl_mechanism: str | None = None
    """``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"`` or ``"OAUTHBEARER"``."""
    sasl_username: str | None = None
    """Who logs in, with PLAIN and SCRAM."""
    sasl_password: str | None = field(default=None, repr=False)
    """The password, with PLAIN and SCRAM."""
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, repr=False)
    """A function, sync or async, that gives a token whenever a connection logs in, with OAUTHBEARER."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap_servers", _servers(self.bootstrap_servers))
        _text(self, "client_id")
        _text(self, "client_rack")
        _seconds(self, "request_timeout", "api_timeout", "connect_timeout", zero=False)
        _seconds(self, "metadata_max_age", "connections_max_idle", zero=False)
        _pauses(self, "retry_backoff")
        _pauses(self, "reconnect_backoff")
        _whole(self, "max_response_size", KIB)
        _switch(self, "allow_auto_create_topics")
        _hide(self, "ssl_key_password", "sasl_password")
        _check_tls(self)
        _check_sasl(self)

    @property
    def servers(self) -> tuple[str, ...]:
        """``bootstrap_servers``, an entry each."""
        return tuple(self.bootstrap_servers)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted; ``ssl_context`` is there then, whatever it was made of."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections log in with ``sasl_mechanism``."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


_TLS_PARTS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password")
_CREDENTIALS = ("sasl_username", "sasl_password", "sasl_oauth_token_provider")


def _hide(settings: object, *names: str) -> None:
    """Texts become ``Secret``; no error from here on may quote them."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{name}: a string is needed, not {type(value).__name__}")
        if value is not None:
            object.__setattr__(settings, name, Secret(value))


def _check_tls(settings: ClientConfig) -> None:
    _one_of(settings, "security_protocol", SECURITY_PROTOCOLS)
    _switch(settings, "ssl_check_hostname")
    given = [name for name in ("ssl_context", *_TLS_PARTS) if getattr(settings, name) is not None]
    if not settings.uses_tls:
        if given:
            protocol = settings.security_protocol
            allowed = f'it needs security_protocol="SSL" or "SASL_SSL", and that is {protocol!r}: nothing is encrypted'
            raise ConfigurationError(f"{given[0]}: {allowed}")
        return
    if settings.ssl_context is not None:
        _check_ready_context(settings, given[1:])
        return
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        _check_pem(settings, name)
    if settings.ssl_certfile is None and len(given) > (settings.ssl_cafile is not None):
        raise ConfigurationError(f"{given[-1]}: it goes with ssl_certfile, which is not set")
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
        raise _wrong("ssl_context", settings.ssl_context, "an ssl.SSLContext, as ssl.create_default_context() makes")
    if others:
        raise ConfigurationError(f"{others[0]}: with ssl_context, load it into that context instead")
    if not settings.ssl_check_hostname:
        raise ConfigurationError("ssl_check_hostname=False: with ssl_context, set check_hostname of that context")


def _check_pem(settings: ClientConfig, name: str) -> None:
    """A path, or PEM itself, which for a key is a secret."""
    value = getattr(settings, name)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
        object.__setattr__(settings, name, value)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{name}: the path of a PEM file is needed, or PEM itself")
    if value is not None and is_pem(value) and name == "ssl_keyfile":
        object.__setattr__(settings, name, Secret(value))


def _check_sasl(settings: ClientConfig) -> None:
    given = [name for name in ("sasl_mechanism", *_CREDENTIALS) if getattr(settings, name) is not None]
    if not settings.uses_sasl:
        if given:
            protocol = settings.security_protocol
            needed = "SASL_SSL" if settings.uses_tls else 'SASL_SSL", or "SASL_PLAINTEXT'
            raise ConfigurationError(f'{given[0]}: it needs security_protocol="{needed}", and that is {protocol!r}')
        return
    if settings.sasl_mechanism is None:
        raise ConfigurationError(f"sasl_mechanism: one of {', '.join(MECHANISMS)} is needed to log in")
    _one_of(settings, "sasl_mechanism", MECHANISMS)
    mechanism = settings.sasl_mechanism
    needed_here = _CREDENTIALS[2:] if mechanism == "OAUTHBEARER" else _CREDENTIALS[:2]
    for name in _CREDENTIALS:
        if name in needed_here and name not in given:
            raise ConfigurationError(f"{name}: {mechanism} needs it")
        if name in given and name not in needed_here:
            raise ConfigurationError(f"{name}: {mechanism} has no use for it; it needs {' and '.join(needed_here)}")
    if mechanism == "OAUTHBEARER":
        _check_provider(settings.sasl_oauth_token_provider)
        return
    _text(settings, "sasl_username")
    for name in needed_here:
        _check_credential(name, getattr(settings, name))


def _check_provider(provider: object) -> None:
    if not callable(provider):  # what it is instead is not shown: it may well be a token
        kind = type(provider).__name__
        raise ConfigurationError(f"sasl_oauth_token_provider: a function that returns a token is needed, not {kind}")


def _check_credential(name: str, value: str) -> None:
    if not value:
        raise ConfigurationError(f"{name}: it is empty")
    if "\0" in value:
        raise ConfigurationError(f"{name}: NUL cannot be in it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name}: it cannot be written as UTF-8") from None


class ClientSettings(TypedDict, total=False):
    """The settings of `ClientConfig` that every client takes as keyword arguments."""

    client_id: str
    client_rack: str
    request_timeout: float
    api_timeout: float
    connect_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    metadata_max_age: float
    connections_max_idle: float
    max_response_size: int
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_key_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How records are batched, sent and retried."""

    acks: Acks = "all"
    """Who must have a record for it to count as written: ``"all"`` (or -1) in-sync replicas, 1 the leader, 0 nobody."""
    idempotence: bool | None = None
    """Whether brokers drop what a retry wrote twice; None means yes with ``acks="all"`` and no otherwise."""
    linger: float = 0.0
    """How long a batch waits for company, from its first record; 0 sends together what one turn of the loop queued."""
    batch_size: int = 64 * KIB
    """The largest batch of one partition on the wire, as far as compression can be foretold."""
    max_request_size: int = MIB
    """The largest record, and the largest request."""
    buffer_memory: int = 32 * MIB
    """All that is not acknowledged yet; when it is full, ``send`` waits and ``send_nowait`` raises BufferFull."""
    max_in_flight_requests_per_connection: int = 5
    """How many requests go to a broker before the first is answered; at most 5 with idempotence."""
    compression: str | Compression = Compression.NONE
    """``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``, for whole batches."""
    compression_level: int | None = None
    """The codec's own level: gzip 0 to 9, lz4 0 to 17, zstd -131072 to 22; None takes the codec's default."""
    delivery_timeout: float = 120.0
    """A record that is not acknowledged so long after it was accepted fails with KafkaTimeout."""
    max_block: float = 60.0
    """How long a send waits for metadata, for room in the buffer, and for an async serializer."""

    def __post_init__(self) -> None:
        _one_of(self, "acks", (0, 1, -1, "all"))
        object.__setattr__(self, "compression", Compression.parse(self.compression))
        if self.idempotence is not None and not isinstance(self.idempotence, bool):
            raise _wrong("idempotence", self.idempotence, "True, False, or None to follow acks")
        if self.idempotence and not self.waits_for_all:
            raise _wrong("idempotence", True, f'needs acks="all", and acks is {self.acks!r}')
        object.__setattr__(self, "idempotence", self.waits_for_all if self.idempotence is None else self.idempotence)
        _seconds(self, "linger", "max_block")
        _seconds(self, "delivery_timeout", zero=False)
        if self.linger >= self.delivery_timeout:
            allowed = f"less than delivery_timeout={self.delivery_timeout!r}, or no record could be delivered in time"
            raise _wrong("linger", self.linger, allowed)
        _whole(self, "batch_size", 1)
        _whole(self, "max_request_size", KIB)
        _whole(self, "buffer_memory", KIB, 2**63 - 1)
        _whole(self, "max_in_flight_requests_per_connection", 1)
        if self.idempotence and self.max_in_flight_requests_per_connection > 5:
            raise _wrong(
                "max_in_flight_requests_per_connection",
                self.max_in_flight_requests_per_connection,
                "at most 5 with idempotence, as brokers remember five batches of a producer; or set idempotence=False",
            )
        if self.compression_level is not None:
            _whole(self, "compression_level", -131072, 22)

    @property
    def waits_for_all(self) -> bool:
        """Whether a send is acknowledged only by all in-sync replicas."""
        return self.acks in (-1, "all")

    @property
    def required_acks(self) -> int:
        """``acks`` as the protocol's number."""
        return -1 if self.acks == "all" else self.acks


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How records are fetched and handed out."""

    auto_offset_reset: OffsetReset = "earliest"
    """Where reading begins without an offset: ``"earliest"``, ``"latest"``, ``"none"`` (raise), or so long ago."""
    isolation_level: IsolationName = "read_committed"
    """``"read_committed"`` hides records of transactions that are open or aborted; ``"read_uncommitted"`` shows all."""
    fetch_min_bytes: int = 1
    """A broker answers a fetch when it has this much."""
    fetch_max_bytes: int = 50 * MIB
    """The most in one answer; a larger first batch comes whole all the same."""
    fetch_max_wait: float = 0.5
    """How long a broker waits for ``fetch_min_bytes``."""
    max_partition_fetch_bytes: int = MIB
    """The most of one partition in one answer; a larger first batch comes whole all the same."""
    check_crcs: bool = True
    """Whether checksums of batches are verified."""
    max_decompressed_size: int = 128 * MIB
    """What one batch may grow to when it is unpacked; a larger one is CorruptRecord."""

    def __post_init__(self) -> None:
        reset = self.auto_offset_reset
        if reset not in ("earliest", "latest", "none") and self.reset_duration is None:
            allowed = "'earliest', 'latest', 'none', a timedelta from 0 up, or a duration as in 'by_duration:PT1H'"
            raise _wrong("auto_offset_reset", reset, allowed)
        _one_of(self, "isolation_level", ("read_committed", "read_uncommitted"))
        _whole(self, "fetch_min_bytes", 0)
        _whole(self, "fetch_max_bytes", 1)
        _whole(self, "max_partition_fetch_bytes", 1)
        _whole(self, "max_decompressed_size", 1)
        _seconds(self, "fetch_max_wait")
        _switch(self, "check_crcs")

    @property
    def reset_duration(self) -> float | None:
        """How many seconds back reading begins where there is no offset; None unless ``auto_offset_reset`` says so."""
        return _duration(self.auto_offset_reset)

    @property
    def isolation(self) -> IsolationLevel:
        """``isolation_level`` as the protocol's number."""
        return IsolationLevel[self.isolation_level.upper()]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How a consumer is a member of a group."""

    group_id: str
    """The group's name."""
    group_instance_id: str | None = None
    """A name that makes the member static (KIP-345): it keeps its place when it restarts."""
    session_timeout: float = 45.0
    """The coordinator gives a member up that it has not heard of for so long."""
    heartbeat_interval: float = 3.0
    """How often it hears of the member; less than ``session_timeout``, a third of it at most to be of use."""
    max_poll_interval: float = 300.0
    """The longest time between two reads; then the member leaves until it reads again."""
    rebalance_timeout: float | None = None
    """How long the others wait for this member to let go and join again; None means ``max_poll_interval``."""
    auto_commit: bool = True
    """Whether what is marked as done is committed by itself: on a timer, before partitions go, and at the end."""
    auto_commit_interval: float = 5.0
    """How often that timer commits."""

    def __post_init__(self) -> None:
        _text(self, "group_id")
        if not self.group_id:
            raise _wrong("group_id", self.group_id, "a name that is not empty")
        if self.group_instance_id is not None:
            _text(self, "group_instance_id")
            if not self.group_instance_id:
                raise _wrong("group_instance_id", self.group_instance_id, "a name that is not empty, or None")
        _seconds(self, "session_timeout", "heartbeat_interval", "max_poll_interval", zero=False)
        _seconds(self, "auto_commit_interval", zero=False)
        if self.rebalance_timeout is not None:
            _seconds(self, "rebalance_timeout", zero=False)
        if self.heartbeat_interval >= self.session_timeout:
            raise _wrong(
                "heartbeat_interval",
                self.heartbeat_interval,
                f"less than session_timeout={self.session_timeout!r}, and a third of it at most to be of use",
            )
        _switch(self, "auto_commit")

    @property
    def time_to_rebalance(self) -> float:
        """``rebalance_timeout``, or what it defaults to, in seconds."""
        return self.max_poll_interval if self.rebalance_timeout is None else self.rebalance_timeout

    @property
    def time_to_let_go(self) -> float:
        """Seconds that the user may keep the others waiting for partitions that have to go.

        The coordinator begins to count when the first member joins, which is up to a heartbeat before others know.
        """
        limit = self.time_to_rebalance
        return max(limit / 2, limit - 2 * self.heartbeat_interval)
