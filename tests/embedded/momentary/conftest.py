"""Clients of every kind on an embedded cluster, in memory and in virtual time, while requests fail for seconds."""

from __future__ import annotations

from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops
