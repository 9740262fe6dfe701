"""Read Kafka's client properties from a file, and convert them to keyword arguments of this package's clients.

The names are the Java client's, and librdkafka's for certificates and credentials. A value may be a reference:
``file:/path`` stands for the content of a file, ``env:NAME`` for an environment variable. References are resolved when
the settings are made, on the machine that makes them.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from .. import disclosure
from ..arguments import must_be
from ..errors import ConfigurationError
from ..oauth import ClientCredentials, imported_provider
from .checks import FromMilliseconds
from .config import Acks, ClientConfig
from .jaas import JAAS, JAAS_EXPECTED, parse_jaas
from .security import CONVERT_JKS, CONVERT_PKCS12, Secret

__all__ = ["client_settings", "consumer_settings", "producer_settings", "read_properties", "without_effect"]


# Files.


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the properties in a file: TOML if its name ends in ``.toml``, otherwise Java's format.

    In TOML, a property may be ``linger.ms = 5``, or ``location`` in a table ``[ssl.truststore]``; lists are joined by
    commas. Raises ConfigurationError, which quotes names and line numbers and never a value.
    """
    file = Path(path)
    content, reason = b"", ""
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no path"
    if reason:
        raise ConfigurationError(f"cannot read the properties file {disclosure.path(path)}: {reason}")
    if file.suffix == ".toml":
        return _read_toml(content, str(path))
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # Java reads such a file as Latin-1
    return _read_java(text, str(path))


def _read_toml(content: bytes, path: str) -> dict[str, str]:
    try:
        return dict(_flatten(tomllib.loads(content.decode()), ""))
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path!r} is a TOML file, so it must be UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line \d+", str(error))
        where = f", {place[0]}" if place else ""
        raise ConfigurationError(f'{path!r}{where} must be TOML; quote strings, as in client.id = "orders"') from None


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key
        match value:
            case dict():
                yield from _flatten(value, name + ".")
            case bool():
                yield name, str(value).lower()
            case str() | int() | float():
                yield name, str(value)
            case list() if all(isinstance(item, str | int) for item in value):
                yield name, ",".join(map(str, value))
            case _:
                what = f"{name} must be a string, a number, true, false, or a list of strings"
                raise ConfigurationError(f"{what}, got {type(value).__name__}")


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def _read_java(text: str, path: str) -> dict[str, str]:
    properties = {}
    for number, line in _logical_lines(text):
        try:
            name, value = _split(line)
        except ValueError:
            raise ConfigurationError(f"{path!r}, line {number}: \\u must have four hexadecimal digits") from None
        properties[name] = value
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines, without comments and blank lines. A backslash at the end joins a line with the next."""
    begun, start = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(_BLANKS)
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        begun += line
        backslashes = len(begun) - len(begun.rstrip("\\"))
        if backslashes % 2:
            begun = begun[:-1]
            continue
        yield start, begun
        begun, start = "", 0
    if start:
        yield start, begun


def _split(line: str) -> tuple[str, str]:
    """Name and value: the name ends at the first ``=``, ``:`` or blank without a backslash before it."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescaped(line[:end]), _unescaped(rest)


def _unescaped(text: str) -> str:
    """Return the text with its escapes resolved. Raises ValueError for a ``\\u`` without its digits."""

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(match[2], 16)) if code == "u" else _ESCAPES.get(code, code)

    if re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", text):
        raise ValueError("not four digits")
    # Two escapes may stand for one character beyond the basic plane, as a pair of surrogates.
    made = re.sub(r"\\(u(?=([0-9a-fA-F]{4}))|.)(?:(?<=u)[0-9a-fA-F]{4})?", replace, text, flags=re.DOTALL)
    return made.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# References to files and environment variables.


def _resolved(name: str, value: str) -> str:
    if value.startswith("env:"):
        found = os.environ.get(value[4:])
        if found is None:
            is_name = re.fullmatch(r"[A-Z_][A-Z0-9_]{0,80}|[a-z_][a-z0-9_]{0,80}", value[4:]) is not None
            named = repr(value[4:]) if is_name else f"({disclosure.kind(value[4:])} that is no name)"
            raise ConfigurationError(f"{name}: environment variable {named} is not set")
        return found
    if value.startswith("file:"):
        path = "/" + value[5:].lstrip("/") if value.startswith("file:/") else value[5:]
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(f"{name}: cannot read {disclosure.path(path)}: {reason}")
    return value


# The meaning of each property.


