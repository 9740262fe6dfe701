"""A job of ``make bench``: what a candidate does, and the settings that each client does it with."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

BATCH = 1 << 20
MESSAGE_LIMIT = 1_048_588  # the default of brokers (message.max.bytes)
BUFFER = 64 << 20
LINGER = 0.005

SETTINGS = f"""\
- All producers: acks=all, idempotent, murmur2 partitions of keys, batches of up to {BATCH >> 10} KiB, linger
  {LINGER * 1000:g} ms for throughput and 0 for awaited sends, {BUFFER >> 20} MiB of records in memory (aiokafka has
  no such limit).
- confluent-kafka `Producer`: `poll(0)` after each 1,000 records, `batch.num.messages` and
  `queue.buffering.max.messages` 1,000,000. For awaited sends a thread polls, and `call_soon_threadsafe` settles a
  future for each send.
- confluent-kafka `AIOProducer`: for awaited sends `batch_size` is a tenth of the number of senders and
  `buffer_timeout` 5 ms, and a task polls all the time; with its defaults a lone awaited send would take a second. In
  bulk its defaults.
- aiokafka: its C extensions are used.
- franz-go: `Produce` with a promise for each record, `ProduceSync` in goroutines for awaited sends, `PollFetches` and
  `EachRecord`.
- Java: `send` with a callback for each record, `send().get()` in threads for awaited sends, a heap of up to 512 MiB.
  The process does its work twice, and the second time is measured: by then the virtual machine has compiled the code.
  A start and idle clients are measured as they are; the memory of an idle client is that of its objects.
- All consumers: no group, assigned partitions, read_uncommitted, checksums verified (confluent-kafka needs
  `check.crcs`), the defaults of each client otherwise: each asks for up to 1 MiB of a partition at a time. Only
  confluent-kafka's `fetch.queue.backoff.ms` is 10: by default it pauses for a second when its queue is full.
- Spark: a local session on two cores, in a process for each candidate; the work is done twice before it is measured.
  CPU is that of the JVM and of all Python workers. Spark's connector with its defaults, and tuned: reading with
  `max.partition.fetch.bytes` 8 MiB, `max.poll.records` 20,000 and `receive.buffer.bytes` 1 MiB; writing with
  `batch.size` 1,000,000, `linger.ms` 20 and `buffer.memory` 64 MiB.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """What to measure: ``count`` records, sends, transactions, joins, requests or clients.

    ``senders`` is the number of tasks that each await their sends, of members that join a group, or of connections to a
    web service; 0 is for all at once. ``records`` is the size of a transaction. ``began`` is when the process was
    started, in seconds since 1970.
    """

    client: str
    servers: str
    topic: str
    partitions: int
    count: int
    size: int
    keyed: bool = False
    compression: str = "none"
    senders: int = 0
    uvloop: bool = False
    records: int = 0
    began: float = 0.0

    @property
    def linger(self) -> float:
        """Seconds. A record that something waits for has no other to wait for."""
        return 0.0 if self.senders or self.records == 1 else LINGER

    def values(self) -> list[bytes]:
        """Return different values, about half of whose bytes are random; at most 32 MiB together."""
        source = random.Random(7)
        number = max(1, min(1000, self.count, (32 << 20) // self.size))
        half = self.size // 2
        word = b'{"order": 12345, "customer": "C-0042", "amount": 99.50, "currency": "EUR"}'
        filler = (word * (self.size // len(word) + 1))[: self.size - half]
        return [filler + source.randbytes(half) for _ in range(number)]


KEYS = [b"key-%05d" % number for number in range(1000)]

Result = dict[str, float]


def our_settings(job: Job) -> dict[str, Any]:
    """Return the settings of a producer of this package."""
    return {
        "acks": "all",
        "batch_size": BATCH,
        "max_request_size": MESSAGE_LIMIT,
        "buffer_memory": BUFFER,
        "linger": job.linger,
        "compression": job.compression,
    }


def our_producer(job: Job, **options: Any) -> Any:
    from aiokafka_lite import Producer

    return Producer(job.servers, **{**our_settings(job), **options})


def librdkafka(job: Job, **options: Any) -> dict[str, Any]:
    """Return the settings of a producer of confluent-kafka."""
    return {
        "bootstrap.servers": job.servers,
        "acks": "all",
        "enable.idempotence": True,
        "batch.size": BATCH,
        "batch.num.messages": 1_000_000,
        "message.max.bytes": MESSAGE_LIMIT,
        "linger.ms": job.linger * 1000,
        "partitioner": "murmur2_random",
        "compression.type": job.compression,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": BUFFER >> 10,
        **options,
    }


def aiokafka_producer(job: Job, **options: Any) -> Any:
    import aiokafka

    return aiokafka.AIOKafkaProducer(
        bootstrap_servers=job.servers,
        acks="all",
        enable_idempotence=True,
        max_batch_size=BATCH,
        max_request_size=MESSAGE_LIMIT,
        linger_ms=int(job.linger * 1000),
        compression_type=None if job.compression == "none" else job.compression,
        **options,
    )
