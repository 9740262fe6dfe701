"""Accepts the records of ``send_many``: as lists of bytes if possible, otherwise one by one.

Lists need no Python call per record (``protocol/records/pack.py``). They are possible if the topic is known, keys and
values are bytes or str, and no record is too large. The user must have no interceptor, serializer or partitioner.
Otherwise the records of the piece are accepted as by ``Producer.put``, so that each record has its own error.

Rule 1: bytes of ``buffer_memory`` are acquired for a piece before any record of it is in a batch. The bytes of records
  in a batch belong to the batch. After an error, the other bytes are released here.

Rule 2: between two pieces other tasks run. A piece takes a few milliseconds at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sized
from itertools import accumulate, islice, repeat
from operator import add
from types import NoneType
from typing import cast

from ...aio.service import Service
from ...arguments import INT64_MAX, shown
from ...errors import BrokerError, IllegalStateError, SerializationError
from ...protocol.records import RecordLists
from ...serialization.headers import Headers, headers_of
from ...settings.producer import ProducerConfig
from ...types import Header
from ..accumulator import Accumulator
from ..admission import Admission
from ..buffer_memory import BufferMemory
from ..delivery import Delivery, FailureLog
from ..record import BATCH_OVERHEAD, RECORD_OVERHEAD, largest_record, size_of_headers
from ..topic import TopicProducer
from .accept import Acceptor
from .results import ListPiece, Piece, Run, SinglePiece

FIRST_PIECE = 100
"""The number of records in the first piece, because the size of the records is not known yet."""

MOST_RECORDS = 2_000
"""The most records in a piece. They take one to two milliseconds."""

PIECE_BYTES = 1 << 20
"""The approximate bytes of a piece. The average size of the records so far decides the length of later pieces."""

SINGLE_RECORDS = 500
"""The most records in a piece that is accepted one by one."""


# Python can iterate over these too, but no caller means a record for each byte, letter or key.
_SINGLE_VALUES = (str, bytes, bytearray, memoryview, Mapping)


class ValuesAndKeys:
    """The values of a call and their keys, taken in pieces. ``keys`` is None if no record has a key.

    Raises SerializationError for other types, and for different lengths if both have a length.
    """

    __slots__ = ("_error", "_keys", "_taken", "_topic", "_values")

    def __init__(self, topic: str, values: Iterable[object], keys: Iterable[object] | None) -> None:
        for name, items in (("values", values), ("keys", keys if keys is not None else ())):
            if isinstance(items, _SINGLE_VALUES) or not isinstance(items, Iterable):
                raise SerializationError(
                    f"{name} for topic {topic!r} must be an iterable with one item per record, got {shown(items)}"
                )
        if keys is not None and isinstance(values, Sized) and isinstance(keys, Sized) and len(values) != len(keys):
            raise SerializationError(
                f"values and keys for topic {topic!r} must have the same length, got {len(values)} values and"
                f" {len(keys)} keys; use None for a record without a key"
            )
        self._topic = topic
        self._values = iter(values)
        self._keys = None if keys is None else iter(keys)
        self._taken = 0
        self._error: BaseException | None = None

    def take(self, count: int) -> tuple[list[object], list[object] | None]:
        """Take the next values, at most ``count``, and their keys. An empty result means that there are no more.

        One call returns the values before an error. The next call raises it: the error of an iterable, or
        SerializationError when one iterable ends first.
        """
        if self._error is not None:
            raise self._error
        values: list[object] = []
        keys: list[object] | None = None if self._keys is None else []
        try:
            values.extend(islice(self._values, count))
            if keys is not None and self._keys is not None:
                keys.extend(islice(self._keys, len(values)))
                if len(keys) == len(values) < count:
                    keys.extend(islice(self._keys, 1))
        except BaseException as error:  # noqa: BLE001 - raised by the next call
            self._error = error
        if keys is not None and len(keys) != len(values):
            both = min(len(keys), len(values))
            if self._error is None:
                self._error = self._lengths_differ(self._taken + both, len(keys) > len(values))
            del keys[both:], values[both:]
        self._taken += len(values)
        if self._error is not None and not values:
            raise self._error
        return values, keys

    def _lengths_differ(self, number: int, more_keys: bool) -> SerializationError:
        more, fewer = ("keys", "values") if more_keys else ("values", "keys")
        return SerializationError(
            f"values and keys for topic {self._topic!r} must have the same length, got {number} {fewer} and more"
            f" {more}; the first {number} are sent"
        )


class ManyAcceptor:
    """Accepts the records of one call as pieces. ``acceptor`` accepts the records that cannot be accepted as lists.

    ``on_refused`` is called with the error of a record that is not accepted. ``takes_lists``: the user has no
    interceptor and no serializer.
    """

    def __init__(
        self,
        acceptor: Acceptor,
        accumulator: Accumulator,
        memory: BufferMemory,
        admission: Admission,
        config: ProducerConfig,
        clock: Callable[[], float],
        service: Service,
        on_refused: Callable[[Exception], None],
        takes_lists: bool,
    ) -> None:
        self._acceptor = acceptor
        self._accumulator = accumulator
        self._memory = memory
        self._admission = admission
        self._clock = clock
        self._service = service
        self._on_refused = on_refused
        self._largest = largest_record(config)
        self._piece_bytes = max(1, min(PIECE_BYTES, config.buffer_memory // 4))
        # Each record of a small batch is charged for a share of the batch.
        self._takes_lists = takes_lists and config.smallest_batch_size >= 8 * BATCH_OVERHEAD

    async def accept(
        self, topic: str, items: ValuesAndKeys, headers: Headers, partition: int | None, timestamp: int | None
    ) -> list[Piece]:
        """Accept all records, waiting for room. Raises the errors of ``Producer.send_many``."""
        pieces: list[Piece] = []
        common = _headers_of(topic, headers)
        takes_lists = self._takes_lists and common is not None and _is_timestamp(timestamp) and type(topic) is str
        count = FIRST_PIECE
        transaction = self._admission.transaction
        log: FailureLog | None = None
        while True:
            try:
                self._service.check()
            except IllegalStateError as error:
                if pieces:  # otherwise the producer was closed before the call
                    self._memory.raise_if_closed(topic, error, "the rest of the records")
                raise
            self._admission.check_transaction(transaction)
            values, keys = items.take(count)
            if not values:
                return pieces
            piece: Piece | None = None
            if takes_lists and common is not None:
                piece = await self._accept_lists(topic, values, keys, common, partition, timestamp)
            if piece is None:
                checked = headers if common is None else common
                accepted = await self._accept_singly(topic, values, keys, checked, partition, timestamp)
                piece = single = SinglePiece(topic, accepted, log)
                log = single.log
            pieces.append(piece)
            if isinstance(piece, ListPiece):
                most, size = MOST_RECORDS, sum(piece.value_sizes)
            else:
                most, size = SINGLE_RECORDS, sum(len(value) for value in values if isinstance(value, (bytes, str)))
            count = max(1, min(most, self._piece_bytes // (size // len(values) + RECORD_OVERHEAD)))
            await asyncio.sleep(0)  # other tasks run, and the records so far are sent

    async def _accept_singly(
        self,
        topic: str,
        values: list[object],
        keys: list[object] | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> list[Delivery | Exception]:
        accepted: list[Delivery | Exception] = []
        for number, value in enumerate(values):
            self._service.check()
            key = None if keys is None else keys[number]
            try:
                delivery = self._acceptor.accept(topic, value, key, headers, partition, timestamp)
                accepted.append(delivery if isinstance(delivery, Delivery) else await delivery)
            except (SerializationError, BrokerError, IllegalStateError) as error:
                self._service.check()
                self._admission.check()
                # The producer accepts records, so the error concerns this record.
                self._on_refused(error)
                accepted.append(error)
        return accepted

    async def _accept_lists(
        self,
        topic: str,
        values: list[object],
        keys: list[object] | None,
        headers: tuple[Header, ...],
        partition: int | None,
        timestamp: int | None,
    ) -> ListPiece | None:
        """Accept all of these records at once; None if they have to be accepted one by one."""
        target = self._target(topic, partition)
        value_list = _as_bytes(values)
        key_list = None if keys is None or set(map(type, keys)) == {NoneType} else _as_bytes(keys)
        if target is None or value_list is _MIXED or key_list is _MIXED:
            return None
        order: list[int] | None = None
        shares = [(partition, 0, len(values))]
        if partition is None and key_list is not None:
            numbers = self._accumulator.choice.of_keys(target, key_list)
            if numbers is None:
                return None
            # Stable, so the records of a partition stay in order.
            order = sorted(range(len(numbers)), key=numbers.__getitem__)
            value_list = list(map(value_list.__getitem__, order))
            key_list = list(map(key_list.__getitem__, order))
            shares = _shares(numbers)
        now = int(self._clock() * 1000) if timestamp is None else timestamp
        lists = RecordLists(value_list, key_list, headers, now)
        charges = self._charges(lists, headers)
        if charges is None or not await self._reserve(charges[-1], target, partition):
            return None
        piece = ListPiece(now, lists.value_sizes, lists.key_sizes, order)
        self._append(piece, target, lists, charges, shares)
        return piece

    def _charges(self, lists: RecordLists, headers: tuple[Header, ...]) -> list[int] | None:
        """Return the running total of ``buffer_memory`` bytes after each record; None if a record is too large."""
        overhead = RECORD_OVERHEAD + (size_of_headers(headers) if headers else 0)
        sizes = lists.value_sizes if lists.key_sizes is None else list(map(add, lists.value_sizes, lists.key_sizes))
        charges = list(accumulate(map(add, sizes, repeat(overhead))))
        if max(sizes) + overhead > self._largest or charges[-1] > self._memory.budget.total:
            return None
        return charges

    async def _reserve(self, charge: int, target: TopicProducer, partition: int | None) -> bool:
        """Take the bytes of ``buffer_memory``. Returns False if the topic was deleted, or lost the partition."""
        budget = self._memory.budget
        if budget.try_acquire(charge):
            return True
        transaction = self._admission.transaction
        await self._memory.acquire(charge, target.name)
        try:
            self._admission.check_transaction(transaction)
        except BaseException:
            budget.release(charge)
            raise
        if self._target(target.name, partition) is target:
            return True
        budget.release(charge)
        return False

    def _append(
        self,
        piece: ListPiece,
        target: TopicProducer,
        lists: RecordLists,
        charges: list[int],
        shares: list[tuple[int | None, int, int]],
    ) -> None:
        """Put the records into batches. After an error, the bytes of the other records are released."""
        used = 0
        try:
            for number, place, stop in shares:
                while place < stop:
                    run = Run(*self._accumulator.append_lists(target, number, lists, charges, place, stop))
                    piece.runs.append(run)
                    place += run.length
                    used = charges[place - 1]
            assert len(piece) == len(piece.value_sizes), "each record of the piece is in a batch"
        except BaseException:
            self._memory.budget.release(charges[-1] - used)
            raise

    def _target(self, topic: str, partition: int | None) -> TopicProducer | None:
        """Return the topic, if its records can go to batches now without a call for each record; otherwise None."""
        target = self._accumulator.topics.get(topic)
        if target is None or not target.is_open or not self._accumulator.choice.is_default:
            return None
        if partition is not None and (type(partition) is not int or partition not in target.partitions):
            return None
        return target


def _headers_of(topic: str, headers: Headers) -> tuple[Header, ...] | None:
    """Return the headers of all records; None if they are wrong, so that each record gets its error."""
    try:
        return headers_of(topic, headers)
    except SerializationError:
        return None


def _is_timestamp(timestamp: object) -> bool:
    return timestamp is None or (type(timestamp) is int and 0 <= timestamp <= INT64_MAX)


_MIXED: list[bytes] = []
"""The result for items that are not a list of bytes: some have to be refused or serialized one by one."""


def _as_bytes(items: list[object]) -> list[bytes]:
    """Return the items as bytes, if all of them are bytes or all are str; otherwise ``_MIXED``."""
    types = set(map(type, items))
    if types == {bytes}:
        return cast(list[bytes], items)
    if types == {str}:
        try:
            return list(map(str.encode, cast(list[str], items)))
        except UnicodeEncodeError:
            pass
    return _MIXED


def _shares(numbers: list[int]) -> list[tuple[int | None, int, int]]:
    """Return the first and last position of each partition's records, after sorting by partition."""
    shares: list[tuple[int | None, int, int]] = []
    start = 0
    for number, count in sorted(Counter(numbers).items()):
        shares.append((number, start, start + count))
        start += count
    return shares
