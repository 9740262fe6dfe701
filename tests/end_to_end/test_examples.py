"""The programs in docs/examples, run as they are printed; only the address comes from the environment.

The brokers do not have their topics before, so the programs begin as for a new user.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from shutil import copytree
from time import monotonic

import httpx
import pytest

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, JsonDeserializer, Producer
from aiokafka_lite.testing.containers import engine_problem
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import Kafka, missing
from tests.end_to_end.read_topic import read
from tests.end_to_end.test_admin import until
from tests.real.kafka_servers import image
from tests.real.postgres import Postgres
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def newest(kafka: Kafka) -> Kafka:
    """The embedded cluster and the newest release: what the examples use is tested on the older ones elsewhere."""
    if kafka.kind in ("container", "jvm") and kafka.version != NEWEST:
        pytest.skip("examples run on the newest release")
    return kafka


class Program:
    """A program that runs; ``printed`` is all that it has printed so far.

    A task reads all the time: a program blocks once its output has filled the pipe.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._more = asyncio.Condition()
        self._is_read = asyncio.Event()
        self.printed = ""

    async def read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            async with self._more:
                self.printed += line.decode()
                self._more.notify_all()
        self._is_read.set()

    async def until(self, text: str, count: int = 1) -> str:
        """Wait until ``wanted`` has been printed ``count`` times. Returns the whole output."""
        try:
            async with asyncio.timeout(DEADLINE), self._more:
                await self._more.wait_for(lambda: self.printed.count(text) >= count)
        except TimeoutError:
            pytest.fail(f"{text!r} was not printed {count} times:\n{self.printed}")
        return self.printed

    async def end(self, number: signal.Signals | None = None) -> int:
        """Send it a signal, or none, and wait for its end, and for its last line. Returns the exit status."""
        if number is not None:
            self._process.send_signal(number)
        async with asyncio.timeout(DEADLINE):
            status = await self._process.wait()
            await self._is_read.wait()
        return status


