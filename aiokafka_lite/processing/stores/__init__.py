"""Databases in which ``ExactlyOnceInto`` keeps its offsets: the protocol, PostgreSQL, and one in memory for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import lazy

if TYPE_CHECKING:
    from .memory import MemoryStore as MemoryStore
    from .postgres import PostgresStore as PostgresStore
    from .store import OffsetChange as OffsetChange
    from .store import StaleClaim as StaleClaim
    from .store import Store as Store
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".memory": "MemoryStore",
            ".postgres": "PostgresStore",
            ".store": "OffsetChange StaleClaim Store",
        },
    )
