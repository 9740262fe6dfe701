"""A real browser for tests: Chromium without a window, spoken to by two pipes in its DevTools protocol."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""The path of the browser; None if this machine has none."""


class Browser:
    """One page of a browser. Each call raises AssertionError if the browser reports an error."""

    def __init__(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self._writer = writer
        self._reader = reader
        self._number = 0
        self._session: str | None = None
        self.dialogs: list[str | None] = []
        """The answers to the next dialogs: a text, "" to accept, or None to dismiss."""

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._send(method, parameters)
        number = self._number
        while True:
            message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            if message.get("method") == "Page.javascriptDialogOpening":
                answer = self.dialogs.pop(0)
                self._send("Page.handleJavaScriptDialog", {"accept": answer is not None, "promptText": answer or ""})
            elif message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]

    def _send(self, method: str, parameters: dict[str, Any]) -> None:
        self._number += 1
        request: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        self._writer.write(json.dumps(request).encode() + b"\0")

    async def attach(self) -> None:
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        await self.call("Page.enable")

    async def open(self, address: str) -> None:
        await self.call("Page.navigate", url=address)

    async def value(self, expression: str) -> Any:
        """Evaluate an expression in the page, also one with ``await``."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        async with asyncio.timeout(DEADLINE):
            while not await self.value(f"Boolean({expression})"):
                await asyncio.sleep(0.02)

    async def text(self) -> str:
        return str(await self.value("document.body.innerText"))

    async def press(self, key: str) -> None:
        """Send a key, pressed and released, as a user does."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            code = {"Enter": 13, "Tab": 9}.get(key, 0)
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    async def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window in CSS pixels, and the colour scheme that the user prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path) -> None:
        """Save a picture of the page as PNG."""
        path.write_bytes(b64decode((await self.call("Page.captureScreenshot"))["data"]))


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Run a browser with one page and a profile of its own."""
    assert CHROMIUM is not None, "this machine has no Chromium; install the package chromium"
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        script = f'exec 3<&{to_browser[0]} 4>&{from_browser[1]}; exec "$@"'
        arguments = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", script, "browser", CHROMIUM, *arguments),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_browser[0], "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(to_browser[1], "wb", 0)
        )
        page = Browser(asyncio.StreamWriter(transport, protocol, None, loop), reader)
        try:
            async with asyncio.timeout(DEADLINE):
                await page.attach()
            yield page
        finally:
            transport.close()
            reading.close()
            process.terminate()
            await process.wait()
