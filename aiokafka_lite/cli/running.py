"""Running a command: its event loop, the signals that stop it, and what becomes of an error.

Exit status: 0 for what was done, 1 for what failed, 2 for what was asked for wrongly, and 128 more than the number of
the signal that ended it: 130 for Ctrl-C, 143 for SIGTERM.

What is imported here is imported for ``--help``, too; so what only a running command needs is imported when one runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

FAILED = 1
WRONG = 2
INTERRUPTED = 130
NAME = "aiokafka-lite"


def run(command: Callable[[], Awaitable[int]], *, verbose: bool = False) -> int:
    """Run a command to its end, or until a signal stops it; the exit status."""
    import asyncio

    from aiokafka_lite.errors import KafkaError

    try:
        with _log_to_stderr(verbose):
            status = asyncio.run(_until_stopped(command))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        nobody_reads()
        return 0
    except (KafkaError, OSError, ValueError) as error:
        if verbose:
            import traceback

            traceback.print_exception(error)
        say(str(error) or repr(error))
        is_system = isinstance(error.__cause__, OSError)  # it is the machine that refuses, as a port that is in use
        return WRONG if isinstance(error, ValueError) and not is_system else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def nobody_reads() -> None:
    """Whoever read the output has gone, as `head` does. What is still to be written goes nowhere, without a word."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """A line on stderr, however many the text has."""
    print(f"{NAME}:", " ".join(text.split()), file=sys.stderr, flush=True)


def log_warnings() -> None:
    """From here on say what the client warns of. Before, an error of the command itself says it all in its line."""
    import logging

    logger = logging.getLogger("aiokafka_lite")
    logger.setLevel(min(logger.level, logging.WARNING))


@contextmanager
def _log_to_stderr(verbose: bool) -> Iterator[None]:
    """Have the client's log on stderr, each line with the command's name."""
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
    """The first signal cancels the command, which then flushes, commits and leaves; the second one ends the process."""
    import asyncio
    import signal

    task = asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        return await command()
    except asyncio.CancelledError:
        if not received:
            raise
        return 128 + received[0]
