"""``simulate``: it finds mistakes of services, a seed repeats, and bad input has clear errors."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from aiokafka_lite import Admin, Consumer, ExactlyOnce, Producer, Record, ShareConsumer
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer
from aiokafka_lite.errors import ConfigurationError, KafkaTimeout
from aiokafka_lite.testing.simulation import (
    Broken,
    DatabaseFailed,
    History,
    Instance,
    Message,
    SimulationFailure,
    at_least_once,
    in_order_by_key,
    no_unhandled_exception,
    nothing_left_behind,
    one_owner,
    orders,
    output_equals,
    processed_at_least_once,
    simulate,
    stops_within,
)
from aiokafka_lite.testing.simulation.real_io import RealIOError
from tests.embedded.simulated.classic_mistakes import (
    MISTAKES,
    Mistake,
    billing,
    charge,
    commits_first,
    order_of,
    writes_bills_once,
)
from tests.embedded.simulated.database_services import bills_into_the_database

REPAIRED = {mistake.repaired.__name__: mistake.repaired for mistake in MISTAKES}
REPAIRED["bills_into_the_database"] = bills_into_the_database


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_default_checks_find_a_mistake_within_a_hundred_seeds(mistake: Mistake) -> None:
    with pytest.raises(SimulationFailure) as failure:
        simulate(mistake.broken, orders(40), seeds=100)
    assert re.search(mistake.symptom, failure.value.broken)


@pytest.mark.parametrize("name", REPAIRED)
def test_the_service_without_the_mistake_passes(name: str) -> None:
    assert simulate(REPAIRED[name], orders(40), seeds=20).seeds == 20


def test_a_failure_has_the_seed_the_faults_the_timeline_and_the_line_to_repeat_it() -> None:
    with pytest.raises(SimulationFailure) as failure:
        simulate(commits_first, orders(20), seeds=100, checks=[processed_at_least_once("orders", effect="charge")])
    text = str(failure.value)
    assert text.startswith("'order-"), text
    assert "has no effect 'charge'" in text
    seed = failure.value.seed
    assert f"seed {seed} (found after {seed + 1} seeds)" in text
    schedule = text.partition("faults:\n")[2].partition("\n\n")[0].splitlines()
    assert 1 <= len(schedule) <= 10
    assert any("instance" in line for line in schedule), text
    assert "it is written to orders-" in text
    assert "commits orders-" in text
    assert f"KAFKA_SIMULATION_SEED={seed} pytest 'tests/embedded/simulated/test_service_simulation.py::" in text
    with pytest.raises(SimulationFailure) as again:
        simulate(commits_first, orders(20), seeds=[seed], checks=[processed_at_least_once("orders", effect="charge")])
    assert str(again.value).partition("faults:")[2] == text.partition("faults:")[2]


def test_the_same_seed_gives_the_same_trace_in_processes_with_other_hash_seeds() -> None:
    program = (
        "from tests.embedded.simulated.classic_mistakes import billing\n"
        "from aiokafka_lite.testing.simulation import orders, simulate\n"
        "print(simulate(billing, orders(40), seeds=[5]).trace)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert runs[0] == runs[1] == f"{simulate(billing, orders(40), seeds=[5]).trace}\n"


def test_a_variable_chooses_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SIMULATION_SEED", "5")
    assert simulate(billing, orders(10), seeds=50).seeds == 1
    monkeypatch.setenv("KAFKA_SIMULATION_SEED", "five")
    with pytest.raises(ConfigurationError, match="KAFKA_SIMULATION_SEED must be"):
        simulate(billing, orders(10))


def test_a_service_on_the_interface_of_aiokafka_needs_no_argument_for_the_simulation() -> None:
    async def compatible(instance: Instance) -> None:
        consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=instance.bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=10_000,
        )
        async with consumer:
            async for record in consumer:
                await charge(instance, order_of(record))  # type: ignore[arg-type]
                await consumer.commit()

    assert simulate(compatible, orders(20), seeds=5, faults=["brokers", "leaders"]).seeds == 5


def test_a_service_is_a_class_with_run_and_stop() -> None:
    class Billing:
        def __init__(self, instance: Instance) -> None:
            self.instance = instance
            self.stopped = asyncio.Event()

        async def run(self) -> None:
            running = asyncio.ensure_future(billing(self.instance))
            await self.stopped.wait()
            running.cancel()
            await asyncio.wait([running])

        def stop(self) -> None:
            self.stopped.set()

    assert simulate(Billing, orders(20), seeds=2, faults=()).seeds == 2


def test_an_output_topic_equals_a_function_of_the_input() -> None:
    def order(value: bytes) -> bytes:
        return value.split(b'"')[3]

    check = output_equals("bills", order)
    assert simulate(writes_bills_once, orders(20), seeds=5, checks=[processed_at_least_once(), check]).seeds == 5
    with pytest.raises(SimulationFailure, match=r"comes from no record|has 0 records for"):
        simulate(writes_bills_once, orders(20), seeds=1, checks=[output_equals("bills", bytes.upper)])


def test_two_owners_of_a_partition_are_found() -> None:
    async def reads_without_a_group(instance: Instance) -> None:
        async with Consumer(instance.bootstrap_servers, topics=["orders"]) as consumer:
            async for record in consumer:
                await charge(instance, order_of(record))

    with pytest.raises(SimulationFailure, match=r"and instance \d processed orders-\d at once"):
        simulate(reads_without_a_group, orders(20), seeds=5, checks=[one_owner()], faults=())


async def sleeps(instance: Instance) -> None:
    time.sleep(0.1)


async def uses_a_thread(instance: Instance) -> None:
    await asyncio.to_thread(print)


async def opens_a_socket(instance: Instance) -> None:
    socket.create_connection(("127.0.0.1", 9)).close()


@pytest.mark.parametrize(
    ("service", "call"),
    [
        (sleeps, r"time\.sleep\(\)"),
        (uses_a_thread, r"asyncio\.to_thread\(\)"),
        (opens_a_socket, r"socket\.(connect|getaddrinfo)\(\)"),
    ],
)
def test_real_io_is_refused_with_the_call_and_its_place(service: object, call: str) -> None:
    with pytest.raises(SimulationFailure, match=call) as failure:
        simulate(service, orders(5), seeds=1, faults=(), seconds=2.0)  # type: ignore[arg-type]
    assert "test_service_simulation.py:" in failure.value.broken


def test_a_service_that_connects_to_another_address_is_named() -> None:
    async def ignores_its_arguments(instance: Instance) -> None:
        async with Consumer("kafka.example:9092", topics=["orders"]):
            pass

    with pytest.raises(SimulationFailure, match=r"connects to kafka\.example:9092, which is no broker"):
        simulate(ignores_its_arguments, orders(5), seeds=1, faults=(), seconds=2.0)


def test_a_service_that_never_ends_is_found() -> None:
    async def never_ends(instance: Instance) -> None:
        while True:
            try:
                await asyncio.sleep(1.0)
            except asyncio.CancelledError:
                continue

    with pytest.raises(SimulationFailure, match="did not end within 30 s after SIGTERM"):
        simulate(never_ends, orders(5), seeds=1, faults=(), checks=[stops_within(30.0)])


def test_an_outage_of_the_database_outlasts_a_stop() -> None:
    def stores(*, gives_up: bool) -> Callable[[Instance], Awaitable[None]]:
        async def service(instance: Instance) -> None:
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            async with Consumer(instance.bootstrap_servers, topics=["orders"], group_id="billing") as consumer:
                while not stop.is_set():
                    for record in await consumer.poll(timeout=0.5):
                        await store(instance, record, lambda: gives_up and stop.is_set())

        return service

    async def store(instance: Instance, record: Record[bytes, bytes], gives_up: Callable[[], bool]) -> None:
        while True:
            try:
                async with instance.database.transaction() as transaction:
                    transaction.effect("charge", order_of(record))
                    await transaction.put("orders", order_of(record), "charged")
                return
            except DatabaseFailed:
                if gives_up():
                    raise
                await asyncio.sleep(0.1)

    faults = ["database_restarts", "instance_stopped"]
    with pytest.raises(SimulationFailure, match="did not end within 30 s after SIGTERM") as failure:
        simulate(stores(gives_up=False), orders(40), seeds=20, faults=faults, checks=at_least_once())
    assert "the database is down for 40 s" in str(failure.value)
    assert simulate(stores(gives_up=True), orders(40), seeds=20, faults=faults, checks=at_least_once()).seeds == 20


async def waits(instance: Instance) -> None:
    await instance.stopping.wait()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the workload writes nothing"):
        simulate(billing, [], seeds=1)
    with pytest.raises(ConfigurationError, match="two messages with the id 'a'"):
        simulate(billing, [Message("orders", "a"), Message("orders", "a")], seeds=1)
    with pytest.raises(ConfigurationError, match="faults must be names of connections, "):
        simulate(billing, orders(5), seeds=1, faults=["brokes"])
    with pytest.raises(ConfigurationError, match="seconds must be"):
        simulate(billing, orders(5), seeds=1, seconds=0.0)
    for seeds, problem in (
        ([], "seeds has no seed, so no check could fail"),
        (["1"], "seeds must be whole numbers, got '1'"),
        ("12", "seeds must be a number of seeds, or the seeds, got '12'"),
        (1.5, "seeds must be a number of seeds, or the seeds, got 1.5"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            simulate(billing, orders(5), seeds=seeds)  # type: ignore[arg-type]
    for workload in (None, 5, "text"):
        with pytest.raises(ConfigurationError, match="workload must be Message objects"):
            simulate(billing, workload, seeds=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="checks must be a list of functions"):
        simulate(billing, orders(5), seeds=1, checks=one_owner())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="key must be text, or None, got 5"):
        Message("orders", "a", 5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="id must be text, got 5"):
        Message("orders", "a", id=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message("orders", "a" * 2_000_000), "'a+ cannot be written to orders-[0-2]: .*bytes"),
        (Message("__consumer_offsets", "a"), "'a' cannot be written to __consumer_offsets-[0-2]: .* internal topic"),
    ],
)
def test_a_message_that_no_broker_accepts_is_refused(message: Message, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        simulate(billing, [message], seeds=1, seconds=2.0)


def test_a_large_message_is_written() -> None:
    simulate(waits, [Message("orders", "a" * 500_000)], seeds=1, seconds=2.0, checks=(), faults=())


def test_the_messages_of_a_generator_are_written_with_each_seed() -> None:
    def count(history: History) -> str | None:
        return None if len(history.written) == 3 else f"{len(history.written)} messages"

    messages = (Message("orders", f"order-{number}") for number in range(3))
    simulate(waits, messages, seeds=2, seconds=2.0, checks=[count], faults=())


def test_a_check_that_returns_something_else_is_refused() -> None:
    def holds(history: History) -> bool:
        return True

    for check, problem in (
        (holds, r"the result of the check .*holds must be a sentence, a Broken or None, got True"),
        (one_owner, r"check one_owner must be .*; call one_owner\(\) to make a check"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            simulate(waits, orders(5), seeds=1, seconds=2.0, checks=[check], faults=())  # type: ignore[list-item]


def test_a_service_that_is_no_async_function_is_named() -> None:
    with pytest.raises(SimulationFailure, match=r"TypeError: a service is an async function or has an async run\(\)"):
        simulate(print, orders(5), seeds=1, seconds=2.0, faults=())


def test_random_values_and_times_repeat_with_the_seed() -> None:
    async def service(instance: Instance) -> None:
        values = [secrets.token_hex(8), random.Random().random(), random.SystemRandom().random(), uuid.uuid4()]
        for value in [*values, time.monotonic_ns(), time.perf_counter_ns(), time.time_ns()]:
            instance.happened("value", value)
        await instance.stopping.wait()

    def values(seed: int) -> list[str]:
        seen: list[str] = []

        def see(history: History) -> None:
            seen.extend(effect.id for effect in history.effects)

        simulate(service, orders(1), seeds=[seed], seconds=1.0, faults=(), checks=[see])
        return seen

    assert values(1) == values(1)
    assert set(values(1)[:4]).isdisjoint(values(2)[:4])


def test_a_check_that_raises_raises_its_exception() -> None:
    def wrong(history: History) -> str | None:
        raise KeyError(len(history.written))

    with pytest.raises(KeyError, match="5"):
        simulate(billing, orders(5), seeds=1, checks=[wrong], faults=())


def test_an_exception_of_the_service_is_reported_with_its_place() -> None:
    async def fails(instance: Instance) -> None:
        raise LookupError("no price")

    with pytest.raises(SimulationFailure, match=r"ended with LookupError: no price at .*test_service_simulation\.py"):
        simulate(fails, orders(5), seeds=1, faults=(), checks=at_least_once(), seconds=2.0)


def test_a_blocked_instance_stands_still_while_the_others_continue() -> None:
    ticks: dict[str, list[float]] = {}

    async def ticking(instance: Instance) -> None:
        times = ticks.setdefault(instance.name, [])
        while True:
            await asyncio.sleep(0.1)
            times.append(asyncio.get_running_loop().time())

    def longest_pause(name: str) -> float:
        return max(later - earlier for earlier, later in pairwise(ticks[name]))

    seen: dict[str, float] = {}
    for seed in range(20):
        ticks.clear()
        simulate(ticking, orders(1), seeds=[seed], faults=["instance_blocked"], checks=[nothing_left_behind()])
        pauses = {name: longest_pause(name) for name in ticks}
        if pauses["instance 1"] > 4.0 and pauses["instance 2"] < 1.0:
            seen["blocked"] = pauses["instance 1"]
            assert min(ticks["instance 2"][-1], ticks["instance 1"][-1]) > 20.0
    assert seen["blocked"] >= 4.9


def test_an_open_transaction_is_left_behind() -> None:
    async def leaves_it_open(instance: Instance) -> None:
        producer: Producer[bytes, bytes] = Producer(
            instance.bootstrap_servers, transactional_id=f"billing-{instance.number}"
        )
        await producer.start()
        await producer.transaction().__aenter__()
        await producer.send("bills", "one")
        await instance.stopping.wait()

    def open_transaction(history: History) -> str | None:
        return next((text for text in history.left_behind if "transaction" in text), None)

    with pytest.raises(SimulationFailure, match="instance 1 left a transaction of 'billing-1' open"):
        simulate(leaves_it_open, orders(1), seeds=1, faults=(), seconds=1.0, checks=[open_transaction])


def test_the_timeline_says_to_whom_a_record_was_sent_and_who_committed_it() -> None:
    with pytest.raises(SimulationFailure) as failure:
        simulate(billing, orders(3), seeds=1, faults=(), checks=[lambda history: Broken("as wanted", "order-2")])
    text = str(failure.value)
    assert re.search(r"it is written to orders-\d at offset \d", text)
    assert re.search(r"it is sent to instance [12]", text)
    assert re.search(r"instance [12] commits orders-\d up to \d", text)


def test_a_client_error_that_ends_a_process_before_any_fault_is_a_mistake() -> None:
    """Two instances with one transactional id once passed: they fenced each other, and were started again."""

    async def shares_its_id(instance: Instance) -> None:
        consumer: Consumer[bytes, bytes] = Consumer(
            instance.bootstrap_servers, topics=["orders"], group_id="billing", auto_commit=False
        )
        async with consumer, Producer(instance.bootstrap_servers, transactional_id="billing") as producer:
            async for records in ExactlyOnce(consumer, producer):
                for record in records:
                    producer.send_nowait("bills", order_of(record).encode(), key=record.key)

    with pytest.raises(SimulationFailure, match=r"ended with ProducerFenced: .*, although no fault") as one:
        simulate(shares_its_id, orders(40), seeds=20)
    assert "with these faults:\n  none" in str(one.value)


def test_a_client_error_after_a_fault_or_sigterm_is_no_mistake() -> None:
    async def fails_late(instance: Instance) -> None:
        await instance.stopping.wait()
        raise KafkaTimeout("too late")

    async def fails_once_it_was_restarted(instance: Instance) -> None:
        if "start" in instance.name and instance.number == 1:
            raise KafkaTimeout("too early")
        await instance.stopping.wait()

    checks = [no_unhandled_exception()]
    assert simulate(fails_late, orders(1), seeds=1, faults=(), seconds=1.0, checks=checks).seeds == 1
    result = simulate(fails_once_it_was_restarted, orders(1), seeds=5, faults="instance_killed", checks=checks)
    assert result.seeds == 5


def test_an_error_of_compat_that_a_fault_causes_is_no_mistake() -> None:
    """A commit that a broker refuses once counted as a mistake, because aiokafka's errors have classes of their own."""

    async def compatible(instance: Instance) -> None:
        consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=instance.bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            async for record in consumer:
                order = str(json.loads(record.value or b"")["order"])
                await instance.effect("charge", order, idempotence_key=order)
                await consumer.commit()
        finally:
            await consumer.stop()

    assert simulate(compatible, orders(40), seeds=[15, *range(5)], faults="requests").seeds == 6


