"""The features of a cluster (KIP-584): the levels that its brokers support, and the level that is finalized for all.

Clients choose the generation of their transactions by ``transaction.version``: 2 and above is generation 2 (KIP-890).
A feature at level 0 is not finalized, so clients do not see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ...arguments import must_be
from ...errors import ConfigurationError

TRANSACTION_VERSION = "transaction.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"


class UpgradeType(IntEnum):
    """The direction of a change of a level, numbered as in UpdateFeatures v1."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class SupportedLevels(NamedTuple):
    """The levels of a feature that a release supports, and the level of a new cluster of this release."""

    first: int
    last: int
    initial: int


METADATA_VERSION = "metadata.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
_QUORUM = {"kraft.version": SupportedLevels(0, 1, 0)}
_NEWEST = {
    **_QUORUM,
    TRANSACTION_VERSION: SupportedLevels(0, 2, 2),
    "group.version": SupportedLevels(0, 1, 1),
}

_BY_RELEASE: dict[str, dict[str, SupportedLevels]] = {
    "3.3.2": {METADATA_VERSION: SupportedLevels(1, 7, 7)},
    "3.9.1": {METADATA_VERSION: SupportedLevels(1, 21, 21), **_QUORUM},
    "4.0.1": {
        METADATA_VERSION: SupportedLevels(7, 25, 25),
        **_NEWEST,
        ELIGIBLE_LEADER_REPLICAS: SupportedLevels(0, 1, 0),
    },
    "4.1.1": {
        METADATA_VERSION: SupportedLevels(7, 27, 27),
        **_NEWEST,
        SHARE_VERSION: SupportedLevels(0, 1, 0),
        STREAMS_VERSION: SupportedLevels(0, 1, 0),
        ELIGIBLE_LEADER_REPLICAS: SupportedLevels(0, 1, 1),
    },
    "4.3.1": {
        METADATA_VERSION: SupportedLevels(7, 30, 30),
        **_NEWEST,
        SHARE_VERSION: SupportedLevels(0, 1, 1),
        STREAMS_VERSION: SupportedLevels(0, 1, 1),
        ELIGIBLE_LEADER_REPLICAS: SupportedLevels(0, 1, 1),
    },
}
"""The levels by release, as ``kafka-features describe`` shows them. ``kraft.version`` has no effect here. It is listed
because ``kafka-features upgrade --release-version`` changes all features of a release or none."""

_NEW_METADATA = frozenset({3, 5, 6, 7, 8, 11, 13, 14, 15, 17, 23, 30})
"""The levels of ``metadata.version`` that store something new. Kafka refuses a downgrade to a level below one."""


class ClusterFeatures:
    """The features of a cluster. Owner: the Controller. ``epoch`` grows with each change."""

    def __init__(self, supported: Mapping[str, SupportedLevels]) -> None:
        self.supported: dict[str, SupportedLevels] = dict(supported)
        self.epoch: int = 0
        self._levels = {name: levels.initial for name, levels in supported.items()}

    @classmethod
    def of_release(cls, release: str) -> ClusterFeatures:
        """Return the features of a new cluster of a release of Kafka. Releases before KRaft have none."""
        return cls(_BY_RELEASE.get(release, {}))

    @property
    def finalized(self) -> dict[str, int]:
        return {name: level for name, level in self._levels.items() if level > 0}

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if it is not finalized."""
        return self._levels.get(name, 0)

    def check_change(self, name: str, level: int, upgrade_type: int) -> None:
        """Raise ConfigurationError unless the level of a feature may change in this way."""
        self._check_level(name, level)
        if upgrade_type not in tuple(UpgradeType):
            raise ConfigurationError(must_be("upgrade type", "1, 2 or 3", upgrade_type))
        present = self.level(name)
        if level < present and upgrade_type == UpgradeType.UPGRADE:
            raise ConfigurationError(f"{name} is at level {present}; a change to {level} must be a downgrade")
        if level > present and upgrade_type != UpgradeType.UPGRADE:
            raise ConfigurationError(f"{name} is at level {present}; a change to {level} must be an upgrade")
        if name == METADATA_VERSION and any(level < new <= present for new in _NEW_METADATA):
            raise ConfigurationError(f"a downgrade of {name} from {present} to {level} might delete metadata")

    def set_level(self, name: str, level: int) -> None:
        """Finalize a level for the whole cluster. Raises ConfigurationError."""
        self._check_level(name, level)
        self._levels[name] = level
        self.epoch += 1

    def saved(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "levels": self.finalized}

    def restore(self, state: dict[str, Any]) -> None:
        """Finalize the levels of an earlier run, also of an earlier release. Raises ConfigurationError."""
        if not state["levels"]:
            return  # of a release without features: as in Kafka, KRaft begins with the levels of a new cluster
        for name, level in state["levels"].items():
            self._check_level(name, level)
        self.epoch = state["epoch"]
        self._levels = dict(state["levels"])

    def _check_level(self, name: str, level: int) -> None:
        levels = self.supported.get(name)
        if levels is None:
            raise ConfigurationError(must_be("feature", f"one of {', '.join(self.supported) or 'none'}", name))
        if not levels.first <= level <= levels.last:
            raise ConfigurationError(must_be(name, f"a level from {levels.first} to {levels.last}", level))
