"""The records of one share consumer: buffered, returned, acknowledged, lost, expired."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import BrokerError, ConnectionLost, IllegalStateError
from aiokafka_lite.share.acknowledgements import AcknowledgeType, SettledRange, acknowledgement_batches
from aiokafka_lite.share.in_flight import Acquisition, InFlight
from aiokafka_lite.share.session import TopicIdPartition
from aiokafka_lite.types import ShareRecord, TimestampType, TopicPartition

PARTITION = TopicPartition("orders", 0)
KEY = TopicIdPartition(b"t" * 16, 0)
NODE, OTHER = 1, 2
ACCEPT, RELEASE, REJECT, GAP = (AcknowledgeType[name] for name in ("ACCEPT", "RELEASE", "REJECT", "GAP"))


def record(offset: int, delivery_count: int = 1) -> ShareRecord:
    return ShareRecord(*PARTITION, offset, 0, TimestampType.CREATE_TIME, None, b"v", (), None, delivery_count)


def in_flight(*records: ShareRecord, node_id: int = NODE, expires_at: float = 30.0) -> InFlight:
    in_flight = InFlight()
    in_flight.add(Acquisition(PARTITION, KEY, node_id, expires_at, records))
    return in_flight


def read(records: InFlight, max_records: int = 100, now: float = 0.0) -> list[ShareRecord]:
    peeked = records.peek(max_records, now)
    for acquisition, buffered in peeked:
        records.take(acquisition, len(buffered), now)
    return [record for _, buffered in peeked for record in buffered]


def sent(records: InFlight, now: float = 0.0) -> dict[int, AcknowledgeType]:
    to_send, failed = records.take_acknowledged(NODE, now)
    assert not failed
    types = {offset: kind for acknowledgements in to_send for offset, kind in acknowledgements.types.items()}
    return types | {
        offset: settled.kind
        for acknowledgements in to_send
        for settled in acknowledgements.settled
        for offset in settled.offsets
    }


def test_a_record_is_returned_once() -> None:
    records = in_flight(record(0), record(1))
    assert read(records, 1) == [record(0)]
    assert read(records) == [record(1)]
    assert read(records) == []


def test_only_returned_records_are_accepted_by_the_next_read() -> None:
    records = in_flight(record(0), record(1))
    read(records, 1)
    assert records.accept_returned()
    assert sent(records) == {0: ACCEPT}
    assert not records.accept_returned()


def test_a_record_that_the_user_released_is_not_accepted_by_the_next_read() -> None:
    records = in_flight(record(0), record(1))
    read(records)
    records.acknowledge(record(0), RELEASE, 0.0)
    records.accept_returned()
    assert sent(records) == {0: RELEASE, 1: ACCEPT}


@pytest.mark.parametrize("wrong", [record(1), record(9), record(0, delivery_count=2)])
def test_a_record_that_is_not_returned_cannot_be_acknowledged(wrong: ShareRecord) -> None:
    records = in_flight(record(0), record(1))
    read(records, 1)
    with pytest.raises(IllegalStateError, match="is not in flight"):
        records.acknowledge(wrong, ACCEPT, 0.0)


def test_a_record_is_acknowledged_once() -> None:
    records = in_flight(record(0))
    read(records)
    records.acknowledge(record(0), ACCEPT, 0.0)
    with pytest.raises(IllegalStateError, match="offset 0 of orders-0 is not in flight"):
        records.acknowledge(record(0), REJECT, 0.0)


def test_two_deliveries_of_a_record_are_different() -> None:
    records = in_flight(record(0))
    read(records)
    records.lose(NODE, ConnectionLost("gone", sent=True))
    records.add(Acquisition(PARTITION, KEY, NODE, 30.0, [record(0, delivery_count=2)]))
    read(records)
    assert records.acknowledge(record(0), ACCEPT, 0.0).lost is not None
    assert records.acknowledge(record(0, delivery_count=2), ACCEPT, 0.0).lost is None


def test_a_buffered_record_whose_lock_expired_is_not_returned() -> None:
    records = in_flight(record(0), expires_at=30.0)
    assert read(records, now=30.0) == []
    assert records.expired == 1


def test_an_acknowledgement_after_the_lock_expired_fails_without_a_request() -> None:
    records = in_flight(record(0), expires_at=30.0)
    read(records)
    records.acknowledge(record(0), ACCEPT, 0.0)
    to_send, failed = records.take_acknowledged(NODE, 30.0)
    assert not to_send
    assert failed[0].offsets == (0,)
    assert isinstance(failed[0].error, BrokerError)
    assert "acquisition lock had expired" in str(failed[0].error)


def test_a_lost_session_drops_buffered_records_and_fails_acknowledgements_of_returned_ones() -> None:
    records = in_flight(record(0), record(1))
    read(records, 1)
    lost = ConnectionLost("gone", sent=True)
    records.lose(NODE, lost)
    assert read(records) == []
    records.acknowledge(record(0), ACCEPT, 0.0)
    assert records.take_acknowledged(NODE, 0.0)[1][0].error is lost


def test_a_lost_session_with_another_broker_changes_nothing() -> None:
    records = in_flight(record(0))
    records.lose(OTHER, ConnectionLost("gone", sent=True))
    assert read(records) == [record(0)]


def test_acknowledgements_go_to_the_broker_that_delivered_the_records() -> None:
    records = in_flight(record(0), node_id=OTHER)
    read(records)
    records.accept_returned()
    assert not records.has_acknowledged(NODE)
    assert records.has_acknowledged(OTHER)


def test_closing_releases_buffered_and_returned_records_and_keeps_acknowledgements() -> None:
    records = in_flight(record(0), record(1), record(2))
    read(records, 2)
    records.acknowledge(record(0), REJECT, 0.0)
    records.release_all()
    assert sent(records) == {0: REJECT, 1: RELEASE, 2: RELEASE}


def test_acknowledgements_that_are_sent_again_do_not_replace_later_ones() -> None:
    records = in_flight(record(0), record(1))
    read(records)
    records.acknowledge(record(0), ACCEPT, 0.0)
    (acknowledgements,), _ = records.take_acknowledged(NODE, 0.0)
    records.acknowledge(record(1), RELEASE, 0.0)
    records.put_back(acknowledgements)
    assert sent(records) == {0: ACCEPT, 1: RELEASE}


def test_a_renewed_record_has_a_lock_of_its_own() -> None:
    records = in_flight(record(0), record(1), expires_at=30.0)
    read(records)
    records.renewed(records.find(record(0)), 0, 50.0, now=20.0)
    records.accept_returned()
    to_send, failed = records.take_acknowledged(NODE, 40.0)
    assert [acknowledgements.offsets for acknowledgements in to_send] == [(0,)]
    assert [acknowledgements.offsets for acknowledgements in failed] == [(1,)]


def test_a_record_that_was_acknowledged_during_its_renewal_is_sent() -> None:
    records = in_flight(record(0), expires_at=30.0)
    read(records)
    acquisition = records.acknowledge(record(0), ACCEPT, 0.0)
    records.renewed(acquisition, 0, 50.0, now=20.0)
    assert sent(records, now=40.0) == {0: ACCEPT}


def test_runs_of_one_type_become_one_batch() -> None:
    types = {0: ACCEPT, 1: ACCEPT, 2: GAP, 3: REJECT, 5: REJECT}
    batches = [
        (batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in acknowledgement_batches(types)
    ]
    assert batches == [(0, 1, [1]), (2, 2, [0]), (3, 3, [3]), (5, 5, [3])]


def test_ranges_and_offsets_of_one_type_become_one_batch() -> None:
    types = {2: RELEASE, 3: RELEASE, 5: ACCEPT}
    settled = [SettledRange(0, 1, RELEASE), SettledRange(4, 4, RELEASE), SettledRange(6, 9, GAP)]
    assert [
        (batch.first_offset, batch.last_offset, batch.acknowledge_types)
        for batch in acknowledgement_batches(types, settled)
    ] == [(0, 4, [2]), (5, 5, [1]), (6, 9, [0])]
