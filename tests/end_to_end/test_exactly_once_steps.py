"""A worker is killed at each step of a transaction in turn, and each record is once in the output.

``dying_worker`` knows the steps and kills itself. The next worker has the same transactional id and is the same static
member of the group, so that it continues at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Producer
from tests.end_to_end import dying_worker
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.dying_worker import BATCH, BODY, MOMENTS
from tests.end_to_end.test_transactions import producer_of, values_of
from tests.real.releases import since
from tests.waiting import DEADLINE

pytestmark = [
    pytest.mark.long,
    since("2.5", "coordinators of groups fence former members since Kafka 2.5 (KIP-447)"),
]

ROOT = Path(__file__).parents[2]
REQUESTS = {
    1: ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
    2: ("Produce", "TxnOffsetCommit", "EndTxn"),
}
"""The requests of a transaction, by the generation of the protocol."""


def steps(generation: int) -> list[str]:
    """Return all steps. A worker that dies while it starts follows one that has left an open transaction."""
    starts = [f"InitProducerId:{moment}" for moment in MOMENTS]
    after_written = [[f"body:{moment}", *(starts if moment == "written" else ())] for moment in BODY]
    requests = [f"{name}:{moment}" for name in REQUESTS[generation] for moment in MOMENTS]
    return [*itertools.chain(*after_written), *requests]


async def generation_of(kafka: Kafka, topic: str) -> int:
    async with producer_of(kafka) as producer:
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"value")
        generation = producer.metrics().transactions.generation
        assert generation is not None
        return generation


@asynccontextmanager
async def worker(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", dying_worker.__name__, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def batches_of(process: asyncio.subprocess.Process, last: int | None = None) -> list[dict[str, Any]]:
    """Return the batches that a worker reports until it ends, or until it has reported this offset."""
    assert process.stdout is not None
    steps: list[dict[str, Any]] = []
    async with asyncio.timeout(DEADLINE):
        while (last is None or not steps or steps[-1]["last"] < last) and (line := await process.stdout.readline()):
            steps.append(json.loads(line))
    return steps


async def test_each_record_is_written_once_when_workers_die_at_each_step(
    kafka: Kafka, record_property: Callable[[str, object], None]
) -> None:
    source, target = await kafka.create_topic(partitions=1), await kafka.create_topic(partitions=1)
    all_steps = steps(await generation_of(kafka, await kafka.create_topic(partitions=1)))
    values = [str(number) for number in range(BATCH * (2 * len(all_steps) + 4))]
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send_many(source, values)
    name = uuid.uuid4().hex[:8]
    arguments = (kafka.bootstrap_servers, source, target, f"group-{name}", f"worker-{name}")

    dead, steps_left = "", -1
    """The step at which the last worker with batches died, and the first offset of its open batch."""
    for step in (*all_steps, "none"):
        async with worker(*arguments, step) as process:
            batches = await batches_of(process, len(values) - 1 if step == "none" else None)
            if step == "none":
                assert process.stdin is not None
                process.stdin.close()
            async with asyncio.timeout(DEADLINE):
                assert await process.wait() == (0 if step == "none" else -signal.SIGKILL), step
        assert len(batches) == 2 or step == "none" or step.startswith("InitProducerId"), step
        if batches:
            if dead == "EndTxn:answered":
                assert batches[0]["first"] > steps_left, "the batch was committed, and came again"
            elif dead not in ("", "EndTxn:sent"):
                why = f"the batch at {steps_left} was not committed at {dead}, and did not come again: {batches}"
                assert batches[0]["first"] == steps_left, why
            dead, steps_left = step, batches[-1]["first"]
    record_property("steps", ", ".join(all_steps))
    counts = Counter(value.decode() for value in await values_of(kafka, target))
    assert counts == Counter(values)
