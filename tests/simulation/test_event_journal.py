"""The check of the events finds each kind of contradiction."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import KafkaTimeout
from aiokafka_lite.events import (
    ClientEvent,
    CommitRefused,
    ConnectionClosed,
    ConnectionOpened,
    OutageBegan,
    OutageEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RebalanceBegan,
    RebalanceEnded,
)
from aiokafka_lite.types import TopicPartition
from tests.simulation.event_journal import EventJournal

ORDERS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
FIRST = ORDERS[:1]
OPENED, CLOSED = ConnectionOpened(1, "kafka:9092", "fetch"), ConnectionClosed(1, "kafka:9092", "fetch", None)
BEGAN, ENDED = OutageBegan("here", OSError("x")), OutageEnded("here", 1, 0.0, True)


@pytest.mark.parametrize(
    ("events", "reports"),
    [
        ([OPENED, OPENED, CLOSED, CLOSED, BEGAN, ENDED, BEGAN, ENDED], 0),
        (
            [RebalanceBegan("g"), RebalanceEnded("g", 1, True, 0.0), CommitRefused("g", {FIRST[0]: KafkaTimeout("x")})],
            0,
        ),
        ([PartitionsAssigned("g", ORDERS), PartitionsLost("g", FIRST), PartitionsAssigned("g", FIRST)], 0),
        ([CLOSED], 1),
        ([OPENED], 1),
        ([BEGAN, BEGAN, ENDED], 1),
        ([BEGAN], 1),
        ([ENDED], 1),
        ([RebalanceBegan("g"), RebalanceBegan("g")], 1),
        ([RebalanceEnded("g", 1, True, 0.0)], 1),
        ([PartitionsAssigned("g", ORDERS), PartitionsAssigned("g", FIRST)], 1),
        ([PartitionsAssigned("g", ())], 1),
        ([PartitionsAssigned("g", ORDERS), PartitionsRevoked("g", FIRST), PartitionsLost("g", FIRST)], 1),
        ([PartitionsRevoked("g", FIRST)], 1),
        ([CommitRefused("g", {})], 1),
    ],
)
def test_events_that_contradict_earlier_ones_are_reported(events: list[ClientEvent], reports: int) -> None:
    anomalies: list[str] = []
    journal = EventJournal(anomalies.append)
    for event in events:
        journal(event)
    journal.end()
    assert len(anomalies) == reports, anomalies
