"""Which brokers reach one another, and which reach the controller. Clients reach all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class Network:
    """The cables between the brokers. Owner: the cluster."""

    def __init__(self) -> None:
        self._groups: list[frozenset[int]] = []

    def split(self, groups: Iterable[Collection[int]]) -> None:
        """Cut every connection between brokers of different groups. The largest has the controller."""
        self._groups = [frozenset(group) for group in groups]

    def heal(self) -> None:
        self._groups = []

    def is_cut(self, one: int, other: int) -> bool:
        return bool(self._groups) and one != other and self._group_of(one) is not self._group_of(other)

    def reaches_controller(self, node_id: int) -> bool:
        return not self._groups or self._group_of(node_id) is max(self._groups, key=len)

    def _group_of(self, node_id: int) -> frozenset[int] | None:
        return next((group for group in self._groups if node_id in group), None)
