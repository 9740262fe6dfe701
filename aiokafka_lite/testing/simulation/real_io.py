"""Refuses real I/O in a simulation, and replaces the clocks of the module ``time`` by the virtual clock.

A thread, a socket or a real sleep would end the repetition of a seed. The error names the call and its place.
"""

from __future__ import annotations

import inspect
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from ...errors import IllegalStateError
from .blocking import BlockingLoop, current_process

_STANDARD_LIBRARY = str(Path(os.__file__).parent)
_PACKAGE = str(Path(__file__).parents[2])


class RealIOError(IllegalStateError):
    """The service used a socket, a thread or a real sleep inside a simulation."""


def is_of_a_user(file: str) -> bool:
    """Return whether a file is neither of this package, nor of an installed one, nor of Python."""
    return not file.startswith((_STANDARD_LIBRARY, _PACKAGE, "<")) and "site-packages" not in file


def _place() -> str:
    """Return the file and line of the code of the user that made the call."""
    frame = inspect.currentframe()
    assert frame is not None
    last = frame
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if is_of_a_user(name) or "site-packages" in name:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return f"{last.f_code.co_filename}:{last.f_lineno}"


def _refuse(call: str, instead: str) -> NoReturn:
    why = "a simulation has no real I/O, because it could not be repeated"
    error = RealIOError(f"{call} at {_place()}: {why}; {instead}")
    process = current_process.get()
    if process is not None:
        process.refused.append(str(error))
    raise error


_NETWORK = "connect with the bootstrap servers of the instance, and report other systems with instance.effect()"
_THREAD = "pass the function in as an argument, and give the simulation one without threads"


class SimulationLoop(BlockingLoop):
    """A loop in virtual time that refuses sockets, threads and subprocesses, and keeps signal handlers by process."""

    has_sockets = False

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        _refuse("loop.run_in_executor() or asyncio.to_thread()", _THREAD)

    async def create_connection(self, *args: Any, **settings: Any) -> Any:
        _refuse("loop.create_connection()", _NETWORK)

    async def create_server(self, *args: Any, **settings: Any) -> Any:
        _refuse("loop.create_server()", _NETWORK)

    async def create_datagram_endpoint(self, *args: Any, **settings: Any) -> Any:
        _refuse("loop.create_datagram_endpoint()", _NETWORK)

    async def getaddrinfo(self, *args: Any, **settings: Any) -> Any:
        _refuse("loop.getaddrinfo()", _NETWORK)

    async def sock_connect(self, *args: Any) -> Any:
        _refuse("loop.sock_connect()", _NETWORK)

    async def subprocess_exec(self, *args: Any, **settings: Any) -> Any:
        _refuse("asyncio.create_subprocess_exec()", _THREAD)

    async def subprocess_shell(self, *args: Any, **settings: Any) -> Any:
        _refuse("asyncio.create_subprocess_shell()", _THREAD)

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Keep the handler: a graceful stop of the process calls it."""
        process = current_process.get()
        if process is not None:
            process.signal_handlers[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        process = current_process.get()
        return process is not None and process.signal_handlers.pop(sig, None) is not None


def stop_signal(handlers: dict[int, Callable[[], object]]) -> Callable[[], object] | None:
    """Return the handler of SIGTERM, or else that of SIGINT."""
    return handlers.get(signal.SIGTERM) or handlers.get(signal.SIGINT)


@contextmanager
def virtual_machine(loop: SimulationLoop, wall_clock: Callable[[], float]) -> Iterator[None]:
    """Replace the clocks of ``time`` and ``os.urandom``, and refuse blocking calls, until the end of the block.

    Code that has imported such a function by name keeps the real one, and so does ``datetime``. So do the other threads
    of the process: they are not part of the simulation (a library's thread once ended because its sleep was refused).
    """
    import random

    own_thread = threading.get_ident()

    def in_simulation(replacement: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        def choose(*args: Any, **settings: Any) -> Any:
            return (replacement if threading.get_ident() == own_thread else real)(*args, **settings)

        return choose

    def refusing(call: str, instead: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            _refuse(call, instead)

        return refuse

    real_seed = random.Random.seed

    def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
        real_seed(generator, random.getrandbits(64) if a is None else a, version)

    with ExitStack() as stack:
        for owner, name, replacement in (
            (time, "time", wall_clock),
            (time, "time_ns", lambda: int(wall_clock() * 1e9)),
            (time, "monotonic", loop.time),
            (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
            (time, "perf_counter", loop.time),
            (time, "perf_counter_ns", lambda: int(loop.time() * 1e9)),
            (os, "urandom", random.randbytes),
            (random, "_urandom", random.randbytes),  # of SystemRandom, and so of ``secrets``
            (random.Random, "seed", seed),
            (time, "sleep", refusing("time.sleep()", "await asyncio.sleep() instead")),
            (threading.Thread, "start", refusing("threading.Thread.start()", _THREAD)),
            (socket.socket, "connect", refusing("socket.connect()", _NETWORK)),
            (socket.socket, "connect_ex", refusing("socket.connect_ex()", _NETWORK)),
            (socket.socket, "bind", refusing("socket.bind()", _NETWORK)),
            (socket, "getaddrinfo", refusing("socket.getaddrinfo()", _NETWORK)),
        ):
            dispatching = in_simulation(replacement, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, dispatching))
        yield
