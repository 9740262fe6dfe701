"""The thread of the blocking clients: interrupts, the exit of the interpreter, forks."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokafka_lite import Record, TopicPartition
from aiokafka_lite.blocking import Admin, Consumer, Producer, ShareConsumer
from aiokafka_lite.blocking.loop_thread import LoopThread, loop_thread
from aiokafka_lite.errors import ConfigurationError, IllegalStateError
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.waiting import DEADLINE


def interrupted(call: Callable[[], object]) -> float:
    """Interrupt a call as Ctrl-C does, while it waits. Returns the seconds until it has raised."""
    main = threading.main_thread().ident
    assert main == threading.get_ident(), "signal handlers run in the main thread"
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    timer = threading.Timer(0.2, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    timer.join()
    return time.monotonic() - sent[0]


def run(program: str, *arguments: str, returncode: int = 0) -> str:
    """Run a program to its end, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == returncode, done.stderr
    return done.stdout + done.stderr


def test_an_interrupt_ends_a_poll_at_once_and_the_consumer_reads_on(server: EmbeddedKafkaServer, topic: str) -> None:
    with Consumer(server.bootstrap_servers, topics=[topic]) as consumer:
        assert interrupted(lambda: consumer.poll(timeout=60)) < 2
        assert interrupted(lambda: next(consumer)) < 2
        server.produce(topic, "one")
        assert [record.value for record in consumer.poll(timeout=60)] == [b"one"]


def test_an_interrupt_ends_a_flush_at_once_and_loses_no_record(topic: str) -> None:
    with EmbeddedKafkaServer() as other:
        other.create_topic(topic)
        with Producer(other.bootstrap_servers) as producer:
            producer.send(topic, b"connected")
            other.call(other.cluster.freeze, 1)
            delivery = producer.send_nowait(topic, b"one")
            assert interrupted(producer.flush) < 2
            assert interrupted(delivery.wait) < 2
            other.call(other.cluster.thaw, 1)
        assert delivery.result().offset == 1


def test_an_interrupt_of_a_send_does_not_stop_the_next_ones(
    server: EmbeddedKafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes when the record is in the queue, and the loop does not know of it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with Producer(server.bootstrap_servers) as producer:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(LoopThread, "soon", interrupt)
            producer.send_nowait(topic, b"one")
        written = threading.Event()
        producer.send_nowait(topic, b"two").report(lambda metadata, error: written.set())
        assert written.wait(DEADLINE)


def test_a_record_that_comes_with_the_interrupt_is_returned_by_the_next_read(
    server: EmbeddedKafkaServer, topic: str
) -> None:
    """The loop returns records at the moment of the interrupt: a handler raises when the call is over."""
    with Producer(server.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(5)], partition=0)

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    with Consumer(server.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        before = signal.signal(signal.SIGALRM, stop)
        values = []
        try:
            while len(values) < 5:
                consumer.seek(TopicPartition(topic, 0), len(values))
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                try:
                    values += [record.value for record in consumer.poll(1, timeout=10)]
                except Stop:
                    values += [record.value for record in consumer.poll(1, timeout=10)]
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, before)
    assert values == [b"%d" % number for number in range(5)]


class Alarm(Exception):
    """The exception of a signal handler."""


