"""The Spark part of the demo: orders go through the pipeline, and its sums are checked in Parquet and in a topic.

The pipeline is ``pipeline.py``, beside this file, in a process of its own. Its windows are compared with sums that
plain Python makes of the same orders.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import anyio

from aiokafka_lite import Admin, Producer, Record
from aiokafka_lite.cli.terminal.temporary import temporary_topic
from aiokafka_lite.extras import extra
from aiokafka_lite.spark.jvm import find_java
from demo_results import CHUNK, read_all, show_result

ORDERS = 50_000
CITIES = ("Lima", "Oslo", "Rome", "Tokyo")
COLORS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442")
"""Colors that color-blind people can tell apart (Okabe and Ito). Black numbers can be read on each of them."""
PARTITIONS = 3
PIPELINE = Path(__file__).with_name("pipeline.py")
FIRST = datetime(2026, 1, 1, 9, tzinfo=UTC)
SPAN = timedelta(hours=1)
WINDOW = timedelta(minutes=10)
STOP_TIMEOUT = 20.0
LOG_LINES = 12


class Row(NamedTuple):
    """A window and a city, with the number and the amount of their orders."""

    window: datetime
    city: str
    orders: int
    cents: int


def order(number: int, count: int) -> tuple[str, int, datetime]:
    """Return the city, the amount in cents and the time of an order. The times rise over ``SPAN``."""
    at = FIRST + SPAN * (number / count)
    return CITIES[number % 7 % len(CITIES)], 100 + number * 37 % 9_900, at.replace(microsecond=0)


def value_of(city: str, cents: int, at: datetime) -> bytes:
    """Return an order as JSON."""
    return json.dumps({"city": city, "cents": cents, "at": at.isoformat()}).encode()


def expected(count: int) -> list[Row]:
    """Return the rows that the pipeline must write, computed in plain Python from the same orders."""
    amounts: dict[tuple[datetime, str], list[int]] = {}
    for city, cents, at in (order(number, count) for number in range(count)):
        amounts.setdefault((FIRST + (at - FIRST) // WINDOW * WINDOW, city), []).append(cents)
    return [Row(window, city, len(cents), sum(cents)) for (window, city), cents in amounts.items()]


def faults(place: str, rows: Iterable[Row], right_rows: Iterable[Row]) -> list[str]:
    """Return the errors in the rows: wrong, repeated and missing ones. ``place`` says where the rows were read."""
    present, right = Counter(rows), Counter(right_rows)
    wrong = [(row, f"must not be {row.orders} orders of {row.cents} cents") for row in present - right]
    missing = [(row, "is missing") for row in right - present]
    return [f"{place}: {row.city} from {row.window:%H:%M} {fault}" for row, fault in wrong + missing]


def check_installed() -> None:
    """Raise ConfigurationError if a package or Java is missing. Called before anything starts."""
    for module in ("pyspark", "pyarrow", "numpy", "matplotlib"):
        extra(module, "demo")
    find_java(os.environ)


async def spark_demo(servers: str, admin: Admin, output: Path) -> int:
    """Run the pipeline after ``check_installed``. Return 0 if all sums are right. The files stay in ``output``."""
    directory = output / secrets.token_hex(4)
    directory.mkdir(parents=True)
    async with (
        temporary_topic(admin, "orders", PARTITIONS) as orders,
        temporary_topic(admin, "by-city", PARTITIONS) as by_city,
    ):
        await _produce(servers, orders)
        print(f"{ORDERS:,} orders of one hour are in topic {orders}; Spark aggregates them:")
        began = time.perf_counter()
        if not await _run_pipeline(servers, orders, by_city, directory):
            return 1
        print(f"  {time.perf_counter() - began:.1f} s, including the start of Java and Spark")
        in_parquet = list(read_parquet(directory / "windows"))
        # A topic has each window at least once, so equal windows count once there.
        in_topic = {_row_of(record) async for records in read_all(servers, by_city, PARTITIONS) for record in records}
    right = expected(ORDERS)
    wrong = faults("Parquet", in_parquet, right) + faults("topic", in_topic, right)
    chart = directory / "windows.png"
    if not wrong:
        draw(in_parquet, chart, source=f"{ORDERS:,} orders in topic {orders}")
    return show_result(wrong, f"all {len(right)} sums are right, in Parquet and in the topic; chart: {chart}")


async def _produce(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        for start in range(0, ORDERS, CHUNK):
            orders = [order(number, ORDERS) for number in range(start, min(start + CHUNK, ORDERS))]
            keys = [city.encode() + b"-%d" % (number % 100) for number, (city, _, _) in enumerate(orders)]
            await producer.send_many(topic, [value_of(*order) for order in orders], keys=keys)
        # A window is written when the watermark has passed its end, so an order of the next day closes the hour.
        await producer.send(topic, value_of("", 0, FIRST + timedelta(days=1)))


async def _run_pipeline(servers: str, orders: str, by_city: str, directory: Path) -> bool:
    """Run the pipeline until it has read all orders. Print its output; Spark's log goes to a file."""
    arguments = [
        *("--bootstrap-server", servers, "--topic", orders, "--schema", "city STRING, cents BIGINT, at TIMESTAMP"),
        *("--event-time", "at", "--window", f"{WINDOW // timedelta(minutes=1)} minutes", "--group-by", "city"),
        *("--aggregate", "count(*) AS orders", "--aggregate", "sum(cents) AS cents"),
        *("--to-files", str(directory / "windows"), "--to-topic", by_city),
        *("--checkpoint", str(directory / "checkpoint"), "--trigger", "available-now"),
    ]
    log = directory / "spark.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PIPELINE), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors.fileno(),
            # A terminal sends Ctrl-C to all processes of a session. The pipeline must get one signal, from the demo.
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                print(f"  {line.decode().rstrip()}")
            status = await process.wait()
        finally:
            if process.returncode is None:  # the demo was stopped, and the pipeline must stop too
                process.terminate()
                with anyio.move_on_after(STOP_TIMEOUT, shield=True) as stopping:
                    await process.wait()
                if stopping.cancelled_caught:
                    process.kill()
    if status:
        end = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        print("\n".join([f"the pipeline failed; the end of {log}:", *end]))
    return status == 0


