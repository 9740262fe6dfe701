"""Records that a test writes to an embedded cluster, or reads from it, without a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..arguments import mapping, must_be, text
from ..errors import ErrorCode
from ..protocol.records import encode_batch, partition_for_key
from ..protocol.records.produced import single_batch
from ..types import Header, Record
from .log.log import MAX_DECOMPRESSED_SIZE
from .metadata.controller import Refused
from .node import BrokerNode
from .replicas.manager import ALL_ACKS, ProducedBatch
from .replicas.partition import Partition

Row: TypeAlias = tuple[int, bytes | None, bytes | None, tuple[Header, ...]]
"""A record to write: its timestamp in milliseconds, key, value and headers."""
TIMEOUT = 10.0
"""Seconds that a write waits for the in-sync replicas."""


async def produce(
    leader: BrokerNode,
    topic: str,
    partition: int,
    value: bytes | None,
    key: bytes | None,
    headers: tuple[Header, ...],
) -> int:
    """Append one record with acks=all. Returns its offset. Raises ``Refused`` with the code of the broker."""
    return await produce_batch(leader, topic, partition, [(leader.now_ms(), key, value, headers)])


async def produce_batch(leader: BrokerNode, topic: str, partition: int, rows: Sequence[Row]) -> int:
    """Append a batch of records with acks=all. Returns its first offset. Raises ``Refused`` like ``produce``."""
    now = leader.now_ms()
    data = encode_batch(rows)
    entries = {(topic, partition): ProducedBatch(data, single_batch(data))}
    answer = (await leader.replica_manager.append_records(TIMEOUT, ALL_ACKS, entries, now))[topic, partition]
    if answer.error is not ErrorCode.NONE:
        raise Refused(answer.error, answer.message or answer.error.description)
    return answer.base_offset


def partition_for(key: bytes | None, count: int) -> int:
    """Return the partition that Kafka's clients choose for a key; 0 if there is no key."""
    return 0 if key is None else partition_for_key(key, count)


def records_of(partition: Partition) -> list[Record[bytes, bytes]]:
    """Return the committed records of a leader's log: below the last stable offset, without aborted and control
    records.
    """
    records: list[Record[bytes, bytes]] = []
    topic, number = partition.key
    end = partition.last_stable_offset
    for stored in partition.log.batches():
        if stored.base_offset >= end:
            break
        batch = stored.view()
        if batch.is_control or partition.producers.transactions.is_aborted(batch):
            continue
        columns = batch.columns(MAX_DECOMPRESSED_SIZE)
        rows = zip(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers, strict=True)
        records += (
            Record(topic, number, offset, timestamp, batch.timestamp_type, key, value, headers, stored.leader_epoch)
            for offset, timestamp, key, value, headers in rows
            if offset >= partition.log.start_offset
        )
    return records


def headers_of(headers: object) -> tuple[Header, ...]:
    """Convert a mapping of headers. Raises TypeError for another type, and for a value that is a str."""
    values = mapping("headers", {} if headers is None else headers, "names")
    for name, value in values.items():
        text("the name of a header", name)
        if value is not None and not isinstance(value, bytes):
            raise TypeError(must_be(f"the value of header {name!r}", "bytes or None", value))
    return tuple(Header(name, value) for name, value in values.items())


def encoded(name: str, value: object) -> bytes | None:
    """Encode a key or a value. Raises TypeError for other types than bytes, str and None."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(must_be(name, "bytes, a str or None", value))
