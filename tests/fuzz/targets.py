"""The targets: how an input is made, which parser reads it, and what the test checks afterwards.

A target raises nothing for any input: it catches the errors that its parser declares.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.registry.avro_compatibility import AvroSchema
from aiokafka_lite.embedded.registry.referring_schemas import check_imports
from aiokafka_lite.errors import ConfigurationError, CorruptRecord, ProtocolError
from aiokafka_lite.protocol import messages
from aiokafka_lite.protocol.codec import decode_message, encode_message
from aiokafka_lite.protocol.connection import decode_response, encode_request_header, parse_request
from aiokafka_lite.protocol.framing import FrameSplitter, frame
from aiokafka_lite.protocol.records import decompress, split_batches
from aiokafka_lite.protocol.records.columns import READ_COLUMNS, ArrowDecoder, PackedBatch
from aiokafka_lite.protocol.records.scan import checking_lengths, scan
from aiokafka_lite.protocol.schema import Message, Request, Response
from aiokafka_lite.schemas.avro_names import resolved
from aiokafka_lite.schemas.avro_writing import writer
from aiokafka_lite.schemas.mismatch import Mismatch
from aiokafka_lite.schemas.protobuf_names import message_types
from aiokafka_lite.settings.properties import client_settings, consumer_settings, producer_settings, read_properties
from aiokafka_lite.types import Compression, TopicPartition

from .inputs import batches, compressed, damaged, encoded

MESSAGES: list[type[Any]] = [
    message
    for message in (getattr(messages, name) for name in sorted(messages.__all__))
    if isinstance(message, type) and issubclass(message, Message) and message not in (Message, Request, Response)
]
REQUESTS: list[type[Any]] = [messages.REQUESTS[key] for key in sorted(messages.REQUESTS)]
LIMIT = 8 << 20
"""Bytes that a batch may decompress to here."""


class Target(NamedTuple):
    make: Callable[[Random], bytes]
    read: Callable[[bytes], None]


def _versioned(random: Random, classes: list[type[Any]]) -> tuple[bytes, type[Any], int]:
    index = random.randrange(len(classes))
    cls = classes[index]
    version = random.randint(cls.versions.first, cls.versions.last)
    return bytes((index, version)), cls, version


def _of(classes: list[type[Any]], data: bytes) -> tuple[type[Any], int]:
    """Return the class and the version that the first two bytes of an input name."""
    if len(data) < 2:
        return classes[0], classes[0].versions.first
    cls = classes[data[0] % len(classes)]
    return cls, min(max(data[1], cls.versions.first), cls.versions.last)


def make_message(random: Random) -> bytes:
    head, cls, version = _versioned(random, MESSAGES)
    return head + damaged(random, encoded(random, cls, version))


def read_message(data: bytes) -> None:
    """Check that a decoded message encodes to bytes that decode to the same message."""
    cls, version = _of(MESSAGES, data)
    try:
        decoded, end = decode_message(cls, version, data, 2)
    except ProtocolError:
        return
    assert end <= len(data)
    out = bytearray()
    encode_message(decoded, version, out)
    again = bytearray()
    encode_message(decode_message(cls, version, out)[0], version, again)
    assert again == out


def make_response(random: Random) -> bytes:
    head, cls, version = _versioned(random, REQUESTS)
    tags = b"\0" if version >= cls.flexible and cls.api_key != 18 else b""
    return head + damaged(random, bytes(4) + tags + encoded(random, cls.response, version))


def read_response(data: bytes) -> None:
    cls, version = _of(REQUESTS, data)
    with suppress(ProtocolError):
        decode_response(cls, version, memoryview(data)[2:], "fuzz")


def make_request(random: Random) -> bytes:
    _, cls, version = _versioned(random, REQUESTS)
    out = bytearray()
    encode_request_header(cls, version, 1, "fuzz", out)
    header = bytes(out)
    body = encoded(random, cls, version)
    if random.random() < 0.1:
        return damaged(random, header + body)
    return header + (damaged(random, body) if random.random() < 0.7 else body)


def read_request(data: bytes) -> None:
    with suppress(ProtocolError):
        parse_request(data)


def make_stream(random: Random) -> bytes:
    frames = b"".join(frame(random.randbytes(random.choice((4, 5, 100, 40_000)))) for _ in range(3))
    return random.randbytes(1) + damaged(random, frames)


def read_stream(data: bytes) -> None:
    """Check that the frames equal a plain reader's frames, for any division of the stream into pieces."""
    random = Random(data[:1])
    splitter = FrameSplitter(1 << 20, "fuzz", intake_size=random.choice((64, 4096, 1 << 16)))
    stream, frames, position = data[1:], [], 0
    try:
        while position < len(stream):
            end = position + random.choice((1, 3, 500, 60_000))
            frames += [bytes(frame) for frame in splitter.feed(stream[position:end])]
            position = end
    except ProtocolError:
        pass
    expected, position = [], 0
    while position + 4 <= len(stream):
        size = int.from_bytes(stream[position : position + 4], "big", signed=True)
        if size < 4 or size > 1 << 20 or position + 4 + size > len(stream):
            break
        expected.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    assert frames == expected or splitter.error is not None


