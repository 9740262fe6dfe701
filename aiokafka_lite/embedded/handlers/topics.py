"""CreateTopics, DeleteTopics and CreatePartitions.

- Any node accepts these requests and forwards them to the controller, as Kafka's brokers do since KRaft.
- CreateTopics v4 takes -1 for the broker's defaults (here every version does); v5 returns the settings of the new topic
  (KIP-525), v7 its id. A topic that is named twice in one request is not created.
- DeleteTopics v5 adds error messages, v6 takes topic ids as well as names (KIP-516).
- CreatePartitions names the new total, not the increment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ...acls import AclOperation
from ...arguments import must_be
from ...errors import ErrorCode
from ...protocol import messages as m
from ...protocol.schema import ZERO_UUID
from ..metadata.controller import Refused, require_time
from ..metadata.topics import Topic
from ..request_context import RequestContext, handles, refusal_in
from ..settings.configs import TOPIC_KEYS, topic_synonyms

MAX_NEW_PARTITIONS = 10_000
"""The largest number of partitions that one request may create, as in Kafka."""


@handles(m.CreateTopicsRequest)
def create_topics(context: RequestContext, request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
    require_time(request.timeout_ms)
    counts = Counter(topic.name for topic in request.topics)
    results: list[m.CreatableTopicResult] = []
    allowed: list[m.CreatableTopic] = []
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        try:
            if counts[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"the request names topic {name!r} {counts[name]} times")
            _allow(context, AclOperation.CREATE, name)
            allowed.append(topic)
        except Refused as refusal:
            results.append(_not_created(name, refusal))
    _check_records(context, allowed)
    names = {topic.name for topic in allowed} - context.broker.controller.topics.keys()
    for topic in allowed:
        try:
            _check_quota(context, strict=context.version >= m.CreateTopicsRequest.STRICT_QUOTA)
            created = _create(context, topic, names, validate_only=request.validate_only)
            _count(context, 0 if request.validate_only else len(created.partitions))
            results.append(_created(context, created))
        except Refused as refusal:
            results.append(_not_created(topic.name, refusal))
    return m.CreateTopicsResponse(throttle_time_ms=context.throttle_ms, topics=results)


def _check_records(context: RequestContext, topics: Sequence[m.CreatableTopic]) -> None:
    """Raise Refused if the topics have too many partitions, or if the valid topics need too many records.

    Kafka's controller writes one record for each topic, each setting and each partition.
    """
    partitions = check_new_partitions(context, (len(topic.assignments) or topic.num_partitions for topic in topics))
    if partitions + sum(1 + len(topic.configs) for topic in topics) <= MAX_NEW_PARTITIONS:
        return
    records = 0
    for topic in topics:
        try:
            records += 1 + len(topic.configs) + len(_create(context, topic, (), validate_only=True).partitions)
        except Refused:
            continue  # this topic gets an error of its own later
    if records > MAX_NEW_PARTITIONS:
        what = f"<= {MAX_NEW_PARTITIONS} in a request"
        raise Refused(ErrorCode.POLICY_VIOLATION, must_be("the sum of topics, settings and partitions", what, records))


def check_new_partitions(context: RequestContext, numbers: Iterable[int]) -> int:
    """Return the sum of these numbers of partitions; -1 is the broker's default. Raises Refused if it is too large."""
    default = context.broker.settings.number("num.partitions")
    total = sum(default if number == -1 else max(number, 0) for number in numbers)
    if total > MAX_NEW_PARTITIONS:
        raise Refused(ErrorCode.POLICY_VIOLATION, must_be("partitions", f"<= {MAX_NEW_PARTITIONS} in a request", total))
    return total


def _not_created(name: str, refusal: Refused) -> m.CreatableTopicResult:
    return m.CreatableTopicResult(name=name, error_code=refusal.code, error_message=str(refusal))


def _check_quota(context: RequestContext, *, strict: bool) -> None:
    """Raise Refused if the client has used up its controller_mutation_rate."""
    wait = context.broker.quotas.mutation_wait(context.principal, context.client_id)
    if wait and strict:
        context.throttle_ms = max(context.throttle_ms, wait)
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"controller_mutation_rate is used up for {wait} ms")


def _count(context: RequestContext, partitions: int) -> None:
    """Count partitions that were created or deleted."""
    if partitions:
        wait = context.broker.quotas.record_mutations(context.principal, context.client_id, partitions)
        context.throttle_ms = max(context.throttle_ms, wait)


