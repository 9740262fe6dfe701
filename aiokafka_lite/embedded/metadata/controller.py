"""The controller: topics, registrations of brokers, elections, and changes of the in-sync sets.

The controller is an object of its own, not a role of a node: in Kafka, the quorum is separate from the brokers. It
publishes each changed topic to the nodes that it can reach. A node that is cut off keeps its old metadata until it is
reachable again. ``leadership`` has the operations on single partitions, ``changes`` those on settings and features.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from ...arguments import must_be, plural
from ...errors import BrokerError, ErrorCode
from ..settings.configs import TOPIC_KEYS, ClusterSettings, TopicConfig
from ..settings.keys import InvalidConfig, check_configs
from .features import ELIGIBLE_LEADER_REPLICAS, ClusterFeatures
from .topics import METADATA_TOPIC, NO_LEADER, PartitionKey, PartitionRegistration, Topic, is_legal_name, spread

logger = logging.getLogger(__name__)

MAX_PARTITIONS = 100_000
CATCH_UP_INTERVAL = 1.0
"""Seconds between attempts to save elections and ends of reassignments that could not be saved."""
PRODUCER_ID_BLOCK = 1000
"""The number of producer ids that are reserved at once, as in Kafka."""


class Refused(BrokerError):
    """The controller refused a change or a lookup; ``code`` is Kafka's error code.

    A test that calls the cluster directly can catch it as the error of a client. Its text is the message of the answer.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, reason=message)
        self._text = message

    def __str__(self) -> str:
        return self._text


