"""An error is one helpful line; ``-v`` shows the traceback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import embedded_kafka, run
from tests.waiting import LONGER_AND_LONGER


@pytest.fixture
async def embedded() -> AsyncIterator[Kafka]:
    async with embedded_kafka() as kafka:
        yield kafka


async def test_a_wrong_option_is_one_line_and_status_2() -> None:
    outcome = await run("produce", "orders", "--prot", "1")
    assert (outcome.status, outcome.output) == (2, b"")
    assert outcome.errors.count("\n") == 1, outcome.errors
    assert "--prot" in outcome.errors


@pytest.mark.parametrize(
    "command",
    [("produce", "orders"), ("consume", "orders"), ("consume", "orders", "--group", "g"), ("topics", "list"), ("lag",)],
    ids=" ".join,
)
async def test_an_unreachable_broker_is_named_in_one_line(command: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    for timeout in LONGER_AND_LONGER:
        outcome = await run(*command, "-b", address, "--timeout", str(timeout))
        if "nothing listens there" in outcome.errors:
            break
    assert (outcome.status, outcome.output) == (1, b"")
    assert outcome.errors.count("\n") == 1, outcome.errors
    assert f"{address}" in outcome.errors
    assert "nothing listens there" in outcome.errors


async def test_verbose_shows_the_traceback() -> None:
    outcome = await run("topics", "list", "-v", "-b", f"127.0.0.1:{free_port()}", "--timeout", "0.5")
    assert outcome.status == 1
    assert "Traceback" in outcome.errors
    assert outcome.errors.splitlines()[-1].startswith("aiokafka-lite: no bootstrap server answered")


async def test_reading_does_not_create_a_topic(embedded: Kafka) -> None:
    for timeout in LONGER_AND_LONGER:
        outcome = await run("consume", "nothing-here", "-b", embedded.bootstrap_servers, "--timeout", str(timeout))
        if "nothing-here" in outcome.errors:
            break
    assert (outcome.status, outcome.errors.count("\n")) == (1, 1)
    assert "nothing-here" in outcome.errors
    assert (await run("topics", "list", "--no-headings", "-b", embedded.bootstrap_servers)).output == b""


async def test_the_line_that_cannot_be_sent_is_named(embedded: Kafka, tmp_path: Path) -> None:
    topic = await embedded.create_topic()
    address = ("-b", embedded.bootstrap_servers)
    outcome = await run("produce", topic, "--key-separator", ":", *address, stdin=b"a:1\nb:2\nnone\n")
    assert outcome.status == 1
    assert "aiokafka-lite: line 3 has no key: it does not contain ':'\n" in outcome.errors
    assert "acknowledged: 2 records" in outcome.errors
    outcome = await run("produce", topic, *address, stdin=b"fine\n" + b"x" * 2_000_000 + b"\n")
    assert outcome.status == 1
    assert "line 2 is longer than 1048576 bytes" in outcome.errors
    outcome = await run("produce", topic, "--partition", "7", *address, stdin=b"x\n")
    assert outcome.status == 1
    assert "partitions 0 to 2" in outcome.errors


async def test_the_line_is_named_when_lines_are_sent_as_columns(embedded: Kafka) -> None:
    pytest.importorskip("pyarrow")
    topic = await embedded.create_topic(partitions=1)
    many = b"x" * 999 + b"\n"
    stdin = many * 6000 + b"y" * (1 << 20) + b"\n" + many * 10
    outcome = await run("produce", topic, "-b", embedded.bootstrap_servers, stdin=stdin)
    assert outcome.status == 1
    assert "line 6001: a record of" in outcome.errors
