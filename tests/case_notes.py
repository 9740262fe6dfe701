"""Many cases of one claim in one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest


@contextmanager
def case(*values: object) -> Iterator[None]:
    """Name the case in the traceback of its failure: ``with case(code, version): ...`` in a loop.

    Hundreds of test cases that differ by one value make a report long and a run slow. A loop tests the same.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(repr, values))}")
        raise


def for_each(values: list[Any], name: Callable[[Any], str]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call a test with each of the values as its first argument; the outermost decorator of a Hypothesis test."""

    def decorated(test: Callable[..., None]) -> Callable[[], None]:
        @wraps(test)
        def loop() -> None:
            for value in values:
                with case(name(value)):
                    test(value)

        del loop.__wrapped__  # type: ignore[attr-defined]  # else pytest treats its arguments as fixtures
        return loop

    return decorated


def seeds(count: int, *, usual: int) -> list[Any]:
    """Return the seeds 0 to ``count - 1`` for parametrize. Seeds from ``usual`` on are long, for ``make test-long``."""
    return [pytest.param(seed, marks=() if seed < usual else (pytest.mark.long,)) for seed in range(count)]
