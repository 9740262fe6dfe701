"""The names of aiokafka on top of this client: a program changes its imports, and nothing else.

::

    from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka_lite.compat.aiokafka.errors import KafkaError

Names, arguments, defaults and meaning are the same as in aiokafka 0.14. A call without a counterpart raises
NotImplementedError with the reason. The package uses only the public interface of aiokafka_lite. The differences:

- Automatic commits cover the records of earlier reads. The records of the last ``getone()`` or ``getmany()`` are
  committed by the next read, by ``commit()``, or by ``stop()``. A rebalance waits for that, up to a limit, and then
  commits them.
- A send waits for room in 32 MiB of memory; aiokafka has no such limit.
- ``start()`` keeps trying for ``request_timeout_ms`` before it raises KafkaConnectionError.
- ``exclude_internal_topics`` and ``consumer_timeout_ms`` have no effect: a pattern never matches internal topics.
- An assignor of ``partition_assignment_strategy`` must not assign a partition to two members.
- ``AIOKafkaClient`` fetches metadata, and cannot send other requests.
"""

from __future__ import annotations

import sys
from importlib import import_module

from .abc import ConsumerRebalanceListener
from .client import AIOKafkaClient
from .consumer import AIOKafkaConsumer
from .errors import ConsumerStoppedError, IllegalOperation
from .producer import AIOKafkaProducer
from .structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__version__ = "0.14.0"
"""The version of aiokafka whose interface this is. Frameworks look at it."""

_MODULES = {
    "abc": "abc",
    "admin": "admin",
    "admin.client": "admin",
    "admin.config_resource": "admin",
    "admin.new_partitions": "admin",
    "admin.new_topic": "admin",
    "admin.records_to_delete": "admin",
    "client": "client",
    "cluster": "cluster",
    "consumer": "consumer",
    "consumer.consumer": "consumer",
    "consumer.group_coordinator": "coordinator",
    "errors": "errors",
    "helpers": "helpers",
    "partitioner": "partitioner",
    "producer": "producer",
    "producer.message_accumulator": "producer",
    "producer.producer": "producer",
    "protocol": "protocol",
    "protocol.api": "protocol",
    "protocol.metadata": "protocol",
    "structs": "structs",
    "util": "util",
    "coordinator": "assignors",
    "coordinator.assignors": "assignors",
    "coordinator.assignors.abstract": "assignors",
    "coordinator.assignors.range": "assignors",
    "coordinator.assignors.roundrobin": "assignors",
    "coordinator.assignors.sticky": "assignors",
    "coordinator.assignors.sticky.sticky_assignor": "assignors",
    "coordinator.protocol": "assignors",
}


def install() -> None:
    """Make ``import aiokafka`` import this package, for libraries that import aiokafka.

    Call it before these libraries are imported. Raises RuntimeError if aiokafka itself is imported already.
    """
    package = sys.modules[__name__]
    if sys.modules.get("aiokafka", package) is not package:
        raise RuntimeError("aiokafka is imported already; call install() before anything imports it")
    sys.modules["aiokafka"] = package
    for theirs, ours in _MODULES.items():
        module = sys.modules[f"aiokafka.{theirs}"] = import_module(f"{__name__}.{ours}")
        parent, _, name = f"aiokafka.{theirs}".rpartition(".")
        setattr(sys.modules[parent], name, module)


__all__ = [
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "install",
]
