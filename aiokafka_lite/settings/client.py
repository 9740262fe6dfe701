"""The settings that every client has: how to reach a cluster, TLS and login. Seconds are floats, sizes are bytes.

A wrong setting raises ``ConfigurationError`` in the constructor: ``linger must be a number of seconds >= 0, got '5'``.
Errors about passwords and keys do not quote them. Defaults are the safe ones; docs/settings.md lists where they differ
from the Java client. The annotation of a field names its counterparts in other clients.
"""

from __future__ import annotations

import copy
import inspect
import os
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, Self

from .. import disclosure
from ..arguments import must_be
from ..errors import ConfigurationError
from ..extras import extra
from .checks import (
    KIB,
    LONGEST_TIMER,
    MIB,
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
from .java import Java, Librdkafka, OwnProperty, Unset, is_https, to_secret, to_upper
from .security import (
    MECHANISMS,
    SECURITY_PROTOCOLS,
    PasswordProvider,
    Secret,
    TokenProvider,
    check_keytab,
    is_oauth_extension,
    is_pem,
    tls_context,
)

if TYPE_CHECKING:
    from ..events import ClientEvent
else:
    ClientEvent = object  # ``properties`` reads the annotations, and a client without ``on_event`` needs no events

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]


def names_of_servers(servers: object, setting: str = "bootstrap_servers") -> tuple[str, ...]:
    """Split the addresses. Empty entries, as after a trailing comma, are left out.

    Raises ConfigurationError, with the name of the setting.
    """
    if isinstance(servers, Mapping):
        raise ConfigurationError(f"settings must be keyword arguments, got a dict as {setting}; pass **settings")
    texts = [servers] if isinstance(servers, str) else list(servers) if isinstance(servers, Iterable) else []
    names = [name.strip() for text in texts if isinstance(text, str) for name in text.split(",") if name.strip()]
    if not names or not all(isinstance(text, str) for text in texts):
        what = '"host:port", several joined by commas, or a list of them'
        raise ConfigurationError(f"{setting} must be {what}, got {disclosure.addresses(servers)}")
    return tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings that every client has: how to reach a cluster.

    When a broker throttles the client, the connection sends nothing for the time that the broker names, at most 60 s.
    """

    bootstrap_servers: Annotated[str | Iterable[str], Java("bootstrap.servers")]
    """The first brokers to contact: ``"host:port,host:port"`` or a sequence. A broker that responds names all
    others."""
    client_id: Annotated[str, Java("client.id", "empty or generated")] = "aiokafka-lite"
    """The client's name in the brokers' logs, metrics and quotas."""
    client_rack: Annotated[str, Java("client.rack")] = ""
    """The rack of this client. If it is set, consumers read from a replica in the same rack (KIP-392). Producers use it
    with ``partitioner_rack_aware``."""
    request_timeout: Annotated[float, Java("request.timeout.ms")] = 30.0
    """Seconds that one request waits for its response. After that time, the connection is closed."""
    api_timeout: Annotated[float, Java("default.api.timeout.ms")] = 60.0
    """Seconds that a whole operation may take, retries included, if the call has no ``timeout``."""
    connect_timeout: Annotated[
        float, Java("socket.connection.setup.timeout.ms", "10 s, growing to 30 s after failures")
    ] = 10.0
    """Seconds to open a connection, TLS handshake and login included."""
    retry_backoff: Annotated[float, Java("retry.backoff.ms")] = 0.1
    """Seconds before the first retry of a request, at least 0.001. The pause doubles, with jitter."""
    retry_backoff_max: Annotated[float, Java("retry.backoff.max.ms")] = 1.0
    """The longest pause between retries, in seconds."""
    retry_backoff_function: Annotated[Callable[[int], float] | None, Java(None)] = None
    """A function that replaces ``retry_backoff`` and ``retry_backoff_max``. It is called with the number of failed
    attempts, from 1 on, and returns the seconds to wait. If it raises, or does not return a number >= 0, the two
    settings apply, and one warning is logged."""
    reconnect_backoff: Annotated[float, Java("reconnect.backoff.ms")] = 0.05
    """Seconds before the client connects again to an unreachable broker. The pause doubles, with jitter."""
    reconnect_backoff_max: Annotated[float, Java("reconnect.backoff.max.ms", 1.0)] = 10.0
    """The longest pause between connection attempts, in seconds."""
    metadata_max_age: Annotated[float, Java("metadata.max.age.ms")] = 300.0
    """Seconds after which metadata is refreshed even if nothing has changed."""
    connections_max_idle: Annotated[float, Java("connections.max.idle.ms")] = 540.0
    """Seconds after which an unused connection is closed."""
    max_response_size: Annotated[int, Java(None)] = 128 * MIB
    """The largest response in bytes that the client accepts. A larger response is a ProtocolError. The limit is 1 MiB
    until a connection has logged in."""
    response_memory: Annotated[int | None, Java(None), Unset("four times `max_response_size`")] = None
    """The maximum number of bytes that incomplete responses of all connections may have together, at least
    ``max_response_size``. The first 64 KiB of each response do not count. When the bytes are used up, connections stop
    reading until other responses are complete, so brokers send more slowly. None: four times ``max_response_size``."""
    max_open_requests: Annotated[int, Java(None)] = 100
    """The maximum number of requests of one connection without a response; further requests wait. Connections for
    Produce requests have ``max_in_flight_requests_per_connection`` instead; connections for Fetch requests send one at
    a time."""
    local_address: Annotated[str | None, Java(None)] = None
    """The IP address of this machine from which the client connects. With None, the operating system chooses it."""
    proxy: Annotated[str | None, Java(None), OwnProperty("proxy.url", read=to_secret)] = field(default=None, repr=False)
    """The proxy between this machine and the brokers: ``"socks5://host:port"`` or ``"http://host:port"`` (by CONNECT),
    with ``user:password@`` before the host if it requires them. It resolves the names of the brokers. Needs the extra
    ``proxy``."""
    allow_auto_create_topics: Annotated[bool, Java("allow.auto.create.topics")] = True
    """Whether using a topic may create it, if the broker allows that."""
    enable_metrics_push: Annotated[bool, Java("enable.metrics.push")] = True
    """Whether producers, consumers and share consumers push metrics to brokers whose operator subscribes to them
    (KIP-714)."""
    on_event: Annotated[Callable[[ClientEvent], object] | None, Java(None)] = None
    """A function that is called at once with each event of the client: see ``aiokafka_lite.events``. It runs in the
    event loop, so it must not block. An exception is logged once per kind, and changes nothing."""
    security_protocol: Annotated[SecurityProtocol, Java("security.protocol", read=to_upper)] = "PLAINTEXT"
    """The protocol of the brokers' listener: ``"PLAINTEXT"``, ``"SSL"``, ``"SASL_PLAINTEXT"`` or ``"SASL_SSL"``."""
    ssl_context: Annotated[
        ssl.SSLContext | None, Java("ssl.engine.factory.class", is_property=False), Unset("made from the next settings")
    ] = field(default=None, repr=False)
    """A complete SSLContext, instead of the other ``ssl_`` settings. If None, one is made from them."""
    ssl_cafile: Annotated[
        str | None,
        Java("ssl.truststore.location, ssl.truststore.certificates", "the JVM's certificates"),
        Librdkafka("ssl.ca.location"),
        Unset("the system's certificates"),
    ] = field(default=None, repr=False)
    """The trusted CA certificates: the path of a PEM or PKCS#12 file, or PEM text. If None, the system's
    certificates."""
    ssl_ca_password: Annotated[str | None, Java("ssl.truststore.password", is_property=False)] = field(
        default=None, repr=False
    )
    """The password of ``ssl_cafile``, if it is a PKCS#12 store."""
    ssl_certfile: Annotated[
        str | None,
        Java("ssl.keystore.location, ssl.keystore.certificate.chain"),
        Librdkafka("ssl.certificate.location"),
    ] = field(default=None, repr=False)
    """The client's certificate and its intermediate certificates: the path of a PEM file, or PEM text. Or the path of a
    PKCS#12 store with the private key."""
    ssl_keyfile: Annotated[
        str | None,
        Java("ssl.keystore.key", read=to_secret),
        Librdkafka("ssl.key.location"),
    ] = field(default=None, repr=False)
    """The private key of the certificate: path or PEM text. If None, it is read from ``ssl_certfile``."""
    ssl_key_password: Annotated[str | None, Java("ssl.key.password", read=to_secret)] = field(default=None, repr=False)
    """The password of an encrypted private key, or of the PKCS#12 store in ``ssl_certfile``."""
    ssl_check_hostname: Annotated[bool, Java("ssl.endpoint.identification.algorithm", read=is_https)] = True
    """Whether a broker's certificate must match the host name that the client connects to."""
    sasl_mechanism: Annotated[
        Mechanism | None,
        Java("sasl.mechanism", '`"GSSAPI"`', read=to_upper),
        Librdkafka("sasl.mechanisms", read=to_upper),
    ] = None
    """``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"``, ``"OAUTHBEARER"`` or ``"GSSAPI"`` (Kerberos)."""
    sasl_username: Annotated[
        str | None,
        Java("sasl.jaas.config", is_property=False),
        Librdkafka("sasl.username"),
    ] = None
    """The user name for PLAIN and SCRAM. May be missing if ``sasl_password`` is a function that returns it."""
    sasl_password: Annotated[
        str | PasswordProvider | None,
        Java("sasl.jaas.config", is_property=False),
        Librdkafka("sasl.password", read=to_secret),
    ] = field(default=None, repr=False)
    """The password for PLAIN and SCRAM. Or a function, sync or async, that returns the password, or a tuple of the user
    name and the password. It is called for each login."""
    sasl_tokenauth: Annotated[bool, Java("sasl.jaas.config", "`false`", is_property=False)] = False
    """Whether SCRAM uses a delegation token (KIP-48): the user name is its id, the password its HMAC in base64."""
    sasl_oauth_token_provider: Annotated[
        TokenProvider | None, Java("sasl.login.callback.handler.class", is_property=False)
    ] = field(default=None, repr=False)
    """A function, sync or async, that returns a token for OAUTHBEARER. It is called for each login."""
    sasl_oauth_extensions: Annotated[Mapping[str, str] | None, Java("sasl.jaas.config", is_property=False)] = field(
        default=None, repr=False
    )
    """Pairs to send with each token of OAUTHBEARER (KIP-342), such as ``{"logicalCluster": "lkc-1"}``."""
    sasl_kerberos_service_name: Annotated[str | None, Java("sasl.kerberos.service.name", "none")] = None
    """The first part of the brokers' Kerberos principals, for GSSAPI. If None, it is ``"kafka"``."""
    sasl_kerberos_keytab: Annotated[
        str | None, Java("sasl.jaas.config", is_property=False), Librdkafka("sasl.kerberos.keytab")
    ] = None
    """The path of a keytab for GSSAPI. If None, tickets are in the user's ticket cache, where kinit puts them."""
    sasl_kerberos_principal: Annotated[
        str | None, Java("sasl.jaas.config", is_property=False), Librdkafka("sasl.kerberos.principal")
    ] = None
    """The client's Kerberos principal, such as ``"orders@EXAMPLE.COM"``. If None, the keytab or the cache names it."""

    def __post_init__(self) -> None:
        plain_strings(self)
        object.__setattr__(self, "bootstrap_servers", names_of_servers(self.bootstrap_servers))
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
        _check_on_event(self.on_event)
        if self.local_address is not None:
            ip_address(self, "local_address")
        if self.proxy is not None:
            _check_proxy(self)
        switch(self, "allow_auto_create_topics", "enable_metrics_push", "sasl_tokenauth")
        _hide(self, "ssl_key_password", "ssl_ca_password")
        if not callable(self.sasl_password):
            _hide(self, "sasl_password", kinds="a string or a function")
        _check_tls(self)
        _check_sasl(self)

    def with_credentials(self, username: str, password: str) -> Self:
        """Return these settings with another user name and password.

        Raises ConfigurationError for a wrong value, for a login without a password, and if ``sasl_password`` is a
        function. The error does not quote the password.
        """
        call = "set_credentials()"
        if not self.uses_sasl:
            raise ConfigurationError(f"{call} requires a login, and security_protocol is {self.security_protocol!r}")
        if self.sasl_mechanism in _OF_MECHANISM:
            raise ConfigurationError(f"{call} is for PLAIN and SCRAM, and sasl_mechanism is {self.sasl_mechanism!r}")
        if callable(self.sasl_password):
            raise ConfigurationError(f"{call} cannot be combined with a function as sasl_password, which it replaces")
        changed = copy.copy(self)
        for name, value in (("sasl_username", username), ("sasl_password", password)):
            object.__setattr__(changed, name, value)
            credential(changed, name)
        _hide(changed, "sasl_password")
        return changed

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


