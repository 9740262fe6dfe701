"""``AiokafkaLiteInstrumentor`` and the command ``opentelemetry-instrument``: spans and metrics without a change of the
program."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from aiokafka_lite import Consumer, ConsumerGroup, ConsumerGroupHandler, Producer, Record, Workers
from aiokafka_lite.consumer import interceptor as consumer_interceptor
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AcknowledgementFailed, ErrorCode, KafkaError
from aiokafka_lite.instrumentation import AiokafkaLiteInstrumentor
from aiokafka_lite.processing import dead_letter, retry
from aiokafka_lite.producer.accept import interceptor as producer_interceptor
from aiokafka_lite.protocol.messages import ProduceRequest, ShareAcknowledgeRequest
from aiokafka_lite.tracing import TracingConsumerInterceptor, TracingProducerInterceptor
from aiokafka_lite.types import TopicPartition
from tests.embedded.share.billing_consumers import begin_at_the_first_record, share_consumer
from tests.embedded.share.billing_consumers import read as share_read
from tests.waiting import DEADLINE, until

ROOT = Path(__file__).parents[3]
NAMED = set(
    re.findall(r"^\| `([a-z. ]+)` \|", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
)
"""The spans and metrics in the tables of docs/metrics.md."""

COMMON = {"messaging.system": "kafka", "messaging.destination.name": "orders"}


class Telemetry:
    """What an instrumented program exports."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.traces.get_tracer("tests")
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        self.instrumentor: Any = AiokafkaLiteInstrumentor()

    def instrument(self) -> None:
        self.instrumentor.instrument(tracer_provider=self.traces, meter_provider=self.meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """Return the attributes and the value of each point; of a histogram, the number of values."""
        data = self._reader.get_metrics_data()
        groups = [] if data is None else data.resource_metrics
        return {
            metric.name: [
                (dict(point.attributes or {}), point.count if isinstance(point, HistogramDataPoint) else point.value)
                for point in metric.data.data_points
            ]
            for group in groups
            for scope in group.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """The program is instrumented."""
    telemetry = Telemetry()
    telemetry.instrument()
    yield telemetry
    if telemetry.instrumentor.is_instrumented_by_opentelemetry:
        telemetry.instrumentor.uninstrument()


def servers(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}


def kinds(spans: list[ReadableSpan]) -> list[tuple[str, SpanKind]]:
    return [(span.name, span.kind) for span in spans]


async def work_off(cluster: EmbeddedCluster, workers: Workers[bytes, bytes], count: int = 1, **settings: Any) -> None:
    """Let Workers process so many records of ``orders``."""
    group = ConsumerGroup(**servers(cluster), group_id="billing", **settings)
    task = asyncio.create_task(group.consume(["orders"], workers))
    await until(lambda: workers.metrics().processed + workers.metrics().failed >= count or task.done())
    await group.close()
    await task


async def test_a_record_of_workers_is_one_trace_from_the_request_to_what_they_send(
    cluster: EmbeddedCluster, telemetry: Telemetry
) -> None:
    async with Producer(**servers(cluster), client_id="shop") as producer:

        async def bill(record: Record[bytes, bytes]) -> None:
            with telemetry.tracer.start_as_current_span("INSERT bills"):
                await producer.send("bills", record.value)

        with telemetry.tracer.start_as_current_span("POST /orders") as request:
            await producer.send("orders", b"1", key=b"alice", partition=0)
        await work_off(cluster, Workers(bill))
    (sent,), (processed,) = telemetry.named("send orders"), telemetry.named("process orders")
    (inserted,), (billed,) = telemetry.named("INSERT bills"), telemetry.named("send bills")
    parents = {span.name: span.parent.span_id if span.parent else None for span in (sent, processed, inserted, billed)}
    assert parents == {
        "send orders": request.get_span_context().span_id,
        "process orders": sent.get_span_context().span_id,
        "INSERT bills": processed.get_span_context().span_id,
        "send bills": inserted.get_span_context().span_id,
    }
    assert dict(processed.attributes or {}) == {
        **COMMON,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "aiokafka-lite",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "alice",
        "messaging.kafka.offset": 0,
    }
    assert (sent.attributes or {})["messaging.client.id"] == "shop"
    (polled,) = telemetry.named("poll orders")
    assert [link.context.span_id for link in polled.links] == [sent.get_span_context().span_id]
    assert (polled.attributes or {})["messaging.consumer.group.name"] == "billing"
    assert kinds(telemetry.named("commit")) == [("commit", SpanKind.CLIENT)]
    assert {span.name.removesuffix("bills") for span in telemetry.spans} - NAMED == {"POST /orders", "INSERT ", "send "}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "in a thread"])
