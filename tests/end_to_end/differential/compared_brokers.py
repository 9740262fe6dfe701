"""Two brokers that get the same requests: a connection to each, and responses in a form that can be compared.

Values that differ between any two brokers are replaced: ids by the name of their object, times of day by a word.
Addresses and throttle times are removed. Of an error message, only its presence is compared. Everything else is
compared as it is. The order of topics, partitions and settings in a response has no meaning, so they are sorted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.errors import ConnectionLost, CorruptRecord, ErrorCode
from aiokafka_lite.protocol.connection import ClientProtocol
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsResponse,
    DescribeLogDirsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from aiokafka_lite.protocol.records import HEADER_SIZE, RecordBatch, decompress, split_batches
from aiokafka_lite.protocol.schema import ZERO_UUID, Request

R = TypeVar("R")

PRODUCERS = range(9000, 9100)
"""Producer ids that no broker has assigned."""
CLIENT_ID = "differential"
STRANGER = "stranger"
"""A group and a transactional id of no scenario."""
ANSWER_TIMEOUT = 30.0
UNKNOWN_TOPIC_ID = bytes(range(16))


class Outcome(enum.Enum):
    """The behaviour of a broker that sends no response."""

    CLOSED = "the connection is closed"
    SILENT = "nothing is answered, as it was asked for"
    STUCK = "no answer comes"


class Side:
    """One of the two brokers, and its names for things: topic ids, member ids, generations.

    ``user`` is the name, and the password, of a login by PLAIN.
    """

    def __init__(self, name: str, bootstrap_servers: str, user: str | None = None) -> None:
        self.name = name
        self._user = user
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self._address = host, int(port)
        self._stream: FramedStreamReader | None = None
        self._protocol: ClientProtocol[None] = ClientProtocol(name)
        self.topic_ids: dict[str, bytes] = {}
        self.members: list[str] = []
        self.generation = -1
        self.session_id = 0
        self.log_dir = "/unknown"
        self.producer = (PRODUCERS[0], 0)
        self._sequences: dict[tuple[str, int], int] = {}

    def __repr__(self) -> str:
        return f"<Side {self.name} {self._address[0]}:{self._address[1]}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.abort()
            await self._stream.wait_closed()
            self._stream = None

    async def _connected(self) -> FramedStreamReader:
        if self._stream is None:
            self._protocol = ClientProtocol(self.name)
            stream = self._stream = FramedStreamReader(1 << 30, self.name)
            await asyncio.get_running_loop().create_connection(lambda: stream, *self._address)
            if self._user is not None:
                await self._log_in(self._user)
        return self._stream

    async def _log_in(self, user: str) -> None:
        await self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 1)
        assert answer.error_code == ErrorCode.NONE, answer

    async def ask(self, request: Request[R], version: int) -> R:
        """Return the response to a request that has to succeed."""
        answer: Any = await self.try_to_ask(request, version)
        assert not isinstance(answer, Outcome), f"{self.name}: {request} v{version}: {answer.value}"
        reply: R = answer
        return reply

    async def try_to_ask(self, request: Request[R], version: int) -> R | Outcome:
        """Return the response, or the behaviour of a broker that sends none. After CLOSED the next request uses a new
        connection.
        """
        silent = isinstance(request, ProduceRequest) and request.acks == 0
        stream = await self._connected()
        if silent:
            stream.write([self._protocol.encode_unanswered_request(request, version, CLIENT_ID)])
            return await self._outcome_of_silence(stream)
        stream.write([self._protocol.encode_request(request, version, CLIENT_ID, None)])
        answer: R | Outcome = await self._answer(stream)
        if not isinstance(answer, Outcome):
            self._record(answer)
            self._record_producer(request, answer)
        return answer

    async def _outcome_of_silence(self, stream: FramedStreamReader) -> Outcome:
        """Send a second request, to see whether the unanswered one closed the connection."""
        stream.write([self._protocol.encode_request(ApiVersionsRequest(), 0, CLIENT_ID, None)])
        return Outcome.CLOSED if await self._answer(stream) is Outcome.CLOSED else Outcome.SILENT

    async def _answer(self, stream: FramedStreamReader) -> Any:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                frame = await stream.read_frame()
        except ConnectionLost:
            frame = None
        except TimeoutError:
            await self._disconnect()
            return Outcome.STUCK
        if frame is None:
            await self._disconnect()
            return Outcome.CLOSED
        return self._protocol.receive(frame)[1]

    def _record(self, answer: object) -> None:
        match answer:
            case DescribeLogDirsResponse(results=[directory, *_]):
                self.log_dir = directory.log_dir
                return
            case MetadataResponse(topics=topics):
                named = [(topic.name, topic.topic_id) for topic in topics]
            case CreateTopicsResponse(topics=results):
                named = [(result.name, result.topic_id) for result in results]
            case JoinGroupResponse():
                refused = answer.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
                if not refused and answer.member_id not in self.members:
                    self.members.append(answer.member_id)
                if answer.generation_id > 0:
                    self.generation = answer.generation_id
                return
            case _:
                session_id = getattr(answer, "session_id", 0)
                self.session_id = session_id or self.session_id
                return
        for name, topic_id in named:
            if name and topic_id != ZERO_UUID:
                self.topic_ids[name] = topic_id

    def _record_producer(self, request: Any, answer: Any) -> None:
        """Record the id and the epoch of the transactional producer, and its next sequences."""
        match request, answer:
            case InitProducerIdRequest(transactional_id=str() as name), InitProducerIdResponse(error_code=0):
                if name == STRANGER:
                    return
                identity = (answer.producer_id, answer.producer_epoch)
            case EndTxnRequest(), EndTxnResponse(error_code=0) if answer.producer_id >= 0:
                identity = (answer.producer_id, answer.producer_epoch)
            case ProduceRequest(), ProduceResponse():
                for requested, topic in zip(request.topic_data, answer.responses):
                    for data, part in zip(requested.partition_data, topic.partition_responses):
                        # A broker ignores the offsets of a client, so it may accept a batch that no reader would.
                        batches = _split(data.records) if part.error_code == 0 and data.records else []
                        if not batches or not isinstance(batches[0], RecordBatch):
                            continue
                        if (batches[0].producer_id, batches[0].producer_epoch) == self.producer:
                            name = topic.name or self.name_of_topic_id(topic.topic_id).removeprefix("id of ")
                            self._sequences[name, part.index] = batches[0].base_sequence + batches[0].count
                return
            case _:
                return
        if identity != self.producer:
            self._sequences.clear()
        self.producer = identity

    def sequence(self, topic: str, partition: int) -> int:
        """Return the next sequence of the transactional producer."""
        return self._sequences.get((topic, partition), 0)

    # ---- names for what only this broker knows

    def topic_id(self, name: str) -> bytes:
        """Return the id of the last topic of this name; an id of no topic if there was none."""
        return self.topic_ids.get(name) or hashlib.md5(name.encode()).digest()

    def member(self, index: int) -> str:
        """Return the member that joined as number ``index`` (-1: the last one); if there is none, a member id that no
        broker assigns."""
        return self.members[index] if self.members else "stranger"

    def name_of_topic_id(self, topic_id: bytes) -> str:
        if topic_id == ZERO_UUID:
            return "zero"
        return next((f"id of {name}" for name, known_id in self.topic_ids.items() if known_id == topic_id), "unknown")

    def name_of_member(self, member_id: str) -> str:
        return f"member {self.members.index(member_id)}" if member_id in self.members else member_id


# ---- answers in a comparable form

_PRESENCE = frozenset({"error_message", "batch_index_error_message", "cluster_id", "client_host", "log_dir"})
_IGNORED = frozenset({"throttle_time_ms", "host", "port", "documentation"})
_MEMBERS = frozenset({"member_id", "leader"})
_IDENTITY = (
    "name", "topic", "topic_id", "resource_type", "resource_name", "group_id", "key", "index", "partition_index",
    "partition", "api_key", "node_id", "broker_id", "member_id", "source", "producer_id", "entity_type", "entity",
    "transactional_id", "subtopology_id", "user", "pattern_type", "principal", "operation", "permission_type",
)  # fmt: skip
_PARTITIONS = ("partitions", "partition_responses")
_AROUND_NOW_MS = 3_000_000
_LARGEST_CONTENT = 1 << 20


def comparable(side: Side, value: Any, field: str = "") -> Any:
    """Make values comparable: messages become dicts, lists become sorted lists, and a broker's own ids become names."""
    if isinstance(value, Outcome):
        return value
    if dataclasses.is_dataclass(value):
        return {
            field.name: comparable(side, getattr(value, field.name), field.name)
            for field in dataclasses.fields(value)
            if field.name not in _IGNORED
        }
    if isinstance(value, list):
        return sorted(_merged([comparable(side, item, field) for item in value]), key=_identity)
    return _plain(side, value, field)


