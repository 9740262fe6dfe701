"""Changes of settings and features that a controller makes: of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import ConfigurationError, ErrorCode
from ..settings.configs import TopicConfig, broker_key, check_dynamic
from ..settings.keys import InvalidConfig
from ..settings.resource_configs import CONFIG_RESOURCES
from .controller import Controller, Refused, checked_configs
from .features import ELIGIBLE_LEADER_REPLICAS
from .topics import is_legal_name

MIN_ISR = "min.insync.replicas"


class ClusterChanges:
    """Checks each change as Kafka does, and stores it with the controller. Owner: the EmbeddedCluster.

    While ``eligible.leader.replicas.version`` is 1 (KIP-966), the whole cluster has one ``min.insync.replicas``. It
    always has a value, and no broker can have its own.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._settings = controller.settings
        self._share_min_isr()

    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace a topic's own settings. Raises Refused."""
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "settings belong to one topic, but the name of the topic is empty")
        if not is_legal_name(name):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
        own = checked_configs(configs)
        topic = self._controller.require(name)
        if not validate_only:
            config = TopicConfig.parse(own, self._settings.merged())
            self._controller.store(replace(topic, configs=own, config=config))

    def set_broker_configs(self, broker: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace the dynamic settings of one broker, or, with "", of all brokers. Raises Refused."""
        if broker and (not broker.isdigit() or int(broker) not in self._controller.brokers):
            raise Refused(ErrorCode.INVALID_REQUEST, f"unknown broker {broker!r}")
        try:
            for name, value in configs.items():
                broker_key(name).check(name, value)
            check_dynamic(broker, configs, self._settings)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
        if self._controller.features.level(ELIGIBLE_LEADER_REPLICAS) and (MIN_ISR in configs) is bool(broker):
            what = "cannot be set for one broker" if broker else "must have a value for all brokers"
            raise Refused(ErrorCode.INVALID_CONFIG, f"{MIN_ISR} {what} while {ELIGIBLE_LEADER_REPLICAS} is 1")
        if not validate_only:
            self._settings.replace_dynamic(broker, configs)
            self._controller.metadata_changed()
            self._apply_settings()

    def _apply_settings(self) -> None:
        """Parse the settings of all topics again, because topics inherit settings of brokers."""
        for topic in list(self._controller.topics.values()):
            config = TopicConfig.parse(topic.configs, self._settings.merged())
            self._controller.store(replace(topic, config=config))

    def set_resource_configs(
        self, kind: int, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the settings of a group or of a subscription of client metrics. Raises Refused."""
        try:
            CONFIG_RESOURCES[kind].check(name, configs, self._settings)
        except InvalidConfig as error:
            raise Refused(error.code, str(error)) from None
        if not validate_only:
            self._settings.replace_resource(kind, name, configs)
            self._controller.metadata_changed()

    def update_features(self, changes: Mapping[str, tuple[int, int]], *, validate_only: bool = False) -> None:
        """Change levels of features, all or none: by name, the level and the UpgradeType. Raises Refused."""
        features = self._controller.features
        # All changes are checked before the first one is made.
        for name, (level, upgrade_type) in changes.items():
            try:
                features.check_change(name, level, upgrade_type)
            except ConfigurationError as error:
                raise Refused(ErrorCode.INVALID_UPDATE_VERSION, str(error)) from None
        if not validate_only:
            for name, (level, _) in changes.items():
                if level != features.level(name):
                    features.set_level(name, level)
            self._share_min_isr()
            self._controller.metadata_changed()

    def set_feature(self, name: str, level: int) -> None:
        """Finalize a level without Kafka's checks of the change. Raises ConfigurationError."""
        self._controller.features.set_level(name, level)
        self._share_min_isr()
        self._controller.metadata_changed()

    def _share_min_isr(self) -> None:
        """Give all brokers one min.insync.replicas if KIP-966 is on, as Kafka does when it formats a cluster."""
        if not self._controller.features.level(ELIGIBLE_LEADER_REPLICAS):
            return
        in_force = self._settings.of().value(MIN_ISR)
        for broker in ("", *map(str, self._controller.brokers)):
            configs = {name: value for name, value in self._settings.dynamic(broker).items() if name != MIN_ISR}
            self._settings.replace_dynamic(broker, configs if broker else {**configs, MIN_ISR: in_force})
