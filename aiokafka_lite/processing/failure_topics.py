"""``FailureTopics``: sends the failed records of a ``Workers`` to retry topics, and then to a dead-letter topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from ..arguments import must_be
from ..cluster.topics import problem_of_topic_name
from ..errors import (
    ConfigurationError,
    DeserializationError,
    ErrorCode,
    IllegalStateError,
    RecordTooLarge,
    SerializationError,
)
from ..producer import Producer
from ..serialization.serializer import SerializedBytes
from ..types import Header, Record

logger = logging.getLogger(__name__)


class _Source(NamedTuple):
    """What ``forward`` knows of the record that it passes on."""

    record: Record[Any, Any]
    raw: Record | None
    group_id: str


_SOURCE: ContextVar[_Source | None] = ContextVar("source", default=None)

ORIGIN_GROUP = "origin.group"
"""The header with the group whose processing of a record failed."""

MESSAGE_LIMIT = 1000
"""Characters of ``error.message``. A longer text could make a record too large for the dead-letter topic."""


class FailureTopics:
    """Sends failed records to other topics: ``on_failure`` of ``Workers``.

    ::

        failures = FailureTopics(producer, retry={"orders.retry": 60.0}, dead_letter="orders.dead")
        await group.consume(["orders", *failures.delays], Workers(bill, on_failure=failures))

    ``retry`` maps topics to the seconds for which their records wait before they are processed again. A record passes
    through the retry topics in their order, and then goes to ``dead_letter``. The group must read the retry topics, and
    not the dead-letter topic. Later records of its key do not wait for a record in a retry topic.

    Key, value, headers and the partitioning by key stay: ``Workers`` passes the bytes of the record in the log, so
    deserializers and serializers do not matter. Each failure sets the headers ``error.class`` and ``error.message``.
    The first failure adds ``origin.topic``, ``origin.partition``, ``origin.offset``, ``origin.timestamp`` and
    ``origin.group``, with numbers as decimal text. A message longer than 1,000 characters is cut. The record is
    finished when the producer's send is acknowledged. An error of the send ends ``consume``, so no failed record is
    lost. The added headers make the record larger. So ``max_request_size`` of the producer and ``max.message.bytes`` of
    these topics must be some kilobytes larger than for the first topic. The error for a record that is too large names
    the record.

    Each group needs retry topics of its own, because a group processes all records of the retry topics that it reads. A
    record of another group is processed, and a WARNING names both groups, once for each topic.

    A program that calls ``failures(record, error)`` by itself needs a producer with the serializers that reverse its
    deserializers. For a DeserializationError it needs none, because the record has its bytes.
    """

    def __init__(
        self, producer: Producer[Any, Any], *, dead_letter: str, retry: Mapping[str, float] | None = None
    ) -> None:
        if not isinstance(producer, Producer):
            raise ConfigurationError(must_be("producer", "a Producer", producer))
        if (problem := problem_of_topic_name(dead_letter)) is not None:
            raise ConfigurationError(f"dead_letter: {problem}")
        delays = {} if retry is None else retry
        if not isinstance(delays, Mapping):
            raise ConfigurationError(must_be("retry", "a mapping of topics to seconds", retry))
        for topic, delay in delays.items():
            if isinstance(delay, bool) or not isinstance(delay, int | float) or not delay >= 0:
                raise ConfigurationError(must_be(f"retry[{topic!r}]", "a number of seconds >= 0", delay))
            if (problem := problem_of_topic_name(topic)) is not None:
                raise ConfigurationError(f"retry: {problem}")
            if topic == dead_letter:
                raise ConfigurationError(f"retry and dead_letter must be different topics, got {topic!r} for both")
        self.delays: dict[str, float] = dict(delays)
        self.dead_letter = dead_letter
        self._producer = producer
        self._shared: set[str] = set()  # the topics for which the warning was logged

    def __repr__(self) -> str:
        return f"<FailureTopics {[*self.delays, self.dead_letter]}>"

    async def __call__(self, record: Record[Any, Any], error: Exception) -> None:
        """Send the record to the next topic. Raises the error of the send.

        Raises IllegalStateError for a record of the dead-letter topic itself, which would circulate forever.
        """
        source = _SOURCE.get()
        if source is not None and source.record is record:
            await self._send(record, error, source.raw, source.group_id)
        else:
            # The record of such an error was not deserialized.
            await self._send(record, error, record if isinstance(error, DeserializationError) else None, None)

    async def forward(self, record: Record[Any, Any], error: Exception, raw: Record | None, group_id: str) -> None:
        """Call this object, so that the record is sent with the key and value of ``raw``; ``Workers`` uses it.

        Raises the errors of the call. If ``raw`` is None, the serializers of the producer get key and value.
        """
        # By a context variable, because a subclass may override ``__call__``, which has no argument for them. Workers
        # have a context for each attempt.
        _SOURCE.set(_Source(record, raw, group_id))
        await self(record, error)

    def check_origin(self, record: Record[Any, Any], group_id: str) -> None:
        """Log a WARNING, once for each topic, if another group has sent this record to a retry topic."""
        if record.topic not in self.delays or record.topic in self._shared:
            return
        origin = dict(record.headers).get(ORIGIN_GROUP)
        if origin is not None and origin != group_id.encode():
            self._shared.add(record.topic)
            logger.warning(
                "group %s processes a failed record of group %s, at offset %d of %s-%d: each group needs retry topics "
                "of its own, otherwise each failure is processed by all of them",
                *(group_id, origin.decode(errors="backslashreplace"), record.offset, record.topic, record.partition),
            )

    async def _send(self, record: Record[Any, Any], error: Exception, raw: Record | None, group_id: str | None) -> None:
        if record.topic == self.dead_letter:
            raise IllegalStateError(
                f"the record at offset {record.offset} of the dead-letter topic {record.topic!r} failed; the group "
                f"must not read that topic, or needs another on_failure"
            ) from error
        key, value = (record.key, record.value) if raw is None else (_as_it_is(raw.key), _as_it_is(raw.value))
        topic = self._following(record.topic)
        try:
            await self._producer.send(topic, value, key=key, headers=_headers(record, error, group_id))
        except (RecordTooLarge, SerializationError) as failure:
            what = (
                f"the failed record at offset {record.offset} of {record.topic}-{record.partition} cannot be sent to "
                f"{topic!r}"
            )
            if isinstance(failure, SerializationError):
                raise SerializationError(f"{what}: {failure}") from failure
            advice = (
                f"max_request_size of the producer and max.message.bytes of {topic!r} must have room for its headers"
            )
            raise RecordTooLarge(ErrorCode.MESSAGE_TOO_LARGE, f"{what}; {advice}: {failure}") from failure

    def _following(self, topic: str) -> str:
        topics = [*self.delays, self.dead_letter]
        return topics[topics.index(topic) + 1] if topic in self.delays else topics[0]


def _as_it_is(data: bytes | None) -> SerializedBytes | None:
    return None if data is None else SerializedBytes(data)


def _headers(record: Record[Any, Any], error: Exception, group_id: str | None) -> list[Header]:
    names = {name for name, _ in record.headers}
    added = {"error.class": type(error).__qualname__, "error.message": _message(error)}
    if "origin.topic" not in names:
        added |= {
            "origin.topic": record.topic,
            "origin.partition": str(record.partition),
            "origin.offset": str(record.offset),
            "origin.timestamp": str(record.timestamp),
        }
    if group_id is not None and ORIGIN_GROUP not in names:
        added[ORIGIN_GROUP] = group_id
    unchanged = [header for header in record.headers if header[0] not in added]
    return [*unchanged, *(Header(name, text.encode(errors="backslashreplace")) for name, text in added.items())]


def _message(error: Exception) -> str:
    """Return the text of the exception, at most ``MESSAGE_LIMIT`` characters, even if its ``__str__`` fails."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001 - of the user's __str__; the record must still leave its topic
        return f"{type(failure).__name__} in __str__"
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}…"
