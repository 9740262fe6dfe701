"""A batch of records for one partition, from its first record until it is settled, and the factory of a producer's
batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..aio import forks
from ..protocol.records import HEADER_SIZE, BatchBuilder
from ..protocol.records.compression import codec_of
from ..protocol.schema import ZERO_UUID
from ..settings.producer import ProducerConfig
from ..types import Compression, TopicPartition
from .delivery import UNKNOWN_OFFSET, BatchResult
from .producer_ids import NO_PRODUCER_ID, NO_SEQUENCE, ProducerIdAndEpoch

if TYPE_CHECKING:
    from ..protocol.records.columns import EncodedRecords

REQUEST_OVERHEAD = 512
"""Estimated bytes of a Produce request besides its batches: header, names and ids."""

RATIO_STEP = 0.02
"""The maximum decrease of the expected compression ratio after one batch."""

SMALLEST_RATIO = 0.1
"""The smallest expected compression ratio. A batch holds its records uncompressed in memory, so it can use ten times
its size."""

LARGE_BATCH = 64 * 1024
"""Uncompressed bytes from which a slow compression runs in a thread. It takes 0.4 ms or more, the way to a thread and
back 0.1 ms."""

_NO_LIMIT = 2**62


class ProducerBatch(BatchResult):
    """Records that are sent, retried and settled together.

    Hot: a batch may hold a single record, so its attributes are not grouped in further objects.

    Its partition (``PartitionProducer``) is the only writer of the attributes here; ``Settlement`` settles the result.

     - ``opened``: the loop's time of the first record. Linger and delivery timeout count from there.
     - ``deadline``: the loop's time at which the batch expires.
     - ``due``: whether the batch may be sent without waiting for more records.
     - ``compressing``: a thread compresses the sealed batch (``Compressor``), which is not sent before that ends.
     - ``reserved``: the bytes of ``buffer_memory`` that its records use.
     - ``queued_for``, ``queued_bytes``: the broker whose load the sealed batch counts for, and the bytes.
     - ``identity``, ``sequence``: assigned when the batch is first sent, and kept through retries.
     - ``may_be_written``: a request failed, and the broker may nevertheless have written the batch.
     - ``is_written``: a later batch of the same sequence was acknowledged, which proves that this batch is written.
     - ``sent_to``: the id of the topic that the batch was sent to under its numbers; zero if it was sent by name.
     - ``numbers_elsewhere``: the identity and sequence under which it was sent to other topics of its name, by the
       topics' ids.
    """

    __slots__ = (
        "attempts",
        "builder",
        "compressing",
        "deadline",
        "due",
        "identity",
        "is_written",
        "last_error",
        "may_be_written",
        "numbers_elsewhere",
        "opened",
        "queued_bytes",
        "queued_for",
        "reserved",
        "sent_to",
        "sequence",
    )

    def __init__(self, topic: str, partition: int, builder: BatchBuilder, opened: float, deadline: float) -> None:
        # Sets the attributes of BatchResult itself instead of calling its constructor, because a batch may hold a
        # single record.
        self.topic = topic
        self.partition = partition
        self.settled = False
        self.has_failed = False
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time = -1
        self.log_start_offset = -1
        self.moved: list[tuple[BatchResult, int]] | None = None
        self._waiters = None
        self._followers = None
        self._error = None
        self._failure = None
        self._generation = forks.generation
        self.builder: BatchBuilder = builder
        self.opened: float = opened
        self.deadline: float = deadline
        self.due: bool = False
        self.compressing: bool = False
        self.reserved: int = 0
        self.queued_for: int | None = None
        self.queued_bytes: int = 0
        self.identity: ProducerIdAndEpoch = NO_PRODUCER_ID
        self.sequence: int = NO_SEQUENCE
        self.attempts: int = 0
        self.sent_to: bytes | None = None
        self.numbers_elsewhere: dict[bytes, tuple[ProducerIdAndEpoch, int]] | None = None
        self.last_error: Exception | None = None
        self.may_be_written: bool = False
        self.is_written: bool = False

    @property
    def count(self) -> int:
        """The number of records."""
        return self.builder.count

    def unnumber(self) -> None:
        """Remove the sequence numbers, because the broker does not have the batch under these numbers."""
        self.identity, self.sequence = NO_PRODUCER_ID, NO_SEQUENCE

    def has_numbers_of(self, topic_id: bytes) -> bool:
        """Return whether the numbers are those for the topic with this id, or the batch was never sent to any topic."""
        # A batch that was sent by name may be in the log of any topic with this name, so its numbers stay.
        if self.sent_to is None:
            return self.numbers_elsewhere is None
        return self.sent_to in (ZERO_UUID, topic_id)

    def move_to(self, topic_id: bytes) -> None:
        """Take the numbers under which the batch was sent to the topic with this id; none if it was never sent there.

        A broker that lags behind can name an older topic. When another one names the newer topic again, its log may
        have the batch, and recognizes it only by the numbers of that time.
        """
        if self.has_numbers_of(topic_id):
            return
        numbers = self.numbers_elsewhere = self.numbers_elsewhere or {}
        if self.sent_to is not None and self.sequence != NO_SEQUENCE:
            numbers[self.sent_to] = self.identity, self.sequence
        earlier = numbers.pop(topic_id, None)
        self.sent_to = None if earlier is None else topic_id
        self.identity, self.sequence = earlier or (NO_PRODUCER_ID, NO_SEQUENCE)

    def encode(self, transactional: bool = False) -> bytearray:
        """Encode and compress the batch, once. Returns the builder's own buffer."""
        return self.builder.build(self.identity.producer_id, self.identity.epoch, self.sequence, transactional)

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.topic}-{self.partition} records={self.count} sequence={self.sequence}>"


