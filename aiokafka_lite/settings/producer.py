"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..arguments import INT32_MAX, INT64_MAX, is_whole
from ..errors import ConfigurationError
from ..types import Compression, CompressionName
from .checks import KIB, LONGEST_TIMER, MIB, filled, one_of, plain_strings, seconds, whole, wrong
from .java import Acks, Java, Unset, to_acks, to_lower


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
    delivery_timeout: Annotated[float, Java("delivery.timeout.ms")] = 120.0
    """Seconds from accepting a record until it fails with KafkaTimeout, if it is not acknowledged."""
    max_block: Annotated[float, Java("max.block.ms")] = 60.0
    """Seconds that ``send`` waits for metadata, for room in the buffer, and for an async serializer."""

    def __post_init__(self) -> None:
        plain_strings(self)
        one_of(self, "acks", (0, 1, -1, "all"))
        try:
            object.__setattr__(self, "compression", Compression.parse(self.compression))
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        if self.idempotence is not None and not isinstance(self.idempotence, bool):
            raise wrong("idempotence", "True, False, or None", self.idempotence)
        whole(self, "retries", 0)
        if self.idempotence:
            self._check_idempotence("idempotence=True")
        if self.transactional_id is not None:
            self._check_transactions()
        seconds(self, "transaction_timeout", zero=False)
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

    def _check_transactions(self) -> None:
        filled(self, "transactional_id")
        if self.idempotence is False:
            raise ConfigurationError("transactional_id requires idempotence=True or None, got False")
        self._check_idempotence("transactional_id")

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
