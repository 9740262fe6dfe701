"""A component inside another one lives and fails with its owner."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.aio.service import ServiceState
from aiokafka_lite.errors import IllegalStateError
from tests.pure.aio.recording_component import Boom, Probe, boom, other_tasks, turns


async def test_an_attached_component_lives_within_the_owner() -> None:
    inner = Probe()
    outer = Probe(lambda probe: probe.service.attach(inner.service))
    async with outer:
        inner.service.check()

        async def uses_inner() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                outer.notes.append(f"inner is {inner.state.name}")

        outer.service.start_child(uses_inner)
        await turns()
    assert outer.notes == ["start", "close", "inner is RUNNING"]
    assert inner.state is ServiceState.CLOSED
    assert not other_tasks()


async def test_no_child_starts_while_attached_components_close() -> None:
    outer = Probe(lambda probe: probe.service.attach(inner.service))

    async def starts_a_child(probe: Probe) -> None:
        with pytest.raises(IllegalStateError, match="closed"):
            outer.service.start_child(outer.forever)
        probe.notes.append("refused")

    inner = Probe(on_close=starts_a_child)
    async with outer:
        pass
    assert inner.notes == ["start", "close", "refused"]
    assert not other_tasks()


async def test_only_the_owner_of_dropped_components_is_a_warning() -> None:
    components = [Probe()]
    components.append(Probe(lambda probe: probe.service.attach(components[0].service)))
    service = components[1].service
    await components[1].start()
    with pytest.warns(ResourceWarning, match="unclosed Probe: use it in 'async with'") as caught:
        components.clear()
    assert len(caught) == 1
    await service.close()


async def test_the_failure_of_an_attached_component_is_the_owners() -> None:
    inner = Probe()
    outer = Probe(lambda probe: probe.service.attach(inner.service))
    await outer.start()
    inner.service.start_child(boom)
    with pytest.raises(Boom):
        await outer.service.while_running(asyncio.Event().wait())
    with pytest.raises(Boom):
        await outer.close()
    assert not other_tasks()


async def test_an_attached_component_is_closed_when_the_owner_fails_to_start() -> None:
    inner = Probe()

    async def hook(probe: Probe) -> None:
        await probe.service.attach(inner.service)
        raise Boom

    with pytest.raises(Boom):
        await Probe(hook).start()
    assert inner.state is ServiceState.CLOSED


async def test_an_attached_component_that_cannot_start_fails_the_owner() -> None:
    inner = Probe(lambda _: boom())
    with pytest.raises(Boom):
        await Probe(lambda probe: probe.service.attach(inner.service)).start()
    assert not other_tasks()


async def test_an_attached_component_that_is_closed_directly_fails_its_owner() -> None:
    inner = Probe()
    outer = Probe(lambda probe: probe.service.attach(inner.service))
    await outer.start()
    await inner.close()
    with pytest.raises(IllegalStateError, match="closed by another component"):
        await outer.service.while_running(asyncio.Event().wait())
    with pytest.raises(IllegalStateError):
        await outer.close()
    assert not other_tasks()
