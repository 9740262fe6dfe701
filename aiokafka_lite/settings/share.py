"""The settings that a share consumer has in addition to the settings of every client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from .checks import MIB, filled, one_of, plain_strings, seconds, switch, whole
from .group import HeartbeatThreadMode
from .java import Java

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]

MOST_FETCH_RECORDS = 10_000
"""The highest ``max_fetch_records``. A broker may answer with a range for each record, and an answer with more than
``MAX_ACQUIRED_RANGES`` ranges is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConfig:
    """How a share consumer reads and acknowledges records (KIP-932).

    Brokers keep other settings with the group, such as ``share.auto.offset.reset``: the start of a new group, the
    isolation level, the acquisition lock, the limit of deliveries.
    """

    group_id: Annotated[str, Java("group.id")]
    """The name of the share group."""
    acknowledgement_mode: Annotated[AcknowledgementMode, Java("share.acknowledgement.mode")] = "implicit"
    """``"implicit"``: the next read accepts the records that were returned and not acknowledged. ``"explicit"``: the
    user acknowledges each record before the next read."""
    acquire_mode: Annotated[AcquireMode, Java("share.acquire.mode")] = "batch_optimized"
    """``"batch_optimized"``: brokers acquire whole batches, so a fetch may return more than ``max_fetch_records``.
    ``"record_limit"``: never more (KIP-1206, Kafka 4.2; older brokers ignore it)."""
    max_fetch_records: Annotated[int, Java("max.poll.records")] = 500
    """The maximum number of records that one fetch acquires at one broker, from 1 to 10,000. Java's share consumer
    calls it ``max.poll.records``."""
    fetch_min_bytes: Annotated[int, Java("fetch.min.bytes")] = 1
    """Bytes that a broker collects before it responds to a fetch."""
    fetch_max_bytes: Annotated[int, Java("fetch.max.bytes")] = 50 * MIB
    """The maximum number of bytes in one response, less than ``max_response_size``."""
    fetch_max_wait: Annotated[float, Java("fetch.max.wait.ms")] = 0.5
    """Seconds that a broker waits for ``fetch_min_bytes``. Acknowledgements to this broker wait for the same time."""
    renew_locks_for: Annotated[float, Java(None)] = 300.0
    """Seconds for which the client renews the locks of the records of one read (KIP-1222, Kafka 4.2). They begin again
    when the program acknowledges one of them. After that, the locks end, and the records are delivered again. 0 renews
    no lock."""
    heartbeat_thread: Annotated[HeartbeatThreadMode, Java(None)] = "auto"
    """Whether a thread sends heartbeats while the event loop is blocked, for up to 5 minutes. ``"auto"``: after the
    first block of more than a second, so that block may still end the session. ``"always"``: from the start."""
    check_crcs: Annotated[bool, Java("check.crcs")] = True
    """Whether the checksums of batches are verified."""
    max_decompressed_size: Annotated[int, Java(None)] = 128 * MIB
    """The maximum number of bytes of one batch after decompression. A larger batch raises CorruptRecord."""

    def __post_init__(self) -> None:
        plain_strings(self)
        filled(self, "group_id")
        one_of(self, "acknowledgement_mode", ("implicit", "explicit"))
        one_of(self, "acquire_mode", ("batch_optimized", "record_limit"))
        whole(self, "max_fetch_records", 1, MOST_FETCH_RECORDS)
        whole(self, "fetch_min_bytes", 0)
        whole(self, "fetch_max_bytes", 1)
        whole(self, "max_decompressed_size", 1)
        seconds(self, "fetch_max_wait")
        seconds(self, "renew_locks_for")
        one_of(self, "heartbeat_thread", get_args(HeartbeatThreadMode))
        switch(self, "check_crcs")
