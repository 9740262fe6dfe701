"""The requirements of the listeners of an embedded cluster, and the settings of a client that connects to them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from random import Random
from typing import Any, Literal

from ...arguments import check_function, must_be
from ...errors import ConfigurationError
from ...own_directory import OwnDirectory
from ...protocol.sasl.scram import HASHES
from ...settings.security import SECURITY_PROTOCOLS, server_tls_context
from ..settings.configs import BrokerSettings
from ..settings.listener_configs import check_listener_configs
from ..settings.listeners import PLAINTEXT, WITH_SASL, WITH_TLS
from .access_tokens import TokenCheck, unsecured_token
from .authentication import Credentials
from .certificates import CertificateAuthority
from .delegation_tokens import DelegationTokens
from .principal_mapping import MAPPING_RULES, PrincipalMapping
from .scram_users import ScramUsers

ANONYMOUS = "User:ANONYMOUS"
WITH_PASSWORD = ("PLAIN", *HASHES)
MECHANISMS = (*WITH_PASSWORD, "OAUTHBEARER")

ClientAuth = Literal["none", "requested", "required"]

_VERIFY_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_TLS_FILES = ("ssl_keyfile", "ssl_key_password", "ssl_cafile", "ssl_certfile")


@dataclass(frozen=True, slots=True)
class Security:
    """The requirements of the listeners of an embedded cluster: ``Security("SASL_PLAINTEXT", users={"alice":
    "secret"})``.

    - ``protocols`` is the security protocol of the listener, or of several: each broker has a port for each of them.
    - ``users`` are the names and the passwords for PLAIN and SCRAM. An admin client can change the passwords for SCRAM.
    - ``mechanisms`` are the offered mechanisms; the first is the default of ``client_settings``. Without a value, these
      are PLAIN and SCRAM if there are users, and OAUTHBEARER if there is ``check_token``.
    - ``check_token`` is a function that returns the claims of a token for OAUTHBEARER: ``sub`` is the name of the
      principal, ``exp`` the expiry. An exception refuses the token. By default, unsecured tokens are accepted, as in
      Kafka.
    - ``client_auth`` says whether clients have certificates: "none", "requested" or "required". On an SSL listener, the
      subject of the certificate is the principal.
    - ``ssl_certfile``, ``ssl_keyfile`` and ``ssl_key_password`` are the certificate of the brokers and its key.
      ``ssl_cafile`` is the certificate authority of clients and brokers. Each is the path of a PEM file, or PEM text.
      Without them, the cluster makes an authority of its own, for which the extra ``embedded-tls`` must be installed.

    Raises ConfigurationError for a wrong value.
    """

    protocols: str | Sequence[str]
    _: KW_ONLY
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    mechanisms: Sequence[str] | None = None
    check_token: TokenCheck | None = None
    client_auth: ClientAuth = "none"
    ssl_certfile: str | None = field(default=None, repr=False)
    ssl_keyfile: str | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        protocols = (self.protocols,) if isinstance(self.protocols, str) else tuple(self.protocols)
        if not protocols or len(set(protocols)) != len(protocols) or not set(protocols) <= set(SECURITY_PROTOCOLS):
            what = f"one or more of {', '.join(SECURITY_PROTOCOLS)}"
            raise ConfigurationError(must_be("protocols", what, self.protocols))
        object.__setattr__(self, "protocols", protocols)
        _check_users(self.users)
        object.__setattr__(self, "users", dict(self.users))
        if self.check_token is not None:
            check_function("check_token", self.check_token)
        object.__setattr__(self, "mechanisms", self._offered())
        self._check_tls()

    def _offered(self) -> tuple[str, ...]:
        if not set(self.protocols) & set(WITH_SASL):
            for name in ("users", "mechanisms", "check_token"):
                if getattr(self, name):
                    what = " or ".join(WITH_SASL)
                    raise ConfigurationError(f"{name} requires {what} in protocols, got {list(self.protocols)}")
            return ()
        if self.mechanisms is None:
            offered = [*(WITH_PASSWORD if self.users else ()), *(["OAUTHBEARER"] if self.check_token else [])]
            if not offered:
                raise ConfigurationError(
                    'users is required, such as {"alice": "alice-secret"}; or mechanisms=["OAUTHBEARER"], which '
                    "accepts unsecured tokens"
                )
            return tuple(offered)
        if isinstance(self.mechanisms, str) or not self.mechanisms or not set(self.mechanisms) <= set(MECHANISMS):
            raise ConfigurationError(must_be("mechanisms", f"a list of {', '.join(MECHANISMS)}", self.mechanisms))
        if not self.users and "PLAIN" in self.mechanisms:  # an admin client can add users of SCRAM
            raise ConfigurationError("users is required for PLAIN")
        return tuple(self.mechanisms)

    def _check_tls(self) -> None:
        if self.client_auth not in _VERIFY_MODES:
            raise ConfigurationError(must_be("client_auth", f"one of {', '.join(_VERIFY_MODES)}", self.client_auth))
        files = [name for name in _TLS_FILES if getattr(self, name) is not None]
        if not set(self.protocols) & set(WITH_TLS):
            for name in (*files, *([] if self.client_auth == "none" else ["client_auth"])):
                what = " or ".join(WITH_TLS)
                raise ConfigurationError(f"{name} requires {what} in protocols, got {list(self.protocols)}")
        if files and self.ssl_certfile is None:
            raise ConfigurationError(f"{files[0]} requires ssl_certfile, which is not set")
        if files and self.client_auth != "none" and self.ssl_cafile is None:
            raise ConfigurationError(f"client_auth={self.client_auth!r} requires ssl_cafile with ssl_certfile")
        if files:
            self.server_context()

    def server_context(self, client_auth: str = "") -> ssl.SSLContext:
        """Return the TLS context of a broker with the given certificates. The files are read again by each call.

        ``client_auth`` is the setting of one listener. Raises ConfigurationError.
        """
        assert self.ssl_certfile is not None
        return server_tls_context(
            certfile=self.ssl_certfile,
            keyfile=self.ssl_keyfile,
            key_password=self.ssl_key_password,
            cafile=self.ssl_cafile,
            client_auth=_VERIFY_MODES[client_auth or self.client_auth],
        )


def _check_users(users: object) -> None:
    """Raise ConfigurationError unless ``users`` maps names to passwords. No error quotes a password."""
    if not isinstance(users, Mapping):
        raise ConfigurationError(f"users must be a dict of names and passwords, got {type(users).__name__}")
    for name, password in users.items():
        for what, value in (("name", name), ("password", password)):
            if not isinstance(value, str) or not value or "\0" in value:
                raise ConfigurationError(f"the {what} of each user must be a string that is not empty and has no NUL")


_ARGUMENTS = {
    "listeners": "protocols",
    "listener.security.protocol.map": "protocols",
    "sasl.enabled.mechanisms": "mechanisms",
    "ssl.client.auth": "client_auth",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.truststore.location": "ssl_cafile",
}


class ClusterSecurity:
    """The listeners and the credentials of one cluster. Owner: the cluster.

    ``wall_clock`` returns seconds since the epoch, for the expiry of tokens.
    """

    def __init__(
        self, config: Security, settings: BrokerSettings, random: Random, wall_clock: Callable[[], float]
    ) -> None:
        self.protocols: tuple[str, ...] = tuple(config.protocols)
        self.scram_users: ScramUsers = ScramUsers()
        self.tokens: DelegationTokens = DelegationTokens(settings, random)
        of_listeners = {protocol: settings.of_listener(protocol) for protocol in self.protocols}
        self._mappings = {
            listener: PrincipalMapping(own.value(MAPPING_RULES)) for listener, own in of_listeners.items()
        }
        self._client_auth = {
            listener: own.own_value("ssl.client.auth") or config.client_auth for listener, own in of_listeners.items()
        }
        self._users = dict(config.users)
        self._wall_clock = wall_clock
        mechanisms = tuple(config.mechanisms or ())
        scram = [mechanism for mechanism in mechanisms if mechanism in HASHES]
        for name, password in self._users.items():
            self.scram_users.set_password(name, password, scram)
        self.credentials: Credentials = Credentials(
            mechanisms, self._users, self.scram_users, self.tokens, config.check_token, wall_clock
        )
        self._credentials_of = {
            listener: _limited(self.credentials, listener, own.own_value("sasl.enabled.mechanisms"))
            for listener, own in of_listeners.items()
        }
        asks_clients = set(self._client_auth.values()) != {"none"}
        if asks_clients and config.ssl_certfile is not None and config.ssl_cafile is None:
            raise ConfigurationError("ssl.client.auth of a listener requires ssl_cafile with ssl_certfile")
        self._makes_tokens = config.check_token is None
        self._config = config
        self._directory: OwnDirectory | None = None
        self._authority: CertificateAuthority | None = None

    @classmethod
    def of(
        cls,
        security: Security | str | None,
        configs: Mapping[str, str],
        settings: BrokerSettings,
        random: Random,
        wall_clock: Callable[[], float],
        *,
        tcp: bool,
    ) -> ClusterSecurity:
        """Return the security that the arguments of ``EmbeddedCluster`` describe. Raises ConfigurationError."""
        if security is not None and not isinstance(security, Security | str):
            raise ConfigurationError(
                must_be("security", 'a Security(...), or a security protocol such as "SSL"', security)
            )
        for name, argument in _ARGUMENTS.items():
            if name in configs:
                raise ConfigurationError(
                    f"configs[{name!r}] has no effect; pass security=Security(..., {argument}=...)"
                )
        config = security if isinstance(security, Security) else Security(security or PLAINTEXT)
        check_listener_configs(configs, config.protocols)
        if not tcp and set(config.protocols) & set(WITH_TLS):
            raise ConfigurationError("security with TLS requires tcp=True: there is no TLS between objects in memory")
        return cls(config, settings, random, wall_clock)

    def saved(self) -> dict[str, Any]:
        return {"scram_users": self.scram_users.saved(), "delegation_tokens": self.tokens.saved()}

    def restore(self, state: dict[str, Any]) -> None:
        self.scram_users.restore(state["scram_users"])
        self.tokens.restore(state["delegation_tokens"])

    def principal_of(self, listener: str, subject: str | None) -> str:
        """Return the principal of a client with a certificate for ``subject``, or without one. Raises
        NoMatchingRule."""
        return ANONYMOUS if subject is None else f"User:{self._mappings[listener].name(subject)}"

    def credentials_of(self, listener: str) -> Credentials:
        """Return the data for logins on a listener, which may offer a part of the mechanisms."""
        return self._credentials_of[listener]

    def broker_settings(self) -> dict[str, str]:
        """Return the settings that a broker describes, under Kafka's names."""
        settings: dict[str, str] = {}
        if set(self.protocols) & set(WITH_TLS):
            settings["ssl.client.auth"] = self._config.client_auth
        if self.credentials.mechanisms:
            settings["sasl.enabled.mechanisms"] = ",".join(self.credentials.mechanisms)
        return settings

    def open(self, hosts: Sequence[str]) -> None:
        """Make certificates for the host names and addresses of the brokers, if TLS needs some and none is given."""
        if not set(self.protocols) & set(WITH_TLS) or self._config.ssl_certfile is not None:
            return
        self._directory = OwnDirectory("certificates")
        self._authority = CertificateAuthority(self._directory.path)
        certfile = self._authority.issue(hosts[0], [*hosts, "localhost", "127.0.0.1", "::1"])
        self._config = replace(self._config, ssl_certfile=certfile, ssl_cafile=self._authority.cafile)

    def close(self) -> None:
        """Delete the certificates that ``open`` made."""
        if self._directory is not None:
            self._directory.delete()

    def server_context(self, listener: str) -> ssl.SSLContext:
        """Return the TLS context of a listener of a broker that starts. Raises ConfigurationError."""
        return self._config.server_context(self._client_auth[listener])

    def client_settings(self, user: str | None, protocol: str | None, mechanism: str | None) -> dict[str, Any]:
        """Return the security settings of a client. Raises ConfigurationError for a value that the cluster does not
        have.
        """
        chosen = protocol or self.protocols[0]
        if chosen not in self.protocols:
            raise ConfigurationError(must_be("protocol", f"one of {', '.join(self.protocols)}", chosen))
        settings: dict[str, Any] = {"security_protocol": chosen}
        if chosen in WITH_TLS:
            settings |= self._tls_settings(chosen, user)
        if chosen in WITH_SASL:
            settings |= self._sasl_settings(chosen, user, mechanism)
        return settings

    def _tls_settings(self, listener: str, user: str | None) -> dict[str, Any]:
        settings = {} if self._config.ssl_cafile is None else {"ssl_cafile": self._config.ssl_cafile}
        if self._client_auth[listener] != "none" and self._authority is not None:
            settings["ssl_certfile"] = self._authority.issue(user or next(iter(self._users), "client"))
        return settings

    def _sasl_settings(self, listener: str, user: str | None, mechanism: str | None) -> dict[str, Any]:
        offered = self._credentials_of[listener].mechanisms
        chosen = mechanism or offered[0]
        if chosen not in offered:
            raise ConfigurationError(must_be("mechanism", f"one of {', '.join(offered)}", chosen))
        if chosen in WITH_PASSWORD:
            name = next(iter(self._users), None) if user is None else user
            if name not in self._users:
                raise ConfigurationError(must_be("user", f"one of {', '.join(self._users) or 'no users'}", name))
            return {"sasl_mechanism": chosen, "sasl_username": name, "sasl_password": self._users[name]}
        if not self._makes_tokens:
            return {"sasl_mechanism": chosen}
        subject = user or next(iter(self._users), "user")
        return {
            "sasl_mechanism": chosen,
            "sasl_oauth_token_provider": lambda: unsecured_token(subject, issued_at=self._wall_clock()),
        }


def _limited(credentials: Credentials, listener: str, enabled: str) -> Credentials:
    """Limit the credentials to the mechanisms that a listener enables; an empty value is all of them.

    Raises ConfigurationError.
    """
    if not enabled:
        return credentials
    mechanisms = tuple(mechanism.strip() for mechanism in enabled.split(","))
    if not set(mechanisms) <= set(credentials.mechanisms):
        what = f"some of the mechanisms {', '.join(credentials.mechanisms)}"
        raise ConfigurationError(must_be(f"sasl.enabled.mechanisms of the listener {listener}", what, enabled))
    return replace(credentials, mechanisms=mechanisms)
