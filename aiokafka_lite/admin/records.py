"""Deleting records from the start of partitions. Each partition's leader is asked."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import KafkaError
from ..protocol.messages import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ..types import TopicPartition
from . import arguments
from .calls import Calls, Peer, answer_of
from .results import Results

HIGH_WATERMARK = -1


class Records:
    """What ``admin.records`` does."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def delete(
        self, before: Mapping[TopicPartition, int | None], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset, or all that are replicated where it is None.

        The result is where the partition begins now. A topic that is only compacted refuses (POLICY_VIOLATION).
        """
        asked = {
            each: HIGH_WATERMARK if offset is None else arguments.whole("offset", offset, 0, arguments.INT64_MAX)
            for each, offset in arguments.by_partition(before).items()
        }

        async def ask(peer: Peer, items: list[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=name,
                        partitions=[
                            DeleteRecordsPartition(partition_index=number, offset=asked[TopicPartition(name, number)])
                            for number in numbers
                        ],
                    )
                    for name, numbers in arguments.by_topic(items).items()
                ],
                timeout_ms=peer.timeout_ms,
            )
            answers: dict[TopicPartition, int | KafkaError] = {}
            for topic in (await peer.send(request)).topics:
                for each in topic.partitions:
                    item = TopicPartition(topic.name, each.partition_index)
                    answers[item] = answer_of(each.error_code, f"deleting records of {item}", each.low_watermark)
            return answers

        deadline = self._calls.deadline(timeout)
        return await self._calls.settle("deleting records", asked, self._calls.leaders, ask, deadline)
