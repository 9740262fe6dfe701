"""Feed inputs to a target, each within a second of CPU time and a bound of memory, and report the first failure."""

from __future__ import annotations

import resource
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from time import monotonic

from .targets import Target

SECONDS = 1.0
"""CPU seconds for one input. Unlike the clock, this does not depend on other processes of the machine."""
BYTES = 64 << 20
"""Bytes by which one input may raise the process's largest resident size."""


WARM_UP = 10
"""Inputs before the first one that is measured."""


class TooMuch(BaseException):
    """An input takes too long, or too much memory. Not an Exception, so that no code under test catches it."""


class Failure(Exception):
    """A target failed. The text has what reproduces the failure."""


def fuzz(name: str, target: Target, seed: int, *, first: int = 0, seconds: float = 0, count: int = 0) -> int:
    """Run ``count`` inputs, or inputs for ``seconds``, from number ``first`` on; return the number after the last one.

    Raises Failure.
    """
    for warm in range(WARM_UP):  # imports and caches take memory too, once
        attempt(target, target.make(Random(f"warm {warm}")), measured=False)
    number, until = first, monotonic() + seconds
    while number < first + count if count else monotonic() < until:
        data = target.make(Random(f"{seed} {name} {number}"))
        error = attempt(target, data)
        if error is not None:
            small = shrunk(target, data, error)
            raise Failure(
                f"{name}: input {number} of seed {seed}, {len(data)} bytes, shrunk to {len(small)}:\n"
                f"{''.join(traceback.format_exception(attempt(target, small) or error))}\n"
                f"python -m tests.fuzz --target {name} --input {small.hex()}"
            )
        number += 1
    return number


def attempt(target: Target, data: bytes, *, measured: bool = True) -> BaseException | None:
    """Return the error of an input, or None."""
    try:
        with _bounded(BYTES if measured else 1 << 40):
            target.read(data)
    except (Exception, TooMuch) as error:  # noqa: BLE001 - every error of a target is a finding
        return error
    return None


@contextmanager
def _bounded(limit: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooMuch(f"the input takes more than {SECONDS} s of CPU time")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > limit:
        raise TooMuch(f"the input takes {grown >> 20} MiB of memory")


def shrunk(target: Target, data: bytes, error: BaseException, seconds: float = 5.0) -> bytes:
    """Return a shorter input with an error of the same type."""
    until = monotonic() + seconds
    size = len(data) // 2
    while size and monotonic() < until:
        start = 0
        while start < len(data) and monotonic() < until:
            shorter = data[:start] + data[start + size :]
            if type(attempt(target, shorter)) is type(error):
                data = shorter
            else:
                start += size
        size //= 2
    return data
