"""The options of Spark's own Kafka connector work, and the error of a wrong one says what to write. No Spark here."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys

import pytest

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.settings.checks import MIB
from aiokafka_lite.settings.consumer import ConsumerConfig
from aiokafka_lite.spark import options
from aiokafka_lite.spark.bounds import (
    AssignStrategy,
    Edge,
    ExplicitOffsets,
    SubscribePatternStrategy,
    SubscribeStrategy,
    Timestamps,
    Unmatched,
)
from aiokafka_lite.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BARE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
SINK = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**settings: str) -> options.BatchRead:
    return options.batch_read(BARE | {name.replace("__", "."): value for name, value in settings.items()})


def stream(**settings: str) -> options.StreamRead:
    return options.stream_read(BARE | {name.replace("__", "."): value for name, value in settings.items()})


def test_defaults_are_those_of_sparks_connector() -> None:
    read = batch()
    assert (read.starting, read.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert stream().starting is Edge.LATEST
    assert read.fail_on_data_loss
    assert not read.include_headers
    assert read.min_partitions is None
    assert read.max_records_per_partition is None
    assert (read.offset_retries, read.offset_retry_interval, read.poll_timeout) == (3, 0.01, 120.0)
    assert read.properties.isolation_level == "read_uncommitted"
    assert stream().max_trigger_delay == 900.0
    assert (stream().max_offsets_per_trigger, stream().min_offsets_per_trigger) == (None, None)
    assert stream().max_bytes_per_trigger is None
    assert stream(maxBytesPerTrigger="2 MB").max_bytes_per_trigger == 2 * MIB
    assert read.records_per_task == 50_000
    assert read.max_decompressed_size == 128 * MIB == ConsumerConfig().max_decompressed_size
    assert read.freeze_gc


def test_names_count_in_any_case_as_spark_lowers_them() -> None:
    settings = BARE | {"FailOnDataLoss": "FALSE", "minpartitions": "8", "STARTINGOFFSETS": " Earliest"}
    read = options.stream_read(settings)
    assert (read.fail_on_data_loss, read.min_partitions, read.starting) == (False, 8, Edge.EARLIEST)


@pytest.mark.parametrize(
    "name, text, selection",
    [
        ("subscribe", " b, a,,b ", SubscribeStrategy(("b", "a"))),
        ("subscribePattern", "orders-.*", SubscribePatternStrategy("orders-.*")),
        ("assign", '{"t":[1,0,1]}', AssignStrategy((T0, T1))),
    ],
)
def test_one_option_selects_the_partitions(name: str, text: str, selection: object) -> None:
    assert options.batch_read({"kafka.bootstrap.servers": "h:1", name: text}).selection == selection


def test_one_time_overrides_times_by_partition_which_override_offsets() -> None:
    offsets = {"startingOffsets": '{"t":{"0":5}}'}
    times = {"startingOffsetsByTimestamp": '{"t":{"0":1000}}'}
    time = {"startingTimestamp": "2000"}
    assert stream(**offsets).starting == ExplicitOffsets({T0: 5})
    assert stream(**offsets, **times).starting == Timestamps({T0: 1000}, Unmatched.ERROR)
    assert stream(**offsets, **times, **time).starting == Timestamps(2000, Unmatched.ERROR)
    assert stream(**time, startingOffsetsByTimestampStrategy="latest").starting == Timestamps(2000, Unmatched.LATEST)
    assert batch(endingTimestamp="5", endingOffsets="latest").ending == Timestamps(5, Unmatched.LATEST)
    assert batch(endingOffsetsByTimestamp='{"t":{"0":7}}').ending == Timestamps({T0: 7}, Unmatched.LATEST)


def test_special_offsets_are_the_earliest_and_the_latest() -> None:
    assert batch(startingOffsets='{"t":{"0":-2,"1":7}}').starting == ExplicitOffsets({T0: -2, T1: 7})
    assert batch(endingOffsets='{"t":{"0":-1}}').ending == ExplicitOffsets({T0: -1})
    assert stream(startingOffsets='{"t":{"0":-1}}').starting == ExplicitOffsets({T0: -1})


@pytest.mark.parametrize(
    "text, seconds",
    [("900000", 900.0), ("15m", 900.0), ("500ms", 0.5), ("2 min", 120.0)],
)
def test_a_delay_has_sparks_units(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay == seconds


def test_a_group_and_the_prefix_of_one_can_be_given_together() -> None:
    """Spark's own connector then ignores the prefix; no group is used here."""
    assert options.check_read({**BARE, "kafka.group.id": "g", "groupIdPrefix": "p"})


