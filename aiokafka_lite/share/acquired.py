"""From the records of a ShareFetch answer to those that the member has acquired. Pure.

Brokers send whole batches, and a batch may also have records that another member has. Acquired offsets may have no
record: compaction removed it, or it is a control record. These gaps are acknowledged as such.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import repeat

from ..consumer.fetched import decode
from ..errors import CorruptRecord, ProtocolError
from ..protocol.codec import Buffer
from ..protocol.messages import ShareAcquiredRecords
from ..protocol.records import RecordBatch
from ..protocol.records.batch import split_batches
from ..types import ShareRecord, TopicPartition
from .acknowledgements import AcknowledgeType

# ShareRecord(*fields) runs Python code for each record; this creates the same object in C.
_make_record = partial(tuple.__new__, ShareRecord)

MAX_ACQUIRED = 1_000_000
"""Offsets of one partition in one answer. Brokers lock at most 10,000 records of a partition, in whole batches."""


class AcquiredRecords:
    """The acquired records of one partition, in the order of their offsets, and what is acknowledged at once.

    ``settled`` has offsets without a record (GAP), those of a damaged batch (REJECT), whose error is ``failure``, and
    those behind the last whole batch (RELEASE): the answer is incomplete, and a later fetch begins with them.
    """

    __slots__ = ("failure", "records", "settled")

    def __init__(
        self,
        partition: TopicPartition,
        data: Buffer,
        acquired: Sequence[ShareAcquiredRecords],
        *,
        check_crc: bool,
        max_size: int,
    ) -> None:
        self.records: list[ShareRecord] = []
        self.settled: dict[int, AcknowledgeType] = {}
        self.failure: CorruptRecord | None = None
        ranges = sorted(acquired, key=lambda each: each.first_offset)
        if sum(max(0, each.last_offset - each.first_offset + 1) for each in ranges) > MAX_ACQUIRED:
            raise ProtocolError(f"{partition}: a broker claims to have acquired more than {MAX_ACQUIRED:,} records")
        for each in ranges:
            self.settled.update(dict.fromkeys(range(each.first_offset, each.last_offset + 1), AcknowledgeType.GAP))
        try:
            batches = split_batches(data)
        except CorruptRecord as error:
            self.settled = dict.fromkeys(self.settled, AcknowledgeType.REJECT)
            self.failure = error
            return
        for batch in batches:
            wanted = [
                each
                for each in ranges
                if each.first_offset <= batch.last_offset and each.last_offset >= batch.base_offset
            ]
            if wanted:
                try:
                    self._read(partition, batch, wanted, check_crc, max_size)
                except CorruptRecord as error:
                    self._reject(batch, wanted, error)
        end = batches[-1].last_offset if batches else -1
        self.settled.update([(offset, AcknowledgeType.RELEASE) for offset in self.settled if offset > end])

    def _read(
        self,
        partition: TopicPartition,
        batch: RecordBatch,
        wanted: Sequence[ShareAcquiredRecords],
        check_crc: bool,
        max_size: int,
    ) -> None:
        found: list[ShareRecord] = []
        for chunk in decode(partition, batch, None, wanted[0].first_offset, check_crc=check_crc, max_size=max_size):
            for each in wanted:
                some = slice(
                    max(chunk.index, bisect_left(chunk.offsets, each.first_offset)),
                    bisect_left(chunk.offsets, each.last_offset + 1),
                )
                found += map(
                    _make_record,
                    zip(
                        repeat(chunk.topic),
                        repeat(chunk.partition),
                        chunk.offsets[some],
                        chunk.timestamps[some],
                        repeat(chunk.timestamp_type),
                        chunk.keys[some],
                        chunk.values[some],
                        chunk.headers[some],
                        repeat(chunk.leader_epoch),
                        repeat(each.delivery_count),
                    ),
                )
        for record in found:
            self.settled.pop(record[2], None)
        self.records += found

    def _reject(self, batch: RecordBatch, wanted: Sequence[ShareAcquiredRecords], error: CorruptRecord) -> None:
        self.failure = error
        for each in wanted:
            first, last = max(each.first_offset, batch.base_offset), min(each.last_offset, batch.last_offset)
            self.settled.update(dict.fromkeys(range(first, last + 1), AcknowledgeType.REJECT))