def read_parquet(directory: Path) -> Iterable[Row]:
    """Yield the rows in the files that Spark's own list names. All other files are unfinished."""
    from pyarrow import parquet

    for entry in sorted((directory / "_spark_metadata").glob("[0-9]*")):
        for line in entry.read_text().splitlines()[1:]:
            path = json.loads(line)["path"].removeprefix("file:").replace("///", "/")
            for row in parquet.read_table(path).to_pylist():
                yield Row(row["window_start"].replace(tzinfo=UTC), row["city"], row["orders"], row["cents"])


def _row_of(record: Record) -> Row:
    row = json.loads(record.value or b"")
    return Row(datetime.fromisoformat(row["window_start"]), row["city"], row["orders"], row["cents"])


def draw(rows: Iterable[Row], target: Path, *, source: str) -> Path:
    """Draw a chart of the windows: a bar for each window, with a part for each city. ``source`` names the rows."""
    from matplotlib.figure import Figure

    orders = {(row.window, row.city): row.orders for row in rows}
    windows = sorted({window for window, _ in orders})
    figure = Figure(figsize=(9.6, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot(
        xlabel=f"start of the window on {windows[0].day} {windows[0]:%B %Y}, time in UTC",
        ylabel=f"orders in {WINDOW // timedelta(minutes=1)} minutes",
    )
    figure.suptitle("Orders by city and window", x=0.01, horizontalalignment="left", fontsize=15, fontweight="bold")
    axes.set_title(f"{source}, aggregated by Spark", loc="left", color="#555555")
    bottoms = [0] * len(windows)
    for city, color in zip(CITIES, COLORS, strict=True):
        heights = [orders.get((window, city), 0) for window in windows]
        bars = axes.bar([f"{window:%H:%M}" for window in windows], heights, bottom=bottoms, label=city, color=color)
        axes.bar_label(bars, fmt="{:,.0f}", label_type="center", fontsize=8)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(reverse=True, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(target)
    return target
