"""Sends the rows of one read to Kafka, in order by lane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import anyio

from ...aio.retry import is_retriable
from ...errors import BufferFull, IllegalStateError, KafkaError, KafkaTimeout, SerializationError, UnknownTopic
from ...producer import Producer
from ...producer.delivery import Delivery
from ...serialization.serializer import SerializedBytes
from .rows import FailedRow, Lane, OutboxRow, Outcome, RowsInFlight

PATIENCE = 0.5
"""Seconds that a read waits for the acknowledgements of its rows."""

RISKY_SIZE = 64 << 10
"""Bytes of a row that a broker may refuse for its size, so that the next row of its lane waits for the answer."""

TOPIC_TIMEOUT = 0.3
"""Seconds that a read waits for the metadata of a new topic."""

MISSING_PAUSE = 5.0
"""Seconds before brokers are asked again about a topic that did not exist."""


class RowSender:
    """Sends rows, and has those that are in flight.

    Rows of a lane that follow one another are sent without waiting, except behind a row that may well be refused: a
    large one, and one that has failed before. No row is sent while one of its lane is left from an earlier read.

    Owner: the ``OutboxRelay``.
    """

    def __init__(self, producer: Producer[Any, Any], id_header: str) -> None:
        self._producer = producer
        self._id_header = id_header
        self._topics: set[str] = set()
        """Topics that exist."""
        self._missing: dict[str, tuple[float, KafkaError]] = {}
        """Topics that did not exist, or may not be used, with the time of the loop at which brokers are asked again."""
        self._outcome = Outcome()
        self.in_flight = RowsInFlight()

    async def send(self, rows: Collection[OutboxRow]) -> None:
        """Send rows, whose lanes must not be in flight, and wait until they are settled, at most ``PATIENCE`` seconds.

        Rows behind a risky one are sent in a further round, which waits as long. Rows that are neither in flight nor in
        the outcome at the end were not sent. Raises IllegalStateError if the producer has ended.
        """
        outcome = self._outcome
        missing = await self._missing_topics({row.topic for row in rows})
        while rows:
            rows, deliveries = self._send_round(rows, missing, outcome)
            if deliveries:
                await self._settle(deliveries)
            elif rows:  # the buffer is full of other programs' records
                with suppress(KafkaTimeout):
                    await self._producer.drain(timeout=PATIENCE)
                break
            self.in_flight.take_settled(outcome)
            failed = {unsent.row.lane for unsent in outcome.unsent}
            rows = [row for row in rows if row.lane not in failed and row.lane not in self.in_flight]

    async def wait_settled(self, timeout: float) -> None:
        """Wait for all rows in flight, at most ``timeout`` seconds."""
        await self._settle(self.in_flight.deliveries(), timeout)

    def take_outcome(self) -> Outcome:
        """Return the outcome of the rows that were settled since the last call."""
        self.in_flight.take_settled(self._outcome)
        outcome, self._outcome = self._outcome, Outcome()
        # A topic that was deleted is seen by its look-up. A record that was accepted before may only time out.
        self._topics.difference_update(unsent.row.topic for unsent in outcome.unsent)
        return outcome

    def _send_round(
        self, rows: Iterable[OutboxRow], missing: dict[str, KafkaError], outcome: Outcome
    ) -> tuple[list[OutboxRow], list[Delivery]]:
        """Send each row that has to wait for no other. Return the others, and the promises of those that were sent."""
        closed: set[Lane] = set()
        later: list[OutboxRow] = []
        deliveries: list[Delivery] = []
        is_full = False
        for row in rows:
            lane = row.lane
            if is_full or lane in closed:
                later.append(row)
                continue
            try:
                if (error := missing.get(row.topic)) is not None:
                    raise error
                delivery = self._send_nowait(row)
            except BufferFull:
                is_full = True
                later.append(row)
                continue
            except IllegalStateError:
                raise
            except KafkaError as error:
                outcome.unsent.append(FailedRow(row, error))
                closed.add(lane)
                continue
            self.in_flight.add(row, delivery)
            deliveries.append(delivery)
            if row.attempts or row.size >= RISKY_SIZE:
                closed.add(lane)
        return later, deliveries

    def _send_nowait(self, row: OutboxRow) -> Delivery:
        # The rows have bytes, so the serializers of the producer do not matter.
        key = None if row.key is None else SerializedBytes(row.key)
        value = None if row.value is None else SerializedBytes(row.value)
        headers = [(self._id_header, b"%d" % row.id)]
        if row.headers is not None:
            headers += _headers(row)
        return self._producer.send_nowait(row.topic, value, key=key, headers=headers)

    async def _missing_topics(self, topics: set[str]) -> dict[str, KafkaError]:
        """Return the topics to which nothing can be sent now, and why."""
        now = asyncio.get_running_loop().time()
        missing: dict[str, KafkaError] = {}
        unknown: list[str] = []
        for topic in topics - self._topics:
            until, error = self._missing.get(topic, (0.0, None))
            if error is not None and now < until:
                missing[topic] = error
            else:
                unknown.append(topic)
        for topic, error in zip(unknown, await asyncio.gather(*map(self._look_up, unknown)), strict=True):
            self._missing.pop(topic, None)
            if error is None:
                self._topics.add(topic)
                continue
            missing[topic] = error
            if not is_retriable(error) or isinstance(error, UnknownTopic):
                self._missing[topic] = (now + MISSING_PAUSE, error)
        return missing

    async def _look_up(self, topic: str) -> KafkaError | None:
        try:
            await self._producer.partitions_for(topic, timeout=TOPIC_TIMEOUT)
        except IllegalStateError:
            raise
        except KafkaError as error:
            return error
        return None

    async def _settle(self, deliveries: Iterable[Delivery], timeout: float = PATIENCE) -> None:
        with anyio.move_on_after(timeout):
            for delivery in deliveries:
                if not delivery.done():
                    with suppress(KafkaError):
                        await delivery


def _headers(row: OutboxRow) -> list[tuple[str, bytes]]:
    """Return the headers of a row. Raises SerializationError if they are no JSON object of strings."""
    assert row.headers is not None, "the caller asks for the headers of a row that has some"
    headers = None
    with suppress(ValueError, RecursionError):  # a number of 5,000 digits, and 1,000 brackets, are JSON for PostgreSQL
        headers = json.loads(row.headers)
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise SerializationError(f"headers of row {row.id} must be a JSON object of strings")
    return [(name, value.encode()) for name, value in headers.items()]
