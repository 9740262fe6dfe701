"""Batches: their state at first, and the topics that they were sent to."""

from __future__ import annotations

import pytest

from aiokafka_lite.producer.delivery import BatchResult
from aiokafka_lite.producer.producer_ids import NO_PRODUCER_ID, NO_SEQUENCE, ProducerIdAndEpoch
from aiokafka_lite.protocol.schema import ZERO_UUID
from tests.pure.producer.log_model import HERE, a_batch, a_partition

OLD, NEW = b"o" * 16, b"n" * 16


@pytest.mark.parametrize(
    "sent_to, stays",
    [([], True), ([OLD], False), ([NEW], True), ([OLD, NEW], True), ([ZERO_UUID], True), ([ZERO_UUID, OLD], True)],
)
def test_a_batch_loses_its_numbers_only_if_the_new_topic_cannot_have_it(sent_to: list[bytes], stays: bool) -> None:
    batch, partition = a_batch(b"v"), a_partition()
    batch.identity, batch.sequence = numbers = ProducerIdAndEpoch(7, 0), 5
    for topic_id in sent_to:
        partition.sent_to(batch, topic_id)
    assert batch.has_numbers_of(NEW) is stays
    batch.move_to(NEW)
    assert (batch.identity, batch.sequence) == (numbers if stays else (NO_PRODUCER_ID, NO_SEQUENCE))


def test_a_batch_has_its_numbers_again_when_the_topic_is_named_again() -> None:
    """A broker that lagged behind named an older topic meanwhile, and the log of the newer one may have the batch."""
    batch, partition = a_batch(b"v"), a_partition()
    batch.identity, batch.sequence = numbers = ProducerIdAndEpoch(7, 0), 5
    partition.sent_to(batch, NEW)
    batch.move_to(OLD)
    assert batch.sequence == NO_SEQUENCE
    batch.move_to(OLD)  # it waits for a producer id
    batch.identity, batch.sequence = numbers_of_old = ProducerIdAndEpoch(7, 1), 0
    partition.sent_to(batch, OLD)
    batch.move_to(NEW)
    assert (batch.identity, batch.sequence) == numbers
    assert batch.has_numbers_of(NEW)
    batch.move_to(OLD)
    assert (batch.identity, batch.sequence) == numbers_of_old


def test_a_batch_begins_like_any_other_result() -> None:
    """It does not call the base class's constructor, so it could forget a new attribute."""
    batch, result = a_batch(), BatchResult(*HERE)
    for name in (attribute for attribute in dir(result) if not attribute.startswith("__")):
        if not callable(getattr(result, name)):
            assert getattr(batch, name) == getattr(result, name), name
