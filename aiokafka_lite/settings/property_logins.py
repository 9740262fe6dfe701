"""The properties that do not translate to a setting each: ``sasl.jaas.config``, tokens of OAUTHBEARER, key stores.

``sasl.jaas.config`` is a login module with options, as one line of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import disclosure
from ..arguments import must_be
from ..errors import ConfigurationError
from ..oauth import ClientCredentials, SignedAssertion, TokenFromFile
from ..oauth.sources import imported_provider
from .property_files import resolve
from .security import CONVERT_JKS, Secret

JAAS = "sasl.jaas.config"
JAAS_EXPECTED = 'as in ...ScramLoginModule required username="alice" password="...";'
_TOKEN = "sasl.oauthbearer.token"
TOKEN_PROVIDER = "sasl.oauthbearer.token.provider"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE = "sasl.oauthbearer.scope"
_ASSERTION = "sasl.oauthbearer.assertion"
_ASSERTION_FILE, _ASSERTION_KEY = f"{_ASSERTION}.file", f"{_ASSERTION}.private.key.file"
_ASSERTION_OPTIONS = {
    f"{_ASSERTION}.algorithm": "algorithm",
    f"{_ASSERTION}.claim.aud": "audience",
    f"{_ASSERTION}.claim.iss": "issuer",
    f"{_ASSERTION}.claim.sub": "subject",
    f"{_ASSERTION}.claim.exp.seconds": "lifetime",
    f"{_ASSERTION}.private.key.passphrase": "key_password",
}
"""The properties of Java's client for an assertion (KIP-1258), and the arguments of ``SignedAssertion``."""
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_STORE_KINDS = ("JKS", "PKCS12", "PKCS11", "JCEKS", "BCFKS", "PEM")
_READ_STORES = ("PEM", "PKCS12")
_CONVERT = {"JKS": CONVERT_JKS}
_STORE_PASSWORDS = {"ssl.keystore.password": "ssl_key_password", "ssl.truststore.password": "ssl_ca_password"}


def check_stores(properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a type of stores that cannot be read, or for the suffix of Java's own format."""
    for name in _STORE_TYPES:
        location = name.replace(".type", ".location")
        path = properties.get(location, "")
        declared_type = resolve(name, properties.get(name, "")).strip().upper()
        store_type = declared_type or ("JKS" if Path(path).suffix.lower() == ".jks" else "PEM")
        if store_type in _READ_STORES:
            continue
        shown = store_type if store_type in _STORE_KINDS else disclosure.kind(store_type)
        culprit = f"{name}={shown}" if name in properties else f"{location}={disclosure.path(path)}"
        convert = f"; {_CONVERT[store_type]}, and set {name}=PKCS12" if store_type in _CONVERT else ""
        raise ConfigurationError(f"{culprit} must be PEM or PKCS12{convert}")


def _add_store_passwords(properties: Mapping[str, str], settings: dict[str, object]) -> None:
    """Add the passwords of PKCS#12 stores. Files for Java's client often have the password of the key too."""
    for name, setting in _STORE_PASSWORDS.items():
        if name not in properties:
            continue
        store_type = name.replace(".password", ".type")
        if resolve(store_type, properties.get(store_type, "")).strip().upper() == "PEM":
            key = "; the password of its key is ssl.key.password" if "keystore" in name else "; remove it"
            raise ConfigurationError(f"{name} is not supported: a store in PEM form has no password{key}")
        password = Secret(resolve(name, properties[name]))
        present = settings.setdefault(setting, password)
        if isinstance(present, str) and present.encode() != password.encode():
            raise ConfigurationError(f"{name} and ssl.key.password differ, but a PKCS#12 store has one password")


LOGIN_PROPERTIES = (
    JAAS,
    _TOKEN,
    TOKEN_PROVIDER,
    ENDPOINT,
    _CLIENT_ID,
    _CLIENT_SECRET,
    _SCOPE,
    _ASSERTION_FILE,
    _ASSERTION_KEY,
    *_ASSERTION_OPTIONS,
    *_STORE_TYPES,
    *_STORE_PASSWORDS,
)

_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}


def add_credentials(properties: Mapping[str, str], settings: dict[str, object]) -> None:
    """Add the login settings that are made from several properties, or from a part of one. Raises
    ConfigurationError."""
    _add_store_passwords(properties, settings)
    if JAAS in properties:
        _add_jaas(properties, settings)
    sources = [name for name in (_TOKEN, TOKEN_PROVIDER, ENDPOINT) if name in properties]
    if len(sources) > 1:
        raise ConfigurationError(f"{sources[0]} and {sources[1]} are the same setting; remove one of them")
    if _TOKEN in properties:
        settings["sasl_oauth_token_provider"] = TokenFromProperty(properties[_TOKEN])
    if TOKEN_PROVIDER in properties:
        function = resolve(TOKEN_PROVIDER, properties[TOKEN_PROVIDER])
        settings["sasl_oauth_token_provider"] = imported_provider(TOKEN_PROVIDER, function)
    if ENDPOINT in properties:
        names = (ENDPOINT, _CLIENT_ID, _CLIENT_SECRET, _SCOPE)
        values = {name: resolve(name, properties[name]) for name in names if name in properties}
        assertion = _assertion_of(properties)
        for name in (_CLIENT_ID, _CLIENT_SECRET):
            if name not in values and not (assertion and name == _CLIENT_SECRET):
                raise ConfigurationError(f"{name} is required with {ENDPOINT}")
        settings["sasl_oauth_token_provider"] = ClientCredentials(
            values[ENDPOINT],
            values[_CLIENT_ID],
            values.get(_CLIENT_SECRET),
            assertion=assertion,
            scope=values.get(_SCOPE),
        )


