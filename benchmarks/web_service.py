"""A web service that sends a record in each request, as a candidate of ``make bench``.

Starlette on uvicorn, with uvloop and httptools, in one process; its CPU is measured. Another process makes the load:
each of its connections has one request in flight, and each request awaits the acknowledgement of a record. The first
candidate awaits a future that is ready in the next iteration of the loop: what the service costs without Kafka.

``python -m benchmarks.web_service PORT CONNECTIONS COUNT`` is the load.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from benchmarks.job import Job, Result, aiokafka_producer, our_producer
from benchmarks.stopwatch import Stopwatch

BODY = b"sent"
WARM_UP = 0.2
"""The part of the requests that is not measured, and comes first."""

Send = Callable[[bytes], Awaitable[object]]


@asynccontextmanager
async def bare_future(job: Job) -> AsyncIterator[Send]:
    loop = asyncio.get_running_loop()

    def send(value: bytes) -> Awaitable[object]:
        future: asyncio.Future[None] = loop.create_future()
        loop.call_soon(future.set_result, None)
        return future

    yield send


@asynccontextmanager
async def ours(job: Job) -> AsyncIterator[Send]:
    async with our_producer(job) as producer:
        yield lambda value: producer.send(job.topic, value)


@asynccontextmanager
async def aiokafka(job: Job) -> AsyncIterator[Send]:
    producer = aiokafka_producer(job)
    await producer.start()
    try:
        yield lambda value: producer.send_and_wait(job.topic, value)
    finally:
        await producer.stop()


def served(sender: Callable[[Job], AbstractAsyncContextManager[Send]]) -> Callable[[Job], Awaitable[Result]]:
    async def run(job: Job) -> Result:
        import uvicorn
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route

        async with sender(job) as send:

            async def respond(request: Request) -> Response:
                await send(await request.body())
                return Response(BODY)

            service = Starlette(routes=[Route("/", respond, methods=["POST"])])
            config = uvicorn.Config(
                service, port=0, loop="uvloop", http="httptools", lifespan="off", log_level="warning", access_log=False
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            try:
                return await under_load(job, server.servers[0].sockets[0].getsockname()[1])
            finally:
                server.should_exit = True
                await serving

    return run


async def under_load(job: Job, port: int) -> Result:
    """Return the CPU of this process, and what the process that makes the load has measured."""
    words = ["-m", "benchmarks.web_service", str(port), str(job.senders), str(job.count), str(job.size)]
    load = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert load.stdout is not None
    await load.stdout.readline()  # the warm-up has ended
    watch = Stopwatch()
    line = await load.stdout.readline()
    cpu = watch.result()["cpu"]
    if await load.wait():
        raise RuntimeError("the load has failed")
    return {**json.loads(line), "cpu": cpu}


class Load:
    """The requests of all connections: each connection sends one after the other, until ``count`` are answered."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._times: list[float] = []
        self._count = self._requests_left = 0
        self._ended = asyncio.Event()

    async def make(self, connections: list[Connection], count: int) -> list[float]:
        """Return the seconds of each request."""
        self._times, self._count, self._requests_left = [], count, count
        self._ended.clear()
        for connection in connections:
            self.begin(connection)
        await self._ended.wait()
        return self._times

    def begin(self, connection: Connection) -> None:
        if self._requests_left > 0:
            self._requests_left -= 1
            connection.request(self._body)

    def end(self, connection: Connection, seconds: float) -> None:
        self._times.append(seconds)
        if len(self._times) == self._count:
            self._ended.set()
        self.begin(connection)


class Connection(asyncio.Protocol):
    """One connection, which waits for the response to at most one request."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._is_waiting = False
        self._received = b""
        self._began = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def request(self, body: bytes) -> None:
        self._is_waiting = True
        self._began = time.perf_counter()
        self._transport.write(body)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._received.endswith(BODY):
            return
        if not self._received.startswith(b"HTTP/1.1 200 "):
            sys.exit(self._received.decode())
        self._received, self._is_waiting = b"", False
        self._load.end(self, time.perf_counter() - self._began)

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_waiting:
            sys.exit("the service has closed a connection")


async def load(port: int, connections: int, count: int, size: int) -> None:
    body = b"v" * size
    requests = Load(f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode() + body)
    loop = asyncio.get_running_loop()
    opened = [
        (await loop.create_connection(lambda: Connection(requests), "127.0.0.1", port))[1] for _ in range(connections)
    ]
    await requests.make(opened, max(connections, int(count * WARM_UP)))
    print(flush=True)
    watch = Stopwatch()
    times = await requests.make(opened, count)
    print(json.dumps(watch.with_quantiles(times)))


CANDIDATES = {"web": {"bare future": served(bare_future), "ours": served(ours), "aiokafka": served(aiokafka)}}


if __name__ == "__main__":
    import uvloop

    uvloop.install()
    asyncio.run(load(*map(int, sys.argv[1:])))
