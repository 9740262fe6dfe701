"""Deleting records from the beginning of partitions, at their leaders."""

from __future__ import annotations

from collections.abc import Mapping

from .. import arguments
from ..errors import KafkaError
from ..protocol.messages import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ..types import TopicPartition
from .answers import answer_of
from .calls import Calls
from .peer import Peer
from .results import Results

HIGH_WATERMARK = -1


class Records:
    """The calls of ``admin.records``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def delete(
        self, before: Mapping[TopicPartition, int | None], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset; None deletes all up to the high watermark.

        The result is the new first offset of the partition. A compacted topic refuses with POLICY_VIOLATION.
        """
        offsets = {
            partition: HIGH_WATERMARK if offset is None else arguments.offset(offset)
            for partition, offset in arguments.by_partition("before", before).items()
        }

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=name,
                        partitions=[
                            DeleteRecordsPartition(partition_index=number, offset=offsets[TopicPartition(name, number)])
                            for number in numbers
                        ],
                    )
                    for name, numbers in arguments.by_topic(items).items()
                ],
                timeout_ms=peer.timeout_ms,
            )
            answers: dict[TopicPartition, int | KafkaError] = {}
            for topic in (await peer.send(request)).topics:
                for partition in topic.partitions:
                    item = TopicPartition(topic.name, partition.partition_index)
                    answers[item] = answer_of(
                        partition.error_code, f"deleting records of {item}", partition.low_watermark
                    )
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("deleting records", offsets, self._calls.leaders, ask, deadline)
