"""Kafka's error codes as one table, and the exceptions of this package.

The exceptions differ by their source:

- the caller: ``ConfigurationError``, ``IllegalStateError``, ``SerializationError``
- the peer: ``ProtocolError``
- the network: ``ConnectionLost``, ``KafkaTimeout``
- a decision of a broker: ``BrokerError``, which has the code.

Code that reacts to a broker's error uses the flags of the code, such as ``error.code.retriable``, instead of a list of
codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, IntEnum, auto
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from .types import TopicPartition

__all__ = [
    "AcknowledgementFailed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BufferFull",
    "CommitFailed",
    "ConfigurationError",
    "ConnectionLost",
    "CorruptRecord",
    "DeserializationError",
    "ErrorCode",
    "IllegalStateError",
    "InvalidTopic",
    "KafkaError",
    "KafkaTimeout",
    "NoOffsetForPartition",
    "OffsetOutOfRange",
    "ProducerFenced",
    "ProtocolError",
    "RecordTooLarge",
    "SchemaRegistryError",
    "SerializationError",
    "TransactionAborted",
    "UnknownTopic",
    "UnsupportedVersion",
]


class _Is(Flag):
    PLAIN = 0
    RETRIABLE = auto()
    STALE = auto()
    FATAL = auto()


_P, _R, _F = _Is.PLAIN, _Is.RETRIABLE, _Is.FATAL
_S = _Is.RETRIABLE | _Is.STALE  # an error of stale metadata is always retriable after a refresh


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.3.1 (https://kafka.apache.org/protocol#protocol_error_codes).

    ``retriable``: the same request may succeed later. ``stale_metadata``: metadata must be refreshed before a retry.
    ``fatal``: the producer or group member cannot continue. ``description``: one sentence for error texts.
    """

    retriable: bool
    stale_metadata: bool
    fatal: bool
    description: str

    def __new__(cls, code: int, flags: _Is, description: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = _Is.RETRIABLE in flags
        member.stale_metadata = _Is.STALE in flags
        member.fatal = _Is.FATAL in flags
        member.description = description
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member for a code from the wire; UNKNOWN_SERVER_ERROR for a code that is newer than this table."""
        member = _BY_CODE.get(code)
        return cls.UNKNOWN_SERVER_ERROR if member is None else member

    UNKNOWN_SERVER_ERROR = -1, _P, "the broker failed with an error that has no code; see the broker's log"
    NONE = 0, _P, "no error"
    OFFSET_OUT_OF_RANGE = 1, _P, "the offset is outside the range of the partition's log"
    CORRUPT_MESSAGE = 2, _R, "a record batch failed its checksum, its size check, or has no key in a compacted topic"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _S, "the broker does not know this topic or partition"
    INVALID_FETCH_SIZE = 4, _P, "the requested fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, _S, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, _S, "the broker is not the leader, or not a replica, of this partition"
    REQUEST_TIMED_OUT = 7, _R, "the broker did not finish the request within the request's own timeout"
    BROKER_NOT_AVAILABLE = 8, _P, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, _S, "the replica is not available for this partition"
    MESSAGE_TOO_LARGE = 10, _P, "it is larger than max_request_size of this client or max.message.bytes of the topic"
    STALE_CONTROLLER_EPOCH = 11, _P, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, _P, "the metadata string of a committed offset is too long"
    NETWORK_EXCEPTION = 13, _S, "the broker was disconnected before it responded"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _R, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, _R, "there is no coordinator at the moment"
    NOT_COORDINATOR = 16, _R, "the broker is not the coordinator of this group or transaction"
    INVALID_TOPIC_EXCEPTION = 17, _P, "the topic's name is not valid, or clients may not change this topic"
    RECORD_LIST_TOO_LARGE = 18, _P, "the batch is larger than a log segment of the broker"
    NOT_ENOUGH_REPLICAS = 19, _R, "fewer replicas are in sync than min.insync.replicas requires; nothing was written"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _R, "written to the leader, but not to min.insync.replicas"
    INVALID_REQUIRED_ACKS = 21, _P, "acks must be 0, 1 or all (-1)"
    ILLEGAL_GENERATION = 22, _P, "the group has a newer generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, _P, "no assignment strategy is common to all members of the group"
    INVALID_GROUP_ID = 24, _F, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, _P, "the coordinator does not know this member: it was removed, or the group was deleted"
    INVALID_SESSION_TIMEOUT = 26, _F, "the session timeout is outside group.min/max.session.timeout.ms of the broker"
    REBALANCE_IN_PROGRESS = 27, _P, "the group is rebalancing; join it again"
    INVALID_COMMIT_OFFSET_SIZE = 28, _P, "the offset's metadata makes the commit too large"
    TOPIC_AUTHORIZATION_FAILED = 29, _P, "the principal may not do this with the topic"
    GROUP_AUTHORIZATION_FAILED = 30, _F, "the principal may not do this with the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _F, "the principal may not do this with the cluster"
    INVALID_TIMESTAMP = 32, _P, "a record's timestamp is outside the range that the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, _F, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, _F, "the request is not valid in this state of the SASL handshake"
    UNSUPPORTED_VERSION = 35, _P, "the broker does not support this version of the request"
    TOPIC_ALREADY_EXISTS = 36, _P, "a topic with this name already exists"
    INVALID_PARTITIONS = 37, _P, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, _P, "the replication factor is below 1 or above the number of live brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, _P, "the replica assignment is not valid"
    INVALID_CONFIG = 40, _P, "a configuration is not valid"
    NOT_CONTROLLER = 41, _R, "the broker is not the controller"
    INVALID_REQUEST = 42, _P, "the request contradicts itself or the protocol; see the broker's log"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _P, "the broker's record format is too old for this"
    POLICY_VIOLATION = 44, _P, "a policy of the cluster forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _P, "the producer's sequence numbers have a gap"
    DUPLICATE_SEQUENCE_NUMBER = 46, _P, "the broker already has this batch"
    INVALID_PRODUCER_EPOCH = 47, _P, "the producer's epoch is older than the broker's"
    INVALID_TXN_STATE = 48, _F, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, _P, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, _F, "the transaction timeout is above the broker's transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, _R, "the previous transaction is still being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, _F, "the transaction coordinator was replaced by a newer one"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _F, "the principal may not use this transactional id"
    SECURITY_DISABLED = 54, _P, "security features are disabled on the broker"
    OPERATION_NOT_ATTEMPTED = 55, _P, "another part of the same request failed, so this part was not attempted"
    KAFKA_STORAGE_ERROR = 56, _S, "the broker cannot access its disk"
    LOG_DIR_NOT_FOUND = 57, _P, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, _F, "the broker refused the credentials"
    UNKNOWN_PRODUCER_ID = 59, _P, "the broker no longer knows this producer, because retention removed its last records"
    REASSIGNMENT_IN_PROGRESS = 60, _P, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _P, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, _P, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _P, "the delegation token belongs to another principal"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _P, "delegation tokens cannot be requested on this kind of connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _P, "the principal may not do this with the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, _P, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, _P, "the type of principal is not supported"
    NON_EMPTY_GROUP = 68, _P, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, _P, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, _R, "the broker does not know the fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, _R, "the fetch session is at another epoch"
    LISTENER_NOT_FOUND = 72, _S, "the leader has no listener with the protocol of this connection"
    TOPIC_DELETION_DISABLED = 73, _P, "delete.topic.enable is off"
    FENCED_LEADER_EPOCH = 74, _S, "the client's leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, _R, "the client's leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _P, "the version of the request does not allow this compression"
    STALE_BROKER_EPOCH = 77, _P, "the broker's own registration is outdated"
    OFFSET_NOT_AVAILABLE = 78, _R, "a new leader does not know the offset yet"
    MEMBER_ID_REQUIRED = 79, _P, "the member must join again with the member id from this response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _S, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, _F, "the group already has as many members as the broker allows"
    FENCED_INSTANCE_ID = 82, _F, "another member took over this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _S, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, _S, "the partition already has the requested leader"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _P, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _P, "the group is still subscribed to the topic"
    INVALID_RECORD = 87, _P, "the broker rejected a record, for example one without a key in a compacted topic"
    UNSTABLE_OFFSET_COMMIT = 88, _R, "offsets of a transaction that is still open cover this partition"
    THROTTLING_QUOTA_EXCEEDED = 89, _R, "a quota of the cluster is used up"
    PRODUCER_FENCED = 90, _F, "a newer producer with the same transactional id has taken over"
    RESOURCE_NOT_FOUND = 91, _P, "there is no such resource"
    DUPLICATE_RESOURCE = 92, _P, "the resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, _P, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, _P, "the set of voters does not match"
    INVALID_UPDATE_VERSION = 95, _P, "the update is for a different version"
    FEATURE_UPDATE_FAILED = 96, _P, "features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _P, "the principal of a forwarded request cannot be decoded"
    SNAPSHOT_NOT_FOUND = 98, _P, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, _P, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, _S, "the broker does not know this topic id"
    DUPLICATE_BROKER_REGISTRATION = 101, _P, "this broker id is already registered"
    BROKER_ID_NOT_REGISTERED = 102, _P, "this broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, _S, "the topic id does not belong to the topic in the broker's log"
    INCONSISTENT_CLUSTER_ID = 104, _P, "the cluster id belongs to a different cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _P, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _R, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, _P, "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, _P, "the change of the in-sync set elected another leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _P, "the offset is in tiered storage"
    FENCED_MEMBER_EPOCH = 110, _P, "the coordinator has a newer epoch for this member"
    UNRELEASED_INSTANCE_ID = 111, _P, "another member still holds this group.instance.id"
    UNSUPPORTED_ASSIGNOR = 112, _P, "the broker does not offer this assignor"
    STALE_MEMBER_EPOCH = 113, _P, "the member's epoch is stale; retry with the epoch of the next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, _P, "the request went to an endpoint of the wrong kind"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _P, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, _P, "there is no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, _P, "the telemetry subscription is unknown"
    TELEMETRY_TOO_LARGE = 118, _P, "the telemetry payload is too large"
    INVALID_REGISTRATION = 119, _P, "the broker's registration is not valid"
    TRANSACTION_ABORTABLE = 120, _P, "the transaction has failed and must be aborted"
    INVALID_RECORD_STATE = 121, _P, "the shared record is in a different state"
    SHARE_SESSION_NOT_FOUND = 122, _R, "the share session is unknown"
    INVALID_SHARE_SESSION_EPOCH = 123, _R, "the share session is at another epoch"
    FENCED_STATE_EPOCH = 124, _P, "the share coordinator has a newer epoch"
    INVALID_VOTER_KEY = 125, _P, "the voter's key does not match"
    DUPLICATE_VOTER = 126, _P, "the voter is already a member"
    VOTER_NOT_FOUND = 127, _P, "there is no such voter"
    INVALID_REGULAR_EXPRESSION = 128, _P, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, _P, "the client must connect to its bootstrap servers again"
    STREAMS_INVALID_TOPOLOGY = 130, _P, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _P, "the streams topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, _P, "the streams topology's epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, _R, "the broker has no room for another share session"


_BY_CODE: dict[int, ErrorCode] = {int(member): member for member in ErrorCode}

NO_ERROR: ErrorCode = ErrorCode.NONE
"""For code that runs for each request: in Python 3.11, the attribute of an enumeration takes as long as four calls."""

REBALANCED = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
)
"""The codes with which a coordinator refuses offsets of a transaction because the group has rebalanced."""


class KafkaError(Exception):
    """Base of all errors that this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling calls the constructor with ``args``, which has only the finished text. Some errors need more
        # arguments.
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[KafkaError], args: tuple[object, ...]) -> KafkaError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class ConfigurationError(KafkaError, ValueError):
    """A setting is wrong. The message names the setting, the allowed values and the given value."""


