"""An outage of ten minutes is two lines in the log: its begin with the error, and its end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import aiokafka_lite
from aiokafka_lite import Consumer, EmbeddedCluster, KafkaError, OffsetAndMetadata, Producer, TopicPartition

PACKAGE = Path(aiokafka_lite.__file__).parent
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
MEMBER = re.compile(r"aiokafka-lite-[0-9a-f-]{36}")


def settings(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of the client: level, logger and text, without parts that differ between runs."""
    return [
        f"{record.levelname} {record.name.removeprefix('aiokafka_lite.')}: {plain(record.message)}"
        for record in caplog.records
        if record.name.startswith("aiokafka_lite.") and not record.name.startswith("aiokafka_lite.embedded")
    ]


def plain(text: str) -> str:
    text = ADDRESS.sub("HOST", MEMBER.sub("MEMBER", text))
    text = re.sub(r"cannot connect to broker 1 \(HOST\): no node .*? listens on HOST", "CANNOT CONNECT", text)
    text = re.sub(r"the connection to broker 1 \(HOST\) was lost: [a-z ]+", "LOST", text)
    # It is random which connection is lost first, and which request gets no answer first.
    text = re.sub(r"lost the [a-z]+ connection", "lost the ONE connection", text)
    text = re.sub(r"(STABLE.*>): (CANNOT CONNECT|LOST|a heartbeat was not answered)$", r"\1: CAUSE", text)
    return re.sub(r"\d+ failed attempts? in \d+\.\d s", "N FAILURES", text)


@asynccontextmanager
async def outage(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, seconds: float = 600.0
) -> AsyncIterator[None]:
    """Stop the only broker for ten minutes, then run it for one. Only that time is logged."""
    await asyncio.sleep(5)
    caplog.clear()
    caplog.set_level(logging.INFO, logger="aiokafka_lite")
    await cluster.kill(1)
    await asyncio.sleep(seconds)
    await cluster.start_node(1)
    await asyncio.sleep(60)
    yield
    caplog.set_level(logging.CRITICAL, logger="aiokafka_lite")


async def repeatedly(what: Callable[[], Any]) -> None:
    while True:
        with suppress(KafkaError):
            await what()
        await asyncio.sleep(1.0)


