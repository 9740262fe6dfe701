"""The names of aiokafka on top of this client: a program changes its imports, and nothing else.

::

    from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka_lite.compat.aiokafka.errors import KafkaError

Names, arguments, defaults and meaning are those of aiokafka 0.14; what has no counterpart raises NotImplementedError
with the reason. The package uses only the public interface of aiokafka_lite. The differences:

- Automatic commits cover the records before the last returned one, and ``stop()`` commits all returned records.
  aiokafka also commits the record that the program still processes.
- A send waits for room in 32 MiB of memory; aiokafka has no such limit.
- ``start()`` keeps trying for ``request_timeout_ms`` before it raises KafkaConnectionError.
- Objects of the protocol, ``client`` and ``AIOKafkaClient`` among them, do not exist.
"""

from __future__ import annotations

from .abc import ConsumerRebalanceListener
from .consumer import AIOKafkaConsumer
from .errors import ConsumerStoppedError, IllegalOperation
from .producer import AIOKafkaProducer
from .structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]
