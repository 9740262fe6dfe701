"""The clients for programs without an event loop: Django, Flask, Celery, scripts, notebooks.

Each class has the name, the arguments and the results of its asyncio counterpart in ``aiokafka_lite``; its calls block
the thread that makes them instead of being awaited. All clients of a process share one event loop, in a thread of its
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy

if TYPE_CHECKING:
    from .admin import Admin as Admin
    from .callbacks import ConsumerGroupHandler as ConsumerGroupHandler
    from .callbacks import RebalanceListener as RebalanceListener
    from .consumer import ArrowBatches as ArrowBatches
    from .consumer import Batches as Batches
    from .consumer import BoundedRead as BoundedRead
    from .consumer import Consumer as Consumer
    from .consumer import PartitionReader as PartitionReader
    from .group import ConsumerGroup as ConsumerGroup
    from .group import GroupErrors as GroupErrors
    from .group import Workers as Workers
    from .producer import Failures as Failures
    from .producer import Producer as Producer
    from .producer import Transaction as Transaction
    from .producing import BulkDelivery as BulkDelivery
    from .reading import RecordIteration as RecordIteration
    from .sending import Delivery as Delivery
    from .session import Claim as Claim
    from .session import ConsumerGroupSession as ConsumerGroupSession
    from .session import Offsets as Offsets
    from .session import RebalanceHandle as RebalanceHandle
    from .share import ShareConsumer as ShareConsumer
else:
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".admin": "Admin",
            ".callbacks": "ConsumerGroupHandler RebalanceListener",
            ".consumer": "ArrowBatches Batches BoundedRead Consumer PartitionReader",
            ".group": "ConsumerGroup GroupErrors Workers",
            ".producer": "Failures Producer Transaction",
            ".producing": "BulkDelivery",
            ".reading": "RecordIteration",
            ".sending": "Delivery",
            ".session": "Claim ConsumerGroupSession Offsets RebalanceHandle",
            ".share": "ShareConsumer",
        },
    )
