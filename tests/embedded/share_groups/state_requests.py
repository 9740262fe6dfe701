"""Requests of brokers about the state of a share partition, as raw messages, and short forms of the responses."""

from __future__ import annotations

from typing import Any

from aiokafka_lite.protocol import messages as m

StateBatch = tuple[int, int, int, int]
"""First offset, last offset, delivery state, delivery count."""


class StateRequests:
    """Requests about one partition of a topic in one group."""

    def __init__(self, group: str, topic_id: bytes, partition: int = 0) -> None:
        self.group = group
        self.topic_id = topic_id
        self.partition = partition

    def _request(self, name: str, **fields: Any) -> Any:
        """Make the request of the API ``name``; its structs have names that begin with the request's."""
        partition = getattr(m, f"{name}RequestPartition")(partition=self.partition, **fields)
        topic = getattr(m, f"{name}RequestTopic")(topic_id=self.topic_id, partitions=[partition])
        return getattr(m, f"{name}Request")(group_id=self.group, topics=[topic])

    def initialize(self, state_epoch: int, start_offset: int) -> Any:
        return self._request("InitializeShareGroupState", state_epoch=state_epoch, start_offset=start_offset)

    def read(self, leader_epoch: int) -> Any:
        return self._request("ReadShareGroupState", leader_epoch=leader_epoch)

    def summary(self) -> Any:
        return self._request("ReadShareGroupStateSummary", leader_epoch=-1)

    def delete(self) -> Any:
        return self._request("DeleteShareGroupState")

    def write(self, epochs: tuple[int, int], start_offset: int, *batches: StateBatch, complete: int = 0) -> Any:
        """Return a write. ``epochs`` are those of the state and of the leader."""
        return self._request(
            "WriteShareGroupState",
            state_epoch=epochs[0],
            leader_epoch=epochs[1],
            start_offset=start_offset,
            delivery_complete_count=complete,
            state_batches=[
                m.WriteShareGroupStateRequestBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in batches
            ],
        )


def outcome(response: Any) -> Any:
    """Return the error of the only share partition; else what the response says about it, without its epochs."""
    if not response.results:
        return None
    (topic,) = response.results
    (partition,) = topic.partitions
    if partition.error_code:
        return partition.error_code
    if hasattr(partition, "state_batches"):
        batches = [
            (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in partition.state_batches
        ]
        return partition.start_offset, batches
    if hasattr(partition, "delivery_complete_count"):
        return partition.start_offset, partition.delivery_complete_count
    return 0
