"""The pipeline's arguments: wrong ones are told in one line, before Java is started."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from aiokafka_lite.spark import __main__ as program
from aiokafka_lite.spark.__main__ import main, reason

COMPLETE = ["--topic", "t", "--schema", "a INT", "--window", "1 minute", "--checkpoint", "c", "--to-topic", "u"]


@pytest.mark.parametrize(
    "changed, complaint",
    [
        (["--conf", "spark.ui.enabled"], "--conf takes NAME=VALUE, and 'spark.ui.enabled' has no '='"),
        (["-X", "acks"], "--property takes NAME=VALUE"),
        (["--option", "minPartitions"], "--option takes NAME=VALUE"),
        (["--config", "nowhere.properties"], "nowhere.properties"),
    ],
)
def test_a_wrong_argument_is_one_line_and_status_2(
    changed: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "open_session", None)  # what would be called if it went on
    assert main([*COMPLETE, *changed], program="pipeline") == 2
    told = capsys.readouterr().err
    assert told.startswith("pipeline: ")
    assert complaint in told
    assert told.count("\n") == 1


def test_a_missing_argument_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--topic", "t"], program="pipeline")
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("pipeline: the following arguments are required: --schema")
    assert told.endswith("; see pipeline --help\n")
    assert told.count("\n") == 1


def test_a_pipeline_without_destination_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMPLETE[:-2]) == 2
    assert "a pipeline needs a destination: --to-parquet, --to-topic, or both" in capsys.readouterr().err


def test_client_properties_come_from_file_and_options(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=SASL_SSL\nsasl.password=env:PASSWORD\n")
    given = program._parser("p").parse_args(
        [
            *(*COMPLETE, "-b", "host:1", "-c", str(tmp_path / "client.properties")),
            *("-X", "client.id=a", "--option", "minPartitions=3"),
        ]
    )
    assert program._source_options(given) == {
        "kafka.bootstrap.servers": "host:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": "env:PASSWORD",
        "kafka.client.id": "a",
        "subscribe": "t",
        "startingOffsets": "earliest",
        "minPartitions": "3",
    }


def test_of_sparks_account_of_an_error_the_line_is_told_that_says_what_is_wrong() -> None:
    account = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source: Traceback (most recent call last):
  File "x.py", line 1, in f
aiokafka_lite.errors.UnknownTopic: topic 'nowhere' does not exist
 SQLSTATE: 38000
\tat org.apache.spark.X"""
    assert reason(account) == "topic 'nowhere' does not exist"
    told = "[PARSE_SYNTAX_ERROR] Syntax error at 'x'."
    assert reason(told + "\n== SQL ==\nx") == told
