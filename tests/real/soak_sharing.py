"""The share group of ``make soak-real``: its members, their reports, and the check of these.

Brokers are killed and leaders move, so two members may have a record at the same time: a leader does not pass its locks
on. These rules hold in any case: a confirmed accepted record is not delivered again, each record is accepted, and no
delivery count is above the limit.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiokafka_lite import Admin, KafkaError
from aiokafka_lite.admin import ConfigResource
from tests.real.soak_reading import READ_TIMEOUT, Logs

GROUP = "soak-share"
LOCK = 15.0
"""Seconds for which a member has a record."""
LIMIT = 10
"""The most deliveries of a record. With fewer, kills alone could archive records that no member has seen."""


@dataclass
class SharedRecord:
    """The reports about one record. Times come from the clock that all processes share."""

    delivered: list[tuple[float, int]] = field(default_factory=list)
    """Times and delivery counts."""
    accepted: dict[str, int] = field(default_factory=dict)
    """The delivery counts of the members that accepted it."""
    confirmed: list[tuple[float, int]] = field(default_factory=list)
    """Times and delivery counts of accepted deliveries that a broker confirmed."""

    def problems(self) -> Iterator[str]:
        if not self.accepted and all(count < LIMIT for _, count in self.delivered):
            yield "was never accepted"
        if any(count > LIMIT for _, count in self.delivered):
            yield f"was delivered more than {LIMIT} times"
        if len({count for _, count in self.confirmed}) > 1:
            yield f"was accepted twice: {self.confirmed}"
        for confirmed_at, accepted in self.confirmed:
            for at, count in self.delivered:
                # A member may return a record of an earlier delivery that it had before.
                if at > confirmed_at and (count > accepted or at > confirmed_at + LOCK):
                    yield f"came again with delivery count {count}, {at - confirmed_at:.3f} s after it was accepted"


class Sharing:
    """The members of the share group."""

    def __init__(self, servers: str, topic: str, members: int) -> None:
        self.kinds = {GROUP: members}
        self._servers = servers
        self._topic = topic
        self._records: defaultdict[tuple[int, int], SharedRecord] = defaultdict(SharedRecord)

    @property
    def count(self) -> int:
        """The number of deliveries."""
        return sum(len(record.delivered) for record in self._records.values())

    async def start(self, admin: Admin) -> None:
        """Configure the group."""
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(int(LOCK * 1000)),
            "share.delivery.count.limit": str(LIMIT),
        }
        (await admin.configs.alter({ConfigResource.group(GROUP): settings})).raise_for_errors()

    def command(self, number: int) -> tuple[str, list[str]]:
        """Return the module of a process and its arguments. ``number`` is different for each process."""
        return "tests.real.soak_sharer", [self._servers, self._topic, GROUP, f"sharer-{number}"]

    def hear(self, process: str, event: Mapping[str, Any]) -> None:
        """Record a report of a process."""
        match event["event"]:
            case "delivered":
                self._record(event).delivered.append((event["at"], event["count"]))
            case "accept":
                self._record(event).accepted[process] = event["count"]
            case "release":
                self._record(event).accepted.pop(process, None)
            case "confirmed":
                for offset in event["offsets"]:
                    record = self._records[event["partition"], offset]
                    if process in record.accepted:
                        record.confirmed.append((event["at"], record.accepted[process]))

    def _record(self, event: Mapping[str, Any]) -> SharedRecord:
        return self._records[event["partition"], event["offset"]]

    async def wait_until_read(self, admin: Admin, logs: Logs) -> list[str]:
        """Wait, with all faults ended, until the group has processed everything. Returns what it has not processed."""
        lags: dict[str, int | None] = {str(place): None for place, log in logs.items() if log}
        end = time.monotonic() + READ_TIMEOUT
        while lags and time.monotonic() < end:
            with suppress(KafkaError):  # there may be no coordinator yet
                offsets = (await admin.share_groups.offsets(GROUP))[GROUP]
                reported = {str(place): offset.lag for place, offset in offsets.items()}
                lags = {place: lag for place in lags if (lag := reported.get(place)) != 0}
            await asyncio.sleep(0.5)
        return [f"share group {GROUP} has a lag of {lags}"] if lags else []

    def problems(self, logs: Logs) -> Iterator[str]:
        """Yield the broken promises, when all processes have ended."""
        for place, log in logs.items():
            for record in log:
                for problem in self._records[place.partition, record.offset].problems():
                    yield f"share group {GROUP}: offset {record.offset} of {place} {problem}"
