"""The names of the strategies for ``partition_assignment_strategy``. This client has strategies of the same names."""

from __future__ import annotations


class RangePartitionAssignor:
    name = "range"


class RoundRobinPartitionAssignor:
    name = "roundrobin"


class StickyPartitionAssignor:
    name = "sticky"