def _assertion_of(properties: Mapping[str, str]) -> SignedAssertion | TokenFromFile | None:
    """Return what makes the assertions of the client; None if no property names a key or a file."""
    if _ASSERTION_FILE in properties:
        if _ASSERTION_KEY in properties:
            raise ConfigurationError(f"{_ASSERTION_FILE} and {_ASSERTION_KEY} cannot be combined; remove one of them")
        return TokenFromFile(resolve(_ASSERTION_FILE, properties[_ASSERTION_FILE]))
    if _ASSERTION_KEY not in properties:
        return None
    options: dict[str, Any] = {
        argument: resolve(name, properties[name]) for name, argument in _ASSERTION_OPTIONS.items() if name in properties
    }
    for name, argument in _ASSERTION_OPTIONS.items():
        if argument in ("audience", "issuer") and argument not in options:
            raise ConfigurationError(f"{name} is required with {_ASSERTION_KEY}")
    try:
        options["lifetime"] = int(options.get("lifetime", "300"))
    except ValueError:
        raise ConfigurationError(f"{_ASSERTION}.claim.exp.seconds must be a whole number of seconds") from None
    return SignedAssertion(resolve(_ASSERTION_KEY, properties[_ASSERTION_KEY]), **options)


def _add_jaas(properties: Mapping[str, str], settings: dict[str, object]) -> None:
    module, options = _parse_jaas(resolve(JAAS, properties[JAAS]))
    mechanisms = _MODULES.get(module)
    if mechanisms is None:
        name = repr(module) if re.fullmatch(r"[A-Z][A-Za-z0-9]{2,40}Module", module) else disclosure.kind(module)
        raise ConfigurationError(f"{JAAS} must have one of the login modules {', '.join(_MODULES)}, got {name}")
    mechanism = settings.get("sasl_mechanism")
    if mechanism not in mechanisms:
        required = " or ".join(mechanisms)
        raise ConfigurationError(f"{JAAS}: {module} requires sasl.mechanism={required}, got {mechanism}")
    if module == "OAuthBearerLoginModule":
        if options:
            properties_instead = ", ".join((_CLIENT_ID, _TOKEN, TOKEN_PROVIDER))
            raise ConfigurationError(f"{JAAS}: {module} takes no options here; set one of {properties_instead}")
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
    unknown_options = options.keys() - {"username", "password"}
    if unknown_options:
        raise ConfigurationError(f"{JAAS}: {_option(min(unknown_options))} is not supported")
    settings["sasl_username"] = resolve(f"{JAAS}: username", options["username"])
    settings["sasl_password"] = Secret(resolve(f"{JAAS}: password", options["password"]))
    if tokenauth.lower() == "true":
        settings["sasl_tokenauth"] = True


def _option(name: str) -> str:
    """Return the words for an option. Its name is hidden if it may be a password without quotation marks."""
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
    """Add the options of Java's Krb5LoginModule. Without ``useKeyTab=true``, Java does not read the keytab."""
    if options.pop("useKeyTab", "false").lower() != "true":
        options.pop("keyTab", None)
    elif "keyTab" not in options:
        raise ConfigurationError(f'{JAAS} must have keyTab="/path" with useKeyTab=true')
    if "ticketCache" in options:
        raise ConfigurationError(f"{JAAS}: ticketCache is not supported; set the environment variable KRB5CCNAME")
    for name in sorted(options.keys() - _KERBEROS_WITHOUT_EFFECT):
        if name not in _KERBEROS:
            raise ConfigurationError(f"{JAAS}: {_option(name)} is not supported")
        value = resolve(f"{JAAS}: {name}", options[name])
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
        return Secret(resolve(_TOKEN, self._value).strip())


_TOKENS = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s=;"']+)|([=;]))""", re.DOTALL)


def _parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Parse a JAAS text: the login module without its package, and its options.

    No error quotes the text, because it contains a password.
    """
    tokens = list(_tokens(text))
    form = "".join(token if isinstance(token, _Mark) else "x" for token in tokens)
    if not re.fullmatch(r"xx(x=x)*;", form):
        what = "a login module, options as name=value, and a semicolon"
        raise ConfigurationError(f"{JAAS} must be {what}, {JAAS_EXPECTED}")
    return tokens[0].rpartition(".")[2], dict(zip(tokens[2:-1:3], tokens[4:-1:3]))


class _Mark(str):
    """An unquoted ``=`` or ``;``."""

    __slots__ = ()


def _tokens(text: str) -> Iterator[str]:
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            raise ConfigurationError(f"{JAAS} has an unclosed quotation mark")
        quoted = match[1] if match[1] is not None else match[2]
        yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else match[3] or _Mark(match[4])
        position = match.end()