def test_outputs_of_a_key_that_are_out_of_order_are_found() -> None:
    def writes_bills(count: int) -> Callable[[Instance], Awaitable[None]]:
        async def writes(instance: Instance) -> None:
            consumer: Consumer[bytes, bytes] = Consumer(
                instance.bootstrap_servers, topics=["orders"], group_id="billing"
            )
            producers: list[Producer[bytes, bytes]] = [Producer(instance.bootstrap_servers) for _ in range(count)]
            async with AsyncExitStack() as clients:
                for client in (consumer, *producers):
                    await clients.enter_async_context(client)
                while True:
                    bills = [
                        producers[number % count].send_nowait("bills", order_of(record).encode(), key=record.key)
                        for number, record in enumerate(await consumer.poll(20, timeout=0.5))
                    ]
                    await asyncio.gather(*bills)

        return writes

    checks = [in_order_by_key()]
    with pytest.raises(SimulationFailure, match=r"the record of 'order-\d+' in bills came after that of 'order-\d+'"):
        simulate(writes_bills(2), orders(40), seeds=20, faults=(), checks=checks)
    assert simulate(writes_bills(1), orders(40), seeds=20, faults=(), checks=checks).seeds == 20
    named = [in_order_by_key("charge")]
    assert simulate(writes_bills(2), orders(40), seeds=20, faults=(), checks=named).seeds == 20