def test_every_option_can_be_given() -> None:
    examples = {
        "subscribe": "t",
        "startingTimestamp": "1",
        "startingOffsetsByTimestamp": '{"t":{"0":1}}',
        "startingOffsetsByTimestampStrategy": "error",
        "startingOffsets": "earliest",
        "endingTimestamp": "1",
        "endingOffsetsByTimestamp": '{"t":{"0":1}}',
        "endingOffsets": "latest",
        "maxTriggerDelay": "1m",
        "groupIdPrefix": "mine",
        "topic": "t",
        "delivery": "exactly-once",
    }
    switches = {"failOnDataLoss", "includeHeaders", "freezeGc"}
    others = {"subscribePattern", "assign", "transactionalIdPrefix"}
    for name, scope in options.OPTIONS.items():
        if name in others:
            continue
        value = "true" if name in switches else examples.get(name, "1024")
        settings = {**BARE, name: value}
        if options.Scope.BATCH_READ in scope:
            assert options.batch_read(settings)
        if options.Scope.STREAM_READ in scope:
            assert options.stream_read(settings)
        if options.Scope.WRITE in scope:
            assert options.write({**SINK, name: value})


@pytest.mark.parametrize(
    "settings, complaint",
    [
        ({}, "exactly one of the options subscribe, subscribePattern, assign is required, got none"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "got subscribe and assign"),
        ({"subscribe": " , "}, "must be names of topics, separated by commas"),
        ({"subscribe": "a b"}, "'a b'"),
        ({"subscribePattern": "("}, "a regular expression of Python"),
        ({"subscribePattern": "[a-z&&[^b]]+"}, "a regular expression of Python"),
        ({"assign": "t"}, 'as in {"topic":[0,1]}'),
        ({"assign": '{"t":[-1]}'}, 'as in {"topic":[0,1]}'),
        ({"assign": '{"t":[0],"u":[]}'}, 'as in {"topic":[0,1]}'),
        ({"assign": '{"t":[0],"t":[1]}'}, "names 't' twice"),
        ({"subscribe": "t", "startingOffsets": "first"}, "must be earliest, latest, or an offset"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":-3}}'}, "-2 is earliest and -1 is latest"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"x":1}}'}, "an offset for each partition"),
        ({"subscribe": "t", "startingOffsets": '{"u":{"0":1}}'}, "names u-0, which the query does not read"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":1,"0":2}}'}, "names '0' twice"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":1,"00":2}}'}, "names t-0 twice"),
        ({"subscribe": "t", "startingOffsets": f'{{"t":{{"0":{2**63}}}}}'}, "an offset for each partition"),
        ({"subscribe": "t", "startingOffsets": f'{{"t":{{"{"9" * 5000}":1}}}}'}, "an offset for each partition"),
        ({"subscribe": "t", "startingOffsets": "[" * 100_000}, "an offset for each partition"),
        ({"assign": '{"t":[0,1]}', "startingOffsets": '{"t":{"0":1}}'}, "t-1 is missing"),
        (
            {"subscribe": "t", "startingOffsetsByTimestamp": '{"u":{"0":1}}'},
            "option startingOffsetsByTimestamp names",
        ),
        (
            {"assign": '{"t":[0,1]}', "startingOffsetsByTimestamp": '{"t":{"0":1}}'},
            "option startingOffsetsByTimestamp must have a time for every partition; t-1 is missing",
        ),
        ({"subscribe": "t", "startingTimestamp": "today"}, "milliseconds since the epoch"),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "earliest"}, "must be error or latest"),
        ({"subscribe": "t", "failOnDataLoss": "no"}, "must be true or false"),
        ({"subscribe": "t", "minPartitions": "0"}, "must be a whole number from 1"),
        ({"subscribe": "t", "maxRecordsPerPartition": "many"}, "must be a whole number from 1"),
        ({"subscribe": "t", "failOnDataloos": "true"}, "did you mean failOnDataLoss?"),
        ({"subscribe": "t", "path": "t"}, "topics are named by"),
        ({"subscribe": "t", "pushdown": "true"}, "rows were missing where a loaded frame was used under two filters"),
        ({"subscribe": "t", "topic": "t"}, "write subscribe to name the topics to read"),
        ({"subscribe": "t", "bootstrap.servers": "h:1"}, "write kafka.bootstrap.servers"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "write startingOffsets"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "nothing is committed to Kafka"),
        ({"subscribe": "t", "kafka.key.deserializer": "X"}, "keys are binary"),
        ({"subscribe": "t", "kafka.interceptor.classes": "X"}, "transform the rows in Spark"),
        ({"subscribe": "t", "kafka.isolation.level": "committed"}, "must be read_committed or read_uncommitted"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "all"}, "must be a whole number from 1"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "at most maxOffsetsPerTrigger"),
        ({"subscribe": "t", "maxBytesPerTrigger": "0m"}, "as in 500k, 100m or 1g"),
        ({"subscribe": "t", "maxBytesPerTrigger": "1 MiB"}, "as in 500k, 100m or 1g"),
        ({"subscribe": "t", "maxTriggerDelay": "soon"}, "must be a number with a unit"),
        ({"subscribe": "t", "maxTriggerDelay": "9" * 400 + "d"}, "must be a number with a unit"),
    ],
)
def test_a_wrong_read_option_is_refused_with_what_to_write(settings: dict[str, str], complaint: str) -> None:
    whole = {"kafka.bootstrap.servers": "localhost:9092", **settings}
    for parse in (options.batch_read, options.stream_read, options.check_read):
        with pytest.raises(ConfigurationError) as raised:
            parse(whole)
        assert complaint in str(raised.value)


