"""Settings as Kafka declares them: a type, a default, the values that are valid, and whether a running broker may
change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum, IntEnum
from typing import NamedTuple

from ...arguments import INT16_MAX, INT32_MAX, INT64_MAX, must_be
from ...errors import ErrorCode


class UpdateMode(Enum):
    """Where a running cluster can change a setting: nowhere, for one broker, or also for all brokers."""

    NONE = "fixed"
    BROKER = "broker"
    CLUSTER = "cluster"


class ConfigType(IntEnum):
    """Types of settings, numbered as in DescribeConfigs v3. A setting that the broker does not know is UNKNOWN.

    ``ConfigType`` of ``admin`` is the client's side.
    """

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class InvalidConfig(ValueError):
    """The setting does not exist, or does not accept the value; the message names both."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
        super().__init__(message)
        self.code = code


class ConfigKey(NamedTuple):
    """One setting; ``broker_name`` is the broker setting that a topic setting falls back to.

    Without ``has_effect``, the embedded broker accepts and describes the setting, and does nothing else with it.
    """

    type: ConfigType
    default: str | None
    broker_name: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()
    scope: UpdateMode = UpdateMode.CLUSTER
    pattern: str = ""
    has_effect: bool = True

    @property
    def documentation(self) -> str:
        return "As in Apache Kafka." if self.has_effect else "No effect here."

    @property
    def read_only(self) -> bool:
        return self.scope is UpdateMode.NONE

    def canonical(self, value: str) -> str:
        """Return a valid value in the form in which brokers show it."""
        match self.type:
            case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
                return str(int(value))
            case ConfigType.DOUBLE:
                return _java_double(float(value))
            case ConfigType.BOOLEAN:
                return value.strip().lower()
            case ConfigType.LIST:
                return ",".join(dict.fromkeys(part.strip() for part in value.split(",")))
        return value.strip()

    @property
    def is_sensitive(self) -> bool:
        """Whether responses leave out the value."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def check(self, name: str, value: str) -> None:
        """Raise InvalidConfig unless the setting accepts the value."""
        if self.type is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
            raise InvalidConfig(must_be(name, "true or false", value))
        if self.type in _LARGEST:
            self._check_number(name, value)
        if self.pattern and re.fullmatch(self.pattern, value) is None:
            raise InvalidConfig(must_be(name, f"a string that matches {self.pattern}", value))
        if self.allowed:
            parts = [part.strip() for part in value.split(",") if value] if self.type is ConfigType.LIST else [value]
            if not all(part in self.allowed for part in parts):
                raise InvalidConfig(must_be(name, f"one of {', '.join(self.allowed)}", value))

    def _check_number(self, name: str, value: str) -> None:
        try:
            if "_" in value:  # Python reads 1_000 as a number, Java does not
                raise ValueError(value)
            number = float(value) if self.type is ConfigType.DOUBLE else int(value)
        except ValueError:
            raise InvalidConfig(must_be(name, "a number", value)) from None
        high = self.maximum if self.maximum is not None else _LARGEST[self.type]
        if number > high or (self.minimum is not None and number < self.minimum):
            low = "" if self.minimum is None else f">= {self.minimum} and "
            raise InvalidConfig(must_be(name, f"a number {low}<= {high}", value))


def _java_double(number: float) -> str:
    """Return a number as Java prints it: with an exponent below 0.001, and from ten million on."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    text = f"{Decimal(repr(number)).normalize():E}".replace("E+", "E")
    return text if "." in text else text.replace("E", ".0E")


_LARGEST = {
    ConfigType.SHORT: INT16_MAX,
    ConfigType.INT: INT32_MAX,
    ConfigType.LONG: INT64_MAX,
    ConfigType.DOUBLE: INT64_MAX,
}


def nearest(name: str, settings: Iterable[str]) -> str:
    """Return the end of an error text that names the most similar setting; empty if none is similar."""
    from difflib import get_close_matches  # imported here, because most programs do not need it

    # The ends of long names count most: retention.ms of a topic is log.retention.ms of a broker.
    similar = [setting for setting in settings if setting.endswith(f".{name}") or name.endswith(f".{setting}")]
    similar = similar or get_close_matches(name.lower().replace("_", "."), settings, 1)
    return f"; did you mean {min(similar, key=len)}?" if similar else ""


def check_configs(keys: Mapping[str, ConfigKey], values: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig for a name that is not in ``keys``, or a value that its setting does not accept."""
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            raise InvalidConfig(f"unknown setting {name!r}{nearest(name, keys)}")
        if value is None:
            raise InvalidConfig(f"{name} must have a value")
        key.check(name, value)