async def test_each_attempt_of_workers_is_a_span_and_a_dead_letter_belongs_to_the_last_one(
    cluster: EmbeddedCluster, telemetry: Telemetry, is_async: bool
) -> None:
    seen = []

    def fail(record: Record[bytes, bytes]) -> None:
        seen.append(get_current_span().get_span_context().span_id)
        raise LookupError("no such customer")

    async def fail_async(record: Record[bytes, bytes]) -> None:
        fail(record)

    await cluster.produce("orders", b"1")
    async with Producer(**servers(cluster)) as producer:
        rules = [retry(attempts=2, backoff=0.0), dead_letter(topic="orders.dead")]
        await work_off(cluster, Workers(fail_async if is_async else fail, rules=rules, producer=producer))
    first, second = telemetry.named("process orders")
    assert [span.get_span_context().span_id for span in (first, second)] == seen
    for span in (first, second):
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "LookupError"
    (dead,) = telemetry.named("send orders.dead")
    assert dead.parent is not None
    assert dead.parent.span_id == second.get_span_context().span_id
    (point,) = telemetry.metrics()["messaging.process.duration"]
    assert point[1] == 2
    assert point[0]["error.type"] == "LookupError"


async def test_a_group_with_a_tracing_interceptor_of_its_own_has_one_span_for_each_record(
    cluster: EmbeddedCluster, telemetry: Telemetry
) -> None:
    own = TracingConsumerInterceptor(group_id="billing", tracer_provider=telemetry.traces)

    async def bill(record: Record[bytes, bytes]) -> None:
        with own.process(record):
            pass

    await cluster.produce("orders", b"1")
    await work_off(cluster, Workers(bill), interceptors=[own])
    assert len(telemetry.named("process orders")) == 1


async def test_a_batch_of_workers_is_one_span_with_a_link_to_each_record(
    cluster: EmbeddedCluster, telemetry: Telemetry
) -> None:
    async def bill(records: list[Record[bytes, bytes]]) -> None:
        assert get_current_span().is_recording()

    async with Producer(**servers(cluster)) as producer:
        await producer.send_many("orders", [b"1", b"2", b"3"], partition=0)
    await work_off(cluster, Workers(bill, batch_size=3, batch_timeout=5.0), 3)
    (processed,) = telemetry.named("process orders")
    sent = [span.get_span_context().span_id for span in telemetry.named("send orders")]
    assert len(sent) == 3
    assert [link.context.span_id for link in processed.links] == sent
    assert processed.parent is None


async def test_work_that_is_cancelled_ends_its_span(cluster: EmbeddedCluster, telemetry: Telemetry) -> None:
    began = asyncio.Event()

    async def bill(record: Record[bytes, bytes]) -> None:
        began.set()
        await asyncio.sleep(DEADLINE)

    await cluster.produce("orders", b"1")
    group = ConsumerGroup(**servers(cluster), group_id="billing")
    task = asyncio.create_task(group.consume(["orders"], Workers(bill)))
    await began.wait()
    await group.close(0.0)
    await asyncio.gather(task, return_exceptions=True)
    (processed,) = telemetry.named("process orders")
    assert (processed.attributes or {})["error.type"] == "CancelledError"


