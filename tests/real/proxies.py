"""Proxies on loopback: pproxy in a process of its own, and one in the test's loop that can misbehave.

``ScriptedProxy`` knows names that only it can resolve.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Literal

from aiokafka_lite.aio import servers

_PROGRAM = """
import asyncio, sys
import pproxy

async def main():
    handler = await pproxy.Server(sys.argv[1]).start_server({"rserver": [], "verbose": lambda text: None})
    print(handler.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@contextlib.contextmanager
def pproxy(credentials: str = "") -> Iterator[int]:
    """Run pproxy, for SOCKS5 and HTTP CONNECT on the same port, which is yielded. ``credentials`` is user:password."""
    user = f"#{credentials}" if credentials else ""
    command = [sys.executable, "-c", _PROGRAM, f"http+socks5://127.0.0.1:0{user}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


Behaviour = Literal[
    "connects", "hangs", "closes", "refuses", "answers garbage", "answers in pieces", "repeats the request"
]


class ScriptedProxy:
    """SOCKS5 and HTTP CONNECT. ``names`` are the hosts that it knows: each is 127.0.0.1."""

    def __init__(
        self, names: Collection[str] = (), *, behaviour: Behaviour = "connects", user: str = "", password: str = ""
    ) -> None:
        self.behaviour = behaviour
        self.targets: list[tuple[str, int]] = []
        """The host and port of each request, as the client sent it."""
        self._names = names
        self._user, self._password = user, password
        self._writers: set[asyncio.StreamWriter] = set()
        self.connected = asyncio.Event()
        """Set when a client has sent its first byte."""
        self.ended = asyncio.Event()
        """Set when a client has closed its connection."""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            await servers.close(server)
            await asyncio.sleep(0)  # the last connections are in ``_serve``
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()
            while self._writers:
                await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            first = await reader.readexactly(1)
            self.connected.set()
            if self.behaviour == "hangs":
                await reader.read()
            elif self.behaviour == "answers garbage":
                writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
                await reader.read()
            elif self.behaviour != "closes":
                await (self._socks(reader, writer) if first == b"\5" else self._http(first, reader, writer))
        writer.transport.abort()
        self._writers.discard(writer)
        self.ended.set()

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        method = 2 if self._user else 0
        if method not in methods:
            writer.write(b"\5\xff")
            return await writer.drain()
        await self._say(writer, bytes([5, method]))
        if self._user:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            accepted = (user.decode(), password.decode()) == (self._user, self._password)
            await self._say(writer, bytes([1, 0 if accepted else 1]))
            if not accepted:
                return None
        _, _, _, kind = await reader.readexactly(4)
        assert kind == 3, "the client sends the name, not an address"
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        port = int.from_bytes(await reader.readexactly(2))
        refused = self.behaviour == "refuses" or host not in self._names
        await self._say(writer, bytes([5, 4 if refused else 0, 0, 1, 0, 0, 0, 0, 0, 0]))
        self.targets.append((host, port))
        if not refused:
            await self._forward(port, reader, writer)
        return None

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (first + await reader.readuntil(b"\r\n\r\n")).decode()
        line, _, headers = request.partition("\r\n")
        host, _, port = line.split()[1].rpartition(":")
        self.targets.append((host, int(port)))
        if self.behaviour == "repeats the request":
            sent = headers.replace("\r\n", " ").strip()
            return await self._say(writer, f"HTTP/1.1 407 {sent} of {self._user}:{self._password}\r\n\r\n".encode())
        login = "Basic " + base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
        if self._user and f"Proxy-Authorization: {login}\r\n" not in headers:
            return await self._say(writer, b"HTTP/1.1 407 Proxy Authentication Required\r\nA: b\r\n\r\n")
        if self.behaviour == "refuses" or host not in self._names:
            return await self._say(writer, b"HTTP/1.1 503 no route to host\r\n\r\n")
        await self._say(writer, b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
        await self._forward(int(port), reader, writer)
        return None

    async def _say(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        pieces = [answer] if self.behaviour != "answers in pieces" else [bytes([byte]) for byte in answer]
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, onward = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, onward))
                tasks.create_task(_copy(back, writer))
        finally:
            onward.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
