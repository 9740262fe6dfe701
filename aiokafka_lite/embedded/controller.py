"""Who leads what: topics, registrations of brokers, elections, changes of the in-sync sets.

The controller is one object beside the nodes, not a role of one of them, as Kafka's quorum is beside its brokers. It
publishes each changed topic to the nodes that it can reach; a node cut off keeps its old view until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from ..errors import ErrorCode
from .configs import BROKER_KEYS, TOPIC_KEYS, ConfigSource, InvalidConfig, Layers, TopicConfig, check_configs
from .topics import NO_LEADER, PartitionKey, PartitionState, Topic, is_legal_name, spread

MAX_PARTITIONS = 100_000


class Refused(Exception):
    """An administrative change that was not made."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker as the controller knows it; ``alive`` means that it may lead."""

    node_id: int
    host: str
    port: int
    rack: str | None
    alive: bool


class Controller:
    """The cluster's one authority on metadata. Owner: the EmbeddedCluster."""

    def __init__(
        self,
        publish: Callable[[str | None], None],
        *,
        random: Random,
        broker_configs: Mapping[str, str],
        default_partitions: int,
        default_replication_factor: int,
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        self.brokers: dict[int, Registration] = {}
        self.static_configs = dict(broker_configs)
        self.dynamic_configs: dict[str, dict[str, str]] = {}  # by broker id; "" is all brokers
        self.default_partitions = default_partitions
        self.default_replication_factor = default_replication_factor
        self._publish = publish
        self._random = random
        self._next_first = 0
        self._next_producer_id = 0

    def __repr__(self) -> str:
        return f"<Controller brokers={self.live_brokers()} topics={len(self.topics)}>"

    # ---- settings of brokers

    @property
    def broker_configs(self) -> dict[str, str]:
        """What all brokers share."""
        return {**self.static_configs, **self.dynamic_configs.get("", {})}

    def layers(self, broker: str = "") -> Layers:
        """The settings of one broker, or of all, by where they come from."""
        own = {"broker.id": broker, "node.id": broker} if broker else {}
        layers = [
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_configs.get("", {})),
            (ConfigSource.STATIC_BROKER, {**self.static_configs, **own}),
        ]
        if broker:
            layers.insert(0, (ConfigSource.DYNAMIC_BROKER, self.dynamic_configs.get(broker, {})))
        return layers

    def set_broker_configs(self, broker: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace the dynamic settings of one broker, or, with "", of all; raises Refused."""
        if broker and (not broker.isdigit() or int(broker) not in self.brokers):
            raise Refused(ErrorCode.INVALID_REQUEST, f"there is no broker {broker!r}")
        fixed = [name for name in configs if name in BROKER_KEYS and BROKER_KEYS[name].read_only]
        try:
            check_configs(BROKER_KEYS, configs)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        if fixed:
            raise Refused(ErrorCode.INVALID_REQUEST, f"cannot be changed while the broker runs: {', '.join(fixed)}")
        if not validate_only:
            self.dynamic_configs[broker] = dict(configs)
            self.reparse_configs()

    # ---- brokers

    def live_brokers(self) -> list[int]:
        return sorted(broker.node_id for broker in self.brokers.values() if broker.alive)

    @property
    def controller_id(self) -> int:
        """The broker that metadata names as controller; -1 when none lives."""
        return next(iter(self.live_brokers()), -1)

    def register(self, node_id: int, host: str, port: int, rack: str | None) -> None:
        """A broker has come up: it may lead again, and leads at once what nobody else can."""
        self.brokers[node_id] = Registration(node_id, host, port, rack, alive=True)
        self._publish(None)
        for topic in list(self.topics.values()):
            self._update(topic, self._with_leader_back, node_id)

    def fence(self, node_id: int) -> None:
        """A broker is gone: it leaves every in-sync set with another member, and others take over what it led."""
        registration = self.brokers.get(node_id)
        if registration is None or not registration.alive:
            return
        self.brokers[node_id] = replace(registration, alive=False)
        self._publish(None)
        for topic in list(self.topics.values()):
            self._update(topic, self._without, node_id)

    def _update(
        self, topic: Topic, change: Callable[[Topic, PartitionState, int], PartitionState], node_id: int
    ) -> None:
        partitions = tuple(change(topic, state, node_id) for state in topic.partitions)
        if partitions != topic.partitions:
            self._store(replace(topic, partitions=partitions))

    def _with_leader_back(self, topic: Topic, state: PartitionState, node_id: int) -> PartitionState:
        if state.leader != NO_LEADER or node_id not in state.replicas:
            return state
        return self._elect(topic, state)

    def _without(self, topic: Topic, state: PartitionState, node_id: int) -> PartitionState:
        if node_id not in state.replicas:
            return state
        isr = tuple(node for node in state.isr if node != node_id) or state.isr
        if state.leader == node_id:
            return self._elect(topic, replace(state, isr=isr))
        if isr == state.isr:
            return state
        return replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)

    def _elect(self, topic: Topic, state: PartitionState) -> PartitionState:
        """The first live replica of the in-sync set; any live one where the topic allows an unclean election."""
        live = [node for node in state.replicas if self.is_alive(node)]
        for node in live:
            if node in state.isr:
                return state.elected(node)
        if live and topic.config.unclean_leader_election:
            return state.elected(live[0], isr=(live[0],))
        return state.elected(NO_LEADER) if state.leader != NO_LEADER else state

    def is_alive(self, node_id: int) -> bool:
        registration = self.brokers.get(node_id)
        return registration is not None and registration.alive

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Sequence[tuple[int, Sequence[int]]] | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Make a topic; -1 stands for the broker's default, ``assignments`` are partitions and their replicas.

        Raises Refused.
        """
        if name in self.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        self._check_name(name)
        own = self._checked_configs(configs or {})
        if assignments is not None:
            if partitions != -1 or replication_factor != -1:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "an assignment excludes partition count and replication factor"
                )
            by_index = {index: tuple(nodes) for index, nodes in assignments}
            if sorted(by_index) != list(range(len(assignments))):
                raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
            replicas = [by_index[index] for index in range(len(by_index))]
            self._check_assignments(replicas)
        else:
            replicas = self._assign(partitions, replication_factor)
        states = tuple(self._new_partition(nodes) for nodes in replicas)
        config = TopicConfig.parse(own, self.broker_configs)
        topic = Topic(name, self._new_topic_id(), states, config, own)
        if not validate_only:
            self._store(topic)
        return topic

    def _check_name(self, name: str) -> None:
        """Dots and underscores look alike in the names of metrics, so that topics may not differ in them alone."""
        if not is_legal_name(name):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is no legal topic name")
        alike = name.replace(".", "_")
        if "_" in alike:
            for other in self.topics:
                if other.replace(".", "_") == alike:
                    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} collides with {other!r}")

    def _assign(self, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
        count = self.default_partitions if partitions == -1 else partitions
        factor = self.default_replication_factor if replication_factor == -1 else replication_factor
        if factor <= 0:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: must be 1 or more, or -1"
            )
        if not 0 < count <= MAX_PARTITIONS:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"{count} partitions: must be 1 or more, or -1 for the default")
        live = self.live_brokers()
        if factor > len(live):
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}, but {len(live)} brokers are alive"
            )
        first, self._next_first = self._next_first, self._next_first + count
        return spread(count, factor, live, first)

    def _check_assignments(self, assignments: Sequence[Sequence[int]]) -> None:
        for nodes in assignments:
            if not nodes or len(set(nodes)) != len(nodes) or len(nodes) != len(assignments[0]):
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {list(nodes)}: empty, repeated or uneven"
                )
            unknown = [node for node in nodes if node not in self.brokers]
            if unknown:
                raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there are no brokers {unknown}")

    def _new_partition(self, replicas: Sequence[int]) -> PartitionState:
        live = tuple(node for node in replicas if self.is_alive(node))
        return PartitionState(tuple(replicas), live or tuple(replicas), live[0] if live else NO_LEADER)

    def _checked_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        nulls = [name for name, value in configs.items() if value is None]
        if nulls:
            raise Refused(ErrorCode.INVALID_CONFIG, f"without a value: {', '.join(nulls)}")
        try:
            check_configs(TOPIC_KEYS, configs)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        return {name: value for name, value in configs.items() if value is not None}

    def _new_topic_id(self) -> bytes:
        return self._random.randbytes(16)

    def delete_topic(self, name: str) -> Topic:
        """Remove a topic; raises Refused."""
        topic = self.topics.pop(name, None)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        del self.names[topic.topic_id]
        self._publish(name)
        return topic

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> None:
        """Raise a topic's number of partitions to ``count``; raises Refused."""
        topic = self.require(name)
        present = len(topic.partitions)
        if count <= present or count > MAX_PARTITIONS:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {present} partitions, {count} asked for")
        if assignments is None:
            factor = len(topic.partitions[0].replicas)
            new = self._assign(count - present, factor)
        else:
            new = [tuple(nodes) for nodes in assignments]
            if len(new) != count - present:
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{count - present} assignments are needed, {len(new)} came"
                )
            self._check_assignments(new)
        if not validate_only:
            states = tuple(self._new_partition(nodes) for nodes in new)
            self._store(replace(topic, partitions=topic.partitions + states))

    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace a topic's own settings; raises Refused."""
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "there are no settings for all topics")
        if not is_legal_name(name):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is no legal topic name")
        own = self._checked_configs(configs)
        topic = self.require(name)
        if not validate_only:
            self._store(replace(topic, configs=own, config=TopicConfig.parse(own, self.broker_configs)))

    def reparse_configs(self) -> None:
        """Broker settings have changed: what topics inherit has, too."""
        for topic in list(self.topics.values()):
            config = TopicConfig.parse(topic.configs, self.broker_configs)
            if config != topic.config:
                self._store(replace(topic, config=config))

    def require(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def state_of(self, key: PartitionKey) -> PartitionState:
        """A partition's state; raises Refused."""
        topic = self.require(key[0])
        if not 0 <= key[1] < len(topic.partitions):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {key[0]!r} has no partition {key[1]}")
        return topic.partitions[key[1]]

    def _store(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name
        self._publish(topic.name)

    # ---- partitions

    def set_partition(self, key: PartitionKey, state: PartitionState) -> PartitionState:
        """Put a state in place, one partition epoch on."""
        state = replace(state, partition_epoch=self.state_of(key).partition_epoch + 1)
        self._store(self.topics[key[0]].with_partition(key[1], state))
        return state

    def move_leader(self, key: PartitionKey, node_id: int, *, unclean: bool = False) -> None:
        """Elect a live replica that is in sync, or, if ``unclean``, any: what only others have is lost then.

        Raises Refused.
        """
        state = self.state_of(key)
        if node_id not in state.replicas or not self.is_alive(node_id):
            raise Refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"node {node_id} is no live replica of {key}")
        if node_id not in state.isr and not unclean:
            raise Refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"node {node_id} is not in sync with {key}")
        self.set_partition(key, state.elected(node_id, state.isr if node_id in state.isr else (node_id,)))

    def force_isr(self, key: PartitionKey, isr: tuple[int, ...]) -> None:
        """Put an in-sync set in place that nobody proposed; raises Refused."""
        self.set_partition(key, replace(self.state_of(key), isr=isr))

    def elect_preferred(self, key: PartitionKey) -> None:
        """Make the first replica the leader; raises Refused."""
        state = self.state_of(key)
        preferred = state.replicas[0]
        if state.leader == preferred:
            raise Refused(ErrorCode.ELECTION_NOT_NEEDED, f"node {preferred} leads {key} already")
        if preferred not in state.isr or not self.is_alive(preferred):
            raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"node {preferred} is not in sync or not alive")
        self.set_partition(key, state.elected(preferred))

    def elect_unclean(self, key: PartitionKey) -> None:
        """Make any live replica the leader of a partition that has none; raises Refused."""
        state = self.state_of(key)
        if state.leader != NO_LEADER:
            raise Refused(ErrorCode.ELECTION_NOT_NEEDED, f"node {state.leader} leads {key}")
        live = [node for node in state.replicas if self.is_alive(node)]
        if not live:
            raise Refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {key} is alive")
        in_sync = [node for node in live if node in state.isr]
        leader = (in_sync or live)[0]
        self.set_partition(key, state.elected(leader, state.isr if in_sync else (leader,)))

    def alter_partition(
        self, node_id: int, key: PartitionKey, leader_epoch: int, partition_epoch: int, isr: Iterable[int]
    ) -> bool:
        """A leader proposes an in-sync set; tells whether it was taken (a stale leader's is not)."""
        topic = self.topics.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return False
        state = topic.partitions[key[1]]
        proposed = tuple(isr)
        if (state.leader, state.leader_epoch, state.partition_epoch) != (node_id, leader_epoch, partition_epoch):
            return False
        if any(not self.is_alive(node) for node in proposed):
            return False
        self.set_partition(key, replace(state, isr=proposed))
        self._end_reassignment(key)
        return True

    def reassign(self, key: PartitionKey, replicas: Sequence[int] | None, *, keep_factor: bool = False) -> None:
        """Begin to move a partition to other replicas, or, with None, call that off; raises Refused."""
        state = self.state_of(key)
        settled = tuple(node for node in state.replicas if node not in state.adding)
        if replicas is None:
            if not (state.adding or state.removing):
                raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{key} is not being reassigned")
            self._move_to(key, state, settled)
            return
        self._check_assignments([replicas])
        if keep_factor and len(replicas) != len([node for node in settled if node not in state.removing] or settled):
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must stay as it is")
        target = tuple(replicas)
        adding = tuple(node for node in target if node not in settled)
        removing = tuple(node for node in settled if node not in target)
        if not adding:
            self._move_to(key, state, target)
        else:
            moving = replace(state, replicas=(*target, *removing), adding=adding, removing=removing)
            self.set_partition(key, moving)

    def _move_to(self, key: PartitionKey, state: PartitionState, replicas: tuple[int, ...]) -> None:
        """End a reassignment: only these replicas are left, led by one of those in sync."""
        isr = tuple(node for node in state.isr if node in replicas)
        if not isr:
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"none of {list(replicas)} is in sync")
        state = replace(state, replicas=replicas, isr=isr, adding=(), removing=())
        if state.leader not in replicas:
            state = self._elect(self.topics[key[0]], state)
        self.set_partition(key, state)

    def _end_reassignment(self, key: PartitionKey) -> None:
        """End a reassignment whose new replicas are all in sync."""
        state = self.state_of(key)
        if state.adding and set(state.adding) <= set(state.isr):
            self._move_to(key, state, tuple(node for node in state.replicas if node not in state.removing))

    # ---- producers

    def next_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1