def _allow(context: RequestContext, operation: AclOperation, name: str, *, by_cluster: bool = True) -> None:
    """Raise Refused unless the client may do this to the topic or, with ``by_cluster``, to the cluster."""
    if not (by_cluster and context.allows(operation)) and not context.allows_topic(operation, name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{operation.name} is denied on topic {name!r}")


def _create(
    context: RequestContext, request: m.CreatableTopic, beside: Collection[str], *, validate_only: bool
) -> Topic:
    assignments = [(assignment.partition_index, assignment.broker_ids) for assignment in request.assignments] or None
    nulls = [config.name for config in request.configs if config.value is None]
    return context.broker.controller.create_topic(
        request.name,
        request.num_partitions,
        request.replication_factor,
        assignments=assignments,
        configs={config.name: config.value for config in request.configs} | dict.fromkeys(nulls),
        validate_only=validate_only,
        beside=beside,
    )


def _created(context: RequestContext, topic: Topic) -> m.CreatableTopicResult:
    result = m.CreatableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE, error_message=None
    )
    if not context.allows_topic(AclOperation.DESCRIBE_CONFIGS, topic.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = len(topic.partitions)
    result.replication_factor = len(topic.partitions[0].replicas)
    if context.version >= m.CreateTopicsRequest.RETURNS_CONFIGS:
        layers = context.broker.controller.settings.layers(str(context.broker.node_id))
        in_force = [(name, topic_synonyms(name, topic.configs, layers)[0]) for name in TOPIC_KEYS]
        result.configs = [
            m.CreatableTopicConfigs(name=name, value=synonym.value, config_source=synonym.source)
            for name, synonym in in_force
        ]
    return result


@handles(m.DeleteTopicsRequest)
def delete_topics(context: RequestContext, request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse:
    require_time(request.timeout_ms)
    topics = request.topics or [m.DeleteTopicState(name=name) for name in request.topic_names]
    counts = Counter((topic.name, topic.topic_id) for topic in topics)
    by_both = _named_by_both(context, topics)
    names_of_both = set(by_both.values())
    responses = [_refused_by_both(topic_id, name) for topic_id, name in by_both.items()]
    for topic in topics:
        if topic.name in names_of_both or topic.topic_id in by_both:
            continue
        result = m.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)
        with refusal_in(result):
            _check_deletion(context, topic)
            count = counts.pop((topic.name, topic.topic_id), 0)
            if count == 0:
                continue
            if count > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"the request names the topic {count} times")
            _check_quota(context, strict=context.version >= m.DeleteTopicsRequest.STRICT_QUOTA)
            _delete(context, result)
        responses.append(result)
    return m.DeleteTopicsResponse(throttle_time_ms=context.throttle_ms, responses=responses)


def _named_by_both(context: RequestContext, topics: Iterable[m.DeleteTopicState]) -> dict[bytes, str]:
    """Return the topics that a request names by name and by id: names by id."""
    named = {topic.name for topic in topics}
    names = {
        topic.topic_id: context.broker.controller.names.get(topic.topic_id) for topic in topics if topic.name is None
    }
    return {topic_id: name for topic_id, name in names.items() if name is not None and name in named}


def _check_deletion(context: RequestContext, topic: m.DeleteTopicState) -> None:
    """Raise Refused if topics cannot be deleted, or if the request gives both name and id of a topic, or neither."""
    if not context.broker.settings.enabled("delete.topic.enable"):
        disabled = context.version >= m.DeleteTopicsRequest.DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        raise Refused(code, "topic deletion is disabled (delete.topic.enable)")
    if (topic.name is None) == (topic.topic_id == ZERO_UUID):
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic must have either a name or an id")


def _refused_by_both(topic_id: bytes, name: str) -> m.DeletableTopicResult:
    return m.DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"the request has the topic {name!r} by name and by id",
    )


def _delete(context: RequestContext, result: m.DeletableTopicResult) -> None:
    """Delete the topic that a result is about, and fill in the result. Raises Refused."""
    broker, name = context.broker, result.name
    if name is None:
        name = broker.controller.names.get(result.topic_id)
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "unknown topic id")
        if context.allows(AclOperation.DELETE) or context.allows_topic(AclOperation.DESCRIBE, name):
            result.name = name
    _allow(context, AclOperation.DELETE, name)
    topic = broker.controller.delete_topic(name)
    result.topic_id = topic.topic_id
    _count(context, len(topic.partitions))


@handles(m.CreatePartitionsRequest)
def create_partitions(context: RequestContext, request: m.CreatePartitionsRequest) -> m.CreatePartitionsResponse:
    require_time(request.timeout_ms)
    counts = Counter(topic.name for topic in request.topics)
    results = []
    total = 0
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        result = m.CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE)
        with refusal_in(result):
            if counts[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"the request names topic {name!r} {counts[name]} times")
            _check_quota(context, strict=context.version >= m.CreatePartitionsRequest.STRICT_QUOTA)
            new = _new_partitions(context, topic)
            is_too_many = total + new > MAX_NEW_PARTITIONS
            if not is_too_many or topic.assignments is not None:  # a wrong assignment is an error of its own
                _add_partitions(context, topic, new, validate_only=request.validate_only or is_too_many)
            total += new
            if is_too_many:
                limit = f"<= {MAX_NEW_PARTITIONS} in a request"
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, must_be("new partitions", limit, total))
        results.append(result)
    return m.CreatePartitionsResponse(throttle_time_ms=context.throttle_ms, results=results)


def _new_partitions(context: RequestContext, topic: m.CreatePartitionsTopic) -> int:
    """Return the number of partitions to add to a topic. Raises Refused."""
    _allow(context, AclOperation.ALTER, topic.name, by_cluster=False)
    return max(0, topic.count - len(context.broker.controller.require(topic.name).partitions))


def _add_partitions(context: RequestContext, topic: m.CreatePartitionsTopic, new: int, *, validate_only: bool) -> None:
    assignments = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    context.broker.controller.create_partitions(topic.name, topic.count, assignments, validate_only=validate_only)
    _count(context, 0 if validate_only else new)
