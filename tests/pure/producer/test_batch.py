"""Batches: their state at first, and the topics that they were sent to."""

from __future__ import annotations

import pytest

from aiokafka_lite.producer.delivery import BatchResult
from aiokafka_lite.protocol.schema import ZERO_UUID
from tests.pure.producer.log_model import HERE, a_batch, a_partition

OLD, NEW = b"o" * 16, b"n" * 16


@pytest.mark.parametrize(
    "sent_to, elsewhere",
    [([], False), ([OLD], True), ([NEW], False), ([OLD, NEW], False), ([ZERO_UUID], False), ([ZERO_UUID, OLD], False)],
)
def test_a_batch_was_sent_elsewhere_only_if_the_new_topic_cannot_have_it(sent_to: list[bytes], elsewhere: bool) -> None:
    batch, partition = a_batch(b"v"), a_partition()
    for topic_id in sent_to:
        partition.sent_to(batch, topic_id)
    assert batch.was_sent_elsewhere(NEW) is elsewhere


def test_a_batch_begins_like_any_other_result() -> None:
    """It does not call the base class's constructor, so it could forget a new attribute."""
    batch, result = a_batch(), BatchResult(*HERE)
    for name in (attribute for attribute in dir(result) if not attribute.startswith("__")):
        if not callable(getattr(result, name)):
            assert getattr(batch, name) == getattr(result, name), name
