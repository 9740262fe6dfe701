"""A replica: validation, high watermark, in-sync followers, epochs."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aiokafka_lite.embedded.log.producer_state import Marker, SequenceRejected
from aiokafka_lite.embedded.log.validator import RecordsRejected, parse_produced
from aiokafka_lite.embedded.metadata.topics import PartitionRegistration
from aiokafka_lite.embedded.replicas.partition import LogAppendInfo, NotLeader, Partition
from aiokafka_lite.embedded.replicas.replication import truncate_as_follower
from aiokafka_lite.embedded.settings.configs import TopicConfig
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.records import split_batches
from aiokafka_lite.types import Compression, TimestampType
from tests.pure.embedded.batches import produced

NOW_MS = 1_000_000


def leader(isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] | None = None, **configs: str) -> Partition:
    own = {name.replace("_", "."): value for name, value in configs.items()}
    partition = Partition(("t", 0), bytes(16), 1, TopicConfig.parse(own, {}))
    partition.become(PartitionRegistration(replicas or isr, isr, leader=1, leader_epoch=3), now=0.0)
    return partition


def append(partition: Partition, records: bytes, acks: int = 1, *, now: float = 0.0) -> LogAppendInfo:
    batch = parse_produced(records, version=9)
    return partition.append_records_to_leader(batch, records, acks, now, NOW_MS)


def refusal(partition: Partition, records: bytes, acks: int = 1) -> RecordsRejected:
    with pytest.raises(RecordsRejected) as caught:
        append(partition, records, acks)
    assert partition.log.end_offset == 0
    return caught.value


def test_an_appended_batch_changes_only_in_offset_and_leader_epoch() -> None:
    partition = leader()
    append(partition, produced(b"a", b"b"))
    records = produced(b"c", b"d", compression=Compression.LZ4)
    info = append(partition, records)
    assert (info.first_offset, info.last_offset, info.required_offset) == (2, 3, 4)
    (_, stored) = partition.log.batches()
    (batch,) = split_batches(stored.data)
    assert (batch.base_offset, batch.leader_epoch) == (2, 3)
    batch.verify_crc()
    assert stored.data[17:] == records[17:]


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "zstd"])
def test_a_topic_with_its_own_codec_compresses_again(codec: str) -> None:
    partition = leader(compression_type=codec)
    append(partition, produced(b"a", b"b", producer_id=9, epoch=0, sequence=4, compression=Compression.LZ4))
    (stored,) = partition.log.batches()
    (batch,) = split_batches(stored.data)
    batch.verify_crc()
    assert batch.compression is (Compression.NONE if codec == "uncompressed" else Compression.parse(codec))
    assert (batch.producer_id, batch.base_sequence, batch.columns().values) == (9, 4, [b"a", b"b"])


@pytest.mark.parametrize("codec, one, other", [("gzip", "1", "9"), ("lz4", "9", "12"), ("zstd", "1", "19")])
def test_the_level_of_the_topic_counts_when_the_broker_compresses(codec: str, one: str, other: str) -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(3000))
    sizes = []
    for level in (one, other):
        partition = leader(**{"compression_type": codec, f"compression_{codec}_level": level})
        append(partition, produced(text))
        sizes.append(partition.log.size)
    assert sizes[0] != sizes[1]


def test_log_append_time_is_the_brokers_clock() -> None:
    partition = leader(message_timestamp_type="LogAppendTime")
    assert append(partition, produced(timestamp=5)).log_append_time == NOW_MS
    (stored,) = partition.log.batches()
    (batch,) = split_batches(stored.data)
    batch.verify_crc()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.max_timestamp == NOW_MS


def test_a_flipped_bit_is_a_corrupt_message() -> None:
    records = bytearray(produced(b"value"))
    records[-1] ^= 1
    assert refusal(leader(), bytes(records)).code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_above_the_topics_limit_is_too_large() -> None:
    assert refusal(leader(max_message_bytes="100"), produced(b"x" * 100)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_names_the_records_without_key() -> None:
    rejected = refusal(leader(cleanup_policy="compact"), produced(b"a", b"b", key=None))
    assert rejected.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in rejected.record_errors] == [0, 1]


def test_a_timestamp_too_far_ahead_is_named() -> None:
    partition = leader()
    ahead = NOW_MS + partition.config.timestamp_after_max_ms
    rejected = refusal(partition, produced(b"a", b"b", timestamp=ahead))  # the second is 1 ms later
    assert rejected.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in rejected.record_errors] == [1]


@pytest.mark.parametrize(
    "records, version, code",
    [
        (None, 9, ErrorCode.INVALID_RECORD),
        (b"", 9, ErrorCode.INVALID_RECORD),
        (b"x" * 16, 9, ErrorCode.INVALID_RECORD),
        (b"\0" * 70, 9, ErrorCode.CORRUPT_MESSAGE),  # a length of 0
        (produced() + produced(), 9, ErrorCode.INVALID_RECORD),
        (produced() + b"\xff" * 40, 9, ErrorCode.CORRUPT_MESSAGE),
        (produced(compression=Compression.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_records_that_are_not_one_batch_are_refused(records: bytes | None, version: int, code: ErrorCode) -> None:
    with pytest.raises(RecordsRejected) as caught:
        parse_produced(records, version)
    assert caught.value.code is code


def test_a_retried_batch_gets_the_first_answer_and_is_not_appended() -> None:
    partition = leader()
    first = append(partition, produced(b"a", b"b", producer_id=9, epoch=0, sequence=0))
    append(partition, produced(b"c", producer_id=9, epoch=0, sequence=2))
    again = append(partition, produced(b"a", b"b", producer_id=9, epoch=0, sequence=0))
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert partition.log.end_offset == 3
    with pytest.raises(SequenceRejected):
        append(partition, produced(b"d", producer_id=9, epoch=0, sequence=4))


def test_a_batch_that_is_not_verified_is_refused_before_its_sequence_is_checked() -> None:
    partition = leader()
    late = partition.producers.start_verification(7, 0, 0, adds=False)
    partition.append_marker(Marker(7, 0, committed=False, coordinator_epoch=0), now=0.0, now_ms=0)
    partition.producers.start_verification(7, 1, 0, adds=False)
    records = produced(b"late", producer_id=7, epoch=0, sequence=5, transactional=True)
    with pytest.raises(SequenceRejected) as caught:
        partition.append_records_to_leader(parse_produced(records, 9), records, 1, 0.0, 0, verification=late)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_new_leader_recognizes_a_retry() -> None:
    old = leader(isr=(1, 2))
    first = append(old, produced(b"a", producer_id=9, epoch=0, sequence=0))
    follower = Partition(("t", 0), bytes(16), 2, old.config)
    follower.become(old.state, 0.0)
    truncate_as_follower(follower, old)
    follower.append_as_follower(old.log.batches())
    follower.become(old.state.elected(2), 0.0)
    again = append(follower, produced(b"a", producer_id=9, epoch=0, sequence=0))
    assert again.first_offset == first.first_offset
    assert follower.log.end_offset == 1


def test_truncation_removes_producer_state() -> None:
    partition = leader()
    append(partition, produced(b"a", producer_id=9, epoch=0, sequence=0))
    append(partition, produced(b"b", producer_id=9, epoch=0, sequence=1))
    partition.truncate_to(1)
    assert append(partition, produced(b"c", producer_id=9, epoch=0, sequence=1)).first_offset == 1


def test_too_few_in_sync_replicas_refuse_acks_all_only() -> None:
    partition = leader(isr=(1,), replicas=(1, 2, 3), min_insync_replicas="2")
    assert refusal(partition, produced(), acks=-1).code is ErrorCode.NOT_ENOUGH_REPLICAS
    append(partition, produced(), acks=1)
    assert not partition.try_advance_high_watermark()  # KIP-966


def test_epochs_of_the_client_are_compared_with_the_leaders() -> None:
    partition = leader()
    partition.require_leader(3)
    for epoch, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(NotLeader) as caught:
            partition.require_leader(epoch)
        assert caught.value.code is code


def test_a_follower_that_is_caught_up_does_not_lag_however_long_ago_it_fetched() -> None:
    partition = leader(isr=(1, 2))
    append(partition, produced(), now=0.0)
    partition.update_follower(2, 1, now=0.0)
    append(partition, produced(), now=100.0)  # the first append after a long rest
    assert partition.lagging(now=100.0, lag_max=30.0) == []
    assert partition.lagging(now=129.9, lag_max=30.0) == []
    assert partition.lagging(now=130.0, lag_max=30.0) == [2]


class HighWatermarkMachine(RuleBasedStateMachine):
    """A leader with two followers whose ISR shrinks and grows, beside three numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = leader(isr=(1, 2, 3), min_insync_replicas="2")
        self.ends = {1: 0, 2: 0, 3: 0}
        self.isr = {1, 2, 3}
        for node in (2, 3):
            self.partition.update_follower(node, 0, 0.0)
        self.high_watermark = 0

    def settle(self) -> None:
        if len(self.isr) >= 2:
            self.high_watermark = max(self.high_watermark, min(self.ends[node] for node in self.isr))

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        append(self.partition, produced(*[b"v"] * count))
        self.partition.try_advance_high_watermark()
        self.ends[1] += count
        self.settle()

    @rule(node=st.sampled_from([2, 3]), data=st.data())
    def fetch(self, node: int, data: st.DataObject) -> None:
        self.ends[node] = data.draw(st.integers(self.ends[node], self.ends[1]))
        self.partition.update_follower(node, self.ends[node], 0.0)
        self.settle()

    @rule(node=st.sampled_from([2, 3]))
    def change_isr(self, node: int) -> None:
        if node in self.isr:
            self.isr.discard(node)
        elif self.ends[node] >= self.high_watermark:
            assert self.partition.may_join_isr(node)
            self.isr.add(node)
        state = self.partition.state
        self.partition.become(
            PartitionRegistration((1, 2, 3), tuple(sorted(self.isr)), 1, 3, state.partition_epoch + 1), 0.0
        )
        self.settle()

    @invariant()
    def high_watermarks_agree(self) -> None:
        assert self.partition.log.high_watermark == self.high_watermark

    @invariant()
    def every_in_sync_replica_has_what_is_below_it(self) -> None:
        if len(self.isr) >= 2:
            assert all(self.ends[node] >= self.high_watermark for node in self.isr)


HighWatermarkMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestHighWatermarkAgainstThreeNumbers = HighWatermarkMachine.TestCase