def _text(value: str) -> str:
    return value


def _secret(value: str) -> Secret:
    return Secret(value)


def _number(value: str) -> int:
    return int(value.strip())


def _milliseconds(value: str) -> float:
    return FromMilliseconds(float(value.strip()) / 1000)


def _boolean(value: str) -> bool:
    return {"true": True, "false": False}[value.strip().lower()]


def _upper(value: str) -> str:
    return value.strip().upper()


def _lower(value: str) -> str:
    return value.strip().lower()


def _acks(value: str) -> Acks:
    acks: dict[str, Acks] = {"0": 0, "1": 1, "-1": "all", "all": "all"}
    return acks[value.strip().lower()]


def _is_https(value: str) -> bool:
    return {"https": True, "": False, "none": False}[value.strip().lower()]


def _strategies(value: str) -> tuple[str, ...]:
    """Names of strategies, which the consumer checks: the consumer's list is the only place with the valid names."""
    found = tuple(name.strip() for name in value.split(",") if name.strip())
    if not found:
        raise ValueError("none")
    return found


class _Meaning(NamedTuple):
    """The keyword argument for a property, and the function that parses its value.

    The function raises KeyError or ValueError for a wrong value.
    """

    setting: str
    read: Callable[[str], object] = _text


_EXPECTED: dict[Callable[[str], object], str] = {
    _number: "a whole number",
    _milliseconds: "a number of milliseconds",
    _boolean: "true or false",
    _acks: "0, 1 or all",
    _is_https: "https, or empty to disable the check of host names",
    _strategies: "one or more names of assignment strategies, as in RangeAssignor",
}

_CLIENT = {
    "bootstrap.servers": _Meaning("bootstrap_servers"),
    "client.id": _Meaning("client_id"),
    "client.rack": _Meaning("client_rack"),
    "request.timeout.ms": _Meaning("request_timeout", _milliseconds),
    "default.api.timeout.ms": _Meaning("api_timeout", _milliseconds),
    "socket.connection.setup.timeout.ms": _Meaning("connect_timeout", _milliseconds),
    "retry.backoff.ms": _Meaning("retry_backoff", _milliseconds),
    "retry.backoff.max.ms": _Meaning("retry_backoff_max", _milliseconds),
    "reconnect.backoff.ms": _Meaning("reconnect_backoff", _milliseconds),
    "reconnect.backoff.max.ms": _Meaning("reconnect_backoff_max", _milliseconds),
    "metadata.max.age.ms": _Meaning("metadata_max_age", _milliseconds),
    "connections.max.idle.ms": _Meaning("connections_max_idle", _milliseconds),
    "enable.metrics.push": _Meaning("enable_metrics_push", _boolean),
    "security.protocol": _Meaning("security_protocol", _upper),
    "ssl.truststore.location": _Meaning("ssl_cafile"),
    "ssl.truststore.certificates": _Meaning("ssl_cafile"),
    "ssl.ca.location": _Meaning("ssl_cafile"),
    "ssl.keystore.location": _Meaning("ssl_certfile"),
    "ssl.keystore.certificate.chain": _Meaning("ssl_certfile"),
    "ssl.certificate.location": _Meaning("ssl_certfile"),
    "ssl.keystore.key": _Meaning("ssl_keyfile", _secret),
    "ssl.key.location": _Meaning("ssl_keyfile"),
    "ssl.key.password": _Meaning("ssl_key_password", _secret),
    "ssl.endpoint.identification.algorithm": _Meaning("ssl_check_hostname", _is_https),
    "sasl.mechanism": _Meaning("sasl_mechanism", _upper),
    "sasl.mechanisms": _Meaning("sasl_mechanism", _upper),
    "sasl.username": _Meaning("sasl_username"),
    "sasl.password": _Meaning("sasl_password", _secret),
    "sasl.kerberos.service.name": _Meaning("sasl_kerberos_service_name"),
    "sasl.kerberos.keytab": _Meaning("sasl_kerberos_keytab"),
    "sasl.kerberos.principal": _Meaning("sasl_kerberos_principal"),
}

_CREATE_TOPICS = _Meaning("allow_auto_create_topics", _boolean)

