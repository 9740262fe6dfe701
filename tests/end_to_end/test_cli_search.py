"""Searching topics and querying them, on both kinds of brokers and in a terminal."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("cel")

from tests.end_to_end import terminal
from tests.end_to_end.conftest import Kafka


async def test_a_search_finds_records_and_stops(kafka: Kafka) -> None:
    topic = await kafka.create_topic("searched", partitions=1)
    lines = "".join(json.dumps({"n": number}) + "\n" for number in range(2000))
    servers = ("-b", kafka.bootstrap_servers)
    written = await terminal.run("produce", topic, *servers, stdin=lines.encode())
    assert written.status == 0, written.errors
    searched = await terminal.run("consume", topic, *servers, "--where", "value.n % 700 == 0", "-n", "2")
    assert (searched.status, searched.text) == (0, '{"n": 0}\n{"n": 700}\n'), searched.errors


async def test_a_search_shows_its_progress_on_a_terminal() -> None:
    async with terminal.embedded_kafka() as kafka:
        topic = await kafka.create_topic("many", partitions=1)
        servers = ("-b", kafka.bootstrap_servers)
        written = await terminal.run("produce", topic, *servers, stdin=b'{"n": 1}\n' * 30_000)
        assert written.status == 0, written.errors
        arguments = ("consume", topic, *servers, "--until", "end", "--where", "offset == 29999")
        async with terminal.terminal(*arguments) as person:
            assert await person.ended() == 0, person.screen
            assert "searched" in person.screen
            assert "/s" in person.screen
            assert '{"n": 1}' in person.screen


async def test_topics_are_queried(kafka: Kafka) -> None:
    pytest.importorskip("duckdb")
    topic = await kafka.create_topic("queried", partitions=2)
    lines = "".join(json.dumps({"n": number, "kind": number % 3}) + "\n" for number in range(300))
    servers = ("-b", kafka.bootstrap_servers)
    written = await terminal.run("produce", topic, *servers, stdin=lines.encode())
    assert written.status == 0, written.errors
    query = f'select kind, count(*), sum(n) from "{topic}" group by 1 order by 1'
    queried = await terminal.run("sql", query, *servers, "--no-headings")
    assert queried.rows == [["0", "100", "14850"], ["1", "100", "14950"], ["2", "100", "15050"]], queried.errors
