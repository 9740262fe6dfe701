"""One thread at a time makes a syntax tree, as pytest does at the first import of a module.

Python before 3.11.8 and 3.12.2 counts the depth of all trees in one place (gh-106905). A thread that makes a tree lets
other threads run when it collects garbage. If one of them makes a tree meanwhile, because it imports a module too, the
first thread raises SystemError.
"""

from __future__ import annotations

import ast
import os
import threading
from functools import wraps
from typing import Any


class _Turns:
    """The lock. A thread that has it may parse again: a finalizer may format a traceback."""

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)  # another thread may have it, which the child has not

    def renew(self) -> None:
        self.lock = threading.RLock()


def parse_in_turns() -> None:
    """Let ``ast.parse`` wait for other threads, from now on."""
    parse, turns = ast.parse, _Turns()

    @wraps(parse)
    def in_turn(*arguments: Any, **options: Any) -> Any:
        with turns.lock:
            return parse(*arguments, **options)

    ast.parse = in_turn
