"""One loop for a process: services are shared while they are used, and closed when nobody has used them for a while."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from aiokafka_lite.aio.service import Component, ServiceState
from aiokafka_lite.errors import KafkaTimeout
from aiokafka_lite.spark import runtime as runtimes
from aiokafka_lite.spark.runtime import Runtime


class Probe(Component):
    """Something to share, which may fail to start, and can be made to die."""

    made = 0

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        type(self).made += 1
        self.fails = fails
        self.ended = threading.Event()

    async def _on_start(self) -> None:
        if self.fails:
            raise KafkaTimeout("nobody answers")

    async def _on_close(self) -> None:
        self.ended.set()

    async def die(self) -> None:
        async def dying() -> None:
            raise KafkaTimeout("it died")

        self._service.start_child(dying)
        with pytest.raises(KafkaTimeout):
            await self._service.while_running(anyio.sleep_forever())


@pytest.fixture
def here() -> Iterator[Runtime]:
    """A runtime whose services are closed at once when nobody uses them."""
    Probe.made = 0
    runtime = Runtime(idle_timeout=0.0)
    yield runtime
    runtime.close()


def test_users_of_the_same_settings_share_one_service(here: Runtime) -> None:
    with here.lease("a", Probe) as first, here.lease("a", Probe) as second, here.lease("b", Probe) as other:
        assert first is second
        assert first is not other
        assert first.state is ServiceState.RUNNING
    assert Probe.made == 2


def test_threads_that_come_at_once_start_it_once(here: Runtime) -> None:
    barrier = threading.Barrier(8)

    def use() -> Probe:
        barrier.wait()
        with here.lease("a", Probe) as service:
            barrier.wait()
            return service

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: use(), range(8)))
    assert len(found) == Probe.made == 1


def test_it_is_closed_when_nobody_has_used_it_for_a_while(here: Runtime) -> None:
    with here.lease("a", Probe) as first:
        pass
    assert first.ended.wait(5)
    with here.lease("a", Probe) as second:
        assert second is not first


def test_it_stays_for_who_comes_in_time() -> None:
    patient = Runtime(idle_timeout=60.0)
    with patient.lease("a", Probe) as first:
        pass
    with patient.lease("a", Probe) as second:
        assert second is first
    patient.close()
    assert first.ended.is_set()


def test_a_start_that_fails_is_tried_anew_by_the_next(here: Runtime) -> None:
    with pytest.raises(KafkaTimeout, match="nobody answers"), here.lease("a", lambda: Probe(fails=True)):
        pytest.fail("it has not started")
    with here.lease("a", Probe) as service:
        assert service.state is ServiceState.RUNNING


def test_one_that_has_died_is_replaced_for_the_next_user(here: Runtime) -> None:
    with here.lease("a", Probe) as first:
        here.run(first.die())
        with here.lease("a", Probe) as second:
            assert second is not first
            assert second.state is ServiceState.RUNNING


def test_a_forked_process_makes_its_own() -> None:
    parent = runtimes.runtime()
    assert runtimes.runtime() is parent
    child = os.fork()
    if child == 0:
        own = runtimes.runtime()
        good = own is not parent and own.run(_three()) == 3
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    parent.close()
    again = runtimes.runtime()
    assert again is not parent
    again.close()


async def _three() -> int:
    return 3


def test_the_collector_is_relieved_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "_frozen_in", None)
    before = gc.get_freeze_count()
    runtimes.freeze_gc()
    after = gc.get_freeze_count()
    assert after > before
    kept = [[] for _ in range(1000)]
    runtimes.freeze_gc()
    assert gc.get_freeze_count() <= after  # less when something that was frozen has died meanwhile
    assert kept