def test_an_unknown_option_is_answered_with_the_options_of_the_query() -> None:
    with pytest.raises(ConfigurationError, match="xyz does not exist; there are includeHeaders, topic, ") as raised:
        options.write({**SINK, "xyz": "1"})
    assert "subscribe" not in str(raised.value)


def test_bootstrap_servers_are_required() -> None:
    for parse, settings in ((options.batch_read, {"subscribe": "t"}), (options.write, {"topic": "t"})):
        with pytest.raises(ConfigurationError, match=r'write .option\("kafka.bootstrap.servers"'):
            parse(settings)


def test_a_batch_ends_and_a_stream_does_not() -> None:
    with pytest.raises(ConfigurationError, match=r"must be earliest, or offsets without -1 \(latest\), in a batch"):
        batch(startingOffsets="latest")
    with pytest.raises(ConfigurationError, match="must be earliest"):
        batch(startingOffsets='{"t":{"0":-1}}')
    with pytest.raises(ConfigurationError, match=r"must be latest, or offsets without -2 \(earliest\), in a batch"):
        batch(endingOffsets="earliest")
    with pytest.raises(ConfigurationError, match="must be latest"):
        batch(endingOffsets='{"t":{"0":-2}}')
    with pytest.raises(ConfigurationError, match="endingOffsets is not for a stream read; it is for a batch read"):
        stream(endingOffsets="latest")
    assert options.check_read(BARE | {"endingOffsets": "latest"})
    assert options.check_read(BARE | {"startingOffsets": "latest"})


@pytest.mark.parametrize("starting", [{"startingTimestamp": "6"}, {"startingOffsetsByTimestamp": '{"t":{"0":6}}'}])
@pytest.mark.parametrize("ending", [{"endingTimestamp": "5"}, {"endingOffsetsByTimestamp": '{"t":{"0":5,"1":9}}'}])
def test_a_batch_does_not_end_before_the_time_at_which_it_begins(
    starting: dict[str, str], ending: dict[str, str]
) -> None:
    ((begin, _),), ((end, _),) = starting.items(), ending.items()
    with pytest.raises(ConfigurationError, match=f"{end} must be 6 or later, as {begin} says, got 5"):
        options.check_read({**BARE, **starting, **ending})


@pytest.mark.parametrize(
    "pattern, matches",
    [("orders", True), ("^my-", True), ("orders-2$", True), ("^orders", False), ("^orders$|payments", False)],
)
def test_a_pattern_is_found_anywhere_in_a_name(pattern: str, matches: bool) -> None:
    """As in Spark's own connector, so that a query reads the same topics."""
    assert SubscribePatternStrategy(pattern).matches("my-orders-2") is matches