def require_time(timeout_ms: int) -> None:
    """Raise Refused (REQUEST_TIMED_OUT) if `timeout_ms` is <= 0, as Kafka's controller does."""
    if timeout_ms <= 0:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, must_be("timeout_ms", "> 0", timeout_ms))


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker as the controller knows it: its port by listener. A broker that is ``alive`` may lead partitions."""

    node_id: int
    host: str
    ports: Mapping[str, int]
    rack: str | None
    alive: bool


class Controller:
    """The only authority on metadata. Owner: the EmbeddedCluster.

    ``save(name, topic)`` is called before a topic changes, ``save(name, None)`` before its deletion, and
    ``save(None, None)`` for all other state. It raises Refused if it cannot write the change to disk.
    ``publish`` is called after each change, with the name of the topic or None.
    """

    def __init__(
        self,
        save: Callable[[str | None, Topic | None], None],
        publish: Callable[[str | None], None],
        settings: ClusterSettings,
        random: Random,
        features: ClusterFeatures,
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        self.brokers: dict[int, Registration] = {}
        self.settings = settings
        self.features = features
        self.decisions: int = 0
        """The number of decisions so far: the end offset of the metadata log."""
        self._save = save
        self._send = publish
        self._random = random
        self._creating: dict[str, asyncio.TimerHandle] = {}
        self._catching_up: asyncio.TimerHandle | None = None
        self._next_first = 0
        self._next_producer_id = 0
        self.producer_ids_reserved: int = 0
        """The first producer id that is not reserved: after a crash, ids go on from here."""

    def __repr__(self) -> str:
        return f"<Controller brokers={self.live_brokers()} topics={len(self.topics)}>"

    def metadata_changed(self) -> None:
        """Save and publish a change of ACLs, users, tokens, quotas, settings or features.

        Raises Refused if the change cannot be saved; then it is undone.
        """
        self._save(None, None)
        self._publish(None)

    def _publish(self, name: str | None) -> None:
        self.decisions += 1
        self._send(name)

    # Brokers.

    def live_brokers(self) -> list[int]:
        return sorted(broker.node_id for broker in self.brokers.values() if broker.alive)

    @property
    def controller_id(self) -> int:
        """The broker that metadata names as the controller; -1 if no broker is alive."""
        return next(iter(self.live_brokers()), -1)

    def register(self, node_id: int, host: str, ports: Mapping[str, int], rack: str | None) -> None:
        """Register a broker that started. It becomes the leader of its partitions without a leader."""
        self.brokers[node_id] = Registration(node_id, host, ports, rack, alive=True)
        # Published before the elections, because metadata must not name a leader that is not in the list of brokers.
        self._publish(None)
        self._update_topics(node_id)

    def fence(self, node_id: int) -> None:
        """Fence a broker that stopped. It leaves the in-sync sets, and other replicas become leaders.

        Without eligible leader replicas (KIP-966), the last member of an in-sync set stays in it.
        """
        registration = self.brokers.get(node_id)
        if registration is None or not registration.alive:
            return
        self.brokers[node_id] = replace(registration, alive=False)
        logger.info("fenced node %d", node_id)
        self._publish(None)
        self._update_topics(node_id)

    def unregister(self, node_id: int) -> None:
        """Remove a broker; a running broker is fenced first. Raises Refused."""
        if node_id not in self.brokers:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered")
        self.fence(node_id)
        del self.brokers[node_id]
        self._publish(None)

    def _update_topics(self, node_id: int) -> None:
        """Elect leaders after a broker was registered or fenced.

        A topic that cannot be saved does not change, and is tried again. Without a retry, the next start would not know
        the new leader, and the records that this leader has acknowledged would be lost.
        """
        # A fenced broker leaves the in-sync sets at once: it cannot fetch, and the high watermark would wait for it.
        change = self._with_leader_back if self.is_alive(node_id) else self._without
        for topic in list(self.topics.values()):
            partitions = tuple(change(topic, state, node_id) for state in topic.partitions)
            if partitions != topic.partitions:
                try:
                    self.store(replace(topic, partitions=partitions))
                except Refused as refusal:
                    logger.error("failed to save new leaders of %s: %s", topic.name, refusal)
                    if self._catching_up is None:
                        loop = asyncio.get_running_loop()
                        self._catching_up = loop.call_later(CATCH_UP_INTERVAL, self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = None
        for node_id in list(self.brokers):
            self._update_topics(node_id)

    def _with_leader_back(self, topic: Topic, state: PartitionRegistration, node_id: int) -> PartitionRegistration:
        if state.leader != NO_LEADER or node_id not in state.replicas:
            return state
        return self.elect(topic, state)

    def _without(self, topic: Topic, state: PartitionRegistration, node_id: int) -> PartitionRegistration:
        if node_id not in state.replicas:
            return state
        isr = tuple(node for node in state.isr if node != node_id)
        # Without eligible leader replicas (KIP-966), the last replica in sync stays in the set: it has all records.
        if not self.features.level(ELIGIBLE_LEADER_REPLICAS):
            isr = isr or state.isr
        if state.leader == node_id:
            return self.elect(topic, replace(state, isr=isr))
        if isr == state.isr:
            return state
        return replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)

    def elect(self, topic: Topic, state: PartitionRegistration) -> PartitionRegistration:
        """Elect the first live replica that is in sync or eligible, or any live replica if unclean elections are on."""
        live = [node for node in state.replicas if self.is_alive(node)]
        for node in live:
            if state.may_lead(node):
                return state.elected(node)
        if live and topic.config.unclean_leader_election:
            return state.elected(live[0])
        # Any other leader would lose committed records, so the partition waits for an eligible replica.
        return state.elected(NO_LEADER) if state.leader != NO_LEADER else state

    def is_alive(self, node_id: int) -> bool:
        registration = self.brokers.get(node_id)
        return registration is not None and registration.alive

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Sequence[tuple[int, Sequence[int]]] | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
        beside: Collection[str] = (),
    ) -> Topic:
        """Create a topic. ``-1`` is the broker's default; ``assignments`` are partitions with their replicas.

        ``beside`` has the new topics of the same request: as in Kafka, their names are not compared with each other.
        Raises Refused.
        """
        if name in self.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        _check_name(name, (topic for topic in self.topics if topic not in beside))
        own = checked_configs(configs or {})
        if assignments is not None:
            if partitions != -1 or replication_factor != -1:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "with assignments, partition count and replication factor must be -1",
                )
            by_index = {index: tuple(nodes) for index, nodes in assignments}
            if sorted(by_index) != list(range(len(assignments))):
                raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
            replicas = [by_index[index] for index in range(len(by_index))]
            self.check_assignments(replicas)
        else:
            replicas = self._assign(partitions, replication_factor)
        states = _new_partitions(replicas, self.live_brokers())
        config = TopicConfig.parse(own, self.settings.merged())
        topic_id = self._random.randbytes(16)
        while topic_id in self.names:  # with a seed, topics of an earlier run may have the same ids
            topic_id = self._random.randbytes(16)
        topic = Topic(name, topic_id, states, config, own)
        if not validate_only:
            self.store(topic)
        return topic

    def create_topic_later(self, name: str, delay: float) -> None:
        """Create a topic with the brokers' defaults in ``delay`` seconds. Raises Refused if that is not possible."""
        self.create_topic(name, validate_only=True)
        if name not in self._creating:
            self._creating[name] = asyncio.get_running_loop().call_later(delay, self._create_now, name)

    def _create_now(self, name: str) -> None:
        del self._creating[name]
        if name not in self.topics:
            try:
                self.create_topic(name)
            except Refused as refusal:
                logger.error("failed to create topic %s: %s", name, refusal)

    def stop(self) -> None:
        """Stop creating topics and saving elections."""
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None
        for timer in self._creating.values():
            timer.cancel()
        self._creating.clear()

    def _assign(self, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
        defaults = self.settings.of()
        count = defaults.number("num.partitions") if partitions == -1 else partitions
        factor = defaults.number("default.replication.factor") if replication_factor == -1 else replication_factor
        if factor <= 0:
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, must_be("replication factor", ">= 1 or -1", factor))
        if not 0 < count <= MAX_PARTITIONS:
            what = f"from 1 to {MAX_PARTITIONS}, or -1"
            raise Refused(ErrorCode.INVALID_PARTITIONS, must_be("number of partitions", what, count))
        live = self.live_brokers()
        if factor > len(live):
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor} needs more than the {len(live)} live brokers",
            )
        # The next topic begins where this one ends, so that topics with one partition spread over the brokers.
        first, self._next_first = self._next_first, self._next_first + count
        return spread(count, factor, live, first)

    def check_assignments(self, assignments: Sequence[Sequence[int]]) -> None:
        """Raise Refused unless each partition has as many distinct, known replicas as the first one."""
        for nodes in assignments:
            if not nodes or len(set(nodes)) != len(nodes) or len(nodes) != len(assignments[0]):
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"replicas must be distinct, and as many in each partition, got {list(nodes)}",
                )
            unknown = [node for node in nodes if node not in self.brokers]
            if unknown:
                raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"unknown brokers {unknown}")

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic and return it. Raises Refused."""
        topic = self.require(name)
        self._save(name, None)
        del self.topics[name]
        del self.names[topic.topic_id]
        self._publish(name)
        logger.info("deleted topic %s", name)
        return topic

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> None:
        """Add partitions until the topic has ``count``. Raises Refused."""
        topic = self.require(name)
        present = len(topic.partitions)
        if count <= present or count > MAX_PARTITIONS:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {plural(present, 'partition')}; the new number must be larger, and "
                f"<= {MAX_PARTITIONS}, got {count}",
            )
        factor = len(topic.partitions[0].replicas)
        if assignments is None:
            new = self._assign(count - present, factor)
        else:
            new = [tuple(nodes) for nodes in assignments]
            if len(new) != count - present:
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{count - present} new partitions need assignments, got {len(new)}",
                )
            self.check_assignments(new)
            if len(new[0]) != factor:
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"each partition of topic {name!r} has {factor} replicas, not {len(new[0])}",
                )
        if not validate_only:
            states = _new_partitions(new, self.live_brokers())
            self.store(replace(topic, partitions=topic.partitions + states))

    def require(self, name: str) -> Topic:
        """Return the topic. Raises Refused if it does not exist."""
        topic = self.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {name!r}")
        return topic

    def state_of(self, key: PartitionKey) -> PartitionRegistration:
        """Return the state of a partition. Raises Refused if it does not exist."""
        topic = self.require(key[0])
        if not 0 <= key[1] < len(topic.partitions):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {key[0]!r} has no partition {key[1]}")
        return topic.partitions[key[1]]

    def set_partition(self, key: PartitionKey, state: PartitionRegistration) -> None:
        """Replace a partition's state; its partition epoch grows by one."""
        state = replace(state, partition_epoch=self.state_of(key).partition_epoch + 1)
        self.store(self.topics[key[0]].with_partition(key[1], state))

    def store(self, topic: Topic) -> None:
        """Store the new state of a topic, and publish it. Raises Refused, without a change, if it cannot be saved."""
        before = self.topics.get(topic.name)
        if before is not None and before.topic_id == topic.topic_id:
            tracked = self.features.level(ELIGIBLE_LEADER_REPLICAS) > 0
            min_isr = topic.config.min_insync_replicas if tracked else 1
            changed = [new.after(old, min_isr) for old, new in zip(before.partitions, topic.partitions)]
            assert len(changed) == len(before.partitions), "a topic never loses partitions"
            for old, new in zip(before.partitions, changed):
                assert new.leader_epoch >= old.leader_epoch, "a leader epoch only grows"
            topic = replace(topic, partitions=(*changed, *topic.partitions[len(changed) :]))
        for state in topic.partitions:
            assert state.leader in (NO_LEADER, *state.isr), "a leader is in sync"
        # Saved before any broker sees it: after a crash, the cluster has each state that a client may have seen.
        self._save(topic.name, topic)
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name
        self._publish(topic.name)
        if before is None:
            logger.info("created topic %s with %s", topic.name, plural(len(topic.partitions), "partition"))
        for number, (old, new) in enumerate(zip(() if before is None else before.partitions, topic.partitions)):
            if old.leader != new.leader:
                elected = "no leader" if new.leader == NO_LEADER else f"node {new.leader} as the leader"
                logger.info("%s-%d has %s from epoch %d on", topic.name, number, elected, new.leader_epoch)

    # Producers.

    def next_producer_id(self) -> int:
        if self._next_producer_id == self.producer_ids_reserved:
            # The block is saved before its first id is used, so that no run of the cluster gives an id twice.
            self.producer_ids_reserved += PRODUCER_ID_BLOCK
            try:
                self._save(None, None)
            except Refused:
                self.producer_ids_reserved -= PRODUCER_ID_BLOCK
                raise
        self._next_producer_id += 1
        assert self._next_producer_id <= self.producer_ids_reserved, "an id is reserved before it is used"
        return self._next_producer_id - 1

    def skip_producer_ids(self, used: int) -> None:
        """Give out only ids above ``used``, before the first one is given out."""
        if used >= self._next_producer_id:
            self._next_producer_id = self.producer_ids_reserved = used + 1

    # The state of an earlier run.

    def restore(self, topics: Iterable[Topic], next_producer_id: int) -> None:
        """Begin with these topics. Their leaders are brokers that are about to register."""
        for topic in topics:
            self.topics[topic.name] = topic
            self.names[topic.topic_id] = topic.name
        self._next_producer_id = self.producer_ids_reserved = next_producer_id


