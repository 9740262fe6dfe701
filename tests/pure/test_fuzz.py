"""A short, fixed share of ``make fuzz``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.run import Failure, fuzz
from tests.fuzz.targets import Broker, Target, all_targets


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


COUNTS = {
    "messages": 150,
    "responses": 150,
    "requests": 150,
    "streams": 100,
    "batches": 60,
    "compressed": 20,
    "properties": 50,
    "schemas": 200,
}


@pytest.mark.parametrize("name", COUNTS)
def test_damaged_input_raises_declared_errors_only(name: str, broker: Broker) -> None:
    fuzz(name, all_targets(broker)[name], seed=1, count=COUNTS[name])


def test_a_broker_survives_damaged_requests(broker: Broker) -> None:
    fuzz("broker", all_targets(broker)["broker"], seed=1, count=150)


def test_a_failure_names_a_short_input_that_reproduces_it() -> None:
    def read(data: bytes) -> None:
        if b"\x07" in data:
            raise KeyError("seven")

    with pytest.raises(Failure, match=r"KeyError: 'seven'\n\npython -m tests.fuzz --target t --input 07$"):
        fuzz("t", Target(lambda random: random.randbytes(200), read), seed=1, count=1_000)


def test_an_input_that_takes_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.run.SECONDS", 0.05)

    def read(data: bytes) -> None:
        while True:
            pass

    with pytest.raises(Failure, match=r"more than 0\.05 s of CPU time"):
        fuzz("t", Target(lambda random: b"", read), seed=1, count=1)
