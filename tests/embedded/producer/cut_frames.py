"""A connector that breaks in the middle of a request: only the first bytes of a Produce frame arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

from aiokafka_lite.aio.memory_pipe import MemoryTransport, memory_pipe
from aiokafka_lite.net.connector import Connector
from aiokafka_lite.protocol.messages import ProduceRequest

P = TypeVar("P", bound=asyncio.BaseProtocol)

SIZE = 4
API_KEY = slice(SIZE, SIZE + 2)


class CuttingConnector:
    """Forwards all bytes, but only ``length`` bytes of the Produce frames in ``cut``; then it closes the connection.

    Frames are counted from 0, retries included; a negative length counts from the frame's end.
    """

    def __init__(self, inner: Connector, cut: set[int], length: int) -> None:
        self.inner = inner
        self.cut = cut
        self.length = length
        self.produced = 0

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[MemoryTransport, P]:
        onward = _Side()
        await self.inner.connect(host, port, lambda: onward)
        inward = _Requests(self, onward)
        onward.other = inward
        near, _ = memory_pipe(protocol_factory, lambda: inward, server_address=(host, port))
        return near

    def length_of(self, frame: bytes) -> int:
        """Return how many bytes of a frame arrive."""
        if int.from_bytes(frame[API_KEY], "big") != ProduceRequest.api_key:
            return len(frame)
        number, self.produced = self.produced, self.produced + 1
        if number not in self.cut:
            return len(frame)
        return self.length if self.length >= 0 else len(frame) + self.length


class _Side(asyncio.Protocol):
    """One end: bytes that arrive here leave at the other end."""

    other: _Side
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.other.transport.abort()


class _Requests(_Side):
    """The client's end: it forwards requests frame by frame."""

    def __init__(self, way: CuttingConnector, other: _Side) -> None:
        self._way = way
        self._received = bytearray()
        self.other = other

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= SIZE:
            end = SIZE + int.from_bytes(self._received[:SIZE], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[:end])
            del self._received[:end]
            length = self._way.length_of(frame)
            self.other.transport.write(frame[:length])
            if length < end:
                self.transport.abort()
                asyncio.get_running_loop().call_soon(self.other.transport.close)  # once what was written has arrived
                return
