"""Threads of a test may import modules at the same time."""

from __future__ import annotations

import ast
import time
from concurrent.futures import ThreadPoolExecutor


class LetsOthersRun:
    """Garbage whose collection lets another thread run."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        time.sleep(0.0005)


def test_two_threads_make_syntax_trees_at_the_same_time() -> None:
    text = f"x = [{', '.join(['(1, 2)'] * 300)}]"

    def parse_often(_: int) -> None:
        for _ in range(50):
            LetsOthersRun()
            LetsOthersRun()
            ast.parse(text)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(parse_often, range(2)))
