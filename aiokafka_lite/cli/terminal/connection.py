"""Makes a client from the user's options, environment and file.

Options override the environment, which overrides the file. Secrets come from the environment or from files: anyone who
lists the processes of a machine can read their arguments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import names_and_values
from .clusters import cluster_properties
from .registry_properties import divided

if TYPE_CHECKING:
    from ... import Admin, Consumer, Producer, ShareConsumer

DEFAULT_SERVER = "localhost:9092"

TIMEOUT = 10.0
"""Seconds that a request or a change may take. A user waits for it, so it is shorter than the client's default."""

PREFIX = "AIOKAFKA_LITE_"
_OWN = ("BOOTSTRAP_SERVER", "BOOTSTRAP_CONTROLLER", "CONFIG", "CLUSTER", "CLUSTERS")
_FAMILIES = ("SECURITY_", "SASL_", "SSL_", "SCHEMA_REGISTRY_", "PROXY_URL")
"""How variables begin that are properties. A service aiokafka-lite-proxy in Kubernetes has others with PROXY_."""
_SECRET = ("password", "passphrase", "jaas", "token", "keystore.key", "user.info", "client.secret")
_NO_SECRET = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.token.provider")
_USER = re.compile(r"://[^/?#]*@")
_ELSEWHERE = ("env:", "file:")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach the cluster, as the user gave it. Each method raises ConfigurationError for wrong settings."""

    bootstrap_server: str | None
    config: Path | None
    properties: Sequence[str]
    timeout: float | None
    cluster: str | None = None
    """The name of a cluster in the file of clusters, whose properties all others override."""
    bootstrap_controller: str | None = None
    """Controllers that an admin client asks instead of brokers. Only commands that use no other client have them."""

    def admin(self) -> AbstractAsyncContextManager[Admin]:
        """Make a client for requests and changes, which runs within ``async with``."""
        from .start import started

        return started(self.new_admin())

    def new_admin(self) -> Admin:
        """Make a client for requests and changes without starting it."""
        from ...admin import Admin
        from ...settings.properties import client_settings

        properties = self.all_properties()
        settings = _merged(client_settings(properties), api_timeout=self.timeout or TIMEOUT)
        if self.bootstrap_controller is not None:
            settings["bootstrap_servers"] = None
            settings["bootstrap_controllers"] = self.bootstrap_controller
        with _named(properties, ["api_timeout"]):
            return Admin(**settings)

    @contextmanager
    def client_settings(self) -> Iterator[dict[str, Any]]:
        """Return the settings that all clients share, for a call that makes clients in the body of ``with``."""
        from ...settings.properties import client_settings

        properties = self.all_properties()
        settings = client_settings(properties)
        with _named(properties, ["api_timeout"]):
            yield _merged(settings, api_timeout=self.timeout or TIMEOUT)

    def may_create_topics(self) -> bool:
        """Return whether the first use of a topic by a producer may create it."""
        from ...settings.properties import producer_settings

        return bool(producer_settings(self.all_properties()).get("allow_auto_create_topics", True))

    def producer(self, defaults: Mapping[str, object], options: Mapping[str, object]) -> Producer:
        """Make a client that writes. ``options`` overrides the user's properties, which override ``defaults``."""
        from ...producer import Producer
        from ...settings.properties import producer_settings

        properties = self.all_properties()
        settings = {"max_block": TIMEOUT, **defaults, **producer_settings(properties)}
        timeouts = {"api_timeout": self.timeout or TIMEOUT}
        if self.timeout is not None:
            timeouts = dict.fromkeys(("api_timeout", "max_block", "delivery_timeout"), self.timeout)
        with _named(properties, [*timeouts, *options]):
            return Producer(**_merged(settings, **timeouts, **options))

    def group(self, name: str | None) -> str | None:
        """Return the group to join: the given one, or ``group.id`` of the properties."""
        from ...errors import ConfigurationError
        from ...settings.properties import consumer_settings

        if name == "":  # probably a shell variable that is not set; without a group, nothing would be committed
            raise ConfigurationError("--group must be a name that is not empty, got ''")
        group = consumer_settings(self.all_properties(), group_id=name).get("group_id")
        return None if group is None else str(group)

    def consumer(self, group: str | None, **options: object) -> Consumer:
        """Make a client that reads and never creates a topic. ``options`` overrides the user's properties."""
        from ...consumer import Consumer
        from ...settings.properties import consumer_settings

        properties = self.all_properties()
        settings = consumer_settings(properties, group_id=group)
        fixed = {"api_timeout": self.timeout or TIMEOUT, "allow_auto_create_topics": False}
        with _named(properties, [*fixed, *options]):
            return Consumer(**_merged(settings, **fixed, **options))

    def share_consumer(self, group: str, topics: Sequence[str]) -> ShareConsumer[bytes, bytes]:
        """Make a client that reads as a member of a share group. The command accepts the records."""
        from ...settings.keywords import ShareConsumerSettings
        from ...settings.properties import consumer_settings
        from ...share import ShareConsumer

        supported = {"bootstrap_servers", *ShareConsumerSettings.__annotations__}
        properties = self.all_properties()
        settings = {name: value for name, value in consumer_settings(properties).items() if name in supported}
        fixed = {"api_timeout": self.timeout or TIMEOUT, "allow_auto_create_topics": False}
        with _named(properties, fixed):
            return ShareConsumer(
                topics=topics, group_id=group, acknowledgement_mode="explicit", **_merged(settings, **fixed)
            )

    def all_properties(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Join the properties of the file, the environment and the options together, without those of a registry."""
        return divided(self._joined(environment))[0]

    def registry_properties(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the properties of the schema registry."""
        return divided(self._joined(environment))[1]

    def _joined(self, environment: Mapping[str, str]) -> dict[str, str]:
        from ... import disclosure
        from ...errors import ConfigurationError
        from ...settings.properties import read_properties

        if self.config is not None and "=" in str(self.config) and not os.path.exists(self.config):
            raise ConfigurationError(
                f"config must be a file of properties, got {disclosure.path(self.config)}; use --property for a single"
                " property, and --set for a setting of a topic"
            )
        properties: dict[str, str] = {}
        if self.cluster is not None:
            properties = cluster_properties(self.cluster)
            _check_names(f"cluster {self.cluster}", properties)
        if self.config is not None:
            of_file = read_properties(self.config)
            _check_names(str(self.config), of_file)
            properties |= of_file
        properties |= of_environment(environment)
        properties |= of_options(self.properties)
        if self.bootstrap_server is not None:
            properties["bootstrap.servers"] = self.bootstrap_server
        return properties


def of_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the security properties in variables such as ``AIOKAFKA_LITE_SASL_PASSWORD``.

    Raises ConfigurationError for a variable that looks like a mistake. Others are ignored: Kubernetes makes variables
    such as ``AIOKAFKA_LITE_SERVICE_HOST`` for a service named ``aiokafka-lite``.
    """
    properties = {}
    for variable, value in variables.items():
        rest = variable.removeprefix(PREFIX)
        if rest == variable or rest in _OWN:
            continue
        name = rest.lower().replace("_", ".")
        if rest.startswith(_FAMILIES):
            _check_names(variable, {name: value})
            properties[name] = value
        elif near := get_close_matches(rest, _OWN, 1, 0.52):
            from ...errors import ConfigurationError

            raise ConfigurationError(f"no command reads {variable}; did you mean {PREFIX}{near[0]}?")
    return properties


def _check_names(source: str, properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an unknown property, with the file or the variable that names it."""
    from ...errors import ConfigurationError
    from ...settings.properties import check_known

    try:
        check_known(divided(properties)[0])
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}") from None