_PRODUCER = {
    "allow.auto.create.topics": _CREATE_TOPICS,  # librdkafka's producer has this property, and Java's does not
    "acks": _Meaning("acks", _acks),
    "transactional.id": _Meaning("transactional_id"),
    "transaction.timeout.ms": _Meaning("transaction_timeout", _milliseconds),
    "enable.idempotence": _Meaning("idempotence", _boolean),
    "retries": _Meaning("retries", _number),
    "linger.ms": _Meaning("linger", _milliseconds),
    "batch.size": _Meaning("batch_size", _number),
    "buffer.memory": _Meaning("buffer_memory", _number),
    "max.request.size": _Meaning("max_request_size", _number),
    "compression.type": _Meaning("compression", _lower),
    "delivery.timeout.ms": _Meaning("delivery_timeout", _milliseconds),
    "max.in.flight.requests.per.connection": _Meaning("max_in_flight_requests_per_connection", _number),
    "max.block.ms": _Meaning("max_block", _milliseconds),
}

_CONSUMER = {
    "allow.auto.create.topics": _CREATE_TOPICS,
    "auto.offset.reset": _Meaning("auto_offset_reset"),
    "isolation.level": _Meaning("isolation_level", _lower),
    "fetch.min.bytes": _Meaning("fetch_min_bytes", _number),
    "fetch.max.bytes": _Meaning("fetch_max_bytes", _number),
    "fetch.max.wait.ms": _Meaning("fetch_max_wait", _milliseconds),
    "max.partition.fetch.bytes": _Meaning("max_partition_fetch_bytes", _number),
    "check.crcs": _Meaning("check_crcs", _boolean),
}

_GROUP = {
    "group.instance.id": _Meaning("group_instance_id"),
    "session.timeout.ms": _Meaning("session_timeout", _milliseconds),
    "heartbeat.interval.ms": _Meaning("heartbeat_interval", _milliseconds),
    "max.poll.interval.ms": _Meaning("max_poll_interval", _milliseconds),
    "enable.auto.commit": _Meaning("auto_commit", _boolean),
    "auto.commit.interval.ms": _Meaning("auto_commit_interval", _milliseconds),
    "group.protocol": _Meaning("group_protocol", _lower),
    "group.remote.assignor": _Meaning("group_remote_assignor"),
    "partition.assignment.strategy": _Meaning("strategies", _strategies),
}

_GROUP_ID = "group.id"
_TOKEN = "sasl.oauthbearer.token"
_TOKEN_PROVIDER = "sasl.oauthbearer.token.provider"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE = "sasl.oauthbearer.scope"
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_APART = (
    *(_GROUP_ID, JAAS, _TOKEN, _TOKEN_PROVIDER, _ENDPOINT, _CLIENT_ID, _CLIENT_SECRET, _SCOPE),
    *_STORE_TYPES,
)

MEANINGS = {**_CLIENT, **_PRODUCER, **_CONSUMER, **_GROUP}
_KNOWN = frozenset({*MEANINGS, *_APART})

