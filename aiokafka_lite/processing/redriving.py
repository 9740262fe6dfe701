"""``redrive``: sends the records of a dead-letter topic back to the topics from which they came.

A record is committed in the group of the call after it was acknowledged in its origin, so that the next call continues
behind it. Reading ends at the ends that the partitions had at the beginning: a record that fails again is a dead letter
again, and belongs to the next call.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from ..arguments import check_function, must_be
from ..cluster.topics import problem_of_topic_name
from ..consumer import Consumer
from ..errors import BrokerError, ConfigurationError, KafkaError
from ..net.connector import Connector
from ..producer import Delivery, Producer
from ..settings.keywords import ClientSettings
from ..snapshot import Snapshot
from ..types import Record, TopicPartition
from .failed_records import ADDED_HEADERS, LEFT_OUT

logger = logging.getLogger(__name__)

LOOKUP_TIMEOUT = 5.0
"""Seconds after which a topic is unknown. It was created long ago, so the brokers know it."""

_BATCH = 100
"""Records that are sent before the next commit, and repeated by the next call if this one is killed."""

_LONGEST_PARTITION = 10
"""The digits of the highest partition."""

Select = Callable[[Record[bytes, bytes]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven(Snapshot):
    """The result of ``redrive``: what was sent, or with ``dry_run`` what would be sent.

    ``records`` has the number of records for each topic and each ``error.class``, which is empty without that header.
    ``left_out`` were not selected, and ``without_origin`` could not be sent; the latter is 0 without ``dry_run``.
    """

    records: Mapping[tuple[str, str], int]
    left_out: int
    without_origin: int

    @property
    def total(self) -> int:
        """The number of records that were sent, or would be sent."""
        return sum(self.records.values())


async def redrive(
    bootstrap_servers: str | list[str] | tuple[str, ...],
    topic: str,
    *,
    select: Select | None = None,
    to: str | None = None,
    group_id: str | None = None,
    from_beginning: bool = False,
    dry_run: bool = False,
    connector: Connector | None = None,
    **settings: Unpack[ClientSettings],
) -> Redriven:
    """Send the records of a dead-letter topic back to the topic and the partition from which they came, and return.

    The origin is in the headers that ``dead_letter`` and ``retry_topic`` of ``Workers`` have added, which are removed.
    Key, value and other headers stay; the timestamp is new. If the partition no longer exists, the key decides. With
    ``to``, all records go to this topic, by their keys, also those without an origin.

    ``select`` gets each record, with bytes; records for which it returns False are left out. Records up to the present
    ends are read. What was sent or left out is committed in ``group_id``, ``<topic>.redrive`` by default, so the next
    call continues there; with ``from_beginning``, it does not. Nothing is deleted. With ``dry_run``, nothing is sent
    and nothing is committed. A call that is cancelled or fails may have sent up to 100 records that it has not
    committed; the next call sends them again. Do not run two calls for one group at once.

    Raises UnknownTopic for a topic that does not exist, KafkaError for a record without an origin and for one that
    cannot be sent, with its place; records before it are sent and committed. Raises ConfigurationError for a wrong
    argument, and the exceptions of ``select``.
    """
    if isinstance(topic, str) and group_id is None:
        group_id = f"{topic}.redrive"
    _check_topic("topic", topic)
    if to is not None:
        _check_topic("to", to)
    if to == topic:
        raise ConfigurationError(f"to must be another topic than the dead-letter topic {topic!r}")
    if select is not None:
        check_function("select", select)
        if inspect.iscoroutinefunction(select) or inspect.iscoroutinefunction(type(select).__call__):
            raise ConfigurationError(must_be("select", "a plain function, whose result is not awaited", select))
    async with (
        Consumer(
            bootstrap_servers,
            group_id=group_id,
            auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            connector=connector,
            **settings,
        ) as consumer,
        Producer(bootstrap_servers, allow_auto_create_topics=False, connector=connector, **settings) as producer,
    ):
        run = _Redrive(consumer, producer, select, to, dry_run=dry_run)
        return await run.run(topic, from_beginning=from_beginning)


class _Redrive:
    """One call of ``redrive``."""

    def __init__(
        self,
        consumer: Consumer[bytes, bytes],
        producer: Producer[bytes | str, bytes | str],
        select: Select | None,
        to: str | None,
        *,
        dry_run: bool,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._select = select
        self._to = to
        self._dry_run = dry_run
        self._partitions: dict[str, int] = {}
        """The number of partitions of each topic to which records go."""
        self._done: dict[TopicPartition, int] = {}
        """The offsets behind the records that were sent or left out, to be committed."""
        self._records: Counter[tuple[str, str]] = Counter()
        self._left_out = 0
        self._without_origin = 0

    async def run(self, topic: str, *, from_beginning: bool) -> Redriven:
        consumer = self._consumer
        views = await consumer.partitions_for(topic, timeout=LOOKUP_TIMEOUT)
        partitions = [TopicPartition(topic, view.partition) for view in views]
        if self._to is not None:
            await self._count_partitions(self._to)
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        if from_beginning:
            await consumer.seek_to_beginning(partitions)
        elif passed := [partition for partition in partitions if await consumer.position(partition) > ends[partition]]:
            logger.warning("%s: the log was made again, and is read from its beginning", ", ".join(map(str, passed)))
            await consumer.seek_to_beginning(passed)
        # The group may refuse commits of others, so the first one comes before anything is sent.
        self._done.update({partition: await consumer.position(partition) for partition in partitions})
        await self._commit()
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            records = await consumer.poll(max_records=_BATCH, timeout=1.0)
            try:
                await self._send([record for record in records if record.offset < ends[_place(record)]])
            finally:
                await self._commit()
        self._done.update(ends)  # transaction markers may be behind the last record
        await self._commit()
        return Redriven(records=dict(self._records), left_out=self._left_out, without_origin=self._without_origin)

    async def _send(self, records: Sequence[Record[bytes, bytes]]) -> None:
        """Send records, and wait until all of them are acknowledged. Raises the first error after this."""
        deliveries: list[tuple[Record[bytes, bytes], str, Delivery | None]] = []
        failure: KafkaError | None = None
        for record in records:
            try:
                deliveries.append((record, *await self._accept(record)))
            except KafkaError as error:
                failure = error
                break
        for record, topic, delivery in deliveries:
            try:
                if delivery is not None:
                    await delivery
            except KafkaError as error:
                raise _cannot_send(record, topic, error) from error
            self._done[_place(record)] = record.offset + 1
        if failure is not None:
            raise failure

    async def _accept(self, record: Record[bytes, bytes]) -> tuple[str, Delivery | None]:
        """Begin to send a record if it is selected. Returns its new topic."""
        headers = dict(record.headers)
        if self._select is not None and not _is_selected(self._select, record):
            self._left_out += 1
            return "", None
        if LEFT_OUT in headers:
            if self._dry_run:
                self._without_origin += 1
                return "", None
            raise KafkaError(
                f"the record at offset {record.offset} of {_place(record)} has no value, because it was too large for "
                f"this topic: leave it out, and look for it at its origin"
            )
        topic = self._to or (headers.get("origin.topic") or b"").decode(errors="backslashreplace")
        if not topic:
            if self._dry_run:
                self._without_origin += 1
                return "", None
            raise KafkaError(
                f"the record at offset {record.offset} of {_place(record)} has no header origin.topic, so no Workers "
                f"has sent it: leave it out, or send all records to one topic"
            )
        try:
            count = await self._count_partitions(topic)
        except KafkaError as error:
            raise _cannot_send(record, topic, error) from error
        error_class = (headers.get("error.class") or b"").decode(errors="backslashreplace")
        self._records[topic, error_class] += 1
        if self._dry_run:
            return topic, None
        kept = [header for header in record.headers if header.key not in ADDED_HEADERS]
        partition = None if self._to else _partition(headers.get("origin.partition"), count)
        try:
            delivery = await self._producer.put(topic, record.value, key=record.key, headers=kept, partition=partition)
        except KafkaError as error:
            raise _cannot_send(record, topic, error) from error
        return topic, delivery

    async def _count_partitions(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(await self._consumer.partitions_for(topic, timeout=LOOKUP_TIMEOUT))
        return self._partitions[topic]

    async def _commit(self) -> None:
        if self._done and not self._dry_run:
            (await self._consumer.commit(self._done)).raise_for_refused()
        self._done.clear()


def _check_topic(name: str, topic: object) -> None:
    if not isinstance(topic, str):
        raise ConfigurationError(must_be(name, "the name of a topic", topic))
    if (problem := problem_of_topic_name(topic)) is not None:
        raise ConfigurationError(f"{name}: {problem}")


def _is_selected(select: Select, record: Record[bytes, bytes]) -> bool:
    result: object = select(record)
    if inspect.isawaitable(result):  # it would be true for each record
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"select must return whether a record is sent, and returned an awaitable: {result!r:.80}")
    return bool(result)


def _place(record: Record[bytes, bytes]) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _partition(header: bytes | None, count: int) -> int | None:
    """Return the partition that a header names, if the topic has it."""
    # Python refuses to read a number of thousands of digits.
    if header is None or not header.isdigit() or len(header) > _LONGEST_PARTITION or int(header) >= count:
        return None
    return int(header)


def _cannot_send(record: Record[bytes, bytes], topic: str, error: KafkaError) -> KafkaError:
    text = f"the record at offset {record.offset} of {_place(record)} cannot be sent to {topic!r}: {error}"
    return type(error)(error.code, text) if isinstance(error, BrokerError) else KafkaError(text)
