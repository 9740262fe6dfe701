"""Keep the state of share partitions (KIP-932), at the share coordinator of each share partition.

Brokers send these requests, and clients need none of them. Versions 1 add the number of deliveries that are complete
(KIP-1226). Epochs order the writers: the state epoch grows when the state is made again, the leader epoch with each
election.
"""

from __future__ import annotations

from ..schema import Request, Response, array, int8, int16, int32, int64, message, since, string, struct, uuid


@struct
class InitializeShareGroupStateResponsePartition:
    """One partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class InitializeShareGroupStateResponseTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[InitializeShareGroupStateResponsePartition] = array(InitializeShareGroupStateResponsePartition)


@message(key=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse(Response):
    """Whether the state of each share partition was made."""

    results: list[InitializeShareGroupStateResponseTopic] = array(InitializeShareGroupStateResponseTopic)


@struct
class InitializeShareGroupStateRequestPartition:
    """One partition."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


@struct
class InitializeShareGroupStateRequestTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[InitializeShareGroupStateRequestPartition] = array(InitializeShareGroupStateRequestPartition)


@message(key=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateRequest(Request[InitializeShareGroupStateResponse]):
    """Make the state of share partitions, with a start offset or with -1 for none."""

    INTRODUCED = since(0, kafka="4.1")

    group_id: str = string()
    topics: list[InitializeShareGroupStateRequestTopic] = array(InitializeShareGroupStateRequestTopic)


@struct
class ReadShareGroupStateResponseBatch:
    """Offsets with the same delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@struct
class ReadShareGroupStateResponsePartition:
    """One partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    state_batches: list[ReadShareGroupStateResponseBatch] = array(ReadShareGroupStateResponseBatch, default=[])


@struct
class ReadShareGroupStateResponseTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStateResponsePartition] = array(ReadShareGroupStateResponsePartition)


@message(key=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse(Response):
    """The state of each share partition, or an error."""

    results: list[ReadShareGroupStateResponseTopic] = array(ReadShareGroupStateResponseTopic)


@struct
class ReadShareGroupStateRequestPartition:
    """One partition."""

    partition: int = int32()
    leader_epoch: int = int32()


@struct
class ReadShareGroupStateRequestTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStateRequestPartition] = array(ReadShareGroupStateRequestPartition)


@message(key=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateRequest(Request[ReadShareGroupStateResponse]):
    """Read the whole state of share partitions. Leaders of older epochs are fenced from now on."""

    INTRODUCED = since(0, kafka="4.1")

    group_id: str = string()
    topics: list[ReadShareGroupStateRequestTopic] = array(ReadShareGroupStateRequestTopic)


@struct
class WriteShareGroupStateResponsePartition:
    """One partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class WriteShareGroupStateResponseTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[WriteShareGroupStateResponsePartition] = array(WriteShareGroupStateResponsePartition)


@message(key=85, versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse(Response):
    """Whether the state of each share partition was written."""

    results: list[WriteShareGroupStateResponseTopic] = array(WriteShareGroupStateResponseTopic)


@struct
class WriteShareGroupStateRequestBatch:
    """Offsets with the same delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@struct
class WriteShareGroupStateRequestPartition:
    """One partition."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[WriteShareGroupStateRequestBatch] = array(WriteShareGroupStateRequestBatch)


@struct
class WriteShareGroupStateRequestTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[WriteShareGroupStateRequestPartition] = array(WriteShareGroupStateRequestPartition)


@message(key=85, versions=(0, 1), flexible=0)
class WriteShareGroupStateRequest(Request[WriteShareGroupStateResponse]):
    """Write what has changed in the state of share partitions. A start offset of -1 stays as it was."""

    INTRODUCED = since(0, kafka="4.1")

    group_id: str = string()
    topics: list[WriteShareGroupStateRequestTopic] = array(WriteShareGroupStateRequestTopic)


@struct
class DeleteShareGroupStateResponsePartition:
    """One partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class DeleteShareGroupStateResponseTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[DeleteShareGroupStateResponsePartition] = array(DeleteShareGroupStateResponsePartition)


@message(key=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse(Response):
    """Whether the state of each share partition was deleted."""

    results: list[DeleteShareGroupStateResponseTopic] = array(DeleteShareGroupStateResponseTopic)


@struct
class DeleteShareGroupStateRequestPartition:
    """One partition."""

    partition: int = int32()


@struct
class DeleteShareGroupStateRequestTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[DeleteShareGroupStateRequestPartition] = array(DeleteShareGroupStateRequestPartition)


@message(key=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateRequest(Request[DeleteShareGroupStateResponse]):
    """Delete the state of share partitions."""

    INTRODUCED = since(0, kafka="4.1")

    group_id: str = string()
    topics: list[DeleteShareGroupStateRequestTopic] = array(DeleteShareGroupStateRequestTopic)


@struct
class ReadShareGroupStateSummaryResponsePartition:
    """One partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


@struct
class ReadShareGroupStateSummaryResponseTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStateSummaryResponsePartition] = array(ReadShareGroupStateSummaryResponsePartition)


@message(key=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse(Response):
    """The epochs and the start offset of each share partition, or an error."""

    results: list[ReadShareGroupStateSummaryResponseTopic] = array(ReadShareGroupStateSummaryResponseTopic)


@struct
class ReadShareGroupStateSummaryRequestPartition:
    """One partition."""

    partition: int = int32()
    leader_epoch: int = int32()


@struct
class ReadShareGroupStateSummaryRequestTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[ReadShareGroupStateSummaryRequestPartition] = array(ReadShareGroupStateSummaryRequestPartition)


@message(key=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryRequest(Request[ReadShareGroupStateSummaryResponse]):
    """Read the state of share partitions without the states of single records."""

    INTRODUCED = since(0, kafka="4.1")

    group_id: str = string()
    topics: list[ReadShareGroupStateSummaryRequestTopic] = array(ReadShareGroupStateSummaryRequestTopic)
