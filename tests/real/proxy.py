"""A TCP proxy in front of a broker, which can delay the bytes, cut the connections, and refuse new ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiokafka_lite.aio import servers


class Proxy:
    """Listens on ``port`` and forwards to ``target``, both on loopback."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.delay = 0.0
        """Seconds by which each piece of data is delayed, in both directions."""
        self.refuses = False
        """Whether new connections are closed at once."""
        self._target = target
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        assert self._server is not None
        await servers.close(self._server)
        await asyncio.sleep(0)  # the last connections are in ``_serve``
        while self._writers:
            self.cut()
            await asyncio.sleep(0.05)

    def cut(self) -> None:
        """Reset all connections, in the middle of any bytes."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward: asyncio.StreamWriter | None = None
        self._writers[writer] = None
        try:
            if not self.refuses:
                back, onward = await asyncio.open_connection("127.0.0.1", self._target)
                self._writers[onward] = None
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._forward(reader, onward))
                    tasks.create_task(self._forward(back, writer))
        except* OSError:
            pass
        finally:
            for end in (writer, onward):
                if end is not None:
                    self._writers.pop(end, None)
                    end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()
