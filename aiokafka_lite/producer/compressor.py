"""Compresses large batches beside the event loop, all partitions concurrently.

Rule: a batch that is being compressed has no sequence numbers and is in no request, and its partition waits for it
(``ProducerBatch.compressing``). So whatever happens to such batches meanwhile, a new leader, an expiry, an abort or the
end, happens to it as to others. A result that comes after that is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ..aio.calculations import Calculations
from .batch import ProducerBatch
from .dispatch import Dispatcher
from .partition import PartitionProducer
from .timers import Timers


class Compressor:
    """Compresses the large batches of a producer."""

    def __init__(self, dispatcher: Dispatcher, timers: Timers) -> None:
        self._dispatcher = dispatcher
        self._timers = timers
        self._calculations = Calculations("aiokafka-lite-compression")

    def start(self, partition: PartitionProducer, batch: ProducerBatch) -> bool:
        """Begin to compress a sealed batch. False if no thread can be started: then its request compresses it."""
        if self._timers.stopped:
            return False
        try:
            compressed = self._calculations.start(partial(_compress, batch, batch.builder.packing()))
        except RuntimeError:
            return False
        self._timers.when_done(compressed, self._done, partition, batch)
        return True

    def _done(
        self, compressed: asyncio.Future[bytearray | None], partition: PartitionProducer, batch: ProducerBatch
    ) -> None:
        is_compressed = not compressed.cancelled() and compressed.exception() is None
        following = partition.compressed(batch, compressed.result() if is_compressed else None)
        self._dispatcher.act(partition, following)

    def end(self) -> None:
        """Start no more compressions. Those that run are left alone: they end by themselves, and change nothing."""
        self._calculations.end()


def _compress(batch: ProducerBatch, packing: Callable[[], bytearray]) -> bytearray | None:
    # In a thread. After an abort, the batches behind it should not wait for those that have failed.
    return None if batch.settled else packing()
