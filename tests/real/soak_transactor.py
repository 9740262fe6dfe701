"""A transactional writer of ``make soak-real``, a process of its own: it reports its transactions as lines of JSON.

Its arguments are servers, topic, partitions, transactional id, the number of its process, and group. It ends when its
standard input ends, and when its producer is fenced. What a process that is killed has not reported did not happen, but
for a commit that has begun.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys

from aiokafka_lite import KafkaError, OffsetAndMetadata, Producer, TopicPartition
from aiokafka_lite.types import GroupMetadata
from tests.end_to_end.member_process import end_of_input, say

TRANSACTION_TIMEOUT = 15.0
PAUSES = (0.0, 0.02, 0.3)
"""Seconds between two transactions."""
TRANSACTIONS = 1_000_000
"""More transactions than a process begins: the offsets that it commits follow the offsets of the process before."""


class UserAbort(Exception):
    """The exception with which the body of a transaction aborts it."""


class Transactor:
    """A producer, and the records of its transactions."""

    def __init__(self, producer: Producer, topic: str, partitions: int, process: int, group_id: str) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._process = process
        self._group = GroupMetadata(group_id)

    async def write(self, number: int) -> bool:
        """Write a transaction. Returns False if the producer cannot write any more."""
        say("begun")
        try:
            await self._write(number)
        except UserAbort:
            pass
        except KafkaError as error:
            say("failed", error=f"{error!r}")
        else:
            say("committed")
        transactions = self._producer.metrics().transactions
        return transactions is not None and transactions.state != "FATAL_ERROR"

    async def _write(self, number: int) -> None:
        async with self._producer.transaction() as transaction:
            for index in range(random.choice((1, 2, 20))):
                partition = random.randrange(self._partitions)
                value = f"{self._producer.config.transactional_id}-{self._process:04d}-{number:06d}-{index:02d}"
                say("added", value=value, partition=partition)
                if random.random() < 0.3:
                    await transaction.send(self._topic, value, partition=partition)
                else:
                    await transaction.put(self._topic, value, partition=partition)
            if random.random() < 0.5:
                offset = self._process * TRANSACTIONS + number
                say("offset", offset=offset)
                place = TopicPartition(self._topic, 0)
                await transaction.send_offsets({place: OffsetAndMetadata(offset)}, self._group)
            if random.random() < 0.2:
                raise UserAbort
            say("committing")


async def main(servers: str, topic: str, partitions: str, transactional_id: str, process: str, group_id: str) -> None:
    settings = {"transaction_timeout": TRANSACTION_TIMEOUT, "delivery_timeout": 30.0, "request_timeout": 5.0}
    ending = asyncio.create_task(end_of_input())
    async with Producer(servers, transactional_id=transactional_id, **settings) as producer:  # type: ignore[arg-type]
        transactor = Transactor(producer, topic, int(partitions), int(process), group_id)
        for number in itertools.count():
            if ending.done() or not await transactor.write(number):
                break
            await asyncio.sleep(random.choice(PAUSES))
    ending.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