async def test_a_processor_of_spans_that_raises_fails_no_record(
    cluster: EmbeddedCluster, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            raise RuntimeError("the collector is gone")

        def on_end(self, span: object) -> None:
            raise RuntimeError("the collector is gone")

    async def bill(record: Record[bytes, bytes]) -> None:
        """Process a record."""

    telemetry.traces.add_span_processor(Broken())
    async with Producer(**servers(cluster)) as producer:
        await producer.send_many("orders", [b"1", b"2"])
    await work_off(cluster, Workers(bill), 2)
    assert len(cluster.records("orders")) == 2
    logged = [record.getMessage() for record in caplog.records]
    assert "_Reads.begin failed; this error is not logged again" in logged


async def test_a_share_consumer_has_spans_of_reads_and_acknowledgements(
    cluster: EmbeddedCluster, telemetry: Telemetry
) -> None:
    await begin_at_the_first_record(cluster)
    async with Producer(**servers(cluster)) as producer:
        await producer.send("orders", b"1", partition=0)
    async with share_consumer(cluster) as consumer:
        await share_read(consumer, 1)
        (await consumer.commit()).raise_for_refused()
        async with Producer(**servers(cluster)) as producer:
            await producer.send("orders", b"2", partition=0)
        await share_read(consumer, 1)
        cluster.on(ShareAcknowledgeRequest).fail(ErrorCode.SHARE_SESSION_NOT_FOUND)
        with pytest.raises(AcknowledgementFailed):
            (await consumer.commit()).raise_for_refused()
    polls, sends = telemetry.named("poll orders"), telemetry.named("send orders")
    assert [span.links[0].context.span_id for span in polls] == [span.get_span_context().span_id for span in sends]
    assert {span.name for span in telemetry.spans} == {"poll orders", "send orders", "ack orders"} <= NAMED
    accepted, refused = telemetry.named("ack orders")
    assert dict(accepted.attributes or {}) == {
        **COMMON,
        "messaging.client.id": "aiokafka-lite",
        "messaging.operation.name": "ack",
        "messaging.operation.type": "settle",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 1,
    }
    assert (refused.attributes or {})["error.type"] == "SHARE_SESSION_NOT_FOUND"


async def test_metrics_have_the_names_and_units_of_the_conventions(
    cluster: EmbeddedCluster, telemetry: Telemetry
) -> None:
    async def bill(record: Record[bytes, bytes]) -> None:
        """Process a record."""

    async with Producer(**servers(cluster)) as producer:
        await producer.send_many("orders", [b"1", b"2"], partition=1)
        cluster.on(ProduceRequest).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError):
            await producer.send("orders", b"3", partition=1)
    await work_off(cluster, Workers(bill), 2)
    sent = {**COMMON, "messaging.operation.name": "send", "messaging.destination.partition.id": "1"}
    failed = {**sent, "error.type": "TOPIC_AUTHORIZATION_FAILED"}
    of_group = {**COMMON, "messaging.consumer.group.name": "billing", "messaging.destination.partition.id": "1"}
    typed = {"messaging.operation.type": "send"}
    metrics = telemetry.metrics()
    assert set(metrics) <= NAMED
    assert metrics == {
        messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES: [(sent, 2), (failed, 1)],
        messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION: [({**sent, **typed}, 2), ({**failed, **typed}, 1)],
        messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES: [({**of_group, "messaging.operation.name": "poll"}, 2)],
        messaging_metrics.MESSAGING_PROCESS_DURATION: [({**of_group, "messaging.operation.name": "process"}, 2)],
    }


async def test_attributes_have_the_names_of_the_semantic_conventions(
    cluster: EmbeddedCluster, telemetry: Telemetry
) -> None:
    await begin_at_the_first_record(cluster)
    async with Producer(**servers(cluster)) as producer:
        await producer.send("orders", None, key="alice")
    async with share_consumer(cluster) as consumer:
        await share_read(consumer, 1)
        await consumer.commit()
    names = {name for span in telemetry.spans for name in span.attributes or {}}
    defined = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    assert len(names) > 8
    assert names <= defined


