"""Demands for metadata: which callers an answer serves."""

from __future__ import annotations

import asyncio

from aiokafka_lite.cluster.demands import Demands


async def test_an_older_answer_after_a_newer_one_takes_nothing_back() -> None:
    """Two hedged requests may be answered in one turn of the event loop, the newer one first."""
    demands = Demands()
    first = demands.issue(["a"], (), at_once=False)
    older = demands.send()
    second = demands.issue(["b"], (), at_once=False)
    newer = demands.send()
    demands.serve(newer)
    demands.serve(older)
    assert not demands.is_pending
    await asyncio.wait_for(demands.wait(first), 1)
    await asyncio.wait_for(demands.wait(second), 1)
