"""Run these tests in virtual time, as the broker's parts have timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}
