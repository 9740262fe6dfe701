"""The transaction timeout of the exactly-once sink. No Spark here."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark.exactly_once import check_transaction_timeout, make_transactional_producer
from aiokafka_lite.spark.options import Properties

SERVERS = {"bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(("options", "seconds"), [({}, 900.0), ({"transaction.timeout.ms": "5000"}, 5.0)])
def test_the_transaction_timeout_is_15_minutes_unless_the_option_is_given(
    options: dict[str, str], seconds: float
) -> None:
    config = make_transactional_producer(Properties(SERVERS | options), "query-0").config
    assert (config.transactional_id, config.transaction_timeout) == ("query-0", seconds)


def test_a_wrong_property_is_named_as_the_user_wrote_it() -> None:
    with pytest.raises(ConfigurationError, match=r"option kafka\.transaction\.timeout\.ms"):
        make_transactional_producer(Properties(SERVERS | {"transaction.timeout.ms": "soon"}), "query-0")


@pytest.mark.parametrize(
    "trigger",
    ["10 seconds", "10 second", "INTERVAL 10 SECONDS", " 10000 milliseconds ", "9.5 seconds 500 milliseconds"],
)
def test_a_transaction_timeout_below_the_trigger_interval_is_refused(trigger: str) -> None:
    check_transaction_timeout({"kafka.transaction.timeout.ms": "10000"}, trigger)
    with pytest.raises(ConfigurationError, match="must be at least the trigger interval, 10000 ms, got 9999"):
        check_transaction_timeout({"kafka.transaction.timeout.ms": "9999"}, trigger)


@pytest.mark.parametrize("trigger", ["available-now", "3 fortnights", "1 second 3 fortnights"])
def test_other_triggers_have_no_interval_to_compare(trigger: str) -> None:
    check_transaction_timeout({"kafka.transaction.timeout.ms": "1"}, trigger)
    check_transaction_timeout({}, "1 day")
