"""From what the user gave (options, environment, a file) to a client.

An option goes before a variable of the environment, and that before what a file says. Secrets come from the
environment or from files: what stands in a command can be read by everybody who lists processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka_lite import Admin, Consumer, Producer

DEFAULT_SERVER = "localhost:9092"

PATIENCE = 10.0
"""Seconds that a question or a change may take. Somebody sits in front of it: the client's own minute would be long."""

PREFIX = "AIOKAFKA_LITE_"
_FAMILIES = ("SECURITY_", "SASL_", "SSL_")
_SECRET = ("password", "jaas", "token", "keystore.key")
_ELSEWHERE = ("env:", "file:")


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster, as it was given. Each method raises ConfigurationError for what cannot be right."""

    bootstrap_server: str | None
    config: Path | None
    properties: Sequence[str]
    timeout: float | None

    def admin(self) -> Admin:
        """A client to ask and change with."""
        from aiokafka_lite.admin import Admin
        from aiokafka_lite.properties import client_settings

        return Admin(**_merged(client_settings(self.all_properties()), api_timeout=self.timeout or PATIENCE))

    def producer(self, defaults: Mapping[str, object], given: Mapping[str, object]) -> Producer:
        """A client to write with; ``given`` goes before what the user's file says, ``defaults`` does not."""
        from aiokafka_lite.producer import Producer
        from aiokafka_lite.properties import producer_settings

        settings = {"max_block": PATIENCE, **defaults, **producer_settings(self.all_properties())}
        patience = {"api_timeout": self.timeout or PATIENCE}
        if self.timeout is not None:
            patience = dict.fromkeys(("api_timeout", "max_block", "delivery_timeout"), self.timeout)
        return Producer(**_merged(settings, **patience, **given))

    def group(self, given: str | None) -> str | None:
        """The group to be a member of: the one given, or ``group.id``."""
        from aiokafka_lite.errors import ConfigurationError
        from aiokafka_lite.properties import consumer_settings

        if given == "":  # as of a variable that is not set: without a group nothing would be committed
            raise ConfigurationError("group='': a name that is not empty")
        group = consumer_settings(self.all_properties(), group_id=given).get("group_id")
        return None if group is None else str(group)

    def consumer(self, group: str | None, **given: object) -> Consumer:
        """A client to read with; ``given`` goes before what the user's file says. It never creates a topic."""
        from aiokafka_lite.consumer import Consumer
        from aiokafka_lite.group import (
            CooperativeStickyStrategy,
            RangeStrategy,
            RoundRobinStrategy,
            StickyStrategy,
        )
        from aiokafka_lite.properties import consumer_settings

        settings = consumer_settings(self.all_properties(), group_id=group)
        if "strategies" in settings:
            strategies = (RangeStrategy(), RoundRobinStrategy(), StickyStrategy(), CooperativeStickyStrategy())
            by_name = {each.name: each for each in strategies}
            settings["strategies"] = [by_name[name] for name in settings["strategies"]]  # type: ignore[attr-defined]
        patience = {"api_timeout": self.timeout or PATIENCE, "allow_auto_create_topics": False}
        return Consumer(**_merged(settings, **patience, **given))

    def all_properties(self) -> dict[str, str]:
        """What the file, the environment and the options say together."""
        from aiokafka_lite.errors import ConfigurationError
        from aiokafka_lite.properties import read_properties

        if self.config is not None and "=" in str(self.config) and not self.config.exists():
            raise ConfigurationError(
                f"config={str(self.config)!r}: a file of properties is needed; --property gives a single one, and --set"
                " the setting of a topic"
            )
        properties = {} if self.config is None else read_properties(self.config)
        properties |= of_environment(os.environ)
        properties |= of_options(self.properties)
        if self.bootstrap_server is not None:
            properties["bootstrap.servers"] = self.bootstrap_server
        return properties


def of_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The properties of security that variables such as ``AIOKAFKA_LITE_SASL_PASSWORD`` give. Pure."""
    return {
        name.removeprefix(PREFIX).lower().replace("_", "."): value
        for name, value in variables.items()
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).startswith(_FAMILIES)
    }


def of_options(texts: Sequence[str]) -> dict[str, str]:
    """Properties given as ``NAME=VALUE``, none of them a secret in plain. Pure; raises ConfigurationError."""
    from aiokafka_lite.errors import ConfigurationError

    properties = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"property={name!r}: use NAME=VALUE")
        if any(part in name for part in _SECRET) and not value.startswith(_ELSEWHERE):
            raise ConfigurationError(
                f"{name}: everybody here can read what stands in a command; use {name}=env:VARIABLE,"
                f" {name}=file:PATH, or a --config file"
            )
        properties[name] = value
    return properties


def _merged(settings: Mapping[str, object], **given: object) -> dict[str, Any]:
    return {"bootstrap_servers": DEFAULT_SERVER, **settings, **given}
