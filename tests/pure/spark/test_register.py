"""Registering with a session: the Python of its workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aiokafka_lite.spark import register
from aiokafka_lite.spark.interpreter import worker_python

pytest.importorskip("pyspark")


def session(master: str, **settings: str) -> Any:
    """Return the parts of a session that ``register`` uses; a real one takes seconds to start."""
    context = SimpleNamespace(master=master, pythonExec="python3", environment={}, getConf=lambda: settings)
    return SimpleNamespace(_sc=context, dataSource=SimpleNamespace(register=lambda source: None))


@pytest.fixture(autouse=True)
def _no_chosen_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_workers_of_a_local_session_get_this_python() -> None:
    spark = session("local[2]")
    register(spark)
    assert spark._sc.pythonExec == worker_python()


def test_a_chosen_python_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    by_setting = session("local[2]", **{"spark.pyspark.python": "/opt/python"})
    register(by_setting)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    by_environment = session("local[2]")
    register(by_environment)
    assert by_setting._sc.pythonExec == "/opt/python"  # Spark itself reads it only in spark-submit
    assert by_environment._sc.pythonExec == "python3"


def test_workers_of_a_cluster_have_a_python_of_their_own() -> None:
    spark = session("spark://master:7077")
    register(spark, check_nodes=False)
    assert spark._sc.pythonExec == "python3"


def test_spark_connect_has_no_context() -> None:
    spark = SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: None))
    register(spark, check_nodes=False)  # type: ignore[arg-type]


def test_tracebacks_are_hidden_on_request() -> None:
    settings: dict[str, str] = {}
    spark = session("local[2]")
    spark.conf = SimpleNamespace(set=settings.__setitem__)
    register(spark)
    assert settings == {}
    register(spark, short_errors=True)
    assert settings == {"spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true"}


def test_the_variables_that_spark_sets_have_a_place_from_the_start() -> None:
    spark = session("local[2]")
    spark._sc.environment = {"MINE": "1", "SPARK_BUFFER_SIZE": "65536"}
    register(spark)
    assert spark._sc.environment == {
        "MINE": "1",
        "SPARK_AUTH_SOCKET_TIMEOUT": "",
        "SPARK_BUFFER_SIZE": "65536",
        "SPARK_LOCAL_DIRS": "",
        "SPARK_PYTHON_RUNTIME": "",
    }
