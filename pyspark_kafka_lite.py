"""Registers the format ``kafka-lite``: Spark finds top-level modules ``pyspark_*`` with a ``DefaultSource`` by itself.

Spark imports every such module when it looks up any format. An error here would break all formats, so a missing
dependency is only a warning, and the format ``kafka-lite`` is not available then.
"""

from __future__ import annotations

import logging

try:
    from aiokafka_lite.spark.data_source import KafkaLiteDataSource as DefaultSource
except ImportError as error:
    logging.getLogger(__name__).warning("the format kafka-lite is not available: %s", error)
else:
    __all__ = ["DefaultSource"]
