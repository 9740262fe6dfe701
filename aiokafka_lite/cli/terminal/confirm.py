"""Questions to a person at the terminal: before a command deletes something, and for a password.

No function here blocks the event loop, so that Ctrl-C and SIGTERM end a command that waits for an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from .run import say

Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal, the command does not ask either.")
]

LONGEST_LINE = 1 << 20

KEY_INTERVAL = 0.02
"""Seconds between two looks for a key on Windows."""


async def confirmed(question: str, yes: bool) -> bool:
    """Ask whether the user agrees. True without a question for ``yes``, or if stdin or stderr is not a terminal."""
    import asyncio

    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = await read_line()
    except asyncio.CancelledError:
        print(file=sys.stderr)  # ends the line on which the terminal shows ^C
        raise
    if answer.strip().lower() in ("y", "yes"):
        return True
    say("nothing was changed")
    return False


async def ask_hidden(question: str) -> str:
    """Ask, and read a line that the terminal does not show. It shows input again at the end, also when cancelled."""
    try:
        import termios
    except ImportError:  # on Windows
        print(question, end="", file=sys.stderr, flush=True)
        try:
            return await _read_keys()
        finally:
            print(file=sys.stderr)
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    hidden = termios.tcgetattr(terminal)
    hidden[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, hidden)
    try:
        print(question, end="", file=sys.stderr, flush=True)
        return await read_line()
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        print(file=sys.stderr)  # the Enter key was not shown either


async def _read_keys() -> str:
    """Read keys up to Enter from the console of Windows, which does not show them. Raises ValueError for a long line.

    The console reports no key to an event loop, so this looks for keys at an interval.
    """
    import asyncio
    import msvcrt
    import signal

    console: Any = msvcrt  # not typed on other systems
    line: list[str] = []
    while len(line) <= LONGEST_LINE:
        while not console.kbhit():  # noqa: ASYNC110
            await asyncio.sleep(KEY_INTERVAL)
        key = console.getwch()
        if key in "\r\n":
            return "".join(line)
        if key == "\x03":  # Ctrl-C, which is no signal while a key is read
            signal.raise_signal(signal.SIGINT)
        elif key == "\b":
            del line[-1:]
        elif key in "\x00\xe0":  # an arrow or another key without a character; a second code follows
            console.getwch()
        else:
            line.append(key)
    raise ValueError(f"the answer must have at most {LONGEST_LINE} characters")


async def read_line() -> str:
    """Read the next line of stdin without its end; empty at the end of stdin.

    Raises ValueError for a line that is too long or not UTF-8. The bytes after the line are lost if stdin is a pipe.
    """
    from .descriptors import Reader

    reader = Reader(sys.stdin.fileno())
    line = bytearray()
    while b"\n" not in line and (piece := await reader.read()):
        line += piece
        if len(line) > LONGEST_LINE:
            raise ValueError(f"the first line of stdin must have at most {LONGEST_LINE} bytes")
    try:
        return line.partition(b"\n")[0].decode().rstrip("\r")
    except UnicodeDecodeError:
        raise ValueError("the first line of stdin must be UTF-8") from None


def say_done(items: Iterable[object], what: str) -> None:
    """Report a change of items to a person at the terminal. Scripts have the exit status."""
    names = list(map(str, items))
    if names and sys.stderr.isatty():
        say(f"{what} {listed(names)}")


def listed(names: Sequence[str]) -> str:
    """Return names for a question: ``orders, audit and 3 more``."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
