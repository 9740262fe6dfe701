"""aiokafka's exceptions, and the mapping from the exceptions of this client to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from ... import errors as native
from ...errors import ErrorCode
from .structs import TopicPartition


class KafkaError(RuntimeError):
    """The base of all errors. The exception of aiokafka_lite is its ``__cause__``."""

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


class IllegalStateError(KafkaError): ...


class KafkaTimeoutError(KafkaError): ...


class KafkaConnectionError(KafkaError):
    retriable = True
    invalid_metadata = True


class AuthenticationFailedError(KafkaError): ...


class IncompatibleBrokerVersion(KafkaError): ...


class CommitFailedError(KafkaError): ...


class NoOffsetForPartitionError(KafkaError):
    """The first argument is the partition, the second one the text."""

    def __str__(self) -> str:
        return f"NoOffsetForPartitionError: {self.args[-1]}" if self.args else super().__str__()


class ProducerClosed(KafkaError): ...


class ProducerFenced(KafkaError): ...


class IllegalArgumentError(KafkaError): ...


class KafkaConfigurationError(KafkaError): ...


class KafkaProtocolError(KafkaError):
    retriable = True


class CorrelationIdError(KafkaProtocolError): ...


class Cancelled(KafkaError):
    retriable = True


class TooManyInFlightRequests(KafkaError):
    retriable = True


class UnrecognizedBrokerVersion(KafkaError): ...


class MetadataEmptyBrokerList(KafkaError):
    retriable = True


class QuotaViolationError(KafkaError): ...


class AuthenticationMethodNotSupported(KafkaError): ...


class KafkaUnavailableError(KafkaError): ...


class NoBrokersAvailable(KafkaError):
    retriable = True
    invalid_metadata = True


class NodeNotReadyError(KafkaError):
    retriable = True


class RecordTooLargeError(KafkaError): ...


class StaleMetadata(KafkaError):
    retriable = True
    invalid_metadata = True


class UnsupportedCodecError(KafkaError): ...


class ConsumerStoppedError(Exception): ...


class IllegalOperation(Exception): ...


class BrokerResponseError(KafkaError):
    """A broker answered with the error code ``errno``."""

    errno: int = -1
    message: str = ""
    description: str = ""

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class NoError(BrokerResponseError):
    errno = 0
    message = "NO_ERROR"
    description: str = ErrorCode.NONE.description


_RENAMED = {
    ErrorCode.UNKNOWN_SERVER_ERROR: ("UnknownError",),
    ErrorCode.CORRUPT_MESSAGE: ("CorruptRecordException", "InvalidMessageError"),
    ErrorCode.INVALID_FETCH_SIZE: ("InvalidFetchRequestError",),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ("NotLeaderForPartitionError",),
    ErrorCode.MESSAGE_TOO_LARGE: ("MessageSizeTooLargeError",),
    ErrorCode.NETWORK_EXCEPTION: ("StaleLeaderEpochCodeError",),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ("CoordinatorLoadInProgressError", "GroupLoadInProgressError"),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ("CoordinatorNotAvailableError", "GroupCoordinatorNotAvailableError"),
    ErrorCode.NOT_COORDINATOR: ("NotCoordinatorError", "NotCoordinatorForGroupError"),
    ErrorCode.INVALID_TOPIC_EXCEPTION: ("InvalidTopicError",),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: ("InvalidReplicationAssignmentError",),
    ErrorCode.INVALID_CONFIG: ("InvalidConfigurationError",),
}
"""The classes whose names do not follow from the error code. A second name is an older name of the same class."""

_MESSAGES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UNKNOWN",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    ErrorCode.MESSAGE_TOO_LARGE: "MESSAGE_SIZE_TOO_LARGE",
    ErrorCode.NETWORK_EXCEPTION: "STALE_LEADER_EPOCH_CODE",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "INVALID_REPLICATION_ASSIGNMENT",
}
"""Error codes that have an older name in aiokafka."""

_NOT_RETRIABLE = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.LISTENER_NOT_FOUND,
)
"""Codes that Kafka marks as retriable and aiokafka does not. Programs rely on the ``retriable`` of aiokafka."""

_FIRST_BARE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
"""From this code on, aiokafka's names do not end in ``Error``."""