@asynccontextmanager
async def doing(what: Callable[[], Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(repeatedly(what))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def assert_lines(caplog: pytest.LogCaptureFixture, began: list[str], ended: list[str]) -> None:
    """Assert that the log has exactly these lines, all of ``began`` before all of ``ended``.

    Their order within each list is random.
    """
    text = lines(caplog)
    assert (sorted(text[: len(began)]), sorted(text[len(began) :])) == (sorted(began), sorted(ended))


LOST = "INFO net.broker: lost the ONE connection to broker 1 at HOST: LOST"
SILENT = "WARNING cluster.updater: no broker answers metadata requests: CANNOT CONNECT"
ANSWERS = "INFO cluster.updater: a broker answered a metadata request after N FAILURES"
WELL = "INFO net.broker: broker 1 at HOST is reachable again after N FAILURES"
NOT_FETCHED = "WARNING consumer.fetch.fetcher: fetching from broker 1 failed; retrying: LOST"
FETCHED = "INFO consumer.fetch.fetcher: fetched from broker 1 again after N FAILURES"


async def test_a_producer(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        Producer(**settings(cluster)) as producer,
        doing(lambda: producer.send("orders", b"value", partition=0)),
        outage(cluster, caplog),
    ):
        assert_lines(caplog, [LOST, SILENT], [ANSWERS, WELL])


async def test_a_consumer(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        Consumer(**settings(cluster), topics=["orders"]) as consumer,
        doing(lambda: consumer.poll(timeout=1.0)),
        outage(cluster, caplog),
    ):
        assert_lines(caplog, [LOST, SILENT, NOT_FETCHED], [ANSWERS, WELL, FETCHED])


async def test_a_member_of_a_group(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    member = "<Member MEMBER of billing {}>"
    stable, rejoined = member.format("STABLE generation=1 owned=2"), member.format("STABLE generation=2 owned=2")
    moved = f"INFO group.member_runner: {member} moved from {{}} after {{}}"
    async with (
        Consumer(**settings(cluster), topics=["orders"], group_id="billing") as consumer,
        doing(lambda: consumer.poll(timeout=1.0)),
        outage(cluster, caplog),
    ):
        assert_lines(
            caplog,
            [
                *(LOST, SILENT, NOT_FETCHED, f"INFO group.member_requests: {stable}: CAUSE"),
                f"WARNING group.heartbeats: {stable} lost its partitions:"
                " no heartbeat succeeded for session_timeout = 45 s",
                moved.format("FENCED generation=-1 owned=0", "STABLE", "SessionExpired"),
                moved.format("JOINING generation=-1 owned=0", "FENCED", "Released"),
            ],
            [
                *(ANSWERS, WELL, f"INFO group.heartbeats: {rejoined}: heartbeats succeeded after N FAILURES"),
                moved.format("SYNCING generation=2 owned=0", "JOINING", "JoinAnswer"),
                moved.format("STABLE generation=2 owned=2", "SYNCING", "SyncAnswer"),
            ],
        )


async def test_commits_that_are_refused_for_minutes(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    first = TopicPartition("orders", 0)
    async with Consumer(**settings(cluster), group_id="billing", auto_commit=False) as consumer:
        consumer.assign([first])
        async with (
            doing(lambda: consumer.commit({first: OffsetAndMetadata(0)}, timeout=5.0)),
            outage(cluster, caplog),
        ):
            said = [line for line in lines(caplog) if " group.offsets: " in line]
            assert len(said) == 2
            assert said[0].startswith("WARNING group.offsets: group billing: orders-0 was not committed")
            assert said[1] == "INFO group.offsets: group billing: commits succeeded after N FAILURES"


async def test_a_log_of_skipped_records_grows_by_powers_of_ten(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(data: bytes) -> object:
        raise ValueError("not one of ours")

    async with Producer(**settings(cluster)) as producer:
        await producer.send_many("orders", [b"value"] * 250, partition=0)
    async with Consumer(
        **settings(cluster), topics=["orders"], value_deserializer=refuse, on_deserialization_error="skip"
    ) as consumer:
        await consumer.poll(timeout=5.0)
    skipped = [line for line in lines(caplog) if "skipped the record" in line]
    assert [re.findall(r"offset (\d+) \(skipped records so far: (\d+)\)", line) for line in skipped] == [
        [("0", "1")],
        [("9", "10")],
        [("99", "100")],
    ]


def test_every_logger_is_in_one_tree() -> None:
    makes_one = re.compile(r"(?<!PySparkLogger\.)getLogger\((.*?)\)")  # Spark's own loggers are not in the tree
    others = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        if path.name != "broker_loggers.py"  # it changes the levels of the loggers of this tree
        for name in makes_one.findall(path.read_text(encoding="utf-8"))
        if name not in ("__name__", '"aiokafka_lite"')
    }
    assert others == set()


async def test_a_client_above_its_quota_logs_it_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="aiokafka_lite")
    cluster.quota_limits.set(frozenset({("client-id", None)}), "producer_byte_rate", 1_000)
    async with Producer(**settings(cluster)) as producer:
        for _ in range(20):
            await producer.send("orders", bytes(2_000), partition=0)
        assert producer.metrics().throttle_time > 10
    assert len([line for line in lines(caplog) if "throttles this client" in line]) == 1


async def test_lost_records_whose_delivery_is_not_awaited_are_logged(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def send() -> None:
        for partition in (0, 1):
            producer.send_nowait("orders", b"value", partition=partition)

    async with (
        Producer(**settings(cluster), delivery_timeout=31.0) as producer,
        doing(send),
        outage(cluster, caplog),
    ):
        lost = [line for line in lines(caplog) if "were not delivered" in line]
        assert len(lost) == 2
        assert lost[0].startswith("ERROR producer.delivery: records for orders-")
        assert re.fullmatch(
            r"ERROR producer\.delivery: records for orders were not delivered: \d{3,} batches in total", lost[1]
        )
        assert producer.metrics().records_failed > 100
