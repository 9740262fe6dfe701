"""Topics that exist only while a command runs."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...admin import Admin, NewTopic


@asynccontextmanager
async def temporary_topic(admin: Admin, what: str, partitions: int, replicas: int = 1) -> AsyncIterator[str]:
    """Create a topic with a name that no other topic has, and delete it at the end."""
    name = f"aiokafka-lite-{what}-{secrets.token_hex(4)}"
    (await admin.topics.create(NewTopic(name, partitions, replicas))).raise_for_errors()
    try:
        yield name
    finally:
        await admin.topics.delete(name)
