"""Transactions whose calls are cancelled: all or nothing, and the producer stays usable."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import OffsetAndMetadata
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.transactions.verification import CONCURRENT_PAUSE
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import EndTxnRequest
from tests.embedded.producer.transaction_requests import (
    GROUP,
    HERE,
    check_three,
    committed_values,
    generation_2,
    metrics_of,
    transactional,
    write,
)

TURNS_WITHOUT_PAUSE = 100
"""More turns of the event loop than a call takes. Virtual time stands still during them. Then it moves once, because a
call may have to pause; that skips no turn in which the call could continue."""


async def cancelled_at(cluster: EmbeddedCluster, call: str, turns: int) -> bool:
    """Cancel a call after some turns of the event loop, and write another transaction. Whether the call had ended."""
    async with transactional(cluster) as producer:

        async def block() -> None:
            await write(producer, 1)

        async def explicit() -> None:
            await producer.begin_transaction()
            await producer.send("t", b"1", partition=0)
            await producer.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, GROUP)
            await (producer.commit_transaction() if call == "commit" else producer.abort_transaction())

        task = asyncio.create_task(block() if call == "block" else explicit())
        for turn in range(1, turns + 1):
            await asyncio.sleep(0 if turn % TURNS_WITHOUT_PAUSE else CONCURRENT_PAUSE)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert result is None or isinstance(result, asyncio.CancelledError), repr(result)
        if metrics_of(producer).state in ("IN_TRANSACTION", "ABORTABLE_ERROR"):
            await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"2", partition=0)
        ended = metrics_of(producer)
        assert ended.state == "READY"
        assert ended.committed + ended.aborted in (1, 2)
        return result is None


@pytest.mark.thorough
@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("call", ["block", "commit", "abort"])
async def test_a_call_may_be_cancelled_at_every_turn(cluster: EmbeddedCluster, call: str) -> None:
    committed: list[int] = []
    for turns in range(0, 2000, 3):
        ended = await cancelled_at(cluster, call, turns)
        values = (await committed_values(cluster))[len(committed) :]
        # Whole or not at all, and never behind the next transaction.
        assert values in ([2], [1, 2]), turns
        if ended and call != "abort":
            assert values == [1, 2]
        committed += values
        if ended:
            break
    else:
        pytest.fail("the call takes more turns than this test tries")
    assert turns >= 50, "the call is cancelled in the middle, too"


@generation_2
async def test_a_second_cancellation_leaves_the_abort_to_the_producer(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    cluster.on(EndTxnRequest, times=1).delay(5.0)

    async def body() -> None:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"1", partition=0)
            await asyncio.sleep(100)

    task = asyncio.create_task(body())
    for _ in range(2):
        await asyncio.sleep(0.5)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await write(producer, 2)
    await check_three(cluster, [2])
