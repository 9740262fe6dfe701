"""The loggers of brokers, which clients list and change as settings of the resource type 8 (KIP-412).

They are the Python loggers of the embedded broker, under their own names; Kafka's name ``root`` means
``aiokafka_lite.embedded``. All brokers of a process share them. Other loggers of the program cannot be reached.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ...arguments import must_be
from ...errors import ErrorCode
from .controller import Refused

ROOT = "root"
ROOT_LOGGER = "aiokafka_lite.embedded"

SET = 0
DELETE = 1
OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")

LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
"""Kafka's names of levels, and Python's numbers. Python has no TRACE; brokers log nothing below DEBUG."""

_changed: dict[str, tuple[int, set[BrokerLoggers]]] = {}
"""The level of each changed logger before all changes, and the clusters that changed the logger."""


class BrokerLoggers:
    """The levels of a cluster's loggers. Owner: the EmbeddedCluster.

    All clusters of a process share the loggers, so the level of a logger is restored when the last cluster that changed
    it calls ``restore``.
    """

    def levels(self) -> dict[str, str]:
        """Return the level in force of each logger."""
        names = [
            name
            for name, logger in list(logging.root.manager.loggerDict.items())  # another thread may add a logger
            if isinstance(logger, logging.Logger) and name.startswith(f"{ROOT_LOGGER}.")
        ]
        return {ROOT: _level(ROOT_LOGGER), **{name: _level(name) for name in sorted(names)}}

    def change(self, changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool) -> None:
        """Apply changes, all or none: the name of a logger, the number of an operation, and a level. Raises Refused."""
        changes = list(changes)
        levels = self.levels()
        for name, operation, level in changes:
            _check(name, operation, level, levels)
        if validate_only:
            return
        for name, operation, level in changes:
            logger = logging.getLogger(ROOT_LOGGER if name == ROOT else name)
            _changed.setdefault(logger.name, (logger.level, set()))[1].add(self)
            logger.setLevel(LEVELS[level or ""] if operation == SET else logging.NOTSET)

    def restore(self) -> None:
        """Restore the level of each logger that only this cluster has changed."""
        for name, (level, clusters) in list(_changed.items()):
            if self in clusters:
                clusters.remove(self)
                if not clusters:
                    logging.getLogger(name).setLevel(level)
                    del _changed[name]


def _level(name: str) -> str:
    number = logging.getLogger(name).getEffectiveLevel()
    return next((level for level, least in LEVELS.items() if number >= least), "TRACE")


def _check(name: str, operation: int, level: str | None, loggers: Iterable[str]) -> None:
    """Raise Refused for a change that Kafka refuses."""
    if not 0 <= operation < len(OPERATIONS):  # in Kafka, such a number causes an exception
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no operation {operation}")
    if operation not in (SET, DELETE):
        raise Refused(ErrorCode.INVALID_REQUEST, f"{OPERATIONS[operation]} is not allowed for loggers of brokers")
    if operation == SET and level is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} must have a level")
    if name not in loggers:
        raise Refused(ErrorCode.INVALID_CONFIG, f"there is no logger {name!r}")
    if operation == DELETE and name == ROOT:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the level of the logger {ROOT} cannot be removed")
    if operation == SET and level not in LEVELS:
        what = must_be(f"the level of {name}", f"one of {', '.join(LEVELS)}", level)
        raise Refused(ErrorCode.INVALID_CONFIG, what)