async def shares_orders(instance: Instance) -> None:
    async with Admin(instance.bootstrap_servers) as admin:
        changes = {ConfigResource.group("billing"): {"share.auto.offset.reset": "earliest"}}
        (await admin.configs.alter(changes)).raise_for_errors()
    async with ShareConsumer(instance.bootstrap_servers, group_id="billing", topics=["orders"]) as consumer:
        async for record in consumer:
            await charge(instance, order_of(record))


def test_a_share_consumer_processes_each_record() -> None:
    checks = [processed_at_least_once(), no_unhandled_exception(), stops_within(), nothing_left_behind()]
    assert simulate(shares_orders, orders(40), seeds=20, checks=checks).seeds == 20
    with pytest.raises(SimulationFailure, match=r"it is sent to instance [12]"):
        simulate(shares_orders, orders(3), seeds=1, faults=(), checks=[lambda history: Broken("as wanted", "order-2")])


def test_the_runs_of_many_seeds_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run once kept half a megabyte until the end of the last one."""
    monkeypatch.setattr("aiokafka_lite.testing.simulation.simulation.RUNS_KEPT", 10)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def service(instance: Instance) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await instance.stopping.wait()

    simulate(service, orders(1), seeds=20, instances=1, seconds=0.1, faults=(), checks=())
    assert len(loops) == 20
    assert sum(loop() is not None for loop in loops) <= 1


def test_other_threads_of_the_process_keep_their_clock_and_sleep() -> None:
    """py4j's thread once ended, because its sleep was refused."""
    failures: list[RealIOError] = []
    is_over = threading.Event()

    def poll() -> None:
        try:
            while not is_over.is_set():
                time.sleep(0.001)
        except RealIOError as error:
            failures.append(error)

    other = threading.Thread(target=poll)
    other.start()
    try:
        simulate(billing, orders(5), seeds=1, faults=(), seconds=2.0)
    finally:
        is_over.set()
        other.join()
    assert failures == []


def test_each_message_is_written_once_whatever_happens_to_the_brokers() -> None:
    """A broker that refuses a record for want of replicas has appended it: the writer once wrote it again."""

    async def copies(instance: Instance) -> None:
        async with Consumer(instance.bootstrap_servers, topics=["orders"]) as consumer:
            async for record in consumer:
                await instance.effect(f"{record.partition}-{record.offset}", order_of(record))

    def written_once(history: History) -> str | None:
        places = {(effect.id, effect.name) for effect in history.effects}
        return None if len(places) == len({identity for identity, _ in places}) else f"written twice: {places}"

    simulate(copies, orders(40), seeds=40, instances=1, checks=[written_once], faults=["brokers", "leaders"])
