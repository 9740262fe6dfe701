"""The settings of a consumer, without those of its group."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from ..types import IsolationLevel
from .checks import MIB, one_of, plain_strings, seconds, switch, whole, wrong
from .java import Java, Unset, to_lower

OffsetReset = str | timedelta
"""``"earliest"``, ``"latest"``, ``"none"``, or how far back: a timedelta, or Java's form, ``"by_duration:PT1H"``."""
OffsetResetName = Literal["earliest", "latest", "none"]
IsolationName = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How records are fetched and returned to the user."""

    auto_offset_reset: Annotated[OffsetResetName | timedelta, Java("auto.offset.reset", '`"latest"`')] = "earliest"
    """The start without a committed offset: ``"earliest"``, ``"latest"``, ``"none"`` (raise), or a time span back."""
    isolation_level: Annotated[
        IsolationName,
        Java("isolation.level", '`"read_uncommitted"`', read=to_lower),
    ] = "read_committed"
    """``"read_committed"`` skips records of open and aborted transactions. ``"read_uncommitted"`` returns all."""
    fetch_min_bytes: Annotated[int, Java("fetch.min.bytes")] = 1
    """Bytes that a broker collects before it responds to a fetch."""
    fetch_max_bytes: Annotated[int, Java("fetch.max.bytes")] = 50 * MIB
    """The maximum number of bytes in one response, less than ``max_response_size``. A larger first batch is still
    returned whole."""
    fetch_max_wait: Annotated[float, Java("fetch.max.wait.ms")] = 0.5
    """Seconds that a broker waits for ``fetch_min_bytes``."""
    fetch_memory: Annotated[int | None, Java(None), Unset("`fetch_max_bytes` from each broker")] = None
    """The maximum number of bytes to buffer from all brokers together, in compressed form. Each broker has an equal
    part of it, at most ``fetch_max_bytes``. None: ``fetch_max_bytes`` from each broker."""
    max_partition_fetch_bytes: Annotated[int, Java("max.partition.fetch.bytes")] = MIB
    """The maximum number of bytes of one partition in one response. A larger first batch is still returned whole."""
    check_crcs: Annotated[bool, Java("check.crcs")] = True
    """Whether the checksums of batches are verified."""
    max_decompressed_size: Annotated[int, Java(None)] = 128 * MIB
    """The maximum number of bytes of one batch after decompression. A larger batch raises CorruptRecord."""

    def __post_init__(self) -> None:
        plain_strings(self)
        reset = self.auto_offset_reset
        if reset not in ("earliest", "latest", "none") and self.reset_duration is None:
            what = "'earliest', 'latest', 'none', a timedelta >= 0, or a duration such as 'by_duration:PT1H'"
            raise wrong("auto_offset_reset", what, reset)
        one_of(self, "isolation_level", ("read_committed", "read_uncommitted"))
        whole(self, "fetch_min_bytes", 0)
        whole(self, "fetch_max_bytes", 1)
        if self.fetch_memory is not None:
            whole(self, "fetch_memory", 1)
        whole(self, "max_partition_fetch_bytes", 1)
        whole(self, "max_decompressed_size", 1)
        seconds(self, "fetch_max_wait")
        switch(self, "check_crcs")

    @property
    def reset_duration(self) -> float | None:
        """The seconds of ``auto_offset_reset``, None if it is not a time span."""
        return _duration(self.auto_offset_reset)

    @property
    def isolation(self) -> IsolationLevel:
        """``isolation_level`` as the protocol's number."""
        return IsolationLevel[self.isolation_level.upper()]


_DURATION = re.compile(
    r"by_duration:P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d*)?)S)?)?", re.IGNORECASE
)


def _duration(value: OffsetReset) -> float | None:
    """Convert ``by_duration:P1DT2H3M4.5S`` (ISO 8601, KIP-1106) or a timedelta to seconds; None for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds() if value >= timedelta(0) else None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return total if math.isfinite(total) else None
