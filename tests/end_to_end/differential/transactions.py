"""Random requests of transactional producers, in the order of a producer or out of it.

A step waits until the previous transaction is complete, because its markers take another moment on each broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.protocol.schema import Request
from tests.end_to_end.differential.compared_brokers import Side
from tests.end_to_end.differential.scenario import Scenario, Step, named
from tests.waiting import DEADLINE

_DATE = 1_700_000_000_000


class Ids:
    """The transactional ids of a scenario: one that is in use, one that is not, and none."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.used = f"{scenario.prefix}txn"
        self.group = f"{scenario.prefix}txn-group"

    def any(self) -> str:
        return self.scenario.random.choice([self.used] * 8 + [f"{self.scenario.prefix}unknown", ""])

    def offset(self) -> int:
        """Choose an epoch: mostly the present one, sometimes the one before it or after it."""
        return self.scenario.random.choice([0] * 8 + [-1, 1])


def _until_complete(scenario: Scenario) -> Callable[[Side], Awaitable[None]]:
    """Wait until no markers of a transaction are being written."""
    ids = [f"{scenario.prefix}txn", f"{scenario.prefix}unknown"]
    request = m.DescribeTransactionsRequest(transactional_ids=ids)

    async def wait(side: Side) -> None:
        async with asyncio.timeout(DEADLINE):
            while any(transaction_state.transaction_state.startswith("Prepare")
                      for transaction_state in (await side.ask(request, 0)).transaction_states):  # fmt: skip
                await asyncio.sleep(0.01)

    return wait


def _step(scenario: Scenario, kind: type[Request[Any]], version: int, make: Callable[[Side], Any]) -> None:
    scenario.steps.append(Step(kind, version, make, before=_until_complete(scenario)))


def begin(scenario: Scenario, ids: Ids) -> None:
    """Begin as a new producer."""
    request = m.InitProducerIdRequest(transactional_id=ids.used, transaction_timeout_ms=60_000)
    _step(scenario, m.InitProducerIdRequest, 5, lambda side: request)


def initialize(scenario: Scenario, ids: Ids) -> None:
    """Send InitProducerId of a new producer, of one that continues, or of a wrong one."""
    random = scenario.random
    transactional_id = ids.any()
    timeout = random.choice([60_000] * 6 + [0, -1, 900_000, 900_001])
    continues, off = random.random() < 0.4, random.choice([0, 0, 0, -1, 1])
    version = random.choice(
        [candidate for candidate in scenario.versions[m.InitProducerIdRequest.api_key] if candidate <= 5]
    )

    def make(side: Side) -> m.InitProducerIdRequest:
        request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout)
        if continues and version >= 3:
            producer_id, epoch = side.producer
            request.producer_id, request.producer_epoch = producer_id, max(epoch + off, 0)
        return request

    _step(scenario, m.InitProducerIdRequest, version, make)


def _topics(scenario: Scenario) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for _ in range(scenario.random.choice([1, 1, 1, 2, 3])):
        name = scenario.random.choice([*scenario.partitions] * 5 + [f"{scenario.prefix}nowhere"])
        index = scenario.random.choice([*range(scenario.partitions.get(name, 1))] * 5 + [1000])
        if index not in topics.setdefault(name, []):
            topics[name].append(index)
    return topics


def add_partitions(scenario: Scenario, ids: Ids) -> None:
    transactional_id, off, chosen = ids.any(), ids.offset(), _topics(scenario)
    many, verify_only = scenario.random.random() < 0.3, scenario.random.random() < 0.5
    versions = [
        candidate for candidate in scenario.versions[m.AddPartitionsToTxnRequest.api_key] if (candidate >= 4) == many
    ]
    version = scenario.random.choice(versions)

    def make(side: Side) -> m.AddPartitionsToTxnRequest:
        producer_id, epoch = side.producer
        topics = [m.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in chosen.items()]
        if many:
            transaction = m.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch + off,
                verify_only=verify_only,
                topics=topics,
            )
            return m.AddPartitionsToTxnRequest(transactions=[transaction])
        return m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch + off,
            v3_and_below_topics=topics,
        )

    _step(scenario, m.AddPartitionsToTxnRequest, version, make)


def produce_transactional(scenario: Scenario, ids: Ids) -> None:
    """Produce a batch of the producer, mostly with its next sequence."""
    random = scenario.random
    topic = random.choice(list(scenario.partitions))
    index = random.randrange(scenario.partitions[topic])
    transactional_id = random.choice([ids.used] * 9 + [None])
    off, skipped = ids.offset(), random.choice([0] * 8 + [1])
    transactional = random.random() < 0.9
    if not transactional:
        # A partition with a newer epoch refuses the marker, and then Kafka does not end the transaction.
        off = min(off, 0)
    version = random.choice([candidate for candidate in scenario.versions[m.ProduceRequest.api_key] if candidate >= 9])

    def make(side: Side) -> m.ProduceRequest:
        producer_id, epoch = side.producer
        data = encode_batch(
            [(_DATE, b"k", b"v", ())],
            producer_id=producer_id,
            producer_epoch=max(epoch + off, 0),
            base_sequence=side.sequence(topic, index) + skipped,
            transactional=transactional,
        )
        part = m.ProduceRequestPartition(index=index, records=data)
        return m.ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[m.ProduceRequestTopic(**named(side, topic, version >= 13), partition_data=[part])],
        )

    _step(scenario, m.ProduceRequest, version, make)


