"""One loop per process: leases share a component, which is closed when it was not used for a time."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from aiokafka_lite.aio.component import Component
from aiokafka_lite.aio.service import ServiceState
from aiokafka_lite.errors import KafkaTimeout
from aiokafka_lite.spark import worker_loop
from aiokafka_lite.spark.worker_loop import WorkerLoop


class Probe(Component):
    """A component that may fail to start, and that can be made to fail."""

    made = 0

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        type(self).made += 1
        self.fails = fails
        self.ended = threading.Event()

    async def _on_start(self) -> None:
        if self.fails:
            raise KafkaTimeout("no broker answers")

    async def _on_close(self) -> None:
        self.ended.set()

    async def fail(self) -> None:
        async def failing() -> None:
            raise KafkaTimeout("it failed")

        self._service.start_child(failing)
        with pytest.raises(KafkaTimeout):
            await self._service.while_running(anyio.sleep_forever())


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    """A loop that closes a component as soon as it has no lease."""
    Probe.made = 0
    loop = WorkerLoop(idle_timeout=0.0)
    yield loop
    loop.close()


def test_leases_of_one_key_share_a_component(loop: WorkerLoop) -> None:
    with loop.lease("a", Probe) as first, loop.lease("a", Probe) as second, loop.lease("b", Probe) as other:
        assert first is second
        assert first is not other
        assert first.state is ServiceState.RUNNING
    assert Probe.made == 2


def test_concurrent_leases_start_a_component_once(loop: WorkerLoop) -> None:
    barrier = threading.Barrier(8)

    def use() -> Probe:
        barrier.wait()
        with loop.lease("a", Probe) as service:
            barrier.wait()
            return service

    with ThreadPoolExecutor(8) as pool:
        services = set(pool.map(lambda _: use(), range(8)))
    assert len(services) == Probe.made == 1


def test_an_unused_component_is_closed(loop: WorkerLoop) -> None:
    with loop.lease("a", Probe) as first:
        pass
    assert first.ended.wait(5)
    with loop.lease("a", Probe) as second:
        assert second is not first


def test_a_component_is_kept_for_a_lease_within_the_idle_timeout() -> None:
    slow = WorkerLoop(idle_timeout=60.0)
    with slow.lease("a", Probe) as first:
        pass
    with slow.lease("a", Probe) as second:
        assert second is first
    slow.close()
    assert first.ended.is_set()


def test_the_next_lease_repeats_a_failed_start(loop: WorkerLoop) -> None:
    with pytest.raises(KafkaTimeout, match="no broker answers"), loop.lease("a", lambda: Probe(fails=True)):
        pytest.fail("it has not started")
    with loop.lease("a", Probe) as service:
        assert service.state is ServiceState.RUNNING


def test_the_next_lease_replaces_a_failed_component(loop: WorkerLoop) -> None:
    with loop.lease("a", Probe) as first:
        loop.run(first.fail())
        with loop.lease("a", Probe) as second:
            assert second is not first
            assert second.state is ServiceState.RUNNING


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # other tests of the process have threads
def test_a_forked_process_makes_a_loop_of_its_own() -> None:
    parent = worker_loop.worker_loop()
    assert worker_loop.worker_loop() is parent
    child = os.fork()
    if child == 0:
        own = worker_loop.worker_loop()
        good = own is not parent and own.run(_three()) == 3
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    parent.close()
    again = worker_loop.worker_loop()
    assert again is not parent
    again.close()


async def _three() -> int:
    return 3


@pytest.mark.thorough
def test_objects_are_frozen_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_loop, "_frozen_in", None)
    before = gc.get_freeze_count()
    worker_loop.freeze_gc()
    after = gc.get_freeze_count()
    assert after > before
    objects = [[] for _ in range(1000)]
    worker_loop.freeze_gc()
    assert gc.get_freeze_count() <= after  # less if a frozen object was freed
    assert objects
