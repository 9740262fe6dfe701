"""A Metadata response of 2,000 partitions: encode and decode, against kafka-python and aiokafka where installed.

Run as ``python -m benchmarks.metadata``. Version 12 is compared with kafka-python, version 5 (the newest that it has)
with aiokafka. All three are checked to make the same bytes before anything is timed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from aiokafka_lite.protocol.codec import decode_message, encode_message
from aiokafka_lite.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from benchmarks.compare import compare

TOPICS, PARTITIONS, BROKERS = 20, 100, 6
Peer = tuple[Callable[[], bytes], Callable[[bytes], object]]


def response() -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"kafka-{node}.example.com", port=9092, rack="a")
            for node in range(BROKERS)
        ],
        cluster_id="a-cluster-of-six",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=f"topic-{topic}",
                topic_id=bytes([topic + 1] * 16),
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=index % BROKERS,
                        leader_epoch=5,
                        replica_nodes=[1, 2, 3],
                        isr_nodes=[1, 2, 3],
                    )
                    for index in range(PARTITIONS)
                ],
            )
            for topic in range(TOPICS)
        ],
    )


def ours(message: MetadataResponse, version: int) -> Peer:
    def encode() -> bytes:
        out = bytearray()
        encode_message(message, version, out)
        return bytes(out)

    return encode, lambda data: decode_message(MetadataResponse, version, data)


def kafka_python(message: MetadataResponse, version: int) -> Peer:
    theirs: Any = import_module("kafka.protocol.metadata").MetadataResponse
    brokers, topics = (theirs._struct.fields[name].data_class for name in ("brokers", "topics"))
    partitions = topics._struct.fields["partitions"].data_class

    def fields(value: Any, **changed: Any) -> dict[str, Any]:
        names = [name for name in type(value).specs if not name.endswith("authorized_operations")]
        return {name: getattr(value, name) for name in names} | changed

    metadata = theirs(
        version=version,
        **fields(
            message,
            brokers=[brokers(version=version, **fields(broker)) for broker in message.brokers],
            topics=[
                topics(
                    version=version,
                    **fields(
                        topic,
                        topic_id=uuid.UUID(bytes=topic.topic_id),
                        partitions=[partitions(version=version, **fields(partition)) for partition in topic.partitions],
                    ),
                )
                for topic in message.topics
            ],
        ),
    )
    return lambda: metadata.encode(version=version), lambda data: theirs.decode(data, version=version)


def aiokafka(message: MetadataResponse, version: int) -> Peer:
    theirs: Any = getattr(import_module("aiokafka.protocol.metadata"), f"MetadataResponse_v{version}")
    metadata = theirs(
        0,
        [(broker.node_id, broker.host, broker.port, broker.rack) for broker in message.brokers],
        message.cluster_id,
        message.controller_id,
        [
            (
                0,
                topic.name,
                False,
                [
                    (
                        0,
                        partition.partition_index,
                        partition.leader_id,
                        partition.replica_nodes,
                        partition.isr_nodes,
                        [],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )
    return metadata.encode, theirs.decode


def main() -> None:
    message = response()
    for version, name, peer in ((12, "kafka-python", kafka_python), (5, "aiokafka", aiokafka)):
        candidates = {"aiokafka_lite": ours(message, version)}
        try:
            candidates[name] = peer(message, version)
        except (ImportError, AttributeError) as error:
            print(f"{name} is left out: {error}")
        data = candidates["aiokafka_lite"][0]()
        for other, (encode, _) in candidates.items():
            if encode() != data:
                raise SystemExit(f"{other} makes other bytes")
        title = f"Metadata response v{version}, {TOPICS * PARTITIONS} partitions"
        print(compare({who: encode for who, (encode, _) in candidates.items()}, title=f"{title}: encode"), "\n")
        decoders = {who: partial(decode, data) for who, (_, decode) in candidates.items()}
        print(compare(decoders, title=f"{title}: decode"), "\n")


if __name__ == "__main__":
    main()
