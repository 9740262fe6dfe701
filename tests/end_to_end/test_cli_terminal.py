"""Progress bars and questions: on a terminal, and never in a pipe."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import embedded_kafka, run, terminal


@pytest.fixture
async def embedded() -> AsyncIterator[Kafka]:
    async with embedded_kafka() as kafka:
        yield kafka


async def test_a_bar_is_shown_while_a_file_is_sent(embedded: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 99 + b"\n")
    with path.open("ab") as file:
        file.write((b"x" * 99 + b"\n") * 20_000)
    topic = await embedded.create_topic()
    options = (topic, "--file", str(path), "-b", embedded.bootstrap_servers)
    async with terminal("produce", *options) as person:
        assert await person.ended() == 0, person.screen
        assert "producing" in person.screen
        assert "MB" in person.screen
        assert "records" in person.screen
    behind_a_pipe = await run("produce", *options)
    assert (behind_a_pipe.status, behind_a_pipe.output, behind_a_pipe.errors) == (0, b"", "")


async def test_typed_lines_are_sent_until_ctrl_d(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    async with terminal("produce", topic, "--json", "-b", embedded.bootstrap_servers) as person:
        person.type("typed\n\x04")
        assert await person.ended() == 0, person.screen
        assert '"records": 1' in person.screen
        assert "producing" not in person.screen
    printed = await run("consume", topic, "--until", "end", "-b", embedded.bootstrap_servers)
    assert printed.output == b"typed\n"


async def test_no_bar_is_shown_between_records_on_a_terminal(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    await run("produce", topic, "-b", embedded.bootstrap_servers, stdin=b"one\ntwo\n")
    async with terminal("consume", topic, "--until", "end", "-b", embedded.bootstrap_servers) as person:
        assert await person.ended() == 0
        shown = [line for line in person.screen.splitlines() if not line.startswith("aiokafka-lite: still connecting")]
        assert shown == ["one", "two"]


async def test_a_bar_is_shown_while_records_go_to_a_file(embedded: Kafka, tmp_path: Path) -> None:
    topic = await embedded.create_topic(partitions=1)
    await run("produce", topic, "-b", embedded.bootstrap_servers, stdin=b"one\ntwo\n")
    path = tmp_path / "printed"
    arguments = ("consume", topic, "--max-messages", "2", "-b", embedded.bootstrap_servers)
    with path.open("wb") as file:
        async with terminal(*arguments, stdout=file.fileno()) as person:
            assert await person.ended() == 0, person.screen
            assert "consumed" in person.screen
            assert "2/2" in person.screen
    assert path.read_bytes() == b"one\ntwo\n"


async def test_a_person_is_asked_before_a_topic_is_deleted(embedded: Kafka) -> None:
    await embedded.create_topic("orders")
    for typed, answer, status in (("n\n", "nothing was changed", 1), ("y\n", "deleted orders", 0)):
        async with terminal("topics", "delete", "orders", "-b", embedded.bootstrap_servers) as person:
            await person.until(lambda screen: "Delete the topics orders with all their records? [y/N]" in screen)
            person.type(typed)
            assert await person.ended() == status
            assert answer in person.screen


async def test_a_person_sees_after_a_second_why_nothing_happens() -> None:
    async with terminal("topics", "list", "-b", f"127.0.0.1:{free_port()}", "--timeout", "3") as person:
        assert await person.ended() == 1
        assert re.search(r"still connecting: \S", person.screen), person.screen
