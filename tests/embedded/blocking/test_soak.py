"""Twenty threads work with blocking clients for a while: no record is lost, and no thread or socket is left.

They work for three seconds. BLOCKING_SOAK_SECONDS sets another time.
"""

from __future__ import annotations

import os
import random
import threading
import time

from aiokafka_lite import TopicPartition
from aiokafka_lite.blocking import Admin, Consumer, Producer
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.waiting import DEADLINE

THREADS = 20
SECONDS = float(os.environ.get("BLOCKING_SOAK_SECONDS", "3"))


def test_twenty_threads_leave_nothing_and_lose_nothing(server: EmbeddedKafkaServer, topic: str) -> None:
    shared = Producer(server.bootstrap_servers)
    shared.start()
    sent = [0] * THREADS
    problems: list[BaseException] = []

    def work(number: int, end: float) -> None:
        choices = random.Random(number)
        while time.monotonic() < end:
            try:
                sent[number] += one_round(choices)
            except BaseException as problem:
                problems.append(problem)
                raise

    def one_round(choices: random.Random) -> int:
        match choices.randrange(4):
            case 0:
                deliveries = [shared.send_nowait(topic, b"shared") for _ in range(choices.randrange(100))]
                for delivery in deliveries:
                    delivery.wait(60)
                return len(deliveries)
            case 1:
                with Producer(server.bootstrap_servers) as own:
                    own.send_many(topic, [b"own"] * 10)
                    own.send_nowait(topic, b"own")
                return 11
            case 2:
                with Consumer(server.bootstrap_servers) as consumer:
                    consumer.assign([TopicPartition(topic, choices.randrange(2))])
                    consumer.poll(100, timeout=0.1)
                return 0
            case _:
                with Admin(server.bootstrap_servers) as admin:
                    admin.topics.describe([topic])
                return 0

    shared.send(topic, b"first")
    with Admin(server.bootstrap_servers) as admin:
        admin.topics.list()
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    end = time.monotonic() + SECONDS
    threads = [threading.Thread(target=work, args=(number, end)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(server.records(topic)) == 1 + sum(sent)
    end = time.monotonic() + DEADLINE
    while any(now > then for now, then in zip(left(), before, strict=True)):
        assert time.monotonic() < end, f"{left()} threads and descriptors are left, {before} were there before"
        time.sleep(0.05)  # the cluster sees a closed connection a moment later
    shared.close()


def left() -> tuple[int, int]:
    return threading.active_count(), len(os.listdir("/proc/self/fd"))
