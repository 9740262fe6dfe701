"""A worker that transforms records exactly once, and kills itself at a step of its second transaction.

Its arguments are servers, input topic, output topic, group, transactional id, and the step: ``none``, or a name and a
moment, as in ``EndTxn:sent``. The steps of the loop's body are ``body`` with a moment. Those of InitProducerId are in
the worker's start. The worker reports the first and the last offset of each batch, and ends when its standard input
ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from aiokafka_lite import Consumer, ExactlyOnce, Producer
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from tests.end_to_end.member_process import SESSION_TIMEOUT, end_of_input, say

P = TypeVar("P", bound=asyncio.BaseProtocol)

REQUESTS = {
    "InitProducerId": InitProducerIdRequest.api_key,
    "AddPartitionsToTxn": AddPartitionsToTxnRequest.api_key,
    "Produce": ProduceRequest.api_key,
    "AddOffsetsToTxn": AddOffsetsToTxnRequest.api_key,
    "TxnOffsetCommit": TxnOffsetCommitRequest.api_key,
    "EndTxn": EndTxnRequest.api_key,
}
MOMENTS = ("unsent", "sent", "answered")
"""The worker dies before it sends the request, after it has sent the request, or when the answer has come and the
client has not seen it."""
BODY = ("begun", "written", "processed")
"""The worker dies before it sends the first record of the batch, after this record is written, or after all are
sent."""

BATCH = 10
TRANSACTION_TIMEOUT = 600.0
"""Seconds. Longer than the steps of a worker take on a busy machine."""


def die_if(is_the_step: bool) -> None:
    if is_the_step:
        os.kill(os.getpid(), signal.SIGKILL)


class Tap:
    """Forwards the connections of the producer, and reads each of their requests and answers."""

    def __init__(self, step: str) -> None:
        name, _, self._moment = step.partition(":")
        self._api_key = REQUESTS.get(name)
        self.is_armed = name == "InitProducerId"

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[asyncio.BaseTransport, P]:
        server = await asyncio.start_server(partial(self._serve, host, port), "127.0.0.1", 0)
        return await TcpConnector().connect("127.0.0.1", server.sockets[0].getsockname()[1], protocol_factory)

    async def _serve(self, host: str, port: int, requests: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        answers, onward = await asyncio.open_connection(host, port)
        awaited: list[bytes] = []
        """The correlation ids of the requests whose answers are the step."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._forward_requests(requests, onward, awaited))
                tasks.create_task(self._forward_answers(answers, back, awaited))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            onward.close()
            back.close()

    async def _forward_requests(
        self, requests: asyncio.StreamReader, onward: asyncio.StreamWriter, awaited: list[bytes]
    ) -> None:
        while True:
            frame = await _frame(requests)
            is_the_step = self.is_armed and int.from_bytes(frame[4:6]) == self._api_key
            die_if(is_the_step and self._moment == "unsent")
            if is_the_step and self._moment == "answered":
                awaited.append(frame[8:12])
            onward.write(frame)
            await onward.drain()
            die_if(is_the_step and self._moment == "sent")

    async def _forward_answers(
        self, answers: asyncio.StreamReader, back: asyncio.StreamWriter, awaited: list[bytes]
    ) -> None:
        while True:
            frame = await _frame(answers)
            die_if(frame[4:8] in awaited)
            back.write(frame)
            await back.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next request or answer, with its length."""
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length))


async def transform(session: ExactlyOnce, producer: Producer, target: str, step: str, tap: Tap) -> None:
    batches = 0
    async for records in session:
        say("batch", first=records[0].offset, last=records[-1].offset)
        batches += 1
        tap.is_armed = batches == 2
        body_step = step if batches == 2 else ""
        die_if(body_step == "body:begun")
        await producer.send(target, records[0].value, key=records[0].key)
        die_if(body_step == "body:written")
        for record in records[1:]:
            producer.send_nowait(target, record.value, key=record.key)
        die_if(body_step == "body:processed")


async def main(servers: str, source: str, target: str, group: str, transactional_id: str, step: str) -> None:
    tap = Tap(step)
    async with (
        # A static member: the next worker has the partition at once.
        Consumer(
            servers,
            topics=[source],
            group_id=group,
            auto_commit=False,
            group_instance_id="worker",
            session_timeout=SESSION_TIMEOUT,
        ) as consumer,
        Producer(
            servers, transactional_id=transactional_id, transaction_timeout=TRANSACTION_TIMEOUT, connector=tap
        ) as producer,
    ):
        session = ExactlyOnce(consumer, producer, max_records=BATCH)
        working = asyncio.create_task(transform(session, producer, target, step, tap))
        ending = asyncio.create_task(end_of_input())
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        session.stop()
        await working
    ending.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
