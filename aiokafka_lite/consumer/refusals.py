"""The refusals of brokers, such as a missing permission, that a read has to raise."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import KafkaError


class Refusals:
    """The latest refusal at each place that no read has raised yet. Owner: the reader of a consumer.

    ``is_ongoing`` returns whether the outage at a place continues. A refusal that has ended is not raised.
    """

    def __init__(self, is_ongoing: Callable[[str], bool]) -> None:
        self._is_ongoing = is_ongoing
        self._errors: dict[str, KafkaError] = {}

    @property
    def are_ongoing(self) -> bool:
        """Whether there is a refusal to raise."""
        return any(map(self._is_ongoing, self._errors))

    def add(self, place: str, error: KafkaError) -> None:
        """Let one read that would have to wait raise this refusal, if it is still ongoing then."""
        self._errors[place] = error

    def raise_ongoing(self) -> None:
        """Raise a refusal that is ongoing and that no read has raised."""
        while self._errors:
            place, error = self._errors.popitem()
            if self._is_ongoing(place):
                # One refused login is the error of all requests to its broker.
                self._errors = {name: other for name, other in self._errors.items() if other is not error}
                raise error.with_traceback(None)
