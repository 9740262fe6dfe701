"""Sends the failed records of a ``Workers`` to retry topics and dead-letter topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..errors import ErrorCode, IllegalStateError, RecordTooLarge, SerializationError
from ..producer import Producer
from ..serialization.serializer import SerializedBytes
from ..types import Header, Record
from .rules import SendTo

logger = logging.getLogger(__name__)


ORIGIN_GROUP = "origin.group"
"""The header with the group whose processing of a record failed."""

ADDED_HEADERS = frozenset(
    {
        *("error.class", "error.message", "origin.topic", "origin.partition", "origin.offset", "origin.timestamp"),
        ORIGIN_GROUP,
    }
)
"""All headers that a record gets on its way to a dead-letter topic."""

LEFT_OUT = "error.left_out"
"""The header of a dead letter whose value was too large for the dead-letter topic. The sink of Spark writes it."""

MESSAGE_LIMIT = 1000
"""Characters of ``error.message``. A longer text could make a record too large for the dead-letter topic."""


class FailedRecords:
    """Sends failed records to retry topics and dead-letter topics, with their error and their origin in headers.

    Key, value, headers and the partitioning by key stay: ``Workers`` passes the bytes of the record in the log, so
    deserializers and serializers do not matter. Each failure sets the headers ``error.class`` and ``error.message``.
    The first failure adds ``origin.topic``, ``origin.partition``, ``origin.offset``, ``origin.timestamp`` and
    ``origin.group``, with numbers as decimal text. A message longer than 1,000 characters is cut.

    Owner: the ``Workers``. ``delays`` are the retry topics of its rules.
    """

    def __init__(self, producer: Producer[Any, Any], delays: Mapping[str, float]) -> None:
        self._producer = producer
        self._delays = delays
        self._shared: set[str] = set()  # the topics for which the warning was logged

    def check_origin(self, record: Record[Any, Any], group_id: str) -> None:
        """Log a WARNING, once for each topic, if another group has sent this record to a retry topic."""
        if record.topic not in self._delays or record.topic in self._shared:
            return
        origin = dict(record.headers).get(ORIGIN_GROUP)
        if origin is not None and origin != group_id.encode():
            self._shared.add(record.topic)
            logger.warning(
                "group %s processes a failed record of group %s, at offset %d of %s-%d: each group needs retry topics "
                "of its own, otherwise each failure is processed by all of them",
                *(group_id, origin.decode(errors="backslashreplace"), record.offset, record.topic, record.partition),
            )

    async def send(
        self, target: SendTo, record: Record[Any, Any], error: Exception, raw: Record | None, group_id: str
    ) -> None:
        """Send the record on, with the key, value and headers of ``raw``, and wait for the acknowledgement.

        An interceptor may have changed ``record``. If ``raw`` is None, it is sent, by the serializers of the producer.
        Raises the error of the send, and IllegalStateError for a record of the dead-letter topic itself, which would
        circulate forever.
        """
        topic = target.topic
        if target.is_dead and record.topic == topic:
            raise IllegalStateError(
                f"the record at offset {record.offset} of the dead-letter topic {record.topic!r} failed; the group "
                f"must not read that topic, or needs another rule"
            ) from error
        key, value = record.key, record.value
        if raw is not None:
            record, key, value = raw, _as_it_is(raw.key), _as_it_is(raw.value)
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


def _as_it_is(data: bytes | None) -> SerializedBytes | None:
    return None if data is None else SerializedBytes(data)


def _headers(record: Record[Any, Any], error: Exception, group_id: str) -> list[Header]:
    names = {name for name, _ in record.headers}
    added = {"error.class": type(error).__qualname__, "error.message": _message(error)}
    if "origin.topic" not in names:
        added |= {
            "origin.topic": record.topic,
            "origin.partition": str(record.partition),
            "origin.offset": str(record.offset),
            "origin.timestamp": str(record.timestamp),
        }
    if ORIGIN_GROUP not in names:
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
