"""A partition of the producer: its states, its order through retries, its sequence numbers."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from random import Random

import pytest

from aiokafka_lite.errors import BrokerError, ConnectionLost, ErrorCode
from aiokafka_lite.producer.partition import START, Next, PartitionProducer, PartitionState
from aiokafka_lite.producer.partition_batches import STALE_AFTER, Sealed
from aiokafka_lite.producer.producer_ids import (
    MAX_EPOCH,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    ProducerIdAndEpoch,
    ProducerIds,
    advance,
)
from aiokafka_lite.types import Header
from tests.pure.producer.log_model import Simulation, a_batch, a_partition, append

LOST = ConnectionLost("gone", sent=True)


def with_sealed(partition: PartitionProducer, *names: bytes) -> PartitionProducer:
    for name in names:
        append(partition, name)
        partition.seal()
    return partition


def values_of(partition: PartitionProducer) -> list[bytes]:
    """Return the values of the unsent batches, in order."""
    return [batch.encode()[-2:-1] for batch in partition.unsent]


def test_a_partition_begins_without_a_leader_and_opens_when_there_is_one() -> None:
    partition = with_sealed(a_partition(leader=None), b"a")
    assert partition.state is START is PartitionState.LEADERLESS
    assert partition.take() is None
    assert partition.led_by(None, None) is Next.NOTHING
    assert partition.led_by(3, 0) is Next.OFFER
    assert partition.state is PartitionState.OPEN
    assert partition.broker == 3


def test_each_change_of_the_state_is_one_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "aiokafka_lite.producer.partition"):
        partition = with_sealed(a_partition(leader=None), b"a")
        partition.led_by(None, None)
        partition.led_by(3, 0)
        batch = partition.take()
        assert batch is not None
        partition.failed(batch, LOST)
    lines = [record.getMessage().partition(" moved ") for record in caplog.records]
    assert [line[2] for line in lines] == [
        "from LEADERLESS after LEADER_KNOWN",
        "from OPEN after FAILED",
        "from DRAINING after DRAINED",
    ]
    assert all(line[0].startswith("<PartitionProducer t-0 ") for line in lines)


def test_nothing_is_sent_while_draining_or_backing_off() -> None:
    partition = with_sealed(a_partition(), b"a", b"b", b"c")
    first, second = partition.take(), partition.take()
    assert first is not None
    assert second is not None
    assert partition.failed(first, LOST) is Next.NOTHING
    assert partition.state is PartitionState.DRAINING
    assert partition.take() is None
    assert partition.failed(second, LOST) is Next.PAUSE
    assert partition.state is PartitionState.BACKING_OFF
    assert partition.take() is None
    assert partition.resume() is Next.OFFER
    assert partition.take() is first


def test_a_retry_starts_one_level_higher_with_the_first_unsettled_batch() -> None:
    partition = with_sealed(a_partition(), b"a", b"b", b"c")
    first, second = partition.take(), partition.take()
    assert first is not None
    assert second is not None
    level = partition.level
    partition.delivered(first)
    first.deliver(0)
    assert partition.failed(second, LOST) is Next.PAUSE
    partition.resume()
    assert partition.level == level + 1
    assert values_of(partition) == [b"b", b"c"]


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_order_is_kept_through_failures_in_a_row(failures: int) -> None:
    partition = with_sealed(a_partition(), b"a", b"b", b"c", b"d")
    for _ in range(failures):
        batches = [partition.take() for _ in range(3)]
        for batch in batches:
            assert batch is not None
            partition.failed(batch, LOST)
        partition.resume()
        with_sealed(partition, b"z")
    assert values_of(partition) == [b"a", b"b", b"c", b"d", *[b"z"] * failures]


def test_a_pause_grows_with_failures_and_is_short_again_after_a_success() -> None:
    partition = with_sealed(a_partition(), b"a", b"b")
    pauses = []
    for _ in range(3):
        batch = partition.take()
        assert batch is not None
        assert partition.failed(batch, LOST) is Next.PAUSE
        pauses.append(partition.pause())
        partition.resume()
    assert pauses == [0.1, 0.2, 0.4]
    batch = partition.take()
    assert batch is not None
    partition.delivered(batch)
    batch = partition.take()
    assert batch is not None
    partition.failed(batch, LOST)
    assert partition.pause() == 0.1


def test_a_moved_leader_is_used_without_a_pause_when_all_requests_are_answered() -> None:
    partition = with_sealed(a_partition(), b"a", b"b")
    batch = partition.take()
    assert batch is not None
    assert partition.led_by(2, 1) is Next.NOTHING
    assert partition.state is PartitionState.DRAINING
    assert partition.broker == 1
    assert partition.delivered(batch) is Next.PAUSE
    assert partition.pause() == 0
    assert partition.resume() is Next.OFFER
    assert partition.broker == 2


def test_a_leader_newer_than_the_one_that_failed_ends_the_pause() -> None:
    partition = with_sealed(a_partition(), b"a")
    batch = partition.take()
    assert batch is not None
    assert partition.failed(batch, LOST) is Next.PAUSE
    assert partition.led_by(1, 0) is Next.NOTHING
    assert partition.led_by(2, 1) is Next.RESUME
    assert partition.resume() is Next.OFFER
    assert partition.broker == 2


def test_a_partition_without_a_leader_waits_for_one_and_sends_nothing() -> None:
    partition = with_sealed(a_partition(), b"a")
    assert partition.led_by(None, 1) is Next.PAUSE
    assert partition.resume() is Next.NOTHING
    assert partition.state is PartitionState.LEADERLESS
    assert partition.take() is None
    assert partition.led_by(1, 2) is Next.OFFER


def test_a_leader_that_cannot_be_reached_is_a_failure() -> None:
    partition = with_sealed(a_partition(), b"a")
    assert partition.unreachable(LOST) is Next.PAUSE
    assert partition.state is PartitionState.BACKING_OFF
    assert partition.unreachable(LOST) is Next.NOTHING
    assert partition.unsent[0].last_error is LOST


def test_without_idempotence_one_batch_is_in_flight() -> None:
    partition = with_sealed(a_partition(idempotent=False), b"a", b"b")
    first = partition.take()
    assert first is not None
    assert partition.take() is None
    assert partition.delivered(first) is Next.OFFER
    assert partition.take() is not None


def test_with_idempotence_as_many_are_in_flight_as_the_broker_remembers() -> None:
    partition = with_sealed(a_partition(), *[b"a"] * 7)
    assert [partition.take() is not None for _ in range(6)] == [True] * 5 + [False]


def test_the_first_batch_under_an_identity_is_sent_alone() -> None:
    partition = with_sealed(a_partition(introduced=False), b"a", b"b", b"c")
    first = partition.take()
    assert first is not None
    assert partition.take() is None
    partition.failed(first, LOST)
    partition.resume()
    assert partition.take() is first
    assert partition.take() is None
    assert partition.delivered(first) is Next.OFFER
    assert partition.take() is not None
    assert partition.take() is not None


def test_an_open_batch_is_taken_only_when_it_is_due() -> None:
    partition = a_partition()
    batch = append(partition, b"a")
    assert not partition.is_ready
    assert partition.take() is None
    assert partition.expedite()
    assert partition.is_ready
    assert partition.take() is batch
    assert partition.open is None


def fields(value: bytes, key: bytes | None = None) -> tuple[bytes | None, bytes, tuple[Header, ...], int, int]:
    """Return a record as ``append`` takes it."""
    return key, value, (), 0, len(value)


def test_appending_returns_the_place_and_reserves_the_memory_of_the_record() -> None:
    partition = a_partition()
    first, second = partition.append(*fields(b"aa")), partition.append(*fields(b"bbb"))
    assert first == (partition.open, 0, False)
    assert second == (partition.open, 1, False)
    assert partition.open is not None
    assert partition.open.reserved == 5


def test_a_batch_that_is_sealed_by_a_sender_or_by_an_append_is_reported_once() -> None:
    reported: deque[Sealed] = deque()
    partition = a_partition(sealed=reported)
    first = append(partition, b"a")
    assert partition.expedite()
    assert partition.take() is first
    assert reported == deque([(partition.topic_partition, first.builder.uncompressed_size)])
    batch, *begun = partition.append(*fields(b"b"))
    assert (batch, begun) == (partition.open, [0, False])
    assert len(reported) == 1
    filled = partition.append(*fields(bytes(100_000)))
    assert filled == (partition.open, 0, True)
    assert batch is not None
    assert reported[-1].size == batch.builder.uncompressed_size


def test_a_record_that_may_move_is_not_added_where_the_open_batch_is_full() -> None:
    partition = a_partition()
    full = append(partition, b"a")
    refused = partition.append(*fields(bytes(100_000)), may_move=True)
    assert refused == (None, 0, True)
    assert (partition.open, partition.unsent) == (None, [full])
    again = partition.append(*fields(b"b"), may_move=True)
    assert again == (partition.open, 0, False)


def test_a_batch_that_was_due_for_long_takes_no_more_records() -> None:
    now = 0.0
    partition = a_partition(now=lambda: now)
    batch = append(partition, b"a")
    partition.expedite()
    now = STALE_AFTER / 2
    assert append(partition, b"b") is batch
    now = STALE_AFTER
    assert append(partition, b"c") is not batch
    assert partition.unsent == [batch]


def test_sealed_batches_count_for_the_load_of_their_broker_until_they_leave() -> None:
    load: Counter[int] = Counter()
    partition = a_partition(load=load)
    first, waiting = append(partition, b"a"), None
    partition.seal()
    waiting = append(partition, b"bb")
    assert load[1] == first.builder.size
    partition.seal()
    assert load[1] == first.builder.size + waiting.builder.size
    partition.take()
    partition.delivered(first)
    assert load[1] == waiting.builder.size
    partition.expired(waiting)
    assert load[1] == 0


# Sequence numbers.


def test_sequences_are_given_when_a_batch_is_taken_and_kept_through_retries() -> None:
    partition = with_sealed(a_partition(), b"a", b"b")
    assert [batch.sequence for batch in partition.unsent] == [-1, -1]
    for _ in range(3):
        first, second = partition.take(), partition.take()
        assert first is not None
        assert second is not None
        assert (first.sequence, second.sequence) == (0, 1)
        partition.failed(first, LOST)
        partition.failed(second, LOST)
        partition.resume()


def test_after_the_last_sequence_comes_zero() -> None:
    assert advance(MAX_SEQUENCE, 1) == 0
    assert advance(MAX_SEQUENCE - 1, 3) == 1
    partition = with_sealed(a_partition(), b"a", b"b", b"c")
    assert partition.sequences is not None
    partition.sequences._next = MAX_SEQUENCE - 1
    batches = [partition.take() for _ in range(3)]
    assert [batch.sequence for batch in batches if batch is not None] == [MAX_SEQUENCE - 1, MAX_SEQUENCE, 0]


def test_nothing_is_taken_before_there_is_an_identity() -> None:
    requests: list[int] = []
    identities = ProducerIds(lambda: requests.append(1))
    partition = with_sealed(a_partition(introduced=False, ids=identities), b"a")
    assert partition.take() is None
    assert requests == [1]
    identities.received(ProducerIdAndEpoch(9, 3))
    batch = partition.take()
    assert batch is not None
    assert (batch.identity, batch.sequence) == (ProducerIdAndEpoch(9, 3), 0)


def test_a_batch_that_expires_in_flight_needs_a_new_epoch_when_the_others_are_resolved() -> None:
    partition = with_sealed(a_partition(), b"a", b"b", b"c")
    first, second = partition.take(), partition.take()
    assert first is not None
    assert second is not None
    partition.expired(first)
    first.settled = True
    assert partition.take() is None, "b is still under way under the old epoch"
    partition.delivered(first)
    assert partition.take() is None
    partition.delivered(second)
    third = partition.take()
    assert third is not None
    assert (third.identity, third.sequence) == (ProducerIdAndEpoch(7, 1), 0)


def test_a_batch_that_expires_before_it_was_sent_needs_no_new_epoch() -> None:
    partition = with_sealed(a_partition(), b"a", b"b")
    partition.expired(partition.unsent[0])
    batch = partition.take()
    assert batch is not None
    assert (batch.identity.epoch, batch.sequence) == (0, 0)


def test_a_refused_sequence_behind_a_failed_batch_keeps_its_numbers() -> None:
    partition = with_sealed(a_partition(), b"a", b"b")
    first, second = partition.take(), partition.take()
    assert first is not None
    assert second is not None
    partition.failed(first, BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS))
    partition.failed(second, BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), unknown_sequence=True)
    partition.resume()
    assert [(batch.identity.epoch, batch.sequence) for batch in partition.unsent] == [(0, 0), (0, 1)]


def test_a_refused_sequence_of_the_first_batch_gives_all_new_numbers_under_a_new_epoch() -> None:
    partition = with_sealed(a_partition(), b"a", b"b")
    first, second = partition.take(), partition.take()
    assert first is not None
    assert second is not None
    for batch in (first, second):
        partition.failed(batch, BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), unknown_sequence=True)
    partition.resume()
    assert partition.take() is first
    partition.delivered(first)
    assert partition.take() is second
    assert [(batch.identity.epoch, batch.sequence) for batch in (first, second)] == [(1, 0), (1, 1)]


REFUSED = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize("first_error, proven", [(LOST, True), (REFUSED, False)])
def test_a_batch_is_written_if_it_may_be_and_one_behind_it_was_acknowledged(
    first_error: Exception, proven: bool
) -> None:
    partition = with_sealed(a_partition(), b"a", b"b")
    first = partition.take()
    assert first is not None
    partition.failed(first, first_error)
    partition.resume()
    assert partition.take() is first
    second = partition.take()
    assert second is not None
    partition.failed(first, REFUSED)
    assert not first.is_written
    partition.delivered(second)
    assert first.is_written is proven


def test_nothing_is_proven_across_epochs_or_of_later_batches() -> None:
    partition = with_sealed(a_partition(), b"a", b"b", b"c")
    first, second, third = (partition.take() for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    partition.failed(third, LOST)
    first.identity = ProducerIdAndEpoch(7, 5)
    first.may_be_written = True
    partition.delivered(second)
    assert not first.is_written
    assert not third.is_written


def test_a_batch_that_is_proven_written_leaves_no_gap_when_it_expires() -> None:
    partition = with_sealed(a_partition(), b"a", b"b", b"c")
    first, second = partition.take(), partition.take()
    assert first is not None
    assert second is not None
    partition.failed(first, LOST)
    partition.delivered(second)
    partition.expired(first)
    partition.resume()
    third = partition.take()
    assert third is not None
    assert (third.identity.epoch, third.sequence) == (0, 2)


@pytest.mark.parametrize("again", range(1, 4))
def test_a_batch_that_the_broker_has_forgotten_is_not_written_again(again: int) -> None:
    """A batch is written, its answer is lost, and each retry is refused while later batches are written."""
    simulation = Simulation(idempotent=True)
    simulation.append()
    for _ in range(2):
        simulation.send()
        simulation.broker_writes()
        simulation.answer_arrives()
        simulation.append()
    simulation.send()
    simulation.connection_breaks(written=1)
    for _ in range(again):
        simulation.pause_ends()
        for _ in range(4):
            simulation.append()
        for _ in range(5):
            simulation.send()
        simulation.broker_refuses()
        for _ in range(5):
            simulation.broker_writes()
            simulation.answer_arrives()
        simulation.answer_arrives()
    simulation.finish()
    assert all(batch.settled for batch in simulation.appended)
    assert simulation.log.values == sorted(set(simulation.log.values))


def test_a_new_epoch_for_one_partition_leaves_the_others_theirs() -> None:
    ids = ProducerIds(lambda: None)
    ids.received(ProducerIdAndEpoch(7, 0))
    one, other = with_sealed(a_partition(ids=ids), b"a"), with_sealed(a_partition(ids=ids), b"b", b"c")
    first, second = one.take(), other.take()
    assert first is not None
    assert second is not None
    one.failed(first, BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), unknown_sequence=True)
    one.resume()
    again, third = one.take(), other.take()
    assert again is not None
    assert third is not None
    assert again.identity.epoch == 1
    assert (third.identity.epoch, third.sequence) == (0, 1)


def test_another_producer_id_is_requested_when_the_epochs_are_used_up() -> None:
    requests: list[int] = []
    identities = ProducerIds(lambda: requests.append(1))
    identities.received(ProducerIdAndEpoch(7, MAX_EPOCH - 1))
    last = identities.newer_than(ProducerIdAndEpoch(7, MAX_EPOCH - 1))
    assert last == ProducerIdAndEpoch(7, MAX_EPOCH)
    assert identities.newer_than(last) is None
    assert requests == [1]


def test_the_parts_of_a_split_batch_take_its_place_and_all_get_new_numbers() -> None:
    partition = with_sealed(a_partition(), b"a", b"b", b"c")
    first, second, third = partition.take(), partition.take(), partition.take()
    assert first is not None
    assert second is not None
    assert third is not None
    partition.failed(first, BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS))
    parts = [a_batch(b"1"), a_batch(b"2")]
    partition.split(second, parts)
    second.settled = True
    partition.failed(third, BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), unknown_sequence=True)
    partition.resume()
    assert values_of(partition) == [b"a", b"1", b"2", b"c"]
    again = partition.take()
    assert again is first
    assert (first.identity.epoch, first.sequence) == (0, 0)
    assert partition.take() is None, "the parts need an epoch of their own, and a is not resolved"
    partition.delivered(first)
    assert partition.take() is parts[0]
    partition.delivered(parts[0])
    assert [partition.take(), partition.take()] == [parts[1], third]
    assert [(batch.identity.epoch, batch.sequence) for batch in (*parts, third)] == [(1, 0), (1, 1), (1, 2)]


# Batches that a thread compresses.


def test_a_batch_that_is_compressed_holds_back_those_behind_it() -> None:
    simulation = Simulation(idempotent=True, compresses=True)
    simulation.append()
    simulation.append()
    partition = simulation.partition
    first, second = partition.unsent
    assert (first.compressing, second.compressing, partition.take()) == (True, True, None)
    assert partition.compressed(second, None) is Next.NOTHING
    assert partition.take() is None
    assert partition.compressed(first, None) is Next.OFFER
    assert partition.take() is first


def test_an_open_batch_that_is_due_is_compressed_before_it_is_numbered() -> None:
    simulation = Simulation(idempotent=True, compresses=True)
    simulation.append(stays_open=True)
    partition = simulation.partition
    assert partition.is_ready
    assert partition.take() is None
    (batch,) = partition.unsent
    assert (batch.compressing, batch.sequence, partition.is_ready) == (True, NO_SEQUENCE, False)
    partition.expired(batch)
    batch.fail(LOST)
    batch.observe()
    later = append(partition, b"later")
    partition.seal()
    assert partition.compressed(later, None) is Next.OFFER
    assert partition.compressed(batch, None) is Next.NOTHING
    assert partition.take() is later
    assert later.sequence == 0


# Random schedules.

ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD)
STEPS: dict[str, Callable[[Simulation, Random], None]] = {
    "append": lambda simulation, random: simulation.append(),
    "send": lambda simulation, random: simulation.send(),
    "broker writes": lambda simulation, random: simulation.broker_writes(),
    "broker refuses": lambda simulation, random: simulation.broker_refuses(random.choice(ERRORS)),
    "broker wants it split": lambda simulation, random: simulation.broker_refuses(ErrorCode.MESSAGE_TOO_LARGE),
    "answer arrives": lambda simulation, random: simulation.answer_arrives(),
    "pause ends": lambda simulation, random: simulation.pause_ends(),
    "connection breaks": lambda simulation, random: simulation.connection_breaks(random.randrange(4)),
    "leader moves": lambda simulation, random: simulation.leader_moves(random.random() < 0.7),
    "oldest expires": lambda simulation, random: simulation.oldest_expires(),
}
COMPRESSION_STEPS: dict[str, Callable[[Simulation, Random], None]] = {
    "append, and leave it open": lambda simulation, random: simulation.append(stays_open=True),
    "compression ends": lambda simulation, random: simulation.compression_ends(random.randrange(9)),
    "compression fails": lambda simulation, random: simulation.compression_ends(random.randrange(9), fails=True),
}
SEEDS = range(2_000)


def after_schedule(seed: int, *, idempotent: bool, compresses: bool = False) -> Simulation:
    """Run a random schedule. The frequency of each step is random as well, so that rare steps coincide."""
    random = Random(seed)
    steps = STEPS | COMPRESSION_STEPS if compresses else STEPS
    weights = [random.choice([0, 1, 2, 5]) for _ in steps]
    simulation = Simulation(idempotent=idempotent, compresses=compresses)
    simulation.append()
    for step in random.choices(list(steps.values()), [weight + 0.1 for weight in weights], k=random.randrange(10, 80)):
        step(simulation, random)
    simulation.finish()
    return simulation


@pytest.mark.parametrize("compresses", [False, True])
def test_no_record_is_lost_doubled_or_reordered_under_random_schedules(compresses: bool) -> None:
    for seed in SEEDS:
        simulation = after_schedule(seed, idempotent=True, compresses=compresses)
        log = simulation.log.values
        assert not simulation.fatal, f"fenced by itself, {seed=}"
        assert all(batch.settled for batch in simulation.appended), f"left over, {seed=}"
        assert len(log) == len(set(log)), f"doubled, {seed=}"
        assert log == sorted(log), f"reordered, {seed=}"
        for batch in simulation.appended:
            if batch.error is None and batch.moved is None:
                values = simulation.values[batch]
                start = batch.base_offset if batch.base_offset >= 0 else log.index(values[0])
                written = log[start : start + len(values)]
                assert written == values, f"acknowledged, but not there, {seed=}"


@pytest.mark.parametrize("compresses", [False, True])
def test_without_idempotence_no_record_is_lost_or_reordered(compresses: bool) -> None:
    for seed in SEEDS:
        simulation = after_schedule(seed, idempotent=False, compresses=compresses)
        log = simulation.log.values
        assert all(batch.settled for batch in simulation.appended), f"left over, {seed=}"
        first_seen = list(dict.fromkeys(log))
        assert first_seen == sorted(first_seen), f"reordered, {seed=}"
        written = {tuple(log[start : start + count]) for start in range(len(log)) for count in (1, 2)}
        for batch in simulation.appended:
            if batch.error is None and batch.moved is None:
                assert tuple(simulation.values[batch]) in written, f"acknowledged, but not there, {seed=}"