def make_batches(random: Random) -> bytes:
    data = batches(random)
    return damaged(random, data) if random.random() < 0.6 else data


def read_batches(data: bytes) -> None:
    """Check that decoding, scanning and decoding to Arrow raise CorruptRecord alone, and find the same offsets."""
    try:
        batches = split_batches(data)
    except CorruptRecord:
        return
    for batch in batches:
        offsets: list[int] | None = []
        try:
            for columns in batch.chunks(LIMIT, max_records=7):
                offsets += columns.offsets  # type: ignore[operator]
        except CorruptRecord:
            offsets = None
        if batch.magic == 2:
            with suppress(CorruptRecord):
                body = batch.body(LIMIT)
                list(checking_lengths(body, batch.count))
                scanned = [record.offset for record in scan(batch, body)]
                assert offsets is None or scanned == offsets
        try:
            rows = _to_arrow(batch)
        except CorruptRecord:
            rows = None
        assert offsets is None or rows == offsets, (rows, offsets)


def _to_arrow(batch: Any) -> list[int]:
    decoder = ArrowDecoder(
        READ_COLUMNS,
        max_rows=1000,
        max_bytes=1 << 20,
        max_decompressed_size=LIMIT,
        corrupt=lambda packed, reason: CorruptRecord(reason),
    )
    packed = PackedBatch(TopicPartition("t", 0), batch, -(2**63), 2**63 - 1)
    return [
        offset
        for batch in (*decoder.add(packed), *decoder.rest())
        for offset in batch.column(READ_COLUMNS.index("offset")).to_pylist()
    ]


def make_compressed(random: Random) -> bytes:
    codec = random.choice([compression for compression in Compression if compression is not Compression.NONE])
    return bytes((codec,)) + damaged(random, compressed(random, codec))


def read_compressed(data: bytes) -> None:
    with suppress(CorruptRecord):
        assert len(decompress(Compression(data[0] % 5 if data else 0), data[1:], LIMIT)) <= LIMIT


PROPERTIES = rb"""# settings
bootstrap.servers = localhost:9092, [::1]:9093
security.protocol: SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\u00e9";
linger.ms=5\
  0
acks=all
compression.type=zstd
enable.auto.commit=false
partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor
"""
TOML = b"""client.id = "orders"
[ssl.truststore]
type = "PEM"
[linger]
ms = 5
"""


def make_properties(random: Random) -> bytes:
    return random.choice((b"p" + PROPERTIES, b"t" + TOML))[:1] + damaged(random, random.choice((PROPERTIES, TOML)))


