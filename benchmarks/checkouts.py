"""Compare this checkout with another one: ``python -m benchmarks.checkouts OTHER [BOOTSTRAP]``, for example before and
after a change. OTHER is the folder of the other checkout.

Each job runs in a process of its own, in turns over the rounds, against one broker: the given one, or an embedded one
of this checkout in a process of its own. Medians are printed, wall and CPU of the client's process, with ratios.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15

JOB = """
import asyncio, json, sys, time, logging
logging.disable(50)
from aiokafka_lite import Consumer, Producer
from aiokafka_lite.errors import BufferFull
servers, job, topic = sys.argv[1:]
VALUE, KEYS = b"x" * 100, [b"key-%d" % n for n in range(1000)]

async def bulk(producer, count):
    for number in range(count):
        while True:
            try:
                producer.send_nowait(topic, VALUE, key=KEYS[number % 1000])
                break
            except BufferFull:
                await producer.drain()
    await producer.flush()

async def produce(count, run):
    async with Producer(servers, batch_size=65536) as producer:
        await producer.send(topic, VALUE)
        await run(producer, max(1, count // 10))
        return await timed(count, run(producer, count))

async def lone(producer, count):
    for _ in range(count):
        await producer.send(topic, VALUE)

async def tasks(producer, count):
    async def one(share):
        for _ in range(share):
            await producer.send(topic, VALUE, key=b"k")
    await asyncio.gather(*(one(count // 1000) for _ in range(1000)))

async def many(producer, count):
    await producer.send_many(topic, [VALUE] * count)

async def timed(count, work):
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count

async def consume(read, count=200_000):
    async with Consumer(servers, topics=["bench-read"]) as consumer:
        await anext(consumer)
        return await timed(count, read(consumer, count))

async def iterate(consumer, count):
    async for _ in consumer:
        count -= 1
        if count <= 0:
            return

async def poll(consumer, count):
    while count > 0:
        count -= len(await consumer.poll(max_records=500, timeout=1.0))

async def batches(consumer, count):
    async for batch in consumer.batches(max_records=10_000):
        count -= len(batch)
        if count <= 0:
            return

JOBS = {
    "one awaited send at a time": lambda: produce(1_000, lone),
    "1,000 tasks that await send": lambda: produce(30_000, tasks),
    "send_nowait with key, flush": lambda: produce(50_000, bulk),
    "send_many": lambda: produce(50_000, many),
    "async for": lambda: consume(iterate),
    "poll(500)": lambda: consume(poll),
    "batches()": lambda: consume(batches),
}
if job == "fill":
    topic = "bench-read"
    async def fill():
        async with Producer(servers) as producer:
            await many(producer, 250_000)
    asyncio.run(fill())
elif job == "list":
    print(json.dumps(list(JOBS)))
else:
    print(json.dumps(asyncio.run(JOBS[job]())))
"""

BROKER = """
import asyncio, sys, logging
logging.disable(50)
from aiokafka_lite import EmbeddedCluster
async def main():
    async with EmbeddedCluster(brokers=1) as cluster:
        await cluster.create_topic("bench-write", 3)
        await cluster.create_topic("bench-read", 3)
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def run(checkout: Path, *arguments: str) -> str:
    """Return what a job printed, run with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", JOB, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {arguments}: {done.stderr}")
    return done.stdout


def main() -> None:
    other = Path(sys.argv[1]).resolve()
    broker = None
    if len(sys.argv) > 2:
        servers = sys.argv[2]
    else:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        broker = subprocess.Popen([sys.executable, "-c", BROKER], stdout=subprocess.PIPE, text=True, env=environment)
        assert broker.stdout is not None
        servers = broker.stdout.readline().strip()
    try:
        run(ROOT, servers, "fill", "bench-read")
        print("| per record | other | this | wall ratio | CPU other | CPU this | CPU ratio |")
        print("|---|---|---|---|---|---|---|")
        for job in json.loads(run(ROOT, servers, "list", "-")):
            rounds: dict[Path, list[tuple[float, float]]] = {other: [], ROOT: []}
            for _ in range(ROUNDS):
                for checkout, results in rounds.items():
                    results.append(json.loads(run(checkout, servers, job, "bench-write")))
            wall = {checkout: median(result[0] for result in results) * 1e6 for checkout, results in rounds.items()}
            cpu = {checkout: median(result[1] for result in results) * 1e6 for checkout, results in rounds.items()}
            print(
                f"| {job} | {wall[other]:.2f} µs | {wall[ROOT]:.2f} µs | {wall[ROOT] / wall[other]:.2f} "
                f"| {cpu[other]:.2f} µs | {cpu[ROOT]:.2f} µs | {cpu[ROOT] / cpu[other]:.2f} |",
                flush=True,
            )
    finally:
        if broker is not None:
            broker.kill()


if __name__ == "__main__":
    main()