def _names(code: ErrorCode) -> tuple[str, ...]:
    words = "".join(word.capitalize() for word in code.name.split("_"))
    return _RENAMED.get(code, (words if code >= _FIRST_BARE else f"{words}Error",))


_BY_CODE: dict[ErrorCode, type[BrokerResponseError]] = {}

for _code in ErrorCode:
    if _code is ErrorCode.NONE:
        continue
    _class = type(
        _names(_code)[0],
        (BrokerResponseError,),
        {
            "errno": int(_code),
            "message": _MESSAGES.get(_code, _code.name),
            "description": _code.description,
            "retriable": _code.retriable and _code not in _NOT_RETRIABLE,
            "invalid_metadata": _code.stale_metadata and _code not in _NOT_RETRIABLE,
            "__module__": __name__,
        },
    )
    _BY_CODE[_code] = _class
    for _name in _names(_code):
        globals().setdefault(_name, _class)  # ProducerFenced is not a BrokerResponseError in aiokafka

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[BrokerResponseError]: ...


_BY_TYPE: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (native.ProducerFenced, ProducerFenced),
    (native.CommitFailed, CommitFailedError),
    (native.KafkaTimeout, KafkaTimeoutError),
    (native.ConnectionLost, KafkaConnectionError),
    (native.AuthenticationError, AuthenticationFailedError),
    (native.UnsupportedVersion, IncompatibleBrokerVersion),
    (native.CorruptRecord, _BY_CODE[ErrorCode.CORRUPT_MESSAGE]),
    (native.ConfigurationError, ValueError),
    (native.SerializationError, TypeError),
    (native.IllegalStateError, IllegalStateError),
)


_OF_FORMER_MEMBERS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
}


def translated(error: native.KafkaError) -> Exception:
    """Translate an exception of this client to aiokafka's."""
    if isinstance(error, native.CommitFailed):
        # CommitFailedError means a former member. A refusal for another reason has a class of its own.
        for refused in error.refused.values():
            if isinstance(refused, native.BrokerError) and refused.code not in _OF_FORMER_MEMBERS:
                return translated(refused)
    for theirs, ours in _BY_TYPE:
        if isinstance(error, theirs):
            return ours(str(error))
    if isinstance(error, native.OffsetOutOfRange) and error.topic is not None and error.partition is not None:
        # Programs seek the partitions that are in the first argument of the exception.
        partition = TopicPartition(error.topic, error.partition)
        if isinstance(error, native.NoOffsetForPartition):
            return NoOffsetForPartitionError(partition, str(error))
        return _BY_CODE[error.code]({partition: error.offset})
    if isinstance(error, native.BrokerError):
        return _BY_CODE.get(error.code, BrokerResponseError)(str(error))
    return KafkaError(str(error))


@contextmanager
def translating() -> Iterator[None]:
    """Raise aiokafka's exceptions instead of this client's."""
    try:
        yield
    except native.KafkaError as error:
        raise translated(error) from error


@contextmanager
def connecting() -> Iterator[None]:
    """Raise aiokafka's exceptions for a start, where a timeout becomes KafkaConnectionError."""
    try:
        with translating():
            yield
    except KafkaTimeoutError as error:
        raise KafkaConnectionError(*error.args) from error.__cause__


def for_code(code: int) -> type[BrokerResponseError]:
    """Return the class of a broker's error code; UnknownError for a code that aiokafka lacks."""
    if code == ErrorCode.NONE:
        return NoError
    return _BY_CODE.get(ErrorCode.of(code), _BY_CODE[ErrorCode.UNKNOWN_SERVER_ERROR])


def missing(reason: str) -> Callable[..., NoReturn]:
    """Make a method that raises NotImplementedError with the reason why this client does not have it."""

    def method(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(reason)

    return method
