"""Makes the Produce request of some batches, and finds the part of its answer that belongs to each batch."""

from __future__ import annotations

from ..cluster.client import Client
from ..errors import ErrorCode, UnsupportedVersion
from ..protocol.messages import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from ..protocol.records.compression import codec_of
from ..protocol.schema import ZERO_UUID
from ..protocol.versions import VersionTable
from ..settings.producer import ProducerConfig
from ..types import Compression
from .answers import InFlightBatch
from .batch import BatchFactories, ProducerBatch
from .counters import ProducerCounters
from .transactional_ids import TransactionalIds

_GENERATION_1 = ProduceRequest.ADDS_PARTITIONS - 1
"""The last version in which a Produce request adds no partition to a transaction."""

_WITH_NAMES = ProduceRequest.TOPIC_IDS - 1
"""The last version in which a Produce request names topics. Later versions identify topics by id."""

BROKER_TIMEOUT_SHARE = 0.9
"""The fraction of the request timeout that the broker has for the acknowledgements of all replicas. An error answer of
the broker is better than a request timeout of the client, which closes the connection."""

LARGE_REQUEST = 128 * 1024
"""After a request with more bytes of batches, the process keeps freed memory (``keep_freed_memory``). Otherwise glibc
would return such large blocks to the system each time."""


class ProduceRequests:
    """Makes the requests of all senders of a producer. ``ids`` is None without transactions."""

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        batches: BatchFactories,
        counters: ProducerCounters,
        ids: TransactionalIds | None,
    ) -> None:
        self._client = client
        self._batches = batches
        self._counters = counters
        self._ids = ids
        self._transactional_id = config.transactional_id
        self._acks = config.required_acks
        self._timeout_ms = int(client.config.request_timeout * BROKER_TIMEOUT_SHARE * 1000)
        self._compresses = batches.codecs != {Compression.NONE}
        since = {codec: codec_of(codec).produce for codec in batches.codecs}
        self._codecs = [(codec, version) for codec, version in since.items() if version is not None]

    def unknown_codecs(self, versions: VersionTable) -> dict[Compression, UnsupportedVersion]:
        """Return an error for each compression of this producer that the broker does not know."""
        errors: dict[Compression, UnsupportedVersion] = {}
        for codec, version in self._codecs:
            try:
                versions.require(version, f"compression={codec.name.lower()!r}")
            except UnsupportedVersion as error:
                errors[codec] = error
        return errors

    def compression_of(self, batch: ProducerBatch) -> Compression:
        """Return the compression of a batch."""
        return self._batches.of(batch.topic).codec

    def make(self, in_flight: list[InFlightBatch], *, takes_topic_ids: bool) -> tuple[ProduceRequest, int | None]:
        """Make the request. Returns it with the newest version for it. Topics without a known id need names."""
        known_topics = self._client.view.topics
        topics: dict[str, ProduceRequestTopic] = {}
        transactional = self._transactional_id is not None
        is_generation_1 = self._ids is not None and self._ids.generation < 2
        names_topics = is_generation_1 or not takes_topic_ids
        count = size = 0
        for partition, batch in in_flight:
            name, number = partition.topic_partition
            topic = topics.get(name)
            if topic is None:
                topic_id = known_topics[name].topic_id
                names_topics = names_topics or topic_id == ZERO_UUID
                topic = topics[name] = ProduceRequestTopic(name=name, topic_id=topic_id, partition_data=[])
            records = batch.encode(transactional)
            topic.partition_data.append(ProduceRequestPartition(index=number, records=records))
            count += batch.builder.count
            size += len(records)
            # The ratio is measured here, because the compressed size is known. The estimate decides when the next
            # batches are full.
            if self._compresses:
                self._batches.of(name).measure(batch)
        if size > LARGE_REQUEST:
            from ..aio.freed_memory import keep_freed_memory  # imported here, because most producers do not need it

            keep_freed_memory()
        for partition, batch in in_flight:
            # If the topic is created again, the partition must know which of the two topics a batch was sent to.
            partition.sent_to(batch, ZERO_UUID if names_topics else topics[batch.topic].topic_id)
        self._counters.request_sent(len(in_flight), count, size)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topic_data=list(topics.values()),
        )
        # In generation 1 the coordinator, not the Produce request, adds partitions to the transaction.
        if is_generation_1:
            return request, _GENERATION_1
        return request, _WITH_NAMES if names_topics else None

    def answers_of(self, in_flight: list[InFlightBatch], response: ProduceResponse) -> list[ProduceResponsePartition]:
        """Return the answer for each batch. Partitions that were not in the request are ignored.

        The batch of an omitted or repeated partition must get a result as well: it is retried as after a lost response.
        """
        names = self._client.view.topic_names
        by_place: dict[tuple[str, int], ProduceResponsePartition | None] = {}
        for topic in response.responses:
            # An answer by topic id is matched with the present metadata. If the topic was deleted since the request,
            # its name is not found, and its batches are retried.
            name = topic.name or names.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                place = name, answer.index
                by_place[place] = None if place in by_place else answer
        answers: list[ProduceResponsePartition] = []
        for _, batch in in_flight:
            place = batch.topic, batch.partition
            answers.append(by_place.get(place) or _without_answer(batch.partition, is_repeated=place in by_place))
        return answers


def _without_answer(partition: int, *, is_repeated: bool) -> ProduceResponsePartition:
    return ProduceResponsePartition(
        index=partition,
        error_code=ErrorCode.NETWORK_EXCEPTION,
        base_offset=-1,
        error_message=f"the answer {'repeats' if is_repeated else 'does not contain'} this partition",
    )