_TLS_PARTS = ("ssl_cafile", "ssl_ca_password", "ssl_certfile", "ssl_keyfile", "ssl_key_password")
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PASSWORD = ("sasl_username", "sasl_password")
_OAUTH = ("sasl_oauth_token_provider", "sasl_oauth_extensions")
_KERBEROS = ("sasl_kerberos_service_name", "sasl_kerberos_keytab", "sasl_kerberos_principal")
_CREDENTIALS = (*_PASSWORD, *_OAUTH, *_KERBEROS)
_OPTIONAL = ("sasl_oauth_extensions", *_KERBEROS)
_OF_MECHANISM = {"OAUTHBEARER": _OAUTH, "GSSAPI": _KERBEROS}


def _hide(settings: object, *names: str, kinds: str = "a string") -> None:
    """Make strings ``Secret``, so that no error or log can quote them."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{name} must be {kinds}, got {_kind(value)}")
        if value is not None:
            object.__setattr__(settings, name, Secret(value))


def _check_on_event(function: object) -> None:
    if function is None:
        return
    # An async function, or an object whose ``__call__`` is one, would return a coroutine that nobody awaits.
    called = function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004 - which one
    if not callable(function) or inspect.iscoroutinefunction(called):
        raise wrong("on_event", "a plain function of an event, or None", function)


def _check_proxy(settings: ClientConfig) -> None:
    from .proxy_address import parse_proxy  # imported here, because few clients have a proxy

    parse_proxy(settings.proxy)
    _hide(settings, "proxy")
    extra("python_socks", "proxy")


def _check_tls(settings: ClientConfig) -> None:
    one_of(settings, "security_protocol", SECURITY_PROTOCOLS)
    switch(settings, "ssl_check_hostname")
    present = [name for name in ("ssl_context", *_TLS_PARTS) if getattr(settings, name) is not None]
    if not settings.uses_tls:
        if present:
            raise ConfigurationError(
                f'{present[0]} requires security_protocol="SSL" or "SASL_SSL", got {settings.security_protocol!r}'
            )
        return
    if settings.ssl_context is not None:
        _check_ready_context(settings, present[1:])
        return
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        _check_pem(settings, name)
    if settings.ssl_ca_password is not None and settings.ssl_cafile is None:
        raise ConfigurationError("ssl_ca_password requires ssl_cafile, which is not set")
    of_client = [name for name in present if name in ("ssl_keyfile", "ssl_key_password")]
    if settings.ssl_certfile is None and of_client:
        raise ConfigurationError(f"{of_client[-1]} requires ssl_certfile, which is not set")
    context = tls_context(
        cafile=settings.ssl_cafile,
        ca_password=settings.ssl_ca_password,
        certfile=settings.ssl_certfile,
        keyfile=settings.ssl_keyfile,
        key_password=settings.ssl_key_password,
        check_hostname=settings.ssl_check_hostname,
    )
    object.__setattr__(settings, "ssl_context", context)


def _check_ready_context(settings: ClientConfig, ssl_settings: list[str]) -> None:
    if not isinstance(settings.ssl_context, ssl.SSLContext):
        raise wrong("ssl_context", "an ssl.SSLContext, as ssl.create_default_context() makes", settings.ssl_context)
    if ssl_settings:
        raise ConfigurationError(f"{ssl_settings[0]} cannot be combined with ssl_context; load it into that context")
    if not settings.ssl_check_hostname:
        raise ConfigurationError(
            "ssl_check_hostname=False cannot be combined with ssl_context; set check_hostname of that context"
        )


def _check_pem(settings: ClientConfig, name: str) -> None:
    """Check a path or PEM text. The PEM text of a key becomes a ``Secret``."""
    value = getattr(settings, name)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
        object.__setattr__(settings, name, value)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{name} must be the path of a PEM file or PEM text, got {_kind(value)}")
    if value is not None and is_pem(value) and name == "ssl_keyfile":
        object.__setattr__(settings, name, Secret(value))


def _check_sasl(settings: ClientConfig) -> None:
    present = [name for name in ("sasl_mechanism", *_CREDENTIALS) if getattr(settings, name) is not None]
    if settings.sasl_tokenauth and settings.sasl_mechanism not in _SCRAM:
        mechanism = must_be("sasl_mechanism", " or ".join(_SCRAM), settings.sasl_mechanism)
        raise ConfigurationError(f"sasl_tokenauth requires {mechanism.replace(' must be ', ' ', 1)}")
    if not settings.uses_sasl:
        if present:
            protocols = '"SASL_SSL"' if settings.uses_tls else '"SASL_SSL" or "SASL_PLAINTEXT"'
            raise ConfigurationError(
                f"{present[0]} requires security_protocol={protocols}, got {settings.security_protocol!r}"
            )
        return
    if settings.sasl_mechanism is None:
        raise ConfigurationError(
            f"sasl_mechanism is required with security_protocol={settings.security_protocol!r}: "
            f"one of {', '.join(MECHANISMS)}"
        )
    one_of(settings, "sasl_mechanism", MECHANISMS)
    _check_credentials(settings, settings.sasl_mechanism, present)


def _check_credentials(settings: ClientConfig, mechanism: str, present: Collection[str]) -> None:
    credentials = _OF_MECHANISM.get(mechanism, _PASSWORD)
    optional = (*_OPTIONAL, "sasl_username") if callable(settings.sasl_password) else _OPTIONAL
    for name in _CREDENTIALS:
        if name in credentials and name not in present and name not in optional:
            raise ConfigurationError(f"{name} is required for {mechanism}")
        if name in present and name not in credentials:
            raise ConfigurationError(f"{name} is not for {mechanism}, which takes {' and '.join(credentials)}")
    if mechanism == "OAUTHBEARER":
        _check_provider(settings.sasl_oauth_token_provider)
        _check_extensions(settings.sasl_oauth_extensions)
    elif mechanism == "GSSAPI":
        _check_kerberos(settings)
    else:
        for name in credentials:
            if name in present and not callable(getattr(settings, name)):
                string(settings, name)
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