_INSTEAD = {
    "ssl.truststore.password": "a trust store in PEM form has no password; remove it",
    "ssl.keystore.password": "a key store in PEM form has no password; the password of its key is ssl.key.password",
    "max.poll.records": "pass max_records to the call that reads",
    "key.serializer": "pass key_serializer to the producer",
    "value.serializer": "pass value_serializer to the producer",
    "key.deserializer": "pass key_deserializer to the consumer",
    "value.deserializer": "pass value_deserializer to the consumer",
    "partitioner.class": "pass partitioner to the producer",
    "interceptor.classes": "pass interceptors to the producer or the consumer",
    "sasl.login.callback.handler.class": f"set {_ENDPOINT}, or {_TOKEN_PROVIDER} to a function that returns the token",
    "sasl.client.callback.handler.class": "set sasl.username and sasl.password, as file:/path or env:NAME",
    "ssl.engine.factory.class": "set ssl.truststore.location and ssl.keystore.location to PEM files",
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
    return meaning.setting, ", in seconds" if meaning.read is _milliseconds else ""


def client_settings(properties: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that every client takes, such as ``Admin``: servers, timeouts, security. Secrets are
    ``Secret``.

    Properties of producers and consumers are ignored, so that one file may serve all clients. Raises
    ConfigurationError for an unknown property (with the nearest known one), for a wrong value, and for a reference
    that cannot be resolved. No error quotes a secret, or the value behind ``file:`` or ``env:``.
    """
    check_known(properties)
    _check_stores(properties)
    settings = _settings(properties, _CLIENT)
    _add_credentials(properties, settings)
    for name in ("retry_backoff", "reconnect_backoff"):
        _raise_maximum(settings, name)
    return settings


def producer_settings(properties: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of a ``Producer``; see ``client_settings``."""
    return {**client_settings(properties), **_settings(properties, _PRODUCER)}


def consumer_settings(properties: Mapping[str, str], *, group_id: str | None = None) -> dict[str, object]:
    """Return the settings of a ``Consumer``; see ``client_settings``. ``group_id`` overrides ``group.id``.

    Without a group, the properties of group members are ignored. ``strategies`` are names.
    """
    settings = {**client_settings(properties), **_settings(properties, _CONSUMER)}
    group = group_id if group_id is not None else _resolved(_GROUP_ID, properties.get(_GROUP_ID, ""))
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
        if name not in _KNOWN:
            near = get_close_matches(name, sorted(_KNOWN | _WITHOUT_EFFECT), 1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigurationError(f"{disclosure.setting(name)} is not a property of a Kafka client{hint}")
        if not isinstance(value, str):
            raise ConfigurationError(f"{name} must be a string, got {type(value).__name__}")


def _settings(properties: Mapping[str, str], meanings: Mapping[str, _Meaning]) -> dict[str, object]:
    settings: dict[str, object] = {}
    given_as: dict[str, str] = {}
    for name, value in properties.items():
        meaning = meanings.get(name)
        if meaning is None:
            continue
        if meaning.setting in given_as:
            raise ConfigurationError(f"{name} and {given_as[meaning.setting]} are the same setting; remove one of them")
        given_as[meaning.setting] = name
        try:
            settings[meaning.setting] = meaning.read(_resolved(name, value))
        except (KeyError, ValueError, OverflowError) as error:
            if isinstance(error, ConfigurationError):
                raise
            wrong = must_be(name, _EXPECTED[meaning.read], value)
        else:
            continue
        raise ConfigurationError(wrong)
    return settings


def _raise_maximum(settings: dict[str, object], name: str) -> None:
    """Raise the maximum of a backoff to a longer first pause. As in Java, the pause is constant then."""
    pause, longest = settings.get(name), f"{name}_max"
    default = {field.name: field.default for field in fields(ClientConfig)}[longest]
    if longest not in settings and isinstance(pause, float) and isinstance(default, float) and pause > default:
        settings[longest] = pause


# Key stores.

_STORE_KINDS = ("JKS", "PKCS12", "PKCS11", "JCEKS", "BCFKS", "PEM")
_CONVERT = {"JKS": CONVERT_JKS, "PKCS12": CONVERT_PKCS12}
_SUFFIXES = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}


def _check_stores(properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError for stores that are not PEM, by the given type or by the file name's suffix."""
    for name in _STORE_TYPES:
        location = name.replace(".type", ".location")
        path = properties.get(location, "")
        kind = _resolved(name, properties.get(name, "")).strip().upper() or _SUFFIXES.get(Path(path).suffix.lower())
        if kind is None or kind == "PEM":
            continue
        shown = kind if kind in _STORE_KINDS else disclosure.kind(kind)
        culprit = f"{name}={shown}" if name in properties else f"{location}={disclosure.path(path)}"
        convert = f"; {_CONVERT[kind]}, and set {name}=PEM" if kind in _CONVERT else ""
        raise ConfigurationError(f"{culprit} must be PEM{convert}")


# Credentials.

_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}


def _add_credentials(properties: Mapping[str, str], settings: dict[str, object]) -> None:
    if JAAS in properties:
        _add_jaas(properties, settings)
    given = [name for name in (_TOKEN, _TOKEN_PROVIDER, _ENDPOINT) if name in properties]
    if len(given) > 1:
        raise ConfigurationError(f"{given[0]} and {given[1]} are the same setting; remove one of them")
    if _TOKEN in properties:
        settings["sasl_oauth_token_provider"] = TokenFromProperty(properties[_TOKEN])
    if _TOKEN_PROVIDER in properties:
        found = imported_provider(_TOKEN_PROVIDER, _resolved(_TOKEN_PROVIDER, properties[_TOKEN_PROVIDER]))
        settings["sasl_oauth_token_provider"] = found
    if _ENDPOINT in properties:
        names = (_ENDPOINT, _CLIENT_ID, _CLIENT_SECRET, _SCOPE)
        values = {name: _resolved(name, properties[name]) for name in names if name in properties}
        for name in (_CLIENT_ID, _CLIENT_SECRET):
            if name not in values:
                raise ConfigurationError(f"{name} is required with {_ENDPOINT}")
        settings["sasl_oauth_token_provider"] = ClientCredentials(
            values[_ENDPOINT], values[_CLIENT_ID], values[_CLIENT_SECRET], scope=values.get(_SCOPE)
        )


def _add_jaas(properties: Mapping[str, str], settings: dict[str, object]) -> None:
    module, options = parse_jaas(_resolved(JAAS, properties[JAAS]))
    mechanisms = _MODULES.get(module)
    if mechanisms is None:
        got = repr(module) if re.fullmatch(r"[A-Z][A-Za-z0-9]{2,40}Module", module) else disclosure.kind(module)
        raise ConfigurationError(f"{JAAS} must have one of the login modules {', '.join(_MODULES)}, got {got}")
    mechanism = settings.get("sasl_mechanism")
    if mechanism not in mechanisms:
        required = " or ".join(mechanisms)
        raise ConfigurationError(f"{JAAS}: {module} requires sasl.mechanism={required}, got {mechanism}")
    if module == "OAuthBearerLoginModule":
        if options:
            others = ", ".join((_CLIENT_ID, _TOKEN, _TOKEN_PROVIDER))
            raise ConfigurationError(f"{JAAS}: {module} takes no options here; set one of {others}")
        return
    if module == "Krb5LoginModule":
        _add_kerberos(options, settings)
        return
    for name in ("username", "password"):
        if f"sasl.{name}" in properties:
            raise ConfigurationError(f"sasl.{name} and {JAAS} are the same setting; remove one of them")
        if name not in options:
            raise ConfigurationError(f"{JAAS} must have a {name}, {JAAS_EXPECTED}")
    tokenauth = options.pop("tokenauth", "false") if module == "ScramLoginModule" else "false"
    if tokenauth.lower() not in ("true", "false"):
        raise ConfigurationError(must_be(f"{JAAS}: tokenauth", "true or false", tokenauth))
    beyond = options.keys() - {"username", "password"}
    if beyond:
        raise ConfigurationError(f"{JAAS}: {_option(min(beyond))} is not supported")
    settings["sasl_username"] = _resolved(f"{JAAS}: username", options["username"])
    settings["sasl_password"] = Secret(_resolved(f"{JAAS}: password", options["password"]))
    if tokenauth.lower() == "true":
        settings["sasl_tokenauth"] = True


def _option(name: str) -> str:
    """Return an option of a login module. A password without quotation marks may be taken for one."""
    return f"the option {name!r}" if re.fullmatch(r"[a-z]{2,15}(?:[A-Z][a-z0-9]{1,15}){0,4}", name) else "an option"


_KERBEROS = {
    "keyTab": "sasl_kerberos_keytab",
    "principal": "sasl_kerberos_principal",
    "serviceName": "sasl_kerberos_service_name",
}
_KERBEROS_WITHOUT_EFFECT = frozenset(
    ("debug", "doNotPrompt", "isInitiator", "refreshKrb5Config", "renewTGT", "storeKey", "useTicketCache")
)
"""Options of Krb5LoginModule that have no effect here, and are accepted."""


def _add_kerberos(options: dict[str, str], settings: dict[str, object]) -> None:
    """The options of Java's Krb5LoginModule. Without ``useKeyTab=true``, Java does not read the keytab."""
    if options.pop("useKeyTab", "false").lower() != "true":
        options.pop("keyTab", None)
    elif "keyTab" not in options:
        raise ConfigurationError(f'{JAAS} must have keyTab="/path" with useKeyTab=true')
    if "ticketCache" in options:
        raise ConfigurationError(f"{JAAS}: ticketCache is not supported; set the environment variable KRB5CCNAME")
    for name in sorted(options.keys() - _KERBEROS_WITHOUT_EFFECT):
        if name not in _KERBEROS:
            raise ConfigurationError(f"{JAAS}: {_option(name)} is not supported")
        value = _resolved(f"{JAAS}: {name}", options[name])
        if settings.setdefault(_KERBEROS[name], value) != value:
            setting = _KERBEROS[name].replace("_", ".")
            raise ConfigurationError(f"{JAAS}: {name} and {setting} differ; remove one of them")


class TokenFromProperty:
    """A token provider for the token in a property. A reference to a file or the environment is resolved each time."""

    def __init__(self, value: str) -> None:
        self._value = Secret(value)
        self()

    def __repr__(self) -> str:
        return f"<TokenFromProperty {_TOKEN}>"

    def __call__(self) -> Secret:
        return Secret(_resolved(_TOKEN, self._value).strip())
