"""Shortens errors for Spark, which prints the Python traceback before the text that users look for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..errors import KafkaError

P = ParamSpec("P")
T = TypeVar("T")


def short_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function that Spark calls raise a KafkaError without the frames and causes inside this package.

    The text of the error names the mistake and what to do. Other exceptions keep their traceback.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except KafkaError as error:
            raise error.with_traceback(None) from None

    return call