def add_offsets(scenario: Scenario, ids: Ids) -> None:
    transactional_id, off = ids.any(), ids.offset()
    version = scenario.random.choice(list(scenario.versions[m.AddOffsetsToTxnRequest.api_key]))
    _step(
        scenario,
        m.AddOffsetsToTxnRequest,
        version,
        lambda side: m.AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=side.producer[0],
            producer_epoch=side.producer[1] + off,
            group_id=ids.group,
        ),
    )


def commit_offsets(scenario: Scenario, ids: Ids) -> None:
    random = scenario.random
    off, chosen = ids.offset(), _topics(scenario)
    group = random.choice([ids.group] * 8 + [""])
    generation = random.choice([-1] * 5 + [3])
    metadata = random.choice(["", "text", "x" * 4097])
    version = random.choice(list(scenario.versions[m.TxnOffsetCommitRequest.api_key]))

    def make(side: Side) -> m.TxnOffsetCommitRequest:
        topics = [
            m.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    m.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=7, committed_metadata=metadata
                    )
                    for index in indexes
                ],
            )
            for name, indexes in chosen.items()
        ]
        return m.TxnOffsetCommitRequest(
            transactional_id=ids.used,
            group_id=group,
            producer_id=side.producer[0],
            producer_epoch=max(side.producer[1] + off, 0),
            generation_id=generation if version >= 3 else -1,
            topics=topics,
        )

    _step(scenario, m.TxnOffsetCommitRequest, version, make)


def end(scenario: Scenario, ids: Ids) -> None:
    random = scenario.random
    transactional_id, off, committed = ids.any(), ids.offset(), random.random() < 0.6
    version = random.choice(list(scenario.versions[m.EndTxnRequest.api_key]))
    _step(
        scenario,
        m.EndTxnRequest,
        version,
        lambda side: m.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=side.producer[0],
            producer_epoch=side.producer[1] + off,
            committed=committed,
        ),
    )


def describe(scenario: Scenario, ids: Ids) -> None:
    producer_ids = sorted({ids.any(), ids.any()})
    _step(
        scenario,
        m.DescribeTransactionsRequest,
        0,
        lambda side: m.DescribeTransactionsRequest(transactional_ids=producer_ids),
    )


def list_all(scenario: Scenario, ids: Ids) -> None:
    random = scenario.random
    version = random.choice(list(scenario.versions[m.ListTransactionsRequest.api_key]))
    states = random.choice([[], ["Ongoing"], ["Empty", "CompleteCommit"], ["Nonsense"]])
    pattern = random.choice([None, f"{scenario.prefix}t.*", f"{scenario.prefix}t", "("]) if version >= 2 else None
    fields: dict[str, Any] = {} if pattern is None else {"transactional_id_pattern": pattern}
    if version >= 1:
        fields["duration_filter"] = random.choice([-1, 3_600_000])
    scenario.steps.append(
        Step(
            m.ListTransactionsRequest,
            version,
            lambda side: m.ListTransactionsRequest(state_filters=states, producer_id_filters=[], **fields),
            only_of_scenario=True,
            before=_until_complete(scenario),
        )
    )


def write_markers(scenario: Scenario, ids: Ids) -> None:
    """Write an administrator's marker for a partition without an open transaction, or for an unknown one."""
    chosen, off = _topics(scenario), scenario.random.choice([0, 0, -1])
    version = scenario.random.choice(list(scenario.versions[m.WriteTxnMarkersRequest.api_key]))

    def make(side: Side) -> m.WriteTxnMarkersRequest:
        marker = m.WritableTxnMarker(
            producer_id=side.producer[0],
            producer_epoch=max(side.producer[1] + off, 0),
            transaction_result=False,
            topics=[m.WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in chosen.items()],
            coordinator_epoch=0,
        )
        return m.WriteTxnMarkersRequest(markers=[marker])

    _step(scenario, m.WriteTxnMarkersRequest, version, make)


def fetch_committed(scenario: Scenario, ids: Ids) -> None:
    topic = scenario.random.choice(list(scenario.partitions))
    index = scenario.random.randrange(scenario.partitions[topic])
    isolation = scenario.random.choice([0, 1, 1])
    part = m.FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation,
        topics=[m.FetchRequestTopic(topic=topic, partitions=[part])],
    )
    _step(scenario, m.FetchRequest, 12, lambda side: request)


def committed_offsets(scenario: Scenario, ids: Ids) -> None:
    stable = scenario.random.random() < 0.5
    topics = [m.OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1]) for name in scenario.partitions]
    group = m.OffsetFetchRequestGroup(group_id=ids.group, topics=topics)
    request = m.OffsetFetchRequest(groups=[group], require_stable=stable)
    _step(scenario, m.OffsetFetchRequest, 9, lambda side: request)
