"""The transaction timeout of the exactly-once sink. No Spark here."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark.exactly_once import make_transactional_producer
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
