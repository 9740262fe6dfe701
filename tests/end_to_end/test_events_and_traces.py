"""``on_event`` and the instrumentation on real brokers: what a member is told, and one trace through a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokafka_lite import Consumer, ConsumerGroup, Producer, Record, Workers
from aiokafka_lite.events import CommitRefused, OutageBegan, PartitionsAssigned, PartitionsLost, PartitionsRevoked
from aiokafka_lite.instrumentation import AiokafkaLiteInstrumentor
from tests.end_to_end.conftest import Kafka
from tests.simulation.event_journal import EventJournal
from tests.waiting import until


class Events(list[Any]):
    """The events of a client. Those that contradict earlier ones are in ``anomalies``."""

    def __init__(self) -> None:
        super().__init__()
        self.anomalies: list[str] = []
        self.journal = EventJournal(self.anomalies.append)

    def on_event(self, event: Any) -> None:
        self.append(event)
        self.journal(event)

    def partitions(self, kind: type) -> list[int]:
        return sorted(number.partition for event in self if isinstance(event, kind) for number in event.partitions)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_each_member_is_told_its_partitions_once(kafka: Kafka, protocol: str) -> None:
    if protocol == "consumer" and not kafka.speaks("4.0"):
        pytest.skip("the consumer protocol needs Kafka 4.0")
    topic = await kafka.create_topic(partitions=2)
    first, second = Events(), Events()
    settings: dict[str, Any] = {"topics": [topic], "group_id": f"group-of-{topic}", "group_protocol": protocol}
    if protocol == "classic":
        settings["strategies"] = ["cooperative-sticky"]
    async with Consumer(kafka.bootstrap_servers, **settings, on_event=first.on_event) as one:
        await until(lambda: first.partitions(PartitionsAssigned) == [0, 1])
        async with Consumer(kafka.bootstrap_servers, **settings, on_event=second.on_event) as other:
            await until(lambda: len(one.assignment) == len(other.assignment) == 1)
            await until(lambda: len(second.partitions(PartitionsAssigned)) == 1)
            moved = second.partitions(PartitionsAssigned)
        assert second.partitions(PartitionsRevoked) == moved
        assert first.partitions(PartitionsRevoked) == moved
    for events in (first, second):
        events.journal.end()
        assert events.anomalies == []
        assert not [event for event in events if isinstance(event, PartitionsLost | CommitRefused)]
    assert not [event for event in second if isinstance(event, OutageBegan)]


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """The spans of all clients that the test makes."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor: Any = AiokafkaLiteInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()


async def test_the_work_on_a_record_continues_the_trace_of_its_sender(
    kafka: Kafka, exporter: InMemorySpanExporter
) -> None:
    topic = await kafka.create_topic(partitions=1)
    group = ConsumerGroup(kafka.bootstrap_servers, group_id=f"group-of-{topic}")

    async def bill(record: Record[bytes, bytes]) -> None:
        asyncio.get_running_loop().create_task(group.close())

    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(topic, b"1")
    await group.consume([topic], Workers(bill))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {f"send {topic}", f"poll {topic}", f"process {topic}", "commit"}
    parent = spans[f"process {topic}"].parent
    assert parent is not None
    assert parent.span_id == spans[f"send {topic}"].get_span_context().span_id