def has_user(address: str) -> bool:
    """Return whether an address has a user, and so may have a password."""
    return _USER.search(address) is not None


def of_options(texts: Sequence[str]) -> dict[str, str]:
    """Parse properties given as ``NAME=VALUE``. Raises ConfigurationError for another form or a plain secret."""
    from ... import disclosure
    from ...errors import ConfigurationError

    properties = names_and_values("property", texts)
    for name, value in properties.items():
        is_secret = name not in _NO_SECRET and any(part in name for part in _SECRET)
        if (is_secret or has_user(value)) and not value.startswith(_ELSEWHERE):
            # A part of a secret may be taken for a name.
            shown_name = name if disclosure.setting(name) == name else "NAME"
            raise ConfigurationError(
                f"{shown_name} must not be given in plain text: every user of this machine can read the arguments;"
                f" use {shown_name}=env:VARIABLE, {shown_name}=file:PATH, or a --config file"
            )
    return properties


def _named(properties: Mapping[str, str], options: Iterable[str] = ()) -> AbstractContextManager[None]:
    """Make errors of a client's constructor name the properties as the user wrote them.

    ``options`` are the settings that do not come from properties.
    """
    from ...settings.spelling import property_names, spelled

    names = property_names(properties)
    for option in options:
        names.pop(option, None)
    return spelled(names, properties)


def _merged(settings: Mapping[str, object], **options: object) -> dict[str, Any]:
    return {"bootstrap_servers": DEFAULT_SERVER, **settings, **options}