def _new_partitions(assignments: Iterable[Sequence[int]], alive: Sequence[int]) -> tuple[PartitionRegistration, ...]:
    """Return the first state of partitions with these replicas: the live ones are in sync, and the first of them
    leads."""
    states = []
    for replicas in assignments:
        live = tuple(node for node in replicas if node in alive)
        states.append(PartitionRegistration(tuple(replicas), live or tuple(replicas), live[0] if live else NO_LEADER))
    return tuple(states)


_COMPACTION_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")


def checked_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return a topic's own settings. Raises Refused for an unknown setting, and for a wrong or missing value."""
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{', '.join(nulls)} must have a value")
    try:
        check_configs(TOPIC_KEYS, configs)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    if str(configs.get("remote.storage.enable")).lower() == "true":
        raise Refused(ErrorCode.INVALID_CONFIG, "remote.storage.enable must be false: brokers have no tiered storage")
    least, most = (int(configs.get(name) or TOPIC_KEYS[name].default or 0) for name in _COMPACTION_LAGS)
    if least > most:
        lags = f"min.compaction.lag.ms ({least}) must be at most max.compaction.lag.ms ({most})"
        raise Refused(ErrorCode.INVALID_CONFIG, lags)
    return {name: value for name, value in configs.items() if value is not None}


def _check_name(name: str, topics: Iterable[str]) -> None:
    """Raise Refused for an illegal name, and for a name that differs from another one only in dots and underscores.

    Kafka's metrics write dots as underscores, so two such topics would have the same metrics.
    """
    if not is_legal_name(name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
    if name == METADATA_TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the topic {name} belongs to the controllers")
    alike = name.replace(".", "_")
    if "_" in alike:
        for other in topics:
            if other.replace(".", "_") == alike:
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} collides with {other!r}")
