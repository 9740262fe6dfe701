"""The transactions of ``make soak-real``: writers of a ledger, workers that copy it, and the check of their readers.

Each writer is a process with a transactional id of its own. The workers are members of one group (``ExactlyOnce``). A
reader of committed records reads the ledger meanwhile. At the end the ledger is compared with the reports of the
writers (``tests.simulation.ledger``), and the copies with the ledger.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiokafka_lite import Admin, Consumer, TopicPartition
from tests.real.soak_reading import (
    READ_TIMEOUT,
    Logs,
    partitions_of,
    read_all,
    read_by_confluent_kafka,
    values_of,
)
from tests.simulation.ledger import Outcome, Transaction, copy_anomalies, ledger_anomalies

PARTITIONS = 3
LEDGER, COPIES = partitions_of("soak-ledger", PARTITIONS), partitions_of("soak-copies", PARTITIONS)
TOPICS = (LEDGER[0].topic, COPIES[0].topic)
WRITERS = {"ledger-a": "ledger-group-a", "ledger-b": "ledger-group-b"}
"""The transactional ids, and the group whose offsets each commits."""
COPIERS = ("copier-a", "copier-b")
COPY_GROUP = "soak-copiers"


class Transactions:
    """The reports of the writers, and the records that the readers saw."""

    kinds = dict.fromkeys((*WRITERS, *COPIERS), 1)
    """The number of processes of each kind."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._transactions: dict[str, list[Transaction]] = {name: [] for name in WRITERS}
        self._open: dict[str, Transaction] = {}
        self._live: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)

    @property
    def count(self) -> int:
        """The number of transactions that the writers began."""
        return sum(map(len, self._transactions.values()))

    def command(self, kind: str, number: int) -> tuple[str, list[str]]:
        """Return the module of a process and its arguments. ``number`` is different for each process."""
        if kind in COPIERS:
            # The same id fences the worker before. With another id, its transaction is open until its timeout.
            name = f"{kind}-{random.choice(('again', number))}"
            return "tests.end_to_end.transform_process", [self._servers, *TOPICS, COPY_GROUP, name, "cooperative", ""]
        arguments = [self._servers, TOPICS[0], str(PARTITIONS), kind, str(number), WRITERS[kind]]
        return "tests.real.soak_transactor", arguments

    def hear(self, kind: str, process: str, event: Mapping[str, Any]) -> None:
        """Record a report of a process."""
        if kind in COPIERS:
            return
        if event["event"] == "begun":
            self._open[process] = Transaction(len(self._transactions[kind]))
            self._transactions[kind].append(self._open[process])
        transaction = self._open[process]
        match event["event"]:
            case "added":
                transaction.values[event["value"].encode()] = LEDGER[event["partition"]]
            case "offset":
                transaction.offset = event["offset"]
            case "committing":
                transaction.outcome = Outcome.UNKNOWN
            case "committed":
                transaction.outcome = Outcome.COMMITTED

    async def read_live(self) -> None:
        """Read the ledger until this is cancelled."""
        async with Consumer(self._servers) as consumer:
            consumer.assign(LEDGER)
            async for record in consumer:
                self._live[TopicPartition(record.topic, record.partition)].append(bytes(record.value or b""))

    async def wait_for_copies(self) -> None:
        """Wait, with all faults and all writers ended, until the workers have copied the ledger."""
        ledger = await read_all(self._servers, LEDGER)
        expected = {record.value for log in ledger.values() for record in log}
        copies: set[bytes] = set()
        async with Consumer(self._servers) as consumer:
            consumer.assign(COPIES)
            end = time.monotonic() + READ_TIMEOUT
            while len(copies) < len(expected) and time.monotonic() < end:
                copies.update(bytes(record.value or b"") for record in await consumer.poll(5000, timeout=1.0))

    async def problems(self) -> list[str]:
        """Return the broken promises, when all processes have ended."""
        ledger, copies = await read_all(self._servers, LEDGER), await read_all(self._servers, COPIES)
        end = time.monotonic() + READ_TIMEOUT
        while sum(map(len, self._live.values())) < sum(map(len, ledger.values())) and time.monotonic() < end:
            await asyncio.sleep(0.1)
        others = await asyncio.to_thread(read_by_confluent_kafka, self._servers, [*LEDGER, *COPIES])
        async with Admin(self._servers) as admin:
            offsets = await admin.groups.offsets([*WRITERS.values(), COPY_GROUP], require_stable=True)
        problems: list[str] = []
        for name, group in WRITERS.items():
            committed = offsets[group].get(LEDGER[0])
            anomalies = ledger_anomalies(
                self._transactions[name],
                _of(name, values_of(ledger)),
                {"live": _of(name, self._live), "confluent-kafka": _of(name, others)},
                [] if committed is None else [committed.offset],
            )
            problems += [f"{name}: {anomaly}" for anomaly in anomalies]
        for reader, seen in (("this client", values_of(copies)), ("confluent-kafka", others)):
            copied = {place: seen[place] for place in COPIES}
            problems += [f"{reader}: {anomaly}" for anomaly in copy_anomalies(values_of(ledger), copied)]
        committed_of = {place: offset.offset for place, offset in offsets[COPY_GROUP].items()}
        return [*problems, *_offset_problems(ledger, committed_of)]


def _of(name: str, values: Mapping[TopicPartition, Sequence[bytes]]) -> dict[TopicPartition, list[bytes]]:
    """Return the ledger's values of one transactional id."""
    return {place: [value for value in values.get(place, ()) if value.startswith(name.encode())] for place in LEDGER}


def _offset_problems(ledger: Logs, committed: Mapping[TopicPartition, int]) -> Iterator[str]:
    for place, log in ledger.items():
        if log and committed.get(place, 0) <= log[-1].offset:
            yield f"{COPY_GROUP} has copied {place} up to {log[-1].offset}, its offset is {committed.get(place)}"