def _merged(values: list[Any]) -> list[Any]:
    """Merge the partitions of a topic, even if the response names the topic more than once."""
    merged: list[Any] = []
    by_topic: dict[str, Any] = {}
    for value in values:
        name = next((candidate for candidate in _PARTITIONS if isinstance(value, dict) and candidate in value), None)
        if name is None:
            merged.append(value)
            continue
        topic = repr(sorted((key, part) for key, part in value.items() if key != name))
        if topic in by_topic:
            by_topic[topic][name] = sorted([*by_topic[topic][name], *value[name]], key=_identity)
        else:
            by_topic[topic] = value
            merged.append(value)
    return merged


def _identity(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(_ranked(value[name]) for name in _IDENTITY if name in value)
    return _ranked(value)


def _ranked(value: Any) -> tuple[Any, ...]:
    return (0, value) if isinstance(value, int) else (1, value if isinstance(value, str) else repr(value))


def _plain(side: Side, value: Any, field: str) -> Any:
    if field == "records":
        return None if value is None else [_batch(side, data) for data in _split(value)]
    if field == "topic_id":
        return side.name_of_topic_id(value)
    if field in _MEMBERS and isinstance(value, str):
        return side.name_of_member(value)
    if field in _PRESENCE:
        return "a text" if value else value
    if (field == "producer_id" and value >= 0 and value not in PRODUCERS) or (field == "session_id" and value > 0):
        return "an id"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value - time.time() * 1000) < _AROUND_NOW_MS:
        return "now"
    return value


