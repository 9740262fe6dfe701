"""The last part of the demo: orders into Kafka, through the Spark pipeline, and back out of Parquet and a topic.

The pipeline is the one that ships, as a process of its own. What it finds is compared with what the same orders add up
to in plain Python, window by window.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from aiokafka_lite.admin import create_topic, delete_topics
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.consumer import Consumer
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.producer import Producer
from aiokafka_lite.spark.jvm import find_java
from aiokafka_lite.types import TopicPartition

ORDERS = 50_000
CITIES = ("Lima", "Oslo", "Rome", "Tokyo")
PARTITIONS = 3
FIRST = datetime(2026, 1, 1, 9, tzinfo=UTC)
SPAN = timedelta(hours=1)
WINDOW = timedelta(minutes=10)
STALLED_AFTER = 30.0
STOP_TIMEOUT = 20.0
SHOWN_OF_LOG = 12
_CHUNK = 5000
_TURNS = (0, 1, 3, 2, 3, 0, 2, 3, 1, 3)


class Cell(NamedTuple):
    """A window and a city."""

    window: datetime
    city: str


class Sum(NamedTuple):
    """What the orders of a window and city come to."""

    orders: int
    cents: int


Sums = Mapping[Cell, Sum]


def order(number: int, count: int) -> tuple[str, int, datetime]:
    """City, amount in cents, and time of an order: more of them in the middle of the hour, and not alike by city."""
    share = number / count
    at = FIRST + SPAN * (share - 1.4 * share * (share - 0.5) * (1 - share))
    return CITIES[_TURNS[number * 7 % len(_TURNS)]], 100 + number * 37 % 9_900, at.replace(microsecond=0)


def value_of(city: str, cents: int, at: datetime) -> bytes:
    """An order as JSON."""
    return json.dumps({"city": city, "cents": cents, "at": at.isoformat()}).encode()


def expected(count: int) -> Sums:
    """What the windows have to be."""
    sums: dict[Cell, Sum] = {}
    for number in range(count):
        city, cents, at = order(number, count)
        cell = Cell(FIRST + (at - FIRST) // WINDOW * WINDOW, city)
        before = sums.get(cell, Sum(0, 0))
        sums[cell] = Sum(before.orders + 1, before.cents + cents)
    return sums


def faults(place: str, found: Iterable[tuple[Cell, Sum]], wanted: Sums, *, once: bool) -> list[str]:
    """All that is wrong with the windows found in a place; ``once``: none may be there twice, not even unchanged."""
    wrong: list[str] = []
    seen: set[Cell] = set()
    for cell, total in found:
        name = f"{place}: {cell.city} from {cell.window:%H:%M}"
        if cell not in wanted:
            wrong.append(f"{name} should not be there")
        elif total != wanted[cell]:
            wrong.append(f"{name} has {total.orders} orders, {total.cents} cents; should be {wanted[cell]}")
        if once and cell in seen:
            wrong.append(f"{name} is there twice")
        seen.add(cell)
    return wrong + [f"{place}: {cell.city} from {cell.window:%H:%M} is missing" for cell in wanted if cell not in seen]


async def spark_demo(servers: str, client: Client, output: Path, console: Console) -> int:
    """Run it, after `check_installed`; 0 when all windows are right in both places. Files stay in ``output``."""
    name = secrets.token_hex(4)
    topics = orders, by_city = f"aiokafka-lite-orders-{name}", f"aiokafka-lite-by-city-{name}"
    directory = output / name
    directory.mkdir(parents=True)
    for topic in topics:
        await create_topic(client, topic, partitions=PARTITIONS)
    try:
        await _produce(servers, orders)
        console.print(f"{ORDERS:,} orders of an hour are in topic {orders}; Spark aggregates them:")
        started = time.perf_counter()
        if not await _run_pipeline(servers, orders, by_city, directory, console):
            return 1
        console.print(f"  {time.perf_counter() - started:.1f} s with the start of Java and Spark")
        in_parquet = list(read_parquet(directory / "windows"))
        in_topic = await _read_topic(servers, by_city)
    finally:
        await delete_topics(client, list(topics))
    wanted = expected(ORDERS)
    console.print(_table(dict(in_topic)))
    wrong = faults("Parquet", in_parquet, wanted, once=True) + faults("topic", in_topic, wanted, once=False)
    if wrong:
        console.print(*wrong[:10], sep="\n", style="red")
        return 1
    chart = draw(dict(in_parquet), directory / "windows.png")
    console.print(
        f"all {len(wanted)} sums are right, in Parquet ({directory / 'windows'}) and in the topic; chart: {chart}",
        style="green",
    )
    return 0


def check_installed() -> None:
    """ConfigurationError for what is missing, Java too, before anything is begun."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"--spark needs {', '.join(missing)}: pip install 'aiokafka_lite[demo]'")
    find_java(os.environ)


