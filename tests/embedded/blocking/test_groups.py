"""``blocking.ConsumerGroup`` and ``blocking.Workers``: handlers are plain functions in threads."""

from __future__ import annotations

import contextvars
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest

from aiokafka_lite import Record, TopicPartition
from aiokafka_lite.blocking import (
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    Producer,
    RebalanceHandle,
    RebalanceListener,
    Workers,
)
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.processing import dead_letter, retry
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.waiting import DEADLINE

NUMBERS = [b"%d" % number for number in range(100)]


@pytest.fixture
def filled(server: EmbeddedKafkaServer, topic: str) -> str:
    """The name of a topic with the values 0 to 99 in each of its two partitions."""
    with Producer(server.bootstrap_servers) as producer:
        for partition in (0, 1):
            producer.send_many(topic, NUMBERS, partition=partition)
    return topic


def committed(server: EmbeddedKafkaServer, topic: str, group: str) -> list[int | None]:
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with Consumer(server.bootstrap_servers, group_id=group) as consumer:
        consumer.assign(partitions)
        offsets = consumer.committed(partitions)
    return [None if (offset := offsets[partition]) is None else offset.offset for partition in partitions]


class Handler(ConsumerGroupHandler[bytes, bytes]):
    """Reads until it has all records; each claim in a thread of its own."""

    def __init__(self, group: ConsumerGroup[bytes, bytes]) -> None:
        self.group = group
        self.events: list[str] = []
        self.values: dict[int, list[bytes | None]] = {0: [], 1: []}
        self.threads: set[int] = set()

    def setup(self, session: ConsumerGroupSession) -> None:
        self.events.append(f"setup {len(session.claims)}")

    def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
        self.threads.add(threading.get_ident())
        for record in claim:
            self.values[claim.partition].append(record.value)
            session.mark(record)
            if all(len(values) == 100 for values in self.values.values()):
                threading.Thread(target=self.group.close).start()
        assert session.cancelled

    def before_commit(self, session: ConsumerGroupSession) -> None:
        session.annotate(TopicPartition("no-topic", 0), 0, "")

    def cleanup(self, session: ConsumerGroupSession) -> None:
        self.events.append("cleanup")
        assert session.commit().refused == {}


def test_a_handler_reads_each_claim_in_a_thread(server: EmbeddedKafkaServer, filled: str) -> None:
    with ConsumerGroup(server.bootstrap_servers, group_id=filled) as group:
        handler = Handler(group)
        group.consume([filled], handler)
        assert handler.values == {0: NUMBERS, 1: NUMBERS}
        assert handler.events == ["setup 1", "cleanup"]
        assert len(handler.threads) == 2
        with pytest.raises(IllegalStateError, match="is closed"):
            group.consume([filled], handler)
        assert list(group.errors()) == []
    assert committed(server, filled, filled) == [100, 100]


def test_the_exception_of_a_handler_ends_consume(server: EmbeddedKafkaServer, filled: str) -> None:
    class Failing(ConsumerGroupHandler[bytes, bytes]):
        def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
            raise ZeroDivisionError(claim.topic)

    with ConsumerGroup(server.bootstrap_servers, group_id=filled) as group, pytest.raises(ZeroDivisionError):
        group.consume([filled], Failing())