class BatchFactory:
    """Makes batches with the same settings, and estimates their compression ratio, which decides their size."""

    __slots__ = ("_large_from", "_level", "_max_size", "_ratio", "codec", "compresses", "delivery_timeout")

    def __init__(self, config: ProducerConfig, large_from: int = LARGE_BATCH) -> None:
        self.codec: Compression = Compression.parse(config.compression)
        self.compresses: bool = self.codec is not Compression.NONE
        self._level = config.compression_level
        # None: no batch is worth a thread.
        self._large_from = large_from if codec_of(self.codec).is_slow(config.compression_level) else None
        self._max_size = min(config.batch_size, config.max_request_size - REQUEST_OVERHEAD)
        self.delivery_timeout: float = config.delivery_timeout
        self._ratio = 1.0

    @property
    def capacity(self) -> int:
        """The uncompressed bytes of records that a batch is expected to take."""
        return int((self._max_size - HEADER_SIZE) / self._ratio)

    def new(self, partition: TopicPartition, opened: float) -> ProducerBatch:
        """Make an empty batch whose delivery timeout counts from ``opened``."""
        builder = BatchBuilder(self.codec, self._level, self._max_size, self._ratio)
        return ProducerBatch(*partition, builder, opened, opened + self.delivery_timeout)

    def encoded(self, partition: TopicPartition, opened: float, records: EncodedRecords) -> ProducerBatch:
        """Make a batch of encoded records. It takes no more records."""
        builder = BatchBuilder(self.codec, self._level, self._max_size)
        builder.fill(records.buffer, records.count, records.base_timestamp, records.max_timestamp)
        return ProducerBatch(*partition, builder, opened, opened + self.delivery_timeout)

    def part_of(self, whole: ProducerBatch) -> ProducerBatch:
        """Make an empty batch without a size limit for some records of ``whole``. Both expire together."""
        # With a limit, the builder could refuse a record, which would then be in none of the parts.
        builder = BatchBuilder(self.codec, self._level, _NO_LIMIT)
        part = ProducerBatch(whole.topic, whole.partition, builder, whole.opened, whole.deadline)
        part.last_error = whole.last_error
        return part

    def is_large(self, batch: ProducerBatch) -> bool:
        """Return whether to compress the batch in a thread, because that would hold the event loop for too long."""
        return self._large_from is not None and batch.builder.uncompressed_size >= self._large_from

    def measure(self, batch: ProducerBatch) -> None:
        """Update the expected compression ratio from a built batch, so that the next batches fill up.

        Batches that compress worse than expected become too large; batches that compress better only become too small.
        So the estimate rises at once and falls slowly.
        """
        if self.compresses:
            measured = batch.builder.size / batch.builder.uncompressed_size
            self._ratio = min(1.0, max(measured, self._ratio - RATIO_STEP, SMALLEST_RATIO))


class BatchFactories:
    """The factory of each topic: topics with settings of their own have one each, all others share one."""

    __slots__ = ("_by_topic", "_common")

    def __init__(self, config: ProducerConfig) -> None:
        self._common = BatchFactory(config)
        self._by_topic = {topic: BatchFactory(config.for_topic(topic)) for topic in config.topic_settings or ()}

    def of(self, topic: str) -> BatchFactory:
        """Return the factory of a topic's batches."""
        return self._by_topic.get(topic, self._common)

    @property
    def codecs(self) -> set[Compression]:
        """The codecs of all topics."""
        return {factory.codec for factory in (self._common, *self._by_topic.values())}

    @property
    def expire_in_order(self) -> bool:
        """Whether a batch of any topic that is begun later never expires earlier."""
        return all(factory.delivery_timeout == self._common.delivery_timeout for factory in self._by_topic.values())