@pytest.fixture
def raising_alarm() -> Iterator[None]:
    """SIGALRM raises ``Alarm`` in the main thread."""

    def stop(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.usefixtures("raising_alarm")
def test_each_result_of_an_interrupted_call_is_kept(waits: bool) -> None:
    """The interrupt comes at any step of the call, also when the thread has been woken already."""
    thread = loop_thread()
    ended: list[int] = []
    seen: list[int] = []

    def take() -> int:
        ended.append(len(ended))
        return ended[-1]

    async def number() -> int:
        return take()

    interrupts = 0
    for attempt in range(3000):
        try:
            signal.setitimer(signal.ITIMER_REAL, 20e-6 + attempt % 100 * 2e-6)
            result = thread.call(number, seen.append, None if waits else take)
            seen.append(result)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            interrupts += 1
    assert interrupts
    assert sorted(set(seen)) == ended


def test_an_error_about_another_reader_speaks_of_threads() -> None:
    async def read() -> None:
        raise IllegalStateError("another task reads this consumer: 'Task-27' waits for records; read in one task")

    expected = "^another thread reads this consumer: it waits for records; read in one thread$"
    with pytest.raises(IllegalStateError, match=expected):
        loop_thread().call(read)


RECORDS = 60


def polling(reader: Any) -> Callable[[], Any]:
    return lambda: reader.poll(1, DEADLINE)


READS: dict[str, Callable[[Consumer[bytes, bytes], TopicPartition], Callable[[], Any]]] = {
    "poll": lambda consumer, _: polling(consumer),
    "next": lambda consumer, _: consumer.__next__,
    "partition": lambda consumer, partition: consumer.partition(*partition).__next__,
    "poll of a partition": lambda consumer, partition: polling(consumer.partition(*partition)),
    "batches": lambda consumer, _: consumer.batches(1).__next__,
    "to_arrow": lambda consumer, _: consumer.batches(1).to_arrow(["value"]).__next__,
    "read_until": lambda consumer, partition: consumer.read_until({partition: RECORDS}, max_records=1).__next__,
}
"""Makes the call that reads the next record. An interrupt between a read and its caller loses what was read. So none of
these has code behind the read, and none is a function in C, such as ``functools.partial``: when such a one returns,
Python looks for signals, which it does not when a function in Python returns."""


def values_of(item: Any) -> list[bytes | None]:
    """Return the values of a record, a list of records, a batch, or an Arrow batch."""
    if isinstance(item, Record):
        return [item.value]
    return [record.value for record in item] if hasattr(item, "__iter__") else item.column("value").to_pylist()


@pytest.mark.parametrize("kind", READS)
@pytest.mark.usefixtures("raising_alarm")
def test_interrupted_reads_leave_no_gap(server: EmbeddedKafkaServer, topic: str, kind: str) -> None:
    if kind == "to_arrow":
        pytest.importorskip("pyarrow")
    partition = TopicPartition(topic, 0)
    written: list[bytes | None] = [b"%d" % number for number in range(RECORDS)]
    with Producer(server.bootstrap_servers, batch_size=1) as producer:  # an Arrow batch has whole batches of the log
        producer.send_many(topic, written, partition=0)
    values: list[bytes | None] = []
    interrupts = 0
    delays = itertools.cycle(2e-6 * 1.5**number for number in range(24))  # to 22 ms: before, in and behind a read
    with Consumer(server.bootstrap_servers, fetch_max_wait=0.01) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        read = READS[kind](consumer, partition)
        while len(values) < RECORDS:
            item: Any = []
            try:
                signal.setitimer(signal.ITIMER_REAL, next(delays))
                item = read()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                interrupts += 1
            values += values_of(item)
            assert consumer.position(partition) == len(values), "it counts what was returned"
    assert interrupts > 10
    assert values == written


EXIT = """
import sys, threading
from aiokafka_lite.blocking import Consumer, Producer

servers, topic, how = sys.argv[1:]
producer = Producer(servers, linger=30)
producer.start()
consumer = Consumer(servers, topics=[topic], group_id="exits-" + how, auto_offset_reset="earliest")
consumer.start()

def send():
    for number in range(1000):
        producer.send_nowait(topic, b"%d" % number, partition=0)

if how == "thread":
    started = threading.Event()
    def later():
        started.wait()
        threading.main_thread().join()
        send()
    threading.Thread(target=later).start()
    started.set()
else:
    send()
    if how == "error":
        raise SystemExit(3)
"""


@pytest.mark.parametrize("how", ["end", "thread", "error"])
def test_accepted_records_are_sent_when_the_interpreter_ends(server: EmbeddedKafkaServer, topic: str, how: str) -> None:
    run(EXIT, server.bootstrap_servers, topic, how, returncode=3 if how == "error" else 0)
    assert [record.value for record in server.records(topic)] == [b"%d" % number for number in range(1000)]


FORK = """
import os, sys, traceback
from aiokafka_lite.blocking import Consumer, Producer

servers, topic = sys.argv[1:]
unused = Producer(servers)
with Producer(servers) as producer:
    producer.send(topic, b"parent", partition=0)
    delivery = producer.send_nowait(topic, b"parent", partition=0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                lambda: producer.send(topic, b""), lambda: producer.send_nowait(topic, b""), producer.close,
                producer.health, delivery.wait, lambda: delivery.report(print),
            ):
                try:
                    call()
                except Exception as error:
                    print(type(error).__name__, str(error).partition(" belongs to ")[2], flush=True)
            with unused, Consumer(servers, topics=[topic]) as consumer:
                unused.send(topic, b"child", partition=0)
            with Producer(servers) as own:
                own.send(topic, b"child", partition=0)
            left = Producer(servers)
            left.start()
            left.send_nowait(topic, b"left by the child", partition=1)
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.exit(status)
    assert os.waitpid(child, 0)[1] == 0
    producer.send(topic, b"parent", partition=0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_its_own_thread_and_is_refused_the_clients_of_its_parent(
    server: EmbeddedKafkaServer, topic: str
) -> None:
    printed = run(FORK, server.bootstrap_servers, topic).splitlines()
    refusal = (
        "another process: it was started before a fork; create and start a new one in each process, after the fork"
    )
    assert printed[:4] == [f"IllegalStateError {refusal}"] * 4
    assert "another process" in printed[4]
    assert printed[5] == f"IllegalStateError {refusal}"
    values = [record.value for record in server.records(topic, 0)]
    assert sorted(values) == [b"child", b"child", b"parent", b"parent", b"parent"]  # type: ignore[type-var]
    assert [record.value for record in server.records(topic, 1)] == [b"left by the child"]


@pytest.mark.parametrize("moment", ["begin", "end"])
def test_an_interrupt_leaves_no_transaction_open(
    server: EmbeddedKafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The interrupt comes when the loop has begun the transaction, or before the loop is asked to end it."""
    call = LoopThread.call

    def interrupted_when_done(self: LoopThread, function: Any, keep: Any = None, take: Any = None) -> Any:
        result = call(self, function, None, take)
        assert keep is not None
        self.run(functools.partial(keep, result))
        raise KeyboardInterrupt

    def interrupted_before(self: LoopThread, function: Any, keep: Any = None, take: Any = None) -> Any:
        raise KeyboardInterrupt

    with Producer(server.bootstrap_servers, transactional_id=topic) as producer:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            if moment == "begin":
                patched.setattr(LoopThread, "call", interrupted_when_done)
            with producer.transaction() as transaction:
                transaction.send(topic, b"aborted")
                patched.setattr(LoopThread, "call", interrupted_before)
        with producer.transaction() as transaction:
            transaction.send(topic, b"committed")
    with Consumer(server.bootstrap_servers, topics=[topic], isolation_level="read_committed") as consumer:
        assert [record.value for records in consumer.read_until() for record in records] == [b"committed"]


@pytest.mark.parametrize(
    "kind", [Admin, Consumer, Producer, functools.partial(ShareConsumer, topics=["no-topic"], group_id="readers")]
)
def test_a_close_that_is_refused_does_not_forget_the_client(server: EmbeddedKafkaServer, kind: Any) -> None:
    client = kind(server.bootstrap_servers)
    client.start()
    with pytest.raises(ConfigurationError, match="timeout must be a number of seconds, or None, got 'soon'"):
        client.close("soon")
    with pytest.warns(ResourceWarning, match="unclosed"):
        del client


def test_clients_leave_no_thread_and_no_socket(server: EmbeddedKafkaServer, topic: str) -> None:
    def work() -> None:
        with Producer(server.bootstrap_servers) as producer, Consumer(server.bootstrap_servers, topics=[topic]) as own:
            producer.send(topic, b"one")
            own.poll(timeout=0.1)

    work()  # the thread of the loop stays until the process ends
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        workers = [threading.Thread(target=work) for _ in range(20)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    end = time.monotonic() + DEADLINE
    while (threading.active_count(), len(os.listdir("/proc/self/fd"))) > (threads, descriptors):
        assert time.monotonic() < end, "the sockets are closed by both sides"
        time.sleep(0.01)  # the cluster sees a closed connection a moment later


def test_the_package_does_not_import_the_blocking_clients() -> None:
    run(
        "import sys, aiokafka_lite; aiokafka_lite.Producer, aiokafka_lite.Consumer\n"
        "assert not [name for name in sys.modules if 'blocking' in name and name.startswith('aiokafka_lite')]"
    )


def test_the_blocking_clients_need_no_extra() -> None:
    run(
        "import sys\n"
        "sys.modules['pyarrow'] = sys.modules['numpy'] = None\n"
        "import aiokafka_lite.blocking as blocking\n"
        "for name in blocking.__all__: getattr(blocking, name)"
    )