class IllegalStateError(KafkaError, RuntimeError):
    """The call is not possible in the current state, for example before ``start()`` or after ``close()``."""


class SerializationError(KafkaError):
    """A key, value or header cannot be serialized or deserialized. The message names topic, part and type."""


class DeserializationError(SerializationError):
    """A deserializer failed; its exception is the ``__cause__``. The position stays at this record."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class SchemaRegistryError(KafkaError):
    """The schema registry refused a request. A retry does not help.

    ``status`` is the HTTP status, ``code`` the registry's own code, such as 40401 for an unknown subject; ``subject``
    is None if the request names none.
    """

    def __init__(self, message: str, *, status: int, code: int, subject: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.subject = subject


class ProtocolError(KafkaError):
    """The peer sent bytes that the protocol does not allow. The connection is closed."""


class CorruptRecord(ProtocolError):
    """A record batch is corrupt: wrong checksum, wrong length, or malformed records.

    ``topic``, ``partition`` and ``offset`` name the batch where they are known. Seek to ``next_offset``, the offset
    after the batch, to skip it. It is None if the batch's header is corrupt too.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class ConnectionLost(KafkaError, ConnectionError):
    """A connection failed to open, or was lost while a request was in flight.

    ``sent`` is False if the request was certainly never sent, so the broker cannot have executed it.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class AuthenticationError(KafkaError):
    """The broker rejected the client's credentials, or the client rejected the broker's certificate.

    ``start`` and calls that wait raise it at once. A client that has started tries again later, with a pause.
    """


class KafkaTimeout(KafkaError, TimeoutError):
    """An operation did not finish in time. The message names the operation and the last error."""


class BufferFull(KafkaError):
    """``buffer_memory`` has no room for the record. Use ``await put(...)``, which waits for room."""


class UnsupportedVersion(KafkaError):
    """The broker is too old or too new: no common version of an API, or none with the requested feature."""


class BrokerError(KafkaError):
    """A broker responded with an error code.

    ``code`` is the code, ``wire_code`` the number in the response. They differ for a code that is newer than this
    package. The text ends with the broker's own ``reason`` or, without one, with the meaning of the code. ``topic``,
    ``partition`` (a number) and ``offset`` name the cause; an attribute that does not apply is None.
    """

    def __init__(
        self,
        code: int,
        message: str = "",
        *,
        reason: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.code: ErrorCode = ErrorCode.of(code)
        self.wire_code: int = int(code)
        name = self.code.name if self.wire_code == self.code else f"error code {self.wire_code}"
        if reason:  # the broker's reason contains the description of the code
            text = f"{message}: {reason}" if message else reason
            super().__init__(f"{text.rstrip('.')} ({name})")
            return
        text = f"{message}: {name}" if message else name
        # Some brokers send the description of the code as their message, which the caller has put into its own.
        is_described = self.code.description.lower() in message.lower()
        super().__init__(text if is_described else f"{text} ({self.code.description})")


class AuthorizationError(BrokerError):
    """The principal lacks a permission. An operator must grant it.

    Calls that wait raise it at once. A client that has started tries again later, with a pause.
    """


class UnknownTopic(BrokerError):
    """The topic does not exist, or has no partition of this number."""


class InvalidTopic(BrokerError):
    """The topic's name breaks Kafka's rules: 1 to 249 of ``a-z A-Z 0-9 . _ -``, and not ``.`` or ``..``."""


class RecordTooLarge(BrokerError):
    """A single record exceeds a size limit of this client or of the broker."""


class OffsetOutOfRange(BrokerError):
    """The position is outside the partition's log, and ``auto_offset_reset`` is ``"none"``.

    Seek ``partition`` of ``topic`` to an offset that exists in the log; ``offset`` does not exist there.
    """


class NoOffsetForPartition(OffsetOutOfRange):
    """The partition has no committed offset and no other position, and ``auto_offset_reset`` is ``"none"``."""


class ProducerFenced(BrokerError):
    """A newer producer has taken over. This one can no longer write."""


class TransactionAborted(KafkaError):
    """A record or offset was not written, because its transaction was aborted, or can only be aborted."""


class CommitFailed(KafkaError):
    """Offsets were not committed, usually because another member of the group now owns their partitions.

    ``refused`` has the error of each partition. No record is lost: the new owner begins at the last committed offset,
    so some records may be read twice.
    """

    def __init__(self, refused: Mapping[TopicPartition, KafkaError]) -> None:
        self.refused = refused
        super().__init__(_by_partition(refused))


class AcknowledgementFailed(KafkaError):
    """Records of a share group were not acknowledged. The brokers deliver them again.

    ``refused`` has the error of each partition.
    """

    def __init__(self, refused: Mapping[TopicPartition, KafkaError]) -> None:
        self.refused = refused
        super().__init__(_by_partition(refused))


def _by_partition(refused: Mapping[TopicPartition, KafkaError]) -> str:
    """Return the errors of partitions in one text. An error that names its partition is not preceded by the name."""
    texts = ((str(partition), str(error)) for partition, error in refused.items())
    return "; ".join(error if partition in error else f"{partition}: {error}" for partition, error in texts)


_SUBCLASSES: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopic,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLarge,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFenced,
}


def error_for(
    code: int,
    message: str = "",
    *,
    reason: str | None = None,
    topic: str | None = None,
    at: TopicPartition | None = None,
    offset: int | None = None,
) -> BrokerError:
    """Return the exception for an error code: a subclass of BrokerError, or BrokerError itself.

    ``reason`` is the broker's text, if it sent one. ``topic``, or ``at`` for a partition, and ``offset`` become
    attributes. The message and the reason may quote a broker, so control characters are replaced and the length is
    limited.
    """
    kind = _SUBCLASSES.get(ErrorCode.of(code), BrokerError)
    name, partition = (topic, None) if at is None else at
    return kind(
        code,
        harmless(message, _LONGEST_MESSAGE),
        reason=reason and harmless(reason, _LONGEST_MESSAGE),
        topic=name,
        partition=partition,
        offset=offset,
    )


_LONGEST_MESSAGE = 1000


def harmless(text: str, longest: int) -> str:
    """Return a peer's text for an error or a log: no line breaks or control characters, at most ``longest``
    characters."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return text if len(text) <= longest else text[:longest] + "…"
