"""``produce`` and ``consume``: every byte that is written is read back."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.admin import Admin
from aiokafka_lite.types import Header
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import Outcome, embedded_kafka, run, run_with_files
from tests.real.releases import NEWEST
from tests.waiting import TRANSACTION_TIMEOUT


@pytest.fixture
async def embedded() -> AsyncIterator[Kafka]:
    async with embedded_kafka() as kafka:
        yield kafka


async def produce(kafka: Kafka, topic: str, stdin: bytes, *options: str) -> Outcome:
    outcome = await run("produce", topic, "-b", kafka.bootstrap_servers, *options, stdin=stdin)
    assert outcome.status == 0, outcome.errors
    return outcome


async def consume(kafka: Kafka, *arguments: str) -> bytes:
    outcome = await run("consume", "-b", kafka.bootstrap_servers, *arguments)
    assert (outcome.status, outcome.errors) == (0, "")
    return outcome.output


async def test_lines_become_records_without_their_newline_and_back(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    await produce(kafka, topic, b"first\n\n\ttab\r\n\xff\x00\nno newline at the end")
    async with Consumer(kafka.bootstrap_servers, topics=[topic]) as consumer:
        values: list[bytes | None] = []
        while len(values) < 5:
            values += [record.value for record in await consumer.poll(timeout=5)]
    assert values == [b"first", b"", b"\ttab\r", b"\xff\x00", b"no newline at the end"]
    printed = await consume(kafka, topic, "--until", "end")
    assert printed == b"first\n\n\ttab\r\n\xff\x00\nno newline at the end\n"


async def test_empty_input_makes_no_records(kafka: Kafka) -> None:
    topic = await kafka.create_topic()
    await produce(kafka, topic, b"")
    assert await consume(kafka, topic, "--until", "end") == b""


@pytest.fixture
def million(tmp_path: Path) -> Path:
    """1,000,000 different lines of 100 bytes."""
    path = tmp_path / "million"
    filler = b"x" * 92
    path.write_bytes(b"".join(b"%08d%b\n" % (number, filler) for number in range(1_000_000)))
    return path


@pytest.mark.long
async def test_a_million_lines_in_and_out_byte_for_byte(kafka: Kafka, million: Path, tmp_path: Path) -> None:
    if kafka.kind != "embedded" and kafka.version != NEWEST:
        pytest.skip("one release is enough for this amount of data")
    topic = await kafka.create_topic(partitions=1)
    outcome = await run_with_files("produce", topic, "-b", kafka.bootstrap_servers, stdin=million)
    assert (outcome.status, outcome.errors) == (0, "")
    printed = tmp_path / "printed"
    outcome = await run_with_files("consume", topic, "-b", kafka.bootstrap_servers, "--until", "end", stdout=printed)
    assert (outcome.status, outcome.errors) == (0, "")
    assert printed.read_bytes() == million.read_bytes()
    async with Admin(kafka.bootstrap_servers) as admin:  # other tests use this broker
        await admin.topics.delete(topic)


async def test_keys_headers_and_partition_are_written(kafka: Kafka) -> None:
    topic = await kafka.create_topic()
    options = (
        "--key-separator",
        "::",
        "--header",
        "lang=en",
        "-H",
        "empty=",
        "--partition",
        "2",
        "--compression",
        "lz4",
    )
    await produce(kafka, topic, b"a::1\nb::2::3\n::\n", *options)
    async with Consumer(kafka.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 2)])
        records = []
        while len(records) < 3:
            records += await consumer.poll(timeout=5)
    assert [(record.key, record.value) for record in records] == [(b"a", b"1"), (b"b", b"2::3"), (b"", b"")]
    assert {record.headers for record in records} == {(Header("lang", b"en"), Header("empty", b""))}


async def test_a_topic_is_copied_as_json_with_its_nulls_headers_and_timestamps(kafka: Kafka) -> None:
    first, copy = await kafka.create_topic(partitions=1), await kafka.create_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(first, b"v\xff", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1767225600123)
        await producer.send(first, None, timestamp=1767225600124)
    printed = await consume(kafka, first, "--until", "end", "--json")
    await produce(kafka, copy, printed, "--json-in")
    assert (await consume(kafka, copy, "--until", "end", "--json")).replace(copy.encode(), first.encode()) == printed


async def test_each_format_of_a_record(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    async with Producer(embedded.bootstrap_servers) as producer:
        await producer.send(topic, b"v\xff", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1767225600123)
        await producer.send(topic, None, key="ü".encode(), timestamp=1767225600124)
    until_end = (topic, "--until", "end")
    assert await consume(embedded, *until_end) == b"v\xff\n\n"
    assert await consume(embedded, *until_end, "--format", "hex") == b"76ff\n\n"
    assert await consume(embedded, *until_end, "-o", "key-value", "-k", "=") == b"k=v\xff\n\xc3\xbc=\n"
    assert await consume(embedded, *until_end, "-o", "key-value-hex") == b"6b\t76ff\nc3bc\t\n"
    lines = (await consume(embedded, *until_end, "--timestamps", "--offsets", "--headers")).splitlines()
    assert lines[0] == b"2026-01-01T00:00:00.123Z\t%b-0:0\th=1,n=\tv\xff" % topic.encode()
    for option in (("--json",), ("--format", "json")):
        first, second = map(json.loads, (await consume(embedded, *until_end, *option)).splitlines())
        assert (first["topic"], first["partition"], first["offset"], first["timestamp"]) == (topic, 0, 0, 1767225600123)
        assert (first["key"], first["value_base64"], "value" in first) == ("k", "dv8=", False)
        assert first["headers"] == [{"key": "h", "value": "1"}, {"key": "n", "value": None}]
        assert (second["key"], second["value"]) == ("ü", None)


@pytest.fixture
async def transactions(kafka: Kafka) -> AsyncIterator[str]:
    """A topic of one partition: a committed transaction, an aborted one, one that is open, and a record behind it.

    The records of the open transaction are at the offsets 7 and 8, because each ended transaction has a marker.
    """
    topic = await kafka.create_topic(partitions=1)
    async with (
        Producer(
            kafka.bootstrap_servers, transactional_id=f"cli-{topic}", transaction_timeout=TRANSACTION_TIMEOUT
        ) as producer,
        Producer(kafka.bootstrap_servers) as other,
    ):
        for name, count in (("committed", 3), ("aborted", 2), ("open", 2)):
            await producer.begin_transaction()
            await producer.send_many(topic, [f"{name} {number}" for number in range(count)])
            if name != "open":
                await (producer.commit_transaction() if name == "committed" else producer.abort_transaction())
        await other.send(topic, b"behind")
        yield topic


COMMITTED = [b"committed 0", b"committed 1", b"committed 2"]
UNCOMMITTED = [*COMMITTED, b"aborted 0", b"aborted 1", b"open 0", b"open 1", b"behind"]


@pytest.mark.parametrize(
    "isolation, in_group, printed",
    [(None, False, COMMITTED), ("read_committed", True, COMMITTED), ("read_uncommitted", True, UNCOMMITTED)],
)
async def test_the_isolation_level_decides_what_is_printed_and_where_the_end_is(
    kafka: Kafka, transactions: str, isolation: str | None, in_group: bool, printed: list[bytes]
) -> None:
    options = () if isolation is None else ("--isolation-level", isolation)
    group = f"group-of-{transactions}"
    output = await consume(kafka, transactions, "--until", "end", *options, *(("--group", group) if in_group else ()))
    assert output.splitlines() == printed
    if in_group:  # it has committed up to its end, also behind aborted records
        outcome = await run("lag", group, "-b", kafka.bootstrap_servers, "--no-headings", *options)
        assert (outcome.status, outcome.errors) == (0, "")
        assert [row[2:5] for row in outcome.rows] == [[transactions, "1", "0"]]


async def test_offsets_end_at_the_last_stable_offset_with_read_committed(kafka: Kafka, transactions: str) -> None:
    async def rows(*options: str) -> list[list[str]]:
        outcome = await run("offsets", transactions, "-b", kafka.bootstrap_servers, "--no-headings", *options)
        assert (outcome.status, outcome.errors) == (0, "")
        return outcome.rows

    ends = {"read_committed": "7", "read_uncommitted": "10"}
    for isolation, end in ends.items():
        assert await rows("--isolation-level", isolation) == [[transactions, "0", "0", end, end]]
        (row,) = await rows("--isolation-level", isolation, "--at", "latest")
        assert row[:3] == [transactions, "0", end]
    assert await rows() == [[transactions, "0", "0", "10", "10"]]


@pytest.fixture
async def numbered(embedded: Kafka) -> str:
    """A topic of one partition with the values 0 to 9, one minute apart; the last one is of now."""
    topic = await embedded.create_topic(partitions=1)
    now = int(time.time() * 1000)
    async with Producer(embedded.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, timestamp=now - 1000 * 60 * (9 - number))
    return topic


@pytest.mark.parametrize(
    "options, printed",
    [
        ((), "0123456789"),
        (("--from", "earliest"), "0123456789"),
        (("--from", "latest"), ""),
        (("--from", "7"), "789"),
        (("--from", "1000"), ""),
        (("--from", "90s"), "89"),
        (("--max-messages", "3"), "012"),
        (("--from", "2", "-n", "3"), "234"),
        (("--partition", "0", "--from", "8"), "89"),
    ],
)
async def test_reading_begins_and_ends_at_the_given_places(
    embedded: Kafka, numbered: str, options: tuple[str, ...], printed: str
) -> None:
    output = await consume(embedded, numbered, "--until", "end", *options)
    assert output.decode().replace("\n", "") == printed


async def test_a_time_as_iso_or_milliseconds(embedded: Kafka, numbered: str) -> None:
    printed = await consume(embedded, numbered, "--until", "end", "--timestamps")
    of_seven = printed.splitlines()[7].split(b"\t")[0].decode()
    assert (await consume(embedded, numbered, "--until", "end", "--from", of_seven)).split() == [b"7", b"8", b"9"]
    milliseconds = json.loads(await consume(embedded, numbered, "--json", "--from", "8", "-n", "1"))["timestamp"]
    output = await consume(embedded, numbered, "--until", "end", "--from", f"@{milliseconds}")
    assert output.split() == [b"8", b"9"]


@pytest.mark.parametrize("start, printed", [("7", "789"), ("90s", "89"), ("latest", ""), ("earliest", "0123456789")])
async def test_a_group_without_offsets_begins_at_from(embedded: Kafka, numbered: str, start: str, printed: str) -> None:
    reading = (numbered, "--group", "g", "--until", "end", "--from", start)
    assert (await consume(embedded, *reading)).decode().replace("\n", "") == printed
    assert await consume(embedded, *reading) == b""


@pytest.mark.parametrize("group", [(), ("--group", "readers")])
async def test_topics_by_a_regular_expression(embedded: Kafka, group: tuple[str, ...]) -> None:
    for name in ("orders-a", "orders-b", "other-orders-a"):
        await embedded.create_topic(name, partitions=2)
        async with Producer(embedded.bootstrap_servers) as producer:
            await producer.send(name, name.encode())
    printed = await consume(embedded, "--regex", "orders-.*", "--until", "end", *group)
    assert sorted(printed.split()) == [b"orders-a", b"orders-b"]


async def test_a_group_continues_after_the_printed_records(embedded: Kafka, numbered: str) -> None:
    assert (await consume(embedded, numbered, "-g", "g", "-n", "4")).split() == [b"0", b"1", b"2", b"3"]
    assert (await consume(embedded, numbered, "-g", "g", "-n", "2")).split() == [b"4", b"5"]
    async with Producer(embedded.bootstrap_servers) as producer:
        await producer.send(numbered, b"10")
    assert (await consume(embedded, numbered, "-g", "g", "--until", "end")).split() == [b"6", b"7", b"8", b"9", b"10"]
    assert await consume(embedded, numbered, "-g", "g", "--until", "end") == b""


async def test_the_rate_is_limited(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    outcome = await produce(embedded, topic, b"x\n" * 30, "--rate", "60", "--json")
    summary = json.loads(outcome.output)
    assert (summary["topic"], summary["records"], summary["bytes"]) == (topic, 30, 60)
    assert summary["seconds"] >= 0.4


async def test_properties_from_a_file_are_used(embedded: Kafka, tmp_path: Path) -> None:
    topic = await embedded.create_topic(partitions=1)
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={embedded.bootstrap_servers}\nclient.id=of-the-file\ncompression.type=gzip\n")
    outcome = await run("produce", topic, "--config", str(path), stdin=b"value\n" * 100)
    assert (outcome.status, outcome.errors) == (0, "")
    table = tmp_path / "client.toml"
    table.write_text(f'[bootstrap]\nservers = "{embedded.bootstrap_servers}"\n[auto.offset]\nreset = "latest"\n')
    outcome = await run("consume", topic, "--until", "end", variables={"AIOKAFKA_LITE_CONFIG": str(table)})
    assert (outcome.status, outcome.output) == (0, b"")