async def test_batches_of_columns_have_spans_of_their_reads(cluster: EmbeddedCluster, telemetry: Telemetry) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    async with Producer(**servers(cluster)) as producer:
        await producer.send_arrow("orders", pyarrow.table({"value": [b"1", b"2"], "partition": [0, 0]}))
    assert telemetry.spans == []
    async with Consumer(**servers(cluster), topics=["orders"]) as consumer:
        async for batch in consumer.batches():
            assert len(batch) == 2
            break
        await consumer.seek_to_beginning()
        async for table in consumer.batches().to_arrow():
            assert table.num_rows == 2
            break
    assert kinds(telemetry.spans) == [("poll orders", SpanKind.CLIENT)] * 2
    place = {"messaging.destination.partition.id": "0"}
    for span in telemetry.spans:
        attributes = dict(span.attributes or {})
        assert attributes.items() >= {**COMMON, **place, "messaging.batch.message_count": 2}.items()
    ((measured, count),) = telemetry.metrics()["messaging.client.consumed.messages"]
    assert (measured.items() >= {**COMMON, **place}.items(), count) == (True, 4)


async def test_without_the_instrumentation_neither_new_nor_old_clients_make_spans(
    cluster: EmbeddedCluster, telemetry: Telemetry
) -> None:
    async with Producer(**servers(cluster)) as producer, Consumer(**servers(cluster), topics=["orders"]) as consumer:
        delivery = producer.send_nowait("orders", b"1")
        telemetry.instrumentor.uninstrument()
        await delivery
        await anext(consumer)
        await producer.send("orders", b"2")
        async with Producer(**servers(cluster)) as another:
            await another.send("orders", b"3")
    assert telemetry.spans == []
    assert [header.key for record in cluster.records("orders") for header in record.headers] == ["traceparent"]
    assert producer_interceptor.default_interceptors == consumer_interceptor.default_interceptors == []
    telemetry.instrument()
    async with Producer(**servers(cluster)) as producer:
        await producer.send("orders", b"3")
    assert kinds(telemetry.spans) == [("send orders", SpanKind.PRODUCER)]


class OwnSends(TracingProducerInterceptor):
    """A program may extend an interceptor, for example by attributes."""


class OwnReads(TracingConsumerInterceptor):
    """The same for reads."""


@pytest.mark.parametrize(
    ("sends_class", "reads_class"),
    [(TracingProducerInterceptor, TracingConsumerInterceptor), (OwnSends, OwnReads)],
)
async def test_a_client_with_interceptors_of_its_own_is_traced_once(
    cluster: EmbeddedCluster, telemetry: Telemetry, sends_class: Any, reads_class: Any
) -> None:
    own = sends_class(tracer_provider=telemetry.traces, client_id="own")
    async with Producer(**servers(cluster), interceptors=[own]) as producer:
        await producer.send("orders", b"1")
    reads = reads_class(tracer_provider=telemetry.traces)
    async with Consumer(**servers(cluster), topics=["orders"], interceptors=[reads]) as consumer:
        await anext(consumer)
    assert kinds(telemetry.spans) == [("send orders", SpanKind.PRODUCER), ("poll orders", SpanKind.CLIENT)]


async def test_a_handler_of_claims_is_traced_by_its_reads(cluster: EmbeddedCluster, telemetry: Telemetry) -> None:
    class Handler(ConsumerGroupHandler[bytes, bytes]):
        async def consume_claim(self, session: Any, claim: Any) -> None:
            async for record in claim:
                session.mark(record)
                if claim.topic_partition == TopicPartition("orders", 0):
                    asyncio.get_running_loop().create_task(group.close())

    await cluster.produce("orders", b"1", partition=0)
    group = ConsumerGroup(**servers(cluster), group_id="billing")
    await group.consume(["orders"], Handler())
    assert kinds(telemetry.spans) == [("poll orders", SpanKind.CLIENT), ("commit", SpanKind.CLIENT)]


# The command.

