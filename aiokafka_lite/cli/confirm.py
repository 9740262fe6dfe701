"""A question before a command deletes something, if a person is at the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from .running import say

Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal, the command does not ask either.")
]


async def confirmed(question: str, yes: bool) -> bool:
    """Whether the user agrees. Nothing is asked with ``yes``, or if stdin or stderr is not a terminal."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    from .descriptors import read

    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = await read(sys.stdin.fileno())  # Ctrl-C ends this wait, and would not end input()
    if answer.decode(errors="replace").strip().lower() in ("y", "yes"):
        return True
    say("nothing was changed")
    return False


def say_done(items: Iterable[object], what: str) -> None:
    """Report a change of items to a person at the terminal. Scripts have the exit status."""
    names = list(map(str, items))
    if names and sys.stderr.isatty():
        say(f"{what} {listed(names)}")


def listed(names: Sequence[str]) -> str:
    """Names for a question: ``orders, audit and 3 more``."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
