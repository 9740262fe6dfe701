"""A group that is paused, by its program or by the circuit breaker of ``Workers``: it reads nothing, and stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite import Producer, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.processing import BatchFailure, CircuitBreaker, dead_letter, retry, skip
from aiokafka_lite.processing.breaker import BREAKER, BreakerEvent, BreakerState
from aiokafka_lite.types import Record
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import ORDERS
from tests.embedded.group.test_sessions import Recorder, Running, committed, group_of, until
from tests.embedded.group.test_workers import ONE, Handling, finish, keyed

LONG = 1000.0
"""Virtual seconds, more than ``max_poll_interval`` and the session timeout."""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_paused_group_reads_nothing_and_stays_a_member(cluster: EmbeddedCluster, protocol: Any) -> None:
    handler = Recorder()
    running = Running(cluster, handler, group_protocol=protocol)
    await keyed(cluster, 5, keys=5)
    await until(lambda: len(handler.read) == 5)
    (session,) = handler.sessions
    generation = session.generation_id
    running.group.pause()
    await keyed(cluster, 5, keys=5, start=5)
    await asyncio.sleep(LONG)
    assert len(handler.read) == 5
    assert handler.calls == ["setup 6"], "the session has not ended"
    assert session.generation_id == generation
    partitions = running.group.metrics().partitions
    assert all(metrics.is_paused for metrics in partitions.values())
    running.group.resume()
    await until(lambda: len(handler.read) == 10)
    await finish(running)
    assert [record.offset for record in handler.read] == list(range(10))


async def test_a_record_in_the_buffer_waits_too(cluster: EmbeddedCluster) -> None:
    fill(cluster, ONE, 30)
    handler = Recorder(work=1.0)
    running = Running(cluster, handler)
    await until(lambda: len(handler.read) == 3)
    running.group.pause()
    await asyncio.sleep(LONG)
    assert len(handler.read) == 3
    assert (await committed(cluster))[ONE] == 3, "the record that the handler had was finished and committed"
    running.group.resume()
    await until(lambda: len(handler.read) == 30)
    await finish(running)
    assert [record.offset for record in handler.read] == list(range(30))


async def test_a_group_may_begin_paused_and_partitions_that_come_later_are_paused_too(cluster: EmbeddedCluster) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 10)
    handler, group = Recorder(), group_of(cluster)
    group.pause()
    consuming = asyncio.create_task(group.consume(["orders"], handler))
    other_handler = Recorder()
    other = Running(cluster, other_handler)
    await until(lambda: len(other_handler.read) == 30 and len(handler.sessions) >= 1)
    await finish(other)
    await until(lambda: len(handler.sessions[-1].claims["orders"]) == 6)
    await asyncio.sleep(100.0)  # the brokers delete these old records after some minutes
    assert handler.read == []
    group.resume()
    await until(lambda: len(handler.read) == 30)
    await group.close()
    await consuming


async def test_the_health_of_a_paused_group_says_why_and_stays_ready(cluster: EmbeddedCluster) -> None:
    handler = Recorder()
    running = Running(cluster, handler)
    await until(lambda: bool(handler.sessions) and running.group.health().is_ready)
    running.group.pause("the database is being moved")
    for wait in (0.0, LONG):  # afterwards, the standing still is known too
        await asyncio.sleep(wait)
        health = running.group.health()
        assert (health.is_live, health.is_ready) == (True, True)
        (problem,) = health.problems
        assert problem.startswith("the program has paused the group: the database is being moved")
    running.group.pause()
    assert running.group.health().problems[0].startswith("the program has paused")
    running.group.resume()
    running.group.resume()  # nothing is left to do
    await asyncio.sleep(LONG)
    assert running.group.health().problems == ()
    assert not running.group.is_paused
    await finish(running)


async def test_wrong_calls_of_pause_are_refused(cluster: EmbeddedCluster) -> None:
    group: Any = group_of(cluster)
    with pytest.raises(TypeError, match=r"^reason must be a string, got \[TopicPartition"):
        group.pause([ONE])
    assert not group.is_paused
    await group.close()
    with pytest.raises(IllegalStateError, match="is closed"):
        group.pause()
    group.resume()


async def test_workers_of_a_paused_group_finish_what_they_began(cluster: EmbeddedCluster) -> None:
    await keyed(cluster, 20, keys=20)
    handling = Handling()
    handling.hold = {b"0"}
    workers = Workers(handling, concurrency=1)
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().pending == 20 and workers.metrics().active == 1)
    assert workers.metrics().paused == 0
    running.group.pause()
    handling.held[b"0"].set()
    await until(lambda: handling.values == [0])
    await asyncio.sleep(LONG)
    assert handling.values == [0]
    assert (workers.metrics().paused, workers.metrics().active, workers.metrics().pending) == (1, 0, 19)
    assert (await committed(cluster))[ONE] == 1
    running.group.resume()
    await until(lambda: len(handling.values) == 20)
    await finish(running)
    assert (await committed(cluster))[ONE] == 20


@pytest.mark.parametrize("end", ["drain", "close", "cancel"])
async def test_workers_of_a_paused_group_can_be_ended(cluster: EmbeddedCluster, end: str) -> None:
    await keyed(cluster, 20, keys=20)
    handling = Handling(work=1.0)
    workers = Workers(handling, concurrency=2)
    running = Running(cluster, workers)
    await until(lambda: len(handling.values) == 2)
    running.group.pause()
    await until(lambda: len(handling.values) == 4)
    async with asyncio.timeout(10.0):
        if end == "drain":
            assert await workers.drain()
        await (running.cancel() if end == "cancel" else finish(running))
    assert sorted(handling.values) == [0, 1, 2, 3]
    assert (await committed(cluster))[ONE] == 4


class Service:
    """What the handler calls. It fails for records of ``poison``, and for all of them while it is away."""

    def __init__(self, poison: bytes = b"") -> None:
        self.is_away = False
        self.poison = poison
        self.calls: list[tuple[float, int]] = []
        self.done: list[int] = []

    async def __call__(self, record: Record[bytes, bytes]) -> None:
        self.calls.append((asyncio.get_running_loop().time(), int(record.value)))
        if record.value == self.poison:
            raise ValueError("no such dish")
        if self.is_away:
            raise ConnectionError("the service is away")
        self.done.append(int(record.value))

    def calls_since(self, begin: float) -> list[float]:
        return [round(time - begin, 1) for time, _ in self.calls if time > begin]


def times_of_probes(count: int, pause: float) -> Callable[[list[float]], bool]:
    """Return a check of the times of probes: the pauses are doubled, less up to 20% each."""

    def check(times: list[float]) -> bool:
        longest = [pause * (2 ** (number + 1) - 1) for number in range(count)]
        return len(times) == count and all(
            0.8 * limit - 0.1 <= time <= limit + 0.1 for time, limit in zip(times, longest, strict=True)
        )

    return check


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_breaker_pauses_the_group_probes_with_one_record_and_resumes(
    cluster: EmbeddedCluster, protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    breaker = CircuitBreaker(failures=3, window=10.0, pause=5.0)
    workers = Workers(service, concurrency=4, rules=[retry(attempts=3, backoff=0.1), skip()], breaker=breaker)
    running = Running(cluster, workers, group_protocol=protocol)
    await keyed(cluster, 4, keys=4)
    await until(lambda: len(service.done) == 4)
    service.is_away = True
    began = asyncio.get_running_loop().time()
    await keyed(cluster, 100, keys=100, start=4)
    await until(lambda: bool(workers.metrics().paused))
    at_opening = len(service.calls_since(began))
    assert at_opening <= 3 + 4, "only records in progress end"
    opened = asyncio.get_running_loop().time()
    health = running.group.health()
    assert (health.is_live, health.is_ready) == (True, False)
    assert health.problems[0].startswith(
        "the circuit breaker of Workers is open: 3 failures within 10 s, the last one ConnectionError('the service is"
    )
    await asyncio.sleep(100.0)
    # Probes after about 5, 15, 35 and 75 s; each pause is up to 20% shorter.
    assert times_of_probes(4, 5.0)(service.calls_since(opened)[:4])
    assert len(service.calls_since(opened)) <= 5
    assert workers.metrics().failed == 0, "a probe that fails is no attempt"
    service.is_away = False
    await until(lambda: len(service.done) == 104)
    assert workers.metrics().paused == 0
    assert workers.metrics().breaker_openings >= 5
    assert running.group.health().is_ready
    await finish(running)
    assert sorted(service.done) == list(range(104))
    assert (await committed(cluster))[ONE] == 104
    assert "no further record begins for" in caplog.text


async def test_the_breaker_stops_fetching_while_it_is_open(cluster: EmbeddedCluster) -> None:
    service = Service()
    service.is_away = True
    workers = Workers(service, rules=[retry()], breaker=CircuitBreaker(failures=2, pause=1000.0, max_pause=1000.0))
    running = Running(cluster, workers)
    await keyed(cluster, 2, keys=2)
    await until(lambda: workers.metrics().paused == 1)
    await keyed(cluster, 50, keys=50, start=2)
    await asyncio.sleep(100.0)
    assert workers.metrics().pending == 2
    assert all(metrics.is_paused for metrics in running.group.metrics().partitions.values())
    await finish(running)


@pytest.mark.parametrize(
    ("breaker", "error"),
    [
        (CircuitBreaker(failures=3, window=10.0), ValueError("of the record")),
        (CircuitBreaker(KeyError, failures=3, window=10.0), ConnectionError("not counted")),
        (CircuitBreaker(failures=21, window=10.0), ConnectionError("not enough")),
    ],
)
async def test_failures_that_do_not_count_do_not_open_the_breaker(
    cluster: EmbeddedCluster, breaker: CircuitBreaker, error: Exception
) -> None:
    async def fail(record: Record[bytes, bytes]) -> None:
        raise error

    await keyed(cluster, 20, keys=20)
    workers = Workers(fail, rules=[skip()], breaker=breaker)
    running = Running(cluster, workers)
    await until(lambda: workers.metrics().failed == 20)
    await finish(running)
    assert workers.metrics().breaker_openings == 0


async def test_failures_of_different_windows_do_not_open_the_breaker(cluster: EmbeddedCluster) -> None:
    service = Service()
    service.is_away = True
    workers = Workers(service, rules=[skip()], breaker=CircuitBreaker(failures=2, window=10.0))
    running = Running(cluster, workers)
    for number in range(10):
        await keyed(cluster, 1, keys=1, start=number)
        await asyncio.sleep(11.0)
    assert workers.metrics().failed == 10
    assert workers.metrics().breaker_openings == 0
    await finish(running)


async def test_a_probe_that_fails_by_its_own_fault_is_left_to_the_rules(cluster: EmbeddedCluster) -> None:
    service = Service(poison=b"2")
    service.is_away = True
    workers = Workers(
        service, order="partition", rules=[retry(backoff=0.1), skip()], breaker=CircuitBreaker(failures=2, pause=5.0)
    )
    running = Running(cluster, workers)
    await keyed(cluster, 2, keys=1)
    await until(lambda: workers.metrics().paused == 1)
    service.is_away = False
    await keyed(cluster, 3, keys=1, start=2)
    await until(lambda: service.done == [0, 1, 3, 4])
    assert workers.metrics().failed == 1
    await finish(running)


async def test_the_next_record_is_the_probe_if_none_is_left(cluster: EmbeddedCluster) -> None:
    service = Service()
    service.is_away = True
    workers = Workers(service, rules=[skip()], breaker=CircuitBreaker(failures=2, pause=5.0))
    running = Running(cluster, workers)
    await keyed(cluster, 2, keys=2)
    await until(lambda: workers.metrics().failed == 2)
    await asyncio.sleep(LONG)
    assert running.group.health().is_ready, "it waits for a record, and nothing is known to be wrong"
    assert workers.metrics().breaker_openings == 1
    await keyed(cluster, 5, keys=5, start=2)
    await until(lambda: workers.metrics().breaker_openings == 2)
    assert workers.metrics().failed == 2
    service.is_away = False
    await until(lambda: sorted(service.done) == [2, 3, 4, 5, 6])
    await finish(running)


async def test_the_breaker_stays_open_over_a_rebalance(cluster: EmbeddedCluster) -> None:
    service = Service()
    service.is_away = True
    breaker = CircuitBreaker(failures=2, pause=200.0, max_pause=200.0)
    workers = Workers(service, rules=[retry()], breaker=breaker)
    running = Running(cluster, workers)
    await keyed(cluster, 20, keys=20)
    await until(lambda: workers.metrics().paused == 1)
    calls = len(service.calls)
    other = Running(cluster, Recorder(), group_protocol="classic")
    await until(lambda: len(running.group.metrics().partitions) == 3)
    await asyncio.sleep(100.0)
    await finish(other)
    await until(lambda: len(running.group.metrics().partitions) == 6)
    await asyncio.sleep(100.0)
    assert len(service.calls) == calls
    assert not running.group.health().is_ready
    service.is_away = False
    await until(lambda: workers.metrics().paused == 0, within=300.0)
    await finish(running)
    assert not running.group.is_paused


async def test_a_rebalance_does_not_make_the_pause_of_the_breaker_longer(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    service.is_away = True
    workers = Workers(service, rules=[retry()], breaker=CircuitBreaker(failures=2, pause=1000.0, max_pause=4000.0))
    running = Running(cluster, workers)
    await keyed(cluster, 20, keys=20)
    await until(lambda: workers.metrics().paused == 1)
    for _ in range(2):
        other = Running(cluster, Recorder(), group_protocol="classic")
        await until(lambda: len(running.group.metrics().partitions) == 3)
        await finish(other)
        await until(lambda: len(running.group.metrics().partitions) == 6)
    pauses = {line.rpartition("begins for ")[2] for line in caplog.messages if "no further record begins for" in line}
    assert len(pauses) == 1
    await finish(running)


@pytest.mark.parametrize("end", ["drain", "close", "cancel"])
async def test_workers_end_while_the_breaker_is_open_or_probes(cluster: EmbeddedCluster, end: str) -> None:
    for hangs in (False, True):
        service, never = Service(), asyncio.Event()
        service.is_away = True

        async def call(record: Record[bytes, bytes], service: Service = service, never: asyncio.Event = never) -> None:
            if not service.is_away:
                await never.wait()
            await service(record)

        workers = Workers(call, rules=[retry()], breaker=CircuitBreaker(failures=2, pause=1.0))
        running = Running(cluster, workers)
        await keyed(cluster, 5, keys=5)
        await until(lambda workers=workers: workers.metrics().paused == 1)  # type: ignore[misc]
        if hangs:
            service.is_away = False
            await until(lambda workers=workers: workers.metrics().active == 1)  # type: ignore[misc]
        async with asyncio.timeout(10.0):
            if end == "drain":
                assert await workers.drain(timeout=0.1) is not hangs
            await (running.cancel() if end == "cancel" else finish(running))
        assert not running.group.is_paused
        assert workers.metrics().paused == 0


async def test_a_program_that_resumes_does_not_close_the_breaker(cluster: EmbeddedCluster) -> None:
    service = Service()
    service.is_away = True
    workers = Workers(service, rules=[retry()], breaker=CircuitBreaker(failures=2, pause=100.0, max_pause=100.0))
    running = Running(cluster, workers)
    await keyed(cluster, 5, keys=5)
    await until(lambda: workers.metrics().paused == 1)
    calls = len(service.calls)
    running.group.pause("maintenance")
    assert "the program has paused the group: maintenance" in running.group.health().problems[1]
    running.group.resume()
    await asyncio.sleep(50.0)
    assert len(service.calls) == calls
    running.group.pause()
    service.is_away = False
    await asyncio.sleep(LONG)
    assert len(service.calls) == calls, "the breaker probes, but the program has paused the group"
    running.group.resume()
    await until(lambda: len(service.done) == 5)
    await finish(running)


async def test_lists_are_probes_too(cluster: EmbeddedCluster) -> None:
    is_away, lists = True, list[list[int]]()

    async def store(records: list[Record[bytes, bytes]]) -> None:
        lists.append([int(record.value) for record in records])
        if is_away:
            raise BatchFailure(0, ConnectionError("the database is away"))

    workers: Workers[bytes, bytes] = Workers(
        store, batch_size=5, order="partition", rules=[retry(backoff=0.1)], breaker=CircuitBreaker(failures=2, pause=5)
    )
    running = Running(cluster, workers)
    await keyed(cluster, 20, keys=20)
    await until(lambda: workers.metrics().breaker_openings >= 2)
    is_away = False
    await until(lambda: workers.metrics().processed == 20)
    await finish(running)
    assert (await committed(cluster))[ONE] == 20


@pytest.mark.parametrize("order", ["key", "partition", "none"])
async def test_what_a_failed_probe_has_done_is_not_repeated(cluster: EmbeddedCluster, order: Any) -> None:
    failures, done = 6, list[int]()

    async def store(records: list[Record[bytes, bytes]]) -> None:
        nonlocal failures
        for index, record in enumerate(records):
            if index == 1 and failures:
                failures -= 1
                raise BatchFailure(index, ConnectionError("the database is away"))
            done.append(int(record.value))

    workers: Workers[bytes, bytes] = Workers(
        store, batch_size=10, order=order, rules=[retry()], breaker=CircuitBreaker(failures=1, pause=5.0)
    )
    running = Running(cluster, workers)
    await keyed(cluster, 20, keys=3)
    await until(lambda: workers.metrics().pending == 0 and len(done) >= 20, within=600.0)
    await finish(running)
    assert sorted(done) == list(range(20))
    assert workers.metrics().processed == 20
    assert workers.metrics().breaker_openings == 6
    assert (await committed(cluster))[ONE] == 20
    if order != "none":
        for key in range(3):
            assert [number for number in done if number % 3 == key] == list(range(key, 20, 3))


async def test_a_breaker_protects_records_from_the_dead_letter_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("dead", partitions=1)
    service = Service()
    service.is_away = True
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        workers = Workers(
            service,
            concurrency=2,
            rules=[retry(attempts=5, backoff=1.0), dead_letter(topic="dead")],
            producer=producer,
            breaker=CircuitBreaker(failures=4, pause=5.0),
        )
        running = Running(cluster, workers)
        await keyed(cluster, 50, keys=50)
        await asyncio.sleep(3600.0)
        service.is_away = False
        await until(lambda: len(service.done) == 50, within=100.0)
        await finish(running)
    assert workers.metrics().failed == 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CircuitBreaker("OSError"), "the errors of CircuitBreaker() must be subclasses of Exception, got 'OS"),
        (lambda: CircuitBreaker(failures=0), "failures must be a whole number >= 1, got 0"),
        (lambda: CircuitBreaker(window=0), "window must be a number of seconds > 0, got 0"),
        (lambda: CircuitBreaker(pause="5"), "pause must be a number of seconds >= 0, got '5'"),
        (lambda: CircuitBreaker(max_pause=1), "max_pause must be at least pause=5, got 1"),
        (lambda: Workers(Handling(), breaker=CircuitBreaker), "breaker must be a CircuitBreaker, got <class"),
        (lambda: Workers(Handling(), breaker=5), "breaker must be a CircuitBreaker, got 5"),
    ],
)
def test_wrong_arguments_of_a_breaker_are_refused(make: Any, text: str) -> None:
    with pytest.raises((ConfigurationError, TypeError, ValueError)) as caught:
        make()
    assert text in str(caught.value)


def test_a_long_pause_of_a_breaker_is_its_longest_one() -> None:
    assert CircuitBreaker(pause=120).max_pause == 120
    assert CircuitBreaker().max_pause == 60


def test_each_state_of_a_breaker_can_be_left() -> None:
    assert set(BREAKER) == set(BreakerState)
    assert {event for events in BREAKER.values() for event in events} == set(BreakerEvent)
