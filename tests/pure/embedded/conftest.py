"""Run these tests in virtual time, as the broker's parts have timers."""

from __future__ import annotations

from tests.virtual import virtual_loops

pytest_asyncio_loop_factories = virtual_loops