def read_settings(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ("f.toml" if data[:1] == b"t" else "f.properties")
        file.write_bytes(data[1:])
        with suppress(ConfigurationError):
            properties = read_properties(file)
            for settings in (client_settings, producer_settings, consumer_settings):
                with suppress(ConfigurationError):
                    settings(properties)


AVRO = b"""{"type": "record", "name": "a.R", "fields": [{"name": "f", "type": ["null", {"type": "enum", "name": "E",
"symbols": ["A"]}], "default": null}, {"name": "g", "type": {"type": "array", "items": {"type": "fixed", "name": "F",
"size": 2, "logicalType": "decimal", "precision": 3}}}, {"name": "h", "type": {"type": "map", "values": "R"}}]}"""
PROTOBUF = b"""syntax = "proto3"; package a; import "b.proto"; // c
message M { message N { } /* d */ map<string, int32> m = 1 [json_name = "{"]; oneof o { int32 i = 2; }
enum E { A = 0; } }
"""
NO_SCHEMA = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def make_schema(random: Random) -> bytes:
    kind, text = random.choice(((b"a", AVRO), (b"p", PROTOBUF), (b"p", base64.b64encode(b"\n\x01a\x1a\x01b" * 3))))
    return kind + damaged(random, text)


def read_schema(data: bytes) -> None:
    """Check that serializers and the embedded registry refuse a text that is no schema, and a writer refuses or
    writes a dict."""
    text = data[1:].decode("latin-1")
    if data[:1] == b"p":
        message_types(text)
        with suppress(ValueError):
            check_imports(text, ["b.proto"])
        return
    with suppress(*NO_SCHEMA):
        AvroSchema(text)
    try:
        write = writer(resolved(json.loads(text)))
    except NO_SCHEMA:
        return
    with suppress(Mismatch):
        write({"f": "A", "g": [b"ab"], "h": {}})


class Broker:
    """An embedded broker that gets damaged requests. After some requests a new broker replaces it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self._defects.append(repr(context)))
        self._cluster: EmbeddedCluster | None = None
        self._asked = 0
        self._defects: list[str] = []
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self._defects.append(_text_of(record))  # type: ignore[method-assign]
        logging.getLogger("aiokafka_lite.embedded").addHandler(handler)
        self._handler = handler

    def read(self, data: bytes) -> None:
        self._loop.run_until_complete(self._ask(data))
        if self._defects:
            defects, self._defects = self._defects, []
            raise AssertionError("\n".join(defects))

    async def _ask(self, data: bytes) -> None:
        from tests.embedded.broker.raw_client import Peer

        if self._cluster is None or self._asked >= 200:
            await self._stop()
            self._asked = 0
            self._cluster = await EmbeddedCluster(brokers=1, tcp=False, default_partitions=2).__aenter__()
            for name, policy in (("t", "delete"), ("orders", "compact")):
                await self._cluster.create_topic(name, configs={"cleanup.policy": policy, "compression.type": "zstd"})
        self._asked += 1
        async with Peer(self._cluster) as peer:
            peer.stream.write([frame(data)])
            for _ in range(5):  # enough turns for an answer, without waiting for requests that are parked
                await asyncio.sleep(0)
        async with Peer(self._cluster) as peer:
            await peer.ask(messages.MetadataRequest(topics=[]))

    async def _stop(self) -> None:
        if self._cluster is not None:
            await self._cluster.__aexit__(None, None, None)
            self._cluster = None

    def close(self) -> None:
        self._loop.run_until_complete(self._stop())
        self._loop.close()
        logging.getLogger("aiokafka_lite.embedded").removeHandler(self._handler)


def _text_of(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record)


def all_targets(broker: Broker) -> Mapping[str, Target]:
    return {
        "messages": Target(make_message, read_message),
        "responses": Target(make_response, read_response),
        "requests": Target(make_request, read_request),
        "streams": Target(make_stream, read_stream),
        "batches": Target(make_batches, read_batches),
        "compressed": Target(make_compressed, read_compressed),
        "properties": Target(make_properties, read_settings),
        "schemas": Target(make_schema, read_schema),
        "broker": Target(make_request, broker.read),
    }