def _split(data: Any) -> list[Any]:
    try:
        return list(split_batches(data))
    except CorruptRecord:
        return [data]


def _batch(side: Side, batch: Any) -> Any:
    if isinstance(batch, (bytes, bytearray, memoryview)):
        return bytes(batch)
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "leader_epoch": batch.leader_epoch,
        "attributes": batch.attributes,
        "base_timestamp": _plain(side, batch.base_timestamp, ""),
        "max_timestamp": _plain(side, batch.max_timestamp, ""),
        "producer": (
            _plain(side, batch.producer_id, "producer_id"),
            batch.producer_epoch,
            batch.base_sequence,
        ),
        "count": batch.count,
        "checksum": _checksum(batch),
        "content": _content(batch),
    }


def _checksum(batch: Any) -> str:
    try:
        batch.verify_crc()
    except CorruptRecord:
        return "wrong"
    return "right"


def _content(batch: Any) -> bytes:
    """Return the records: two libraries compress the same records to different bytes."""
    data = bytes(batch.data[HEADER_SIZE : batch.size])
    try:
        return bytes(decompress(batch.compression, data, _LARGEST_CONTENT)) if batch.compression else data
    except (CorruptRecord, ValueError):
        return data


# ---- comparing


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. The path has no list indexes: ``topics[].name``."""

    path: str
    embedded: Any
    real: Any

    def __str__(self) -> str:
        return f"{self.path}: embedded {_short(self.embedded)}, real {_short(self.real)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 600 else text[:600] + "…"


def differences(path: str, embedded: Any, real: Any) -> Iterator[Difference]:
    """Yield every difference, from the outside in."""
    if isinstance(embedded, dict) and isinstance(real, dict) and embedded.keys() == real.keys():
        for name in embedded:
            yield from differences(f"{path}.{name}", embedded[name], real[name])
    elif isinstance(embedded, list) and isinstance(real, list) and len(embedded) == len(real):
        for ours, theirs in zip(embedded, real):
            yield from differences(f"{path}[]", ours, theirs)
    elif embedded != real or type(embedded) is not type(real):
        yield Difference(path, embedded, real)


Make = Callable[[Side], Request[Any]]