PROGRAM = """
import asyncio, json

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokafka_lite import Consumer, ConsumerGroup, EmbeddedCluster, Producer, Workers

exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))


def set_providers():
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))


async def main():
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders")
        settings = {"connector": cluster.connector}
        async with Producer(cluster.bootstrap_servers, **settings) as producer:
            SET_LATE
            await SEND
        group = ConsumerGroup(cluster.bootstrap_servers, group_id="billing", **settings)

        async def bill(record):
            asyncio.get_running_loop().create_task(group.close())

        await group.consume(["orders"], Workers(bill))


SET_EARLY
asyncio.run(main())
spans = [
    [span.name, span.get_span_context().span_id, span.parent.span_id if span.parent else None]
    for span in exporter.get_finished_spans()
]
data = reader.get_metrics_data()
names = [m.name for group in data.resource_metrics for scope in group.scope_metrics for m in scope.metrics]
print(json.dumps([spans, sorted(names)]))
"""

FASTAPI = """
async def send(producer):
    import httpx
    from fastapi import FastAPI

    app = FastAPI()

    @app.middleware("http")
    async def traced(request, proceed):  # as an instrumentation of the framework does
        with trace.get_tracer("web").start_as_current_span(f"{request.method} {request.url.path}"):
            return await proceed(request)

    @app.post("/orders")
    async def order():
        await producer.send("orders", b"1")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        (await client.post("/orders")).raise_for_status()


async def main()"""


def installed(folder: Path) -> None:
    """Write the entry points of pyproject.toml as those of an installed package, which hides an older installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = folder / "aiokafka_lite-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: aiokafka_lite\nVersion: 0.1.0\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def run_program(folder: Path, program: str, *command: str, **environment: str) -> tuple[list[Any], list[str]]:
    (folder / "service.py").write_text(program)
    installed(folder)
    path = os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(
        [*command, sys.executable, str(folder / "service.py")],
        capture_output=True,
        text=True,
        env=variables,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    spans, names = json.loads(done.stdout)
    return spans, names


def the_command() -> str:
    path = shutil.which("opentelemetry-instrument", path=str(Path(sys.executable).parent))
    assert path is not None, "opentelemetry-instrumentation installs it"
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["SET_EARLY", "SET_LATE"], ids=["before the clients", "after the producer"])
def test_the_command_instruments_a_program_whose_providers_are_set(tmp_path: Path, when: str) -> None:
    program = PROGRAM.replace(when, "set_providers()").replace("SEND", 'producer.send("orders", b"1")')
    program = program.replace("SET_EARLY", "").replace("SET_LATE", "pass")
    spans, names = run_program(tmp_path, program, the_command())
    ids = {name: span for name, span, _ in spans}
    assert sorted(ids) == ["commit", "poll orders", "process orders", "send orders"]
    assert {name: parent for name, _, parent in spans}["process orders"] == ids["send orders"]
    assert names == [
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
        "messaging.client.sent.messages",
        "messaging.process.duration",
    ]


@pytest.mark.thorough
def test_the_command_joins_a_web_request_with_the_work_on_its_record(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    program = PROGRAM.replace("SET_EARLY", "set_providers()").replace("SET_LATE", "pass")
    program = program.replace("SEND", "send(producer)").replace("async def main()", FASTAPI.lstrip())
    spans, _ = run_program(tmp_path, program, the_command())
    names, parents = {span: name for name, span, _ in spans}, {span: parent for _, span, parent in spans}
    span = next(span for span, name in names.items() if name == "process orders")
    above = []
    while (span := parents[span]) is not None:
        above.append(names[span])
    assert above[0] == "send orders"
    assert above[-1] == "POST /orders", "the framework may have spans of its own in between"


@pytest.mark.thorough
@pytest.mark.parametrize("is_disabled", [True, False], ids=["disabled by its name", "without the command"])
def test_a_program_that_is_not_instrumented_makes_no_spans(tmp_path: Path, is_disabled: bool) -> None:
    program = PROGRAM.replace("SET_EARLY", "set_providers()").replace("SET_LATE", "pass")
    program = program.replace("SEND", 'producer.send("orders", b"1")').replace(
        "data.resource_metrics", "(data.resource_metrics if data else [])"
    )
    disabled = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "aiokafka_lite"} if is_disabled else {}
    assert run_program(tmp_path, program, *([the_command()] if is_disabled else []), **disabled) == ([], [])
