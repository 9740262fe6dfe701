"""The settings of a producer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated

from ..arguments import INT16_MAX, INT32_MAX, INT64_MAX, is_whole
from ..errors import ConfigurationError
from ..types import Compression, CompressionName
from .checks import KIB, LONGEST_TIMER, MIB, filled, one_of, plain_strings, seconds, switch, whole, wrong
from .java import Acks, Java, Unset, to_acks, to_lower

_PREPARED = re.compile(r"(\d{1,19}):(\d{1,5}):(.+)", re.ASCII | re.DOTALL)
"""A producer id, an epoch and a transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a producer for one topic. None means the producer's own setting.

    A compression without a level has the codec's default level. All other settings are the same for all topics: a
    request has batches of several topics, but one ``acks``.
    """

    compression: CompressionName | Compression | None = None
    """The codec of the topic's batches, as ``compression`` of the producer."""
    compression_level: int | None = None
    """The level of the codec, as ``compression_level`` of the producer."""
    batch_size: int | None = None
    """The largest batch of one partition in bytes, estimated after compression."""
    linger: float | None = None
    """Seconds that a batch waits for more records, from its first one."""
    delivery_timeout: float | None = None
    """Seconds from accepting a record until it fails with KafkaTimeout, if it is not acknowledged."""

    def set_by_user(self) -> dict[str, object]:
        """Return the settings that are not None, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How records are batched, sent and retried."""

    acks: Annotated[Acks, Java("acks", read=to_acks)] = "all"
    """The replicas that must have a record before it counts as written: ``"all"`` or -1 (all in-sync replicas), 1 (the
    leader), or 0 (none)."""
    transactional_id: Annotated[str | None, Java("transactional.id"), Unset("no transactions")] = None
    """The name under which the producer writes transactions. It stays the same over restarts: a new producer of this
    name ends the open transaction of the old one, and fences it. None means no transactions."""
    transaction_timeout: Annotated[float, Java("transaction.timeout.ms")] = 60.0
    """Seconds after which the coordinator aborts a transaction that is still open, and fences its producer."""
    two_phase_commit: Annotated[bool, Java("transaction.two.phase.commit.enable")] = False
    """Whether another system, such as a database, decides about the transactions (KIP-939). No timeout aborts them, and
    ``prepare_transaction`` returns what the other system has to store."""
    prepared_transaction: Annotated[str | None, Java(None)] = None
    """With ``two_phase_commit``, the last result of ``prepare_transaction`` that the other system has stored. The start
    commits this transaction, unless it has ended already, and aborts any other one."""
    idempotence: Annotated[
        bool | None, Java("enable.idempotence"), Unset('on with `acks="all"` and `retries` above 0')
    ] = None
    """Whether brokers drop duplicates that retries cause. None means True if ``acks="all"`` and ``retries`` > 0."""
    retries: Annotated[int, Java("retries")] = INT32_MAX
    """How often a batch is sent again after a retriable error, within ``delivery_timeout``. 0 means never."""
    linger: Annotated[float, Java("linger.ms", 0.005)] = 0.0
    """Seconds that a batch waits for more records, from its first one. With 0, a batch has the records of one turn of
    the event loop."""
    batch_size: Annotated[int, Java("batch.size", 16 * KIB)] = 64 * KIB
    """The largest batch of one partition in bytes, estimated after compression."""
    max_request_size: Annotated[int, Java("max.request.size")] = MIB
    """The largest record and the largest request, in bytes."""
    buffer_memory: Annotated[int, Java("buffer.memory")] = 32 * MIB
    """Bytes of unacknowledged records. When it is full, ``send`` waits and ``send_nowait`` raises BufferFull."""
    max_in_flight_requests_per_connection: Annotated[int, Java("max.in.flight.requests.per.connection")] = 5
    """Requests to a broker without a response yet, at most 5 with idempotence."""
    compression: Annotated[CompressionName | Compression, Java("compression.type", read=to_lower)] = Compression.NONE
    """The codec of batches: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``."""
    compression_level: Annotated[
        int | None,
        Java("compression.gzip.level, compression.lz4.level, compression.zstd.level", is_property=False),
        Unset("the codec's own"),
    ] = None
    """The level of the codec: gzip 0 to 9, lz4 0 to 17, zstd -131072 to 22. None is the codec's default."""
    partitioner_rack_aware: Annotated[bool, Java(None)] = False
    """Whether records without a key go to partitions whose leader is in ``client_rack``, while there are such leaders
    (KIP-1123). The rack of each broker is its ``broker.rack``."""
    delivery_timeout: Annotated[float, Java("delivery.timeout.ms")] = 120.0
    """Seconds from accepting a record until it fails with KafkaTimeout, if it is not acknowledged."""
    max_block: Annotated[float, Java("max.block.ms")] = 60.0
    """Seconds that ``send`` waits for metadata, for room in the buffer, and for an async serializer."""
    topic_settings: Annotated[Mapping[str, TopicSettings] | None, Java(None)] = None
    """Other settings for some topics, by name: ``{"audit": TopicSettings(compression="zstd", linger=0.1)}``. A topic
    can have its own ``compression``, ``compression_level``, ``batch_size``, ``linger`` and ``delivery_timeout``."""

    def __post_init__(self) -> None:
        plain_strings(self)
        one_of(self, "acks", (0, 1, -1, "all"))
        try:
            object.__setattr__(self, "compression", Compression.parse(self.compression))
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        if self.idempotence is not None and not isinstance(self.idempotence, bool):
            raise wrong("idempotence", "True, False, or None", self.idempotence)
        switch(self, "partitioner_rack_aware")
        whole(self, "retries", 0)
        if self.idempotence:
            self._check_idempotence("idempotence=True")
        if self.transactional_id is not None:
            self._check_transactions()
        seconds(self, "transaction_timeout", zero=False)
        self._check_two_phase_commit()
        is_idempotent = self.waits_for_all and self.retries > 0 if self.idempotence is None else self.idempotence
        object.__setattr__(self, "idempotence", is_idempotent)
        seconds(self, "linger", "max_block", most=LONGEST_TIMER)
        seconds(self, "delivery_timeout", zero=False)
        if self.linger >= self.delivery_timeout:
            raise wrong("linger", f"less than delivery_timeout={self.delivery_timeout!r}", self.linger)
        whole(self, "batch_size", 1)
        whole(self, "max_request_size", KIB)
        whole(self, "buffer_memory", KIB, INT64_MAX)
        whole(self, "max_in_flight_requests_per_connection", 1)
        # Brokers remember 5 batches of each producer.
        if self.idempotence and self.max_in_flight_requests_per_connection > 5:
            what = "at most 5 with idempotence (or set idempotence=False)"
            raise wrong("max_in_flight_requests_per_connection", what, self.max_in_flight_requests_per_connection)
        if self.compression_level is not None and not is_whole(self.compression_level):
            raise wrong("compression_level", "a whole number, or None", self.compression_level)
        if self.topic_settings is not None:
            self._check_topics(self.topic_settings)

    def _check_topics(self, by_topic: object) -> None:
        if not isinstance(by_topic, Mapping):
            raise wrong("topic_settings", "a dict of TopicSettings by topic, or None", by_topic)
        # A copy, because later changes of the user's dict would have no effect.
        object.__setattr__(self, "topic_settings", dict(by_topic))
        for topic, settings in by_topic.items():
            if not isinstance(topic, str):
                raise wrong("a topic in topic_settings", "a string", topic)
            if not isinstance(settings, TopicSettings):
                raise wrong(f"topic_settings[{topic!r}]", "TopicSettings(...)", settings)
            try:
                self.for_topic(topic)
            except ConfigurationError as error:
                raise ConfigurationError(f"topic_settings[{topic!r}]: {error}") from None

    def for_topic(self, topic: str) -> ProducerConfig:
        """Return the settings of one topic: these ones, with the topic's own settings in their places."""
        own = None if self.topic_settings is None else self.topic_settings.get(topic)
        if own is None:
            return self
        changes = own.set_by_user()
        if own.compression is not None:
            changes.setdefault("compression_level", None)  # a level of another codec would mean something else
        return replace(self, topic_settings=None, **changes)  # type: ignore[arg-type]

    @property
    def smallest_batch_size(self) -> int:
        """The smallest ``batch_size`` of any topic."""
        sizes = [own.batch_size for own in (self.topic_settings or {}).values() if own.batch_size is not None]
        return min([self.batch_size, *sizes])

    def _check_transactions(self) -> None:
        filled(self, "transactional_id")
        if self.idempotence is False:
            raise ConfigurationError("transactional_id requires idempotence=True or None, got False")
        self._check_idempotence("transactional_id")

    def _check_two_phase_commit(self) -> None:
        switch(self, "two_phase_commit")
        if self.two_phase_commit and self.transactional_id is None:
            raise ConfigurationError("two_phase_commit=True requires transactional_id, which is not set")
        prepared = self.prepared_transaction
        if prepared is None:
            return
        if not self.two_phase_commit:
            raise ConfigurationError("prepared_transaction requires two_phase_commit=True")
        if prepared == "":  # of a transaction without records
            return
        parts = _PREPARED.fullmatch(prepared) if isinstance(prepared, str) else None
        if parts is None or int(parts[1]) > INT64_MAX or int(parts[2]) > INT16_MAX:
            raise wrong("prepared_transaction", "a result of prepare_transaction() or None", prepared)
        if parts[3] != self.transactional_id:
            raise ConfigurationError(
                f"prepared_transaction={prepared!r} is of another producer: transactional_id is"
                f" {self.transactional_id!r}"
            )

    def _check_idempotence(self, what: str) -> None:
        """Check the requirements of idempotence. ``what`` is the setting that asks for idempotence."""
        if not self.waits_for_all:
            raise ConfigurationError(f'{what} requires acks="all", got acks={self.acks!r}')
        if not self.retries:
            raise ConfigurationError(f"{what} requires retries >= 1, got retries=0")

    @property
    def waits_for_all(self) -> bool:
        """Whether all in-sync replicas must acknowledge a record."""
        return self.acks in (-1, "all")

    @property
    def required_acks(self) -> int:
        """``acks`` as the protocol's number."""
        return -1 if self.acks == "all" else self.acks
