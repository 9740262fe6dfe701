"""What a broker answers about the items of a call, as results and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..errors import BrokerError, ErrorCode, KafkaError, error_for
from .results import Results

K = TypeVar("K")
V = TypeVar("V")


def answer_of(code: int, what: str, value: V, message: str | None = None) -> V | KafkaError:
    """Return the value if the code is 0, otherwise its error.

    ``what`` names the operation, ``message`` is from the broker.
    """
    return value if code == ErrorCode.NONE else error_for(code, what, reason=message)


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """Raise the error of the code, unless it is 0. The arguments are those of ``answer_of``."""
    if code != ErrorCode.NONE:
        raise error_for(code, what, reason=message)


def has_code(answer: object, code: ErrorCode) -> bool:
    """Return whether the answer is the broker's error with this code."""
    return isinstance(answer, BrokerError) and answer.code is code


def none_if_negative(number: int) -> int | None:
    """Return the number, or None for a negative one, by which brokers say that there is none."""
    return None if number < 0 else number


def results_of(answers: Mapping[K, V | KafkaError]) -> Results[K, V]:
    """Divide answers into results and errors."""
    failed = {item: answer for item, answer in answers.items() if isinstance(answer, KafkaError)}
    return Results({item: answer for item, answer in answers.items() if not isinstance(answer, KafkaError)}, failed)