def test_a_handler_that_ends_the_program_leaves_the_loop_to_the_other_clients(
    server: EmbeddedKafkaServer, filled: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Ending(ConsumerGroupHandler[bytes, bytes]):
        def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
            sys.exit(5)

    def end(record: Record[bytes, bytes]) -> None:
        sys.exit(5)  # in several threads at once

    with Producer(server.bootstrap_servers) as producer:
        for handler in (Ending(), Workers(end)):
            with ConsumerGroup(server.bootstrap_servers, group_id=filled) as group, pytest.raises(SystemExit) as ended:
                group.consume([filled], handler)
            assert ended.value.code == 5
            assert producer.send(filled, b"the loop runs on").offset >= 0
    assert "SystemExit(5) left the event loop of the blocking clients, which runs on" in caplog.text


def test_workers_call_a_plain_function_in_threads(server: EmbeddedKafkaServer, filled: str) -> None:
    request = contextvars.ContextVar("request", default="none")
    lock, seen, contexts, running = threading.Lock(), [], set(), []
    group: ConsumerGroup[bytes, bytes] = ConsumerGroup(server.bootstrap_servers, group_id=filled)

    with Producer(server.bootstrap_servers) as producer:

        def bill(record: Record[bytes, bytes]) -> None:
            running.append(threading.get_ident())
            producer.send("billed-" + filled, record.value)  # blocks this thread alone
            if record.value == b"50":
                raise ValueError("cannot bill 50")
            with lock:
                contexts.add(request.get())
                seen.append(record.value)
                if len(seen) == 198:
                    threading.Thread(target=group.close).start()

        request.set("billing")
        rules = [retry(attempts=2, backoff=0.0), dead_letter(topic="dead-" + filled)]
        workers = Workers(bill, concurrency=8, rules=rules, producer=producer, order="partition")
        with group:
            group.consume([filled], workers)
        assert workers.metrics().failed == 2
        assert workers.retry_topics == []
    assert sorted(seen) == sorted(value for value in [*NUMBERS, *NUMBERS] if value != b"50")
    assert contexts == {"billing"}
    assert threading.get_ident() not in running
    assert [record.value for record in server.wait_for_records("dead-" + filled, 2)] == [b"50", b"50"]
    assert committed(server, filled, filled) == [100, 100]


def test_wrong_handlers_are_refused(server: EmbeddedKafkaServer, topic: str) -> None:
    with ConsumerGroup(server.bootstrap_servers, group_id=topic) as group:
        with pytest.raises(TypeError, match=r"handler must be a ConsumerGroupHandler of aiokafka_lite\.blocking"):
            group.consume([topic], print)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="handle must take one argument"):
            Workers(lambda: None)  # type: ignore[arg-type, misc]
        with pytest.raises(ConfigurationError, match=r"producer must be a Producer of aiokafka_lite\.blocking"):
            Workers(print, producer="a producer")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"an instance of aiokafka_lite\.blocking\.RebalanceListener"):
        Consumer(server.bootstrap_servers, topics=[topic], group_id=topic, listener=print)  # type: ignore[arg-type]
    consumer = Consumer(server.bootstrap_servers, topics=[topic], group_id=topic)
    with pytest.raises(
        ConfigurationError, match=r"an instance of aiokafka_lite\.blocking\.RebalanceListener, got None"
    ):
        consumer.add_listener(None)  # type: ignore[arg-type]


def test_a_listener_may_block(server: EmbeddedKafkaServer, filled: str) -> None:
    calls: list[object] = []

    class Listener(RebalanceListener):
        def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            time.sleep(0)
            handle.seek(TopicPartition(filled, 0), 90)
            calls.append((sorted(partitions), handle.position(TopicPartition(filled, 0))))

        def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            calls.append(len(partitions))

    both = [TopicPartition(filled, 0), TopicPartition(filled, 1)]
    with Consumer(server.bootstrap_servers, topics=[filled], group_id=filled, listener=Listener()) as consumer:
        offsets = [next(consumer) for _ in range(110)]
    assert min(record.offset for record in offsets if record.partition == 0) == 90
    assert calls == [(both, 90), 2]


def test_an_interrupt_leaves_the_group(server: EmbeddedKafkaServer, filled: str) -> None:
    main = threading.main_thread().ident
    assert main is not None
    group: ConsumerGroup[bytes, bytes] = ConsumerGroup(server.bootstrap_servers, group_id=filled)
    processed: list[object] = []

    def bill(record: Record[bytes, bytes]) -> None:
        processed.append(record)
        if len(processed) == 200:
            signal.pthread_kill(main, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), group:
        group.consume([filled], Workers(bill))
    assert len(processed) == 200
    with Consumer(server.bootstrap_servers, topics=[filled], group_id=filled) as consumer:
        assert len(consumer.wait_assigned(timeout=5)) == 2, "the member before has left"


DAEMON = """
import sys, threading
from aiokafka_lite.blocking import ConsumerGroup, Workers

servers, topic = sys.argv[1:]
done = threading.Semaphore(0)
group = ConsumerGroup(servers, group_id=topic, auto_offset_reset="earliest")
handler = Workers(lambda record: done.release())
threading.Thread(target=group.consume, args=([topic], handler), daemon=True).start()
for _ in range(200):
    done.acquire()
"""


def test_a_group_in_a_daemon_thread_is_closed_when_the_interpreter_ends(
    server: EmbeddedKafkaServer, filled: str
) -> None:
    program = [sys.executable, "-c", DAEMON, server.bootstrap_servers, filled]
    subprocess.run(program, check=True, timeout=DEADLINE)
    assert committed(server, filled, filled) == [100, 100]
    with Consumer(server.bootstrap_servers, topics=[filled], group_id=filled) as consumer:
        assert len(consumer.wait_assigned(timeout=5)) == 2, "the member before has left"
