"""The arguments of the pipeline: wrong ones are refused in one line, before Java starts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pyspark")

import pipeline
from aiokafka_lite.cli.terminal.connection import ConnectionOptions
from aiokafka_lite.errors import ConfigurationError
from pipeline import check_transaction_timeout, client_options, main, reason

REQUIRED = ("--topic", "t", "--schema", "a INT", "--window", "1 minute", "--checkpoint", "c")
COMPLETE = (*REQUIRED, "--to-topic", "u")
COPY = ("--topic", "t", "--checkpoint", "c", "--to-topic", "u")


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (REQUIRED, "a pipeline requires a destination: --to-files, --to-topic, or both"),
        ((*COPY, "--window", "1 minute"), "--window requires --schema"),
        ((*COPY, "--schema", "a INT"), "--schema requires --to-files or --window"),
        (
            (*COPY, "--group-by", "a", "--aggregate", "sum(a)"),
            "nothing to aggregate; leave out --group-by, --aggregate",
        ),
        (COMPLETE[2:], "the following arguments are required: --topic"),
        ((*COMPLETE, "--conf", "spark.ui.enabled"), "conf must be NAME=VALUE, got 'spark.ui.enabled'"),
        ((*COMPLETE, "-X", "acks"), "property must be NAME=VALUE, got 'acks'"),
        ((*COMPLETE, "-X", "sasl.password=secret"), "use sasl.password=env:VARIABLE"),
        ((*REQUIRED, "--to-files", "p", "--exactly-once"), "--exactly-once requires --to-topic"),
        (
            (*COMPLETE, "--exactly-once", "-X", "transaction.timeout.ms=9999", "--trigger", "10 seconds"),
            "kafka.transaction.timeout.ms must be at least the trigger interval, 10000 ms, got 9999",
        ),
        ((*COMPLETE, "--master", "locl[2]"), "master must be local, local[4], local[*], spark://host:port, "),
        ((*COMPLETE, "--option", "minPartitions"), "option must be NAME=VALUE, got 'minPartitions'"),
        ((*COMPLETE, "--config", "nowhere.properties"), "nowhere.properties"),
    ],
)
def test_a_wrong_argument_is_one_line_and_status_2(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_run", None)  # the next step: it would start Spark
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr().err
    assert ended.value.code == 2
    assert printed.startswith("aiokafka-lite: ")
    assert complaint in printed
    assert printed.count("\n") == 1


def test_options_override_the_file_and_the_environment_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKAFKA_LITE_SASL_PASSWORD", "secret")
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=of-file:1\nsecurity.protocol=SASL_SSL\nsasl.password=env:PASSWORD\n")
    assert client_options(ConnectionOptions("host:1", path, ["client.id=a"], None)) == {
        "kafka.bootstrap.servers": "host:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": "env:PASSWORD",
        "kafka.client.id": "a",
    }
    assert client_options(ConnectionOptions(None, None, (), None)) == {"kafka.bootstrap.servers": "localhost:9092"}


def test_an_error_of_spark_is_reduced_to_the_line_with_its_cause() -> None:
    text = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source: Traceback (most recent call last):
  File "x.py", line 1, in f
aiokafka_lite.errors.UnknownTopic: topic 'nowhere' does not exist
 SQLSTATE: 38000
\tat org.apache.spark.X"""
    assert reason(text) == "topic 'nowhere' does not exist"
    other = text.replace("aiokafka_lite.errors.UnknownTopic: topic 'nowhere' does not exist", "ImportError: no lz4")
    assert reason(other) == "ImportError: no lz4"
    line = "[PARSE_SYNTAX_ERROR] Syntax error at 'x'."
    assert reason(line + "\n== SQL ==\nx") == line
    of_java = "An error occurred while calling o72.start.\n: org.apache.spark.SparkClassNotFoundException: no parket\n"
    assert reason(of_java + "\tat org.apache.spark.X\nCaused by: java.lang.Exception: x") == "no parket"


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
