"""The outcome of a call on many items: each item has its own result or its own error.

A call on ten topics, one of them missing, has nine results and one error. If the call raised the error, the results
would be lost. If it returned only the results, the error would be hidden. So every such call returns ``Results``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from ..errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")
_SHOWN = 5


class ItemsFailed(KafkaError):
    """Several items of one call failed. ``errors`` has the error of each."""

    def __init__(self, errors: Mapping[Any, KafkaError], count: int) -> None:
        self.errors = errors
        shown = "; ".join(f"{item}: {error}" for item, error in list(errors.items())[:_SHOWN])
        more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
        super().__init__(f"{len(errors)} of {count} failed: {shown}{more}")


class Results(Generic[K, V]):
    """The outcome of one call by item: ``done`` has the results, ``failed`` the errors.

    ``results[item]`` returns the item's result, or raises its error. Iterating yields the items. Immutable.
    """

    __slots__ = ("done", "failed")

    def __init__(self, done: Mapping[K, V], failed: Mapping[K, KafkaError]) -> None:
        self.done: Mapping[K, V] = MappingProxyType(dict(done))
        self.failed: Mapping[K, KafkaError] = MappingProxyType(dict(failed))
        assert self.done.keys().isdisjoint(self.failed), "each item has its own result or its own error"

    def __getitem__(self, item: K) -> V:
        error = self.failed.get(item)
        if error is not None:
            raise error
        return self.done[item]

    def __contains__(self, item: object) -> bool:
        return item in self.done or item in self.failed

    def __iter__(self) -> Iterator[K]:
        yield from self.done
        yield from self.failed

    def __len__(self) -> int:
        return len(self.done) + len(self.failed)

    def raise_for_errors(self) -> Mapping[K, V]:
        """Return all results. Raises the error if one item failed, ItemsFailed if several did."""
        if len(self.failed) == 1:
            raise next(iter(self.failed.values()))
        if self.failed:
            raise ItemsFailed(self.failed, len(self))
        return self.done

    def __repr__(self) -> str:
        return f"<Results done={_shortened(self.done, 120)} failed={_shortened(self.failed, 400)}>"


def _shortened(items: Mapping[Any, object], longest: int) -> str:
    """Format the first items, each with the beginning of its value or error, which may have thousands of characters."""
    shown = [f"{item!r}: {_beginning(repr(value), longest)}" for item, value in islice(items.items(), _SHOWN)]
    if len(items) > _SHOWN:
        shown.append(f"and {len(items) - _SHOWN} more")
    return f"{{{', '.join(shown)}}}"


def _beginning(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"
