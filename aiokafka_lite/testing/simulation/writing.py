"""Writes the workload into the topics of a simulation, each message once, whatever happens to the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random

from ...embedded import EmbeddedCluster
from ...embedded.direct_records import Row, produce_batch
from ...embedded.metadata.controller import Refused
from ...embedded.node import BrokerNode
from ...embedded.replicas.partition import NotLeader
from ...errors import ConfigurationError
from ...protocol.records import partition_for_key
from .history import History, Written
from .workload import Message

BURSTS = (1, 1, 2, 5, 10)
"""Messages that are written at once."""
BATCH_SIZE = 100_000
"""Characters above which messages are written in another batch; brokers refuse batches above a megabyte."""
RETRY_PAUSE = 0.2
"""Seconds after a failed write."""
WRITING_SHARE = 0.9
"""The share of the time of faults in which messages are written."""


class WorkloadWriter:
    """Writes messages without a client, and notes in the history where and when each was written."""

    def __init__(self, cluster: EmbeddedCluster, history: History, random: Random) -> None:
        self._cluster = cluster
        self._history = history
        self._random = random

    async def write(self, messages: Sequence[Message], seconds: float) -> None:
        """Write messages in bursts, over most of the ``seconds`` in which faults happen."""
        bursts = list(self._bursts(messages))
        longest_pause = 2 * WRITING_SHARE * seconds / len(bursts)
        for number, burst in enumerate(bursts):
            if number > 0:  # the first messages are there before the service has started
                await asyncio.sleep(self._random.uniform(0.0, longest_pause))
            await asyncio.gather(*(self._write(batch, *place) for place, batch in self._batches(burst)))

    def _bursts(self, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
        """Yield the messages in parts, so that a service reads one record at a time now, and many at another time."""
        first = 0
        while first < len(messages):
            size = self._random.choice(BURSTS)
            yield messages[first : first + size]
            first += size

    def _batches(self, burst: Sequence[Message]) -> Iterator[tuple[tuple[str, int], list[Message]]]:
        """Yield the messages of each partition, in batches as a producer makes them."""
        batches: dict[tuple[str, int], list[Message]] = {}
        for message in burst:
            count = len(self._cluster.controller.require(message.topic).partitions)
            key = message.key
            number = self._random.randrange(count) if key is None else partition_for_key(key.encode(), count)
            batch = batches.setdefault((message.topic, number), [])
            if batch and sum(len(other.value) for other in batch) + len(message.value) > BATCH_SIZE:
                yield (message.topic, number), list(batch)
                batch.clear()
            batch.append(message)
        yield from ((place, batch) for place, batch in batches.items() if batch)

    async def _write(self, batch: Sequence[Message], topic: str, partition: int) -> None:
        first: int | None = None
        while first is None:
            try:
                leader = self._leader(topic, partition)
                now = leader.now_ms()
                rows: list[Row] = [
                    (now, None if message.key is None else message.key.encode(), message.value.encode(), ())
                    for message in batch
                ]
                first = await produce_batch(leader, topic, partition, rows)
            except (Refused, KeyError) as error:  # no leader, or it has refused the batch
                if isinstance(error, Refused) and not error.code.retriable:
                    what = f"the message {batch[0].identity!r:.80} cannot be written to {topic}-{partition}"
                    raise ConfigurationError(f"{what}: {error}") from error
                first = await self._offset_of(batch[0], partition)
        at = asyncio.get_running_loop().time()
        for offset, message in enumerate(batch, first):
            self._history.written[message.identity] = Written(message, at, partition, offset)

    def _leader(self, topic: str, partition: int) -> BrokerNode:
        """Return the leader. Raises Refused and KeyError if there is none."""
        return self._cluster.nodes[self._cluster.leader_of(topic, partition)]

    async def _offset_of(self, message: Message, partition: int) -> int | None:
        """Return where a message is after a failed write; None if it is nowhere, and has to be written again.

        A broker may append a batch and refuse it, because replicas are missing. The batch may still be committed.
        """
        place = message.topic, partition
        while True:
            await asyncio.sleep(RETRY_PAUSE)
            try:
                log = self._leader(*place).replica_manager.require(place).log
                if log.high_watermark < log.end_offset:
                    continue
                records = self._cluster.records(*place)
            except (Refused, NotLeader, KeyError):  # no leader
                continue
            value = message.value.encode()
            others = {  # another message may have the same value
                written.offset for written in self._history.written.values()
                if (written.message.topic, written.partition) == place
            }  # fmt: skip
            offsets = [record.offset for record in records if record.value == value and record.offset not in others]
            return offsets[0] if offsets else None
