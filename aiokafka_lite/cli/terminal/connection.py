"""Makes a client from the user's options, environment and file.

Options override the environment, which overrides the file. Secrets come from the environment or from files: anyone who
lists the processes of a machine can read their arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import names_and_values

if TYPE_CHECKING:
    from ... import Admin, Consumer, Producer, ShareConsumer

DEFAULT_SERVER = "localhost:9092"

TIMEOUT = 10.0
"""Seconds that a request or a change may take. A user waits for it, so it is shorter than the client's default."""

PREFIX = "AIOKAFKA_LITE_"
_OWN = ("BOOTSTRAP_SERVER", "CONFIG")
_FAMILIES = ("SECURITY_", "SASL_", "SSL_")
_SECRET = ("password", "jaas", "token", "keystore.key")
_ELSEWHERE = ("env:", "file:")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach the cluster, as the user gave it. Each method raises ConfigurationError for wrong settings."""

    bootstrap_server: str | None
    config: Path | None
    properties: Sequence[str]
    timeout: float | None

    def admin(self) -> AbstractAsyncContextManager[Admin]:
        """Make a client for requests and changes, which runs within ``async with``."""
        from .start import started

        return started(self.new_admin())

    def new_admin(self) -> Admin:
        """Make a client for requests and changes without starting it."""
        from ...admin import Admin
        from ...settings.properties import client_settings

        properties = self.all_properties()
        settings = client_settings(properties)
        with _named(properties, ["api_timeout"]):
            return Admin(**_merged(settings, api_timeout=self.timeout or TIMEOUT))

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
        """Join the properties of the file, the environment and the options together."""
        from ... import disclosure
        from ...errors import ConfigurationError
        from ...settings.properties import read_properties

        if self.config is not None and "=" in str(self.config) and not os.path.exists(self.config):
            raise ConfigurationError(
                f"config must be a file of properties, got {disclosure.path(self.config)}; use --property for a single"
                " property, and --set for a setting of a topic"
            )
        properties: dict[str, str] = {}
        if self.config is not None:
            properties = read_properties(self.config)
            _check_names(str(self.config), properties)
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
        check_known(properties)
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}") from None


def of_options(texts: Sequence[str]) -> dict[str, str]:
    """Parse properties given as ``NAME=VALUE``. Raises ConfigurationError for another form or a plain secret."""
    from ... import disclosure
    from ...errors import ConfigurationError

    properties = names_and_values("property", texts)
    for name, value in properties.items():
        if any(part in name for part in _SECRET) and not value.startswith(_ELSEWHERE):
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
