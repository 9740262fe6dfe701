"""Found by Spark itself: a top-level module ``pyspark_*`` with a ``DefaultSource`` registers a format.

Spark imports every such module when it looks for any format at all. An error here would make all of them fail, so that
where something is missing, there is only no ``kafka-lite``.
"""

from __future__ import annotations

import logging

try:
    from aiokafka_lite.spark.data_source import KafkaLiteDataSource as DefaultSource
except ImportError as error:
    logging.getLogger(__name__).warning("the format kafka-lite is not available: %s", error)
else:
    __all__ = ["DefaultSource"]
