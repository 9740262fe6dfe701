"""Sends the rows of a table to Kafka: the outbox of a service that writes to its own database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import lazy

if TYPE_CHECKING:
    from .postgres import PostgresOutbox as PostgresOutbox
    from .relay import OutboxRelay as OutboxRelay
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".postgres": "PostgresOutbox",
            ".relay": "OutboxRelay",
        },
    )
