"""Running a command: its event loop, its signals, and its errors.

Exit status: 0 for success, 1 for a failure, 2 for wrong arguments, and 128 plus the number of the signal that ended the
command: 130 for Ctrl-C, 143 for SIGTERM. On Windows, Ctrl-Break and a closed console are SIGBREAK.

``--help`` imports this module, so each function imports what only a running command needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .refusals import explained_refusal

FAILED = 1
WRONG = 2
INTERRUPTED = 130
NAME = "aiokafka-lite"

_TIMEOUTS = ("api_timeout", "max_block", "delivery_timeout")
"""The settings that ``--timeout`` sets."""


def run(command: Callable[[], Awaitable[int]], *, verbose: bool = False) -> int:
    """Run a command on an event loop until it ends or a signal stops it; return the exit status."""
    import asyncio

    return run_blocking(lambda: asyncio.run(_until_stopped(command)), verbose=verbose)


def run_blocking(command: Callable[[], int], *, verbose: bool = False) -> int:
    """Run a command that has no event loop; return the exit status. An error is one line on stderr."""
    from ...errors import KafkaError

    try:
        with _log_to_stderr(verbose):
            status = command()
        sys.stdout.flush()
        return status
    except (KafkaError, OSError, ValueError) as error:
        if isinstance(error, OSError) and is_broken_pipe(error):
            discard_output()
            return 0
        if verbose:
            import traceback

            traceback.print_exception(error)
        say(with_options(explained_refusal(error)))
        # Wrong settings are a ValueError, and so is a port in use. Its cause tells the two apart.
        is_system = isinstance(error.__cause__, OSError)
        return WRONG if isinstance(error, ValueError) and not is_system else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def is_broken_pipe(error: OSError) -> bool:
    """Return whether the reader of a pipe has closed it. On Windows, the write has an invalid argument then."""
    import errno

    is_invalid = sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or is_invalid


def discard_output() -> None:
    """Discard the rest of the output, because the reader has closed the pipe (as ``head`` does)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Print the text as one line on stderr."""
    print(f"{NAME}:", " ".join(text.split()), file=sys.stderr, flush=True)


def with_options(text: str) -> str:
    """Return the text of an error, with the properties and options instead of this client's settings.

    A setting whose name is an ordinary word, such as ``compression``, is replaced only if the text gives its value or
    says what it must be.
    """
    import re

    from ...settings.spelling import property_names, respelled

    names = property_names(()) | dict.fromkeys(_TIMEOUTS, "--timeout")
    used = {
        setting: name
        for setting, name in names.items()
        if "_" in setting or re.search(rf"\b{setting}(=| must\b| is\b)", text)
    }
    return respelled(text, used, {})


def log_warnings() -> None:
    """Print the client's warnings from now on. Before the client is connected, the command's error is sufficient."""
    import logging

    logger = logging.getLogger("aiokafka_lite")
    logger.setLevel(min(logger.level, logging.WARNING))


@contextmanager
def _log_to_stderr(verbose: bool) -> Iterator[None]:
    """Write the client's log to stderr, each line with the command's name."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{NAME}: %(message)s"))
    logger = logging.getLogger("aiokafka_lite")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.CRITICAL)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[1]
        logger.setLevel(before[0])


async def _until_stopped(command: Callable[[], Awaitable[int]]) -> int:
    """Run the command. The first signal cancels it, so that it flushes, commits and leaves; the second one kills it."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            # Not sys.exit(), because the user does not want the orderly end, which waits for Kafka.
            os._exit(128 + number)
        task.cancel()

    with on_signals(stop):
        try:
            return await command()
        except asyncio.CancelledError:
            if not received:
                raise
            return 128 + received[0]


@contextmanager
def on_signals(stop: Callable[[int], object]) -> Iterator[None]:
    """Call ``stop`` in the running event loop with the number of each signal that asks the process to end.

    At the end, the handlers are those of before. A process has one set of handlers, so only the main thread may call
    this.
    """
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def wake(number: int, _: object) -> None:
        loop.call_soon_threadsafe(stop, number)

    # SIGBREAK exists only on Windows.
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
    for number in numbers:
        handler = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, stop, number)
        except NotImplementedError:  # the event loops of Windows
            signal.signal(number, wake)
        before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            if handler is not None:  # None is a handler that is not Python code
                signal.signal(number, handler)