def test_a_wrong_option_is_refused_when_the_kind_of_read_is_unknown() -> None:
    with pytest.raises(ConfigurationError, match=r"minPartitions must be a whole number.*, got '0'"):
        options.check_read(BARE | {"startingOffsets": "latest", "minPartitions": "0"})
    with pytest.raises(ConfigurationError, match="must be earliest"):
        options.check_read(BARE | {"startingOffsets": "latest", "endingOffsets": "latest"})


def test_limits_of_a_trigger_are_ignored_with_a_warning_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert batch(maxOffsetsPerTrigger="5")
    assert "ignored options that have no effect in a batch read: maxOffsetsPerTrigger" in caplog.text
    assert stream(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5").min_offsets_per_trigger == 5
    with pytest.raises(ConfigurationError, match=r"at most maxOffsetsPerTrigger \(4\)"):
        stream(maxOffsetsPerTrigger="4", minOffsetsPerTrigger="5")


def test_options_of_spark_itself_are_accepted() -> None:
    settings = SINK | {
        "topic": "t",
        "checkpointLocation": "/x",
        "queryName": "q",
        "asyncProgressTrackingEnabled": "true",
    }
    assert options.write(settings | {"_asyncProgressTrackingOverrideSinkSupportCheck": "true"}).topic == "t"


def test_the_delivery_is_at_least_once_unless_the_option_says_exactly_once() -> None:
    settings = SINK | {"topic": "t"}
    assert options.write(settings).transactional_id_prefix is None
    assert options.write(settings | {"delivery": "at-least-once"}).transactional_id_prefix is None
    assert options.write(settings | {"delivery": "Exactly-Once"}).transactional_id_prefix == "kafka-lite"
    transactional = settings | {"delivery": "exactly-once", "transactionalIdPrefix": "orders"}
    assert options.write(transactional).transactional_id_prefix == "orders"


@pytest.mark.parametrize(
    "settings, complaint",
    [
        ({"delivery": "once"}, "option delivery must be at-least-once or exactly-once, got 'once'"),
        ({"transactionalIdPrefix": "orders"}, r"transactionalIdPrefix requires .option\('delivery', 'exactly-once'\)"),
    ],
)
def test_a_wrong_delivery_is_refused(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        options.write(SINK | {"topic": "t"} | settings)


def test_properties_that_only_javas_clients_have_are_dropped() -> None:
    settings = {
        "kafka.Max.Poll.Records": "500",
        "kafka.receive.buffer.bytes": "65536",
        "kafka.client.dns.lookup": "use_all_dns_ips",
        "kafka.exclude.internal.topics": "true",
        "kafka.metric.reporters": "com.example.Reporter",
        "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        "kafka.transactional.id": "tx",
        "kafka.compression.level": "3",
        "kafka.security.providers": "com.example.Provider",
    }
    effective = {"kafka.client.id": "mine", "kafka.retries": "5"}
    for parsed in (options.batch_read(BARE | settings | effective), options.write(SINK | settings | effective)):
        assert parsed.properties == {"bootstrap.servers": "localhost:9092", "client.id": "mine", "retries": "5"}
    assert options.without_effect(BARE | settings | effective) == sorted(name.lower() for name in settings)
    assert options.without_effect(BARE | effective) == []


def test_no_value_of_a_property_is_ever_shown() -> None:
    read = batch(kafka__sasl__password="hunter2", kafka__ssl__key__password="file:/secret")
    for text in (repr(read), str(read), repr(read.properties), repr(pickle.loads(pickle.dumps(read)))):
        assert "hunter2" not in text
        assert "file:/secret" not in text
    assert read.properties["sasl.password"] == "hunter2"
    assert pickle.loads(pickle.dumps(read)) == read
    assert hash(copy.copy(read.properties)) == hash(read.properties)


def test_options_are_parsed_without_spark_arrow_or_numpy() -> None:
    code = (
        "import sys, aiokafka_lite.spark.options as o; o.write({'kafka.bootstrap.servers': 'h:1'});"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'asyncio') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_an_error_about_a_size_names_options_and_leaves_topics_alone() -> None:
    error = "writing 1 record to retries-0: max_request_size=1000 and buffer_memory=2000 are too small"
    expected = "writing 1 record to retries-0: kafka.max.request.size=1000 and kafka.buffer.memory=2000 are too small"
    assert options.with_option_names(error) == expected