async def _produce(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        for start in range(0, ORDERS, _CHUNK):
            orders = [order(number, ORDERS) for number in range(start, min(start + _CHUNK, ORDERS))]
            keys = [city.encode() + b"-%d" % (number % 100) for number, (city, _, _) in enumerate(orders)]
            await producer.send_many(topic, [value_of(*each) for each in orders], keys=keys)
        # A window is written when it is complete, so an order of the next day has to show that the hour is over.
        await producer.send(topic, value_of("", 0, FIRST + timedelta(days=1)))


async def _run_pipeline(servers: str, orders: str, by_city: str, directory: Path, console: Console) -> bool:
    """The pipeline that ships, reading all that is there; what it prints is shown, and what Spark logs is in a file."""
    log = directory / "spark.log"
    arguments = [
        *("--bootstrap-server", servers, "--topic", orders, "--schema", "city STRING, cents BIGINT, at TIMESTAMP"),
        *("--event-time", "at", "--window", f"{WINDOW // timedelta(minutes=1)} minutes", "--group-by", "city"),
        *("--aggregate", "count(*) AS orders", "--aggregate", "sum(cents) AS cents"),
        *("--to-parquet", str(directory / "windows"), "--to-topic", by_city),
        *("--checkpoint", str(directory / "checkpoint"), "--trigger", "available-now"),
    ]
    with log.open("wb") as errors:
        async with _process(arguments, errors.fileno()) as process:
            assert process.stdout is not None
            async for line in process.stdout:
                console.print(f"  {line.decode().rstrip()}")
            status = await process.wait()
    if status:
        console.print(f"the pipeline failed; the end of {log}:", style="red")
        console.print(*log.read_text(errors="replace").splitlines()[-SHOWN_OF_LOG:], sep="\n", markup=False)
    return status == 0


@asynccontextmanager
async def _process(arguments: Iterable[str], errors: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The pipeline as a process in a session of its own, so that Ctrl-C reaches it once, from here."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiokafka_lite.spark", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def read_parquet(directory: Path) -> Iterable[tuple[Cell, Sum]]:
    """The windows in the files that Spark's own list of them names; a file that is not in it was never finished."""
    from pyarrow import parquet

    for entry in sorted((directory / "_spark_metadata").glob("[0-9]*")):
        for line in entry.read_text().splitlines()[1:]:
            path = json.loads(line)["path"].removeprefix("file:").replace("///", "/")
            for row in parquet.read_table(path).to_pylist():
                cell = Cell(row["window_start"].replace(tzinfo=UTC), row["city"])
                yield cell, Sum(row["orders"], row["cents"])


async def _read_topic(servers: str, topic: str) -> list[tuple[Cell, Sum]]:
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found: list[tuple[Cell, Sum]] = []
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        left = sum((await consumer.end_offsets(partitions)).values())
        while left > 0:
            records = await consumer.poll(max_records=_CHUNK, timeout=STALLED_AFTER)
            if not records:
                break
            left -= len(records)
            for record in records:
                row = json.loads(record.value or b"")
                cell = Cell(datetime.fromisoformat(row["window_start"]), row["city"])
                found.append((cell, Sum(row["orders"], row["cents"])))
    return found


def _table(sums: Sums) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("orders from")
    for city in (*CITIES, "all", "amount"):
        table.add_column(city, justify="right", no_wrap=True)
    for window in sorted({cell.window for cell in sums}):
        orders = [sums.get(Cell(window, city), Sum(0, 0)) for city in CITIES]
        amount = sum(each.cents for each in orders) / 100
        counts = [*(each.orders for each in orders), sum(each.orders for each in orders)]
        table.add_row(f"{window:%H:%M}", *(f"{count:,}" for count in counts), f"{amount:,.2f}")
    return table


def draw(sums: Sums, target: Path) -> Path:
    """A chart of the windows: the orders of each city, one on top of the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(title="orders by window and city", xlabel="window from", ylabel="orders")
    windows = sorted({cell.window for cell in sums})
    labels = [f"{window:%H:%M}" for window in windows]
    below = [0] * len(windows)
    for city in CITIES:
        heights = [sums.get(Cell(window, city), Sum(0, 0)).orders for window in windows]
        axes.bar(labels, heights, bottom=below, label=city)
        below = [low + height for low, height in zip(below, heights)]
    axes.margins(y=0.1)
    axes.legend()
    figure.savefig(target)
    return target
