"""The settings of the pipeline's session."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from spark_session import SparkCluster


@pytest.mark.parametrize(
    "cluster, local",
    [
        (SparkCluster(), True),
        (SparkCluster(master="local[2]"), True),
        (SparkCluster(master="spark://host:7077"), False),
        (SparkCluster(remote="sc://host"), False),
    ],
)
def test_only_a_local_master_gets_local_settings(cluster: SparkCluster, local: bool) -> None:
    assert cluster.is_local is local