@asynccontextmanager
async def started(*arguments: str, **environment: str) -> AsyncIterator[Program]:
    """Run a Python process; all that it printed is read when the block is left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | environment,
    )
    program = Program(process)
    reading = asyncio.create_task(program.read())
    try:
        yield program
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@asynccontextmanager
async def running(name: str, kafka: Kafka, **environment: str) -> AsyncIterator[Program]:
    """Run an example."""
    environment["BOOTSTRAP_SERVERS"] = kafka.bootstrap_servers
    async with started("-uW", "error", str(EXAMPLES / name), **environment) as program:
        yield program


async def delete(kafka: Kafka, *topics: str) -> None:
    """Delete the topics, because other tests use the same broker."""
    async with Admin(kafka.bootstrap_servers) as admin:
        await admin.topics.delete(topics)


async def committed(kafka: Kafka, group_id: str) -> int:
    async with Admin(kafka.bootstrap_servers) as admin:
        lag = (await admin.groups.lag(group_id))[group_id]
        return sum(partition.committed or 0 for partition in lag.partitions)


async def test_purchases_are_acknowledged_billed_archived_and_prepared(newest: Kafka, tmp_path: Path) -> None:
    await newest.create_topic("purchases", partitions=3)
    async with running("acknowledged_producer.py", newest) as sells:
        assert await sells.end() == 0, sells.printed
    assert sells.printed.count("bought") == 102, sells.printed
    assert len(re.findall(r"^refused: .*max_request_size", sells.printed, re.MULTILINE)) == 1, sells.printed

    async with running("auto_commit.py", newest) as bills:
        await bills.until("billed", 102)
        assert await bills.end(signal.SIGINT) == 0, bills.printed
    assert "Traceback" not in bills.printed
    # A record is processed when the next one is requested. Ctrl-C may have come before that.
    assert await committed(newest, "billing") in (101, 102)

    database = tmp_path / "purchases.db"
    async with running("manual_commit.py", newest, DATABASE=str(database)) as archives:
        said = 0
        while sum(map(int, re.findall(r"archived (\d+)", archives.printed))) < 102:
            said += 1
            await archives.until("archived", said)
        assert await archives.end(signal.SIGINT) == 0, archives.printed
    assert await committed(newest, "archive") == 102
    connection = sqlite3.connect(database)
    assert connection.execute("select count(*), count(distinct item) from purchases").fetchone() == (102, 3)
    connection.close()

    async with running("partition_tasks.py", newest) as prepares:
        await prepares.until("prepared", 102)
        assert await prepares.end(signal.SIGINT) == 0, prepares.printed
    assert "this kitchen has {'purchases': (0, 1, 2)}" in prepares.printed
    assert prepares.printed.endswith("the marked offsets are committed next\n")
    assert await committed(newest, "kitchen") == 102

    async with running("worker.py", newest) as works:
        await works.until("prepared", 102)
        assert await works.end(signal.SIGTERM) == 0, works.printed
    assert "stopped: {'pending': 0, 'active': 0, 'processed': 102, 'retries': 0, 'failed': 0, " in works.printed
    assert await committed(newest, "workers") == 102

    await purchases_have_one_bill_each(newest)
    await delete(newest, "purchases")


async def test_a_worker_that_cannot_reach_kafka_ends_at_once_on_sigterm() -> None:
    async with started("-uW", "error", str(EXAMPLES / "worker.py"), BOOTSTRAP_SERVERS="127.0.0.1:1") as works:
        await works.until("cannot reach the cluster")
        began = monotonic()
        assert await works.end(signal.SIGTERM) == 0, works.printed
    assert monotonic() - began < 30.0, "the start takes 60 seconds"
    assert "stopped" in works.printed


async def test_a_program_that_gets_sigterm_finishes_its_record_and_commits_it(newest: Kafka) -> None:
    await newest.create_topic("purchases", partitions=1)
    async with Producer(newest.bootstrap_servers) as producer:
        await producer.send_many("purchases", [b"coffee %d" % number for number in range(50)])
    async with running("graceful_shutdown.py", newest) as bills:
        await bills.until("began b'coffee 3'")
        assert await bills.end(signal.SIGTERM) == 0, bills.printed
    assert bills.printed.endswith("stopped\n")
    ended = bills.printed.count("ended")
    assert bills.printed.count("began") == ended < 50, "the record in progress is finished, and no other one begins"
    assert await committed(newest, "shutdown") == ended
    async with running("graceful_shutdown.py", newest) as bills:
        await bills.until(f"began b'coffee {ended}'")
        await bills.end(signal.SIGTERM)
    assert bills.printed.startswith(f"began b'coffee {ended}'"), "the next process continues there, at once"
    await delete(newest, "purchases")


async def purchases_have_one_bill_each(kafka: Kafka) -> None:
    await kafka.create_topic("bills", partitions=2)
    async with running("exactly_once.py", kafka) as bills:
        billed = 0
        while sum(map(int, re.findall(r"billed (\d+)", bills.printed))) < 102:
            billed += 1
            await bills.until("billed", billed)
        assert await bills.end(signal.SIGTERM) == 0, bills.printed
    assert bills.printed.endswith("stopped\n")

    async def all_are_committed() -> bool:
        return await committed(kafka, "exact-billing") == 102

    await until(all_are_committed)  # a broker answers EndTxn before it has written the markers
    assert len(await read(kafka, "bills", 102)) == 102
    await delete(kafka, "bills")


async def test_readings_are_loaded_and_read_as_columns(newest: Kafka) -> None:
    await newest.create_topic("readings", partitions=3)
    async with running("bulk_load.py", newest) as loads:
        assert await loads.end() == 0, loads.printed
    assert "100,000 readings written" in loads.printed
    assert ", 0 failed" in loads.printed
    async with running("columns.py", newest) as sums:
        assert await sums.end() == 0, sums.printed
    assert "100,000 rows" in sums.printed
    assert re.search(r"^sensor-0 +\d+ +2[01]\.\d+ +\d+\.\d+$", sums.printed, re.MULTILINE), sums.printed
    await delete(newest, "readings")


@pytest.mark.parametrize(
    "name, passed", [("test_invoices.py", 2), pytest.param("test_invoices_on_kafka.py", 1, marks=pytest.mark.real)]
)
async def test_a_users_own_tests(tmp_path: Path, name: str, passed: int) -> None:
    options = ["-p", "no:cacheprovider"]
    if "kafka" in name:
        if (problem := engine_problem()) is not None:
            missing(problem)
        options += ["--override-ini", f"kafka_image={image(NEWEST)}"]
    directory = copytree(EXAMPLES / "testing", tmp_path / "users")
    configured = ("-c", str(directory / "pytest.ini"), "--rootdir", str(directory))
    async with started(
        *("-m", "pytest", "-q", *options, *configured, str(directory / name)),
        TESTCONTAINERS_RYUK_DISABLED="true",
    ) as run:
        await run.end()
    assert f"{passed} passed" in run.printed, run.printed


async def test_the_tests_of_the_shop(tmp_path: Path, postgres: Postgres) -> None:
    directory = copytree(EXAMPLES.parents[1] / "examples" / "shop", tmp_path / "shop")
    options = ("-p", "no:cacheprovider", "-c", str(directory / "pytest.ini"), "--rootdir", str(directory))
    address = f"postgresql://postgres@/postgres?host={postgres.host}"
    async with started("-m", "pytest", "-q", *options, str(directory), TEST_DATABASE_URL=address) as run:
        await run.end()
    assert "5 passed" in run.printed, run.printed


async def test_the_shop_runs_as_its_program(newest: Kafka, postgres: Postgres) -> None:
    """Two instances on one database: each order gets its receipt, also if one of them is killed."""
    address = f"postgresql://postgres@/{postgres.create_database()}?host={postgres.host}"
    shop = str(EXAMPLES.parents[1] / "examples" / "shop" / "shop.py")
    settings = {"BOOTSTRAP_SERVERS": newest.bootstrap_servers, "DATABASE_URL": address, "PORT": "0"}
    async with started("-u", shop, **settings) as one, started("-u", shop, **settings) as other:
        addresses = [await address_of(program) for program in (one, other)]
        async with httpx.AsyncClient(timeout=DEADLINE) as client:
            for number in range(40):
                if number == 20:
                    await other.end(signal.SIGKILL)
                server = addresses[number % 2 if number < 20 else 0]
                answer = await client.post(f"{server}/orders", json={"id": str(number), "item": "coffee"})
                assert answer.status_code == 201, answer.text
            missing_receipts = {b"%d" % number for number in range(40)}
            async with Consumer(newest.bootstrap_servers, topics=["receipts"]) as consumer, asyncio.timeout(DEADLINE):
                while missing_receipts:  # one that the killed relay sent may come again
                    missing_receipts.discard((await anext(consumer)).key)
            answer = await client.get(f"{addresses[0]}/orders/39")
            assert answer.json() == {"is_baked": True}
        assert await one.end(signal.SIGTERM) in (0, -signal.SIGTERM), one.printed
        assert "Application shutdown complete" in one.printed
        assert "Traceback" not in one.printed
    await delete(newest, "orders", "receipts")


async def address_of(program: Program) -> str:
    """Return the address on which Uvicorn serves."""
    printed = await program.until("Uvicorn running on")
    address = re.search(r"http://[\d.:]+", printed)
    assert address is not None, printed
    return address[0]


class Instance:
    """One process of the web service."""

    def __init__(self, program: Program, address: str) -> None:
        self.program = program
        self.address = address


@asynccontextmanager
async def instance(kafka: Kafka) -> AsyncIterator[Instance]:
    """Wait until it is ready: its member of the group reads."""
    async with running("web_service.py", kafka, PORT="0") as program:
        printed = await program.until("Uvicorn running on")
        address = re.findall(r"running on (http://\S+)", printed)[0]
        async with httpx.AsyncClient(base_url=address, timeout=DEADLINE) as client:

            async def ready() -> bool:
                return (await client.get("/ready")).status_code == 200

            await until(ready)
        yield Instance(program, address)


async def receipts(kafka: Kafka, keys: set[str]) -> list[str]:
    """Wait until all ``wanted`` orders have a receipt. Returns all orders with one, in the order of the receipts."""
    receipts_of: list[str] = []
    async with Consumer(
        kafka.bootstrap_servers, topics=["receipts"], value_deserializer=JsonDeserializer()
    ) as consumer:
        try:
            async with asyncio.timeout(DEADLINE):
                while not keys <= set(receipts_of):
                    receipts_of += [str(record.value["order_id"]) for record in await consumer.poll(timeout=0.5)]
        except TimeoutError:
            lost = keys - set(receipts_of)
            pytest.fail(f"{len(lost)} of {len(keys)} acknowledged orders have no receipt: {sorted(lost)[:5]}")
    return receipts_of


async def test_the_web_service_answers_over_http(newest: Kafka) -> None:
    await newest.create_topic("orders", partitions=4)
    await newest.create_topic("receipts", partitions=1)
    await newest.create_topic("orders.dead", partitions=1)
    async with instance(newest) as service:
        async with httpx.AsyncClient(base_url=service.address, timeout=DEADLINE) as client:
            answer = await client.post("/orders", json={"order_id": "one", "item": "coffee"})
            assert answer.status_code == 201
            assert answer.json()["order_id"] == "one"
            assert answer.json()["offset"] == 0
            assert (await client.post("/orders", json={"item": "coffee"})).status_code == 422
            assert await receipts(newest, {"one"}) == ["one"]

            assert await dead_orders_are_kept(newest) == {"wrong": "KeyError", "no json": "DeserializationError"}
            assert (await client.get("/live")).status_code == 200
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()) == (200, {"problems": []})
            metrics = (await client.get("/metrics")).text
            for name in ("producer_records_delivered", "consumer_records_lag_max", "workers_records_failed"):
                assert re.search(rf"^kafka_{name}\w*{{", metrics, re.MULTILINE), name
        status = await service.program.end(signal.SIGTERM)
    assert status in (0, -signal.SIGTERM), service.program.printed
    assert "Application shutdown complete" in service.program.printed
    assert "Traceback" not in service.program.printed
    async with Admin(newest.bootstrap_servers) as admin:
        group = (await admin.groups.describe("receipts"))["receipts"]
        lag = (await admin.groups.lag("receipts"))["receipts"]
    assert not group.members, "it left its group"
    assert lag.total == 0
    await delete(newest, "orders", "receipts", "orders.dead")


async def dead_orders_are_kept(kafka: Kafka) -> dict[str, str]:
    """Write two orders that no receipt can be written for, and a good one behind them.

    Return the classes of their errors in the dead letters.
    """
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send("orders", b'{"item": "an order without an id"}', key=b"wrong")
        await producer.send("orders", b"tea", key=b"no json")
        await producer.send("orders", b'{"order_id": "two"}', key=b"no json")
    assert await receipts(kafka, {"two"}) == ["one", "two"], "the orders after a dead one are processed"
    dead: dict[str, str] = {}
    async with Consumer(kafka.bootstrap_servers, topics=["orders.dead"]) as consumer, asyncio.timeout(DEADLINE):
        while len(dead) < 2:
            record = await anext(consumer)
            assert record.key is not None
            dead[record.key.decode()] = dict(record.headers)["error.class"].decode()
    return dead


async def test_the_web_service_is_live_and_not_ready_during_an_outage() -> None:
    async with EmbeddedCluster(brokers=1, ports=[free_port()]) as cluster:
        await cluster.create_topic("orders", partitions=1)
        environment = {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "PORT": "0"}
        async with started("-uW", "error", str(EXAMPLES / "web_service.py"), **environment) as program:
            printed = await program.until("Uvicorn running on")
            address = re.findall(r"running on (http://\S+)", printed)[0]
            async with httpx.AsyncClient(base_url=address, timeout=DEADLINE) as client:

                async def answers(status: int) -> bool:
                    return (await client.get("/ready")).status_code == status

                await until(lambda: answers(200))
                await cluster.kill(1)
                await until(lambda: answers(503))
                assert re.search(r"^kafka_client_outages\S* [1-9]", (await client.get("/metrics")).text, re.MULTILINE)
                assert (await client.get("/live")).status_code == 200
                assert "no broker answers" in (await client.get("/ready")).text
                await cluster.start_node(1)
                await until(lambda: answers(200))


class Load:
    """Customers behind a load balancer. If they get no answer, they send the same order to another instance."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        """The instances that get requests. Like a load balancer, the test removes an instance before it restarts it."""
        self.acknowledged: set[str] = set()
        self.stop = False

    async def customer(self, name: str, client: httpx.AsyncClient) -> None:
        number = 0
        while not self.stop:
            number += 1
            order_id = f"{name}-{number}"
            for attempt in count(number):
                address = self.addresses[attempt % len(self.addresses)]
                try:
                    answer = await client.post(f"{address}/orders", json={"order_id": order_id, "item": "tea"})
                except httpx.TransportError:  # the instance is just ending
                    continue
                if answer.is_success:
                    self.acknowledged.add(order_id)
                    break
                assert answer.status_code == 503, answer.text

    async def reach(self, more: int) -> None:
        """Wait until ``count`` more orders are acknowledged."""
        target = len(self.acknowledged) + more

        async def reached() -> bool:
            return len(self.acknowledged) >= target

        await until(reached)


@pytest.mark.long
async def test_a_rolling_restart_under_load_loses_no_order(
    newest: Kafka, record_property: pytest.RecordProperty
) -> None:
    await newest.create_topic("orders", partitions=4)
    await newest.create_topic("receipts", partitions=1)
    began = monotonic()
    async with (
        httpx.AsyncClient(timeout=30.0) as client,
        instance(newest) as first,
        instance(newest) as second,
    ):
        load = Load([first.address, second.address])
        async with asyncio.TaskGroup() as customers:
            for number in range(4):
                customers.create_task(load.customer(f"customer-{number}", client))
            await load.reach(100)
            assert await first.program.end(signal.SIGTERM) in (0, -signal.SIGTERM), first.program.printed
            load.addresses.remove(first.address)
            await load.reach(50)
            async with instance(newest) as third:
                load.addresses.append(third.address)
                await load.reach(50)
                assert await second.program.end(signal.SIGTERM) in (0, -signal.SIGTERM), second.program.printed
                load.addresses.remove(second.address)
                await load.reach(50)
                async with instance(newest) as fourth:
                    load.addresses.append(fourth.address)
                    await load.reach(50)
                    load.stop = True
                    read = await receipts(newest, load.acknowledged)
                    for process in (third, fourth):
                        assert await process.program.end(signal.SIGTERM) in (0, -signal.SIGTERM), (
                            process.program.printed
                        )
    for process in (first, second, third, fourth):
        assert "Traceback" not in process.program.printed, process.program.printed
    record_property("acknowledged", len(load.acknowledged))
    record_property("receipts", len(read))
    record_property("seconds", round(monotonic() - began, 1))
    await delete(newest, "orders", "receipts")
