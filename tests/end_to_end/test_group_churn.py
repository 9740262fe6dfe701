"""Group members join, leave and are killed, and the groups keep their promises. Some members are processes.

Four groups of twenty members run at the same time: eager, cooperative, static, and one with the consumer protocol
(KIP-848) where the brokers have it. They run for half a minute on the newest Kafka. GROUP_CHURN_SECONDS sets another
time, and runs them on older releases and on the embedded cluster too. Each member reports what it is assigned, what it
loses and which records it has processed, with the time of one clock. The checks use these reports alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pytest

from aiokafka_lite import Consumer, KafkaTimeout, Producer, TopicPartition
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.member_process import SESSION_TIMEOUT, Work
from tests.end_to_end.test_groups import new_group
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

pytestmark = pytest.mark.long

CHURN = os.environ.get("GROUP_CHURN_SECONDS")
HALF_A_MINUTE = 30.0
QUIET = 60.0
"""Seconds without churn after which every partition has an owner. It takes about three; the bound has to hold on a
busy machine. In virtual time the bound is ten seconds (tests/embedded/group/test_rebalances.py)."""

BROKERS_SESSION_TIMEOUT = 45.0
"""Seconds of a session under the consumer protocol, which the brokers decide."""

PARTITIONS = 24
MEMBERS = 20
PROCESSES = 2
"""The members that are processes of their own, which SIGKILL can kill. The others stop without a leave request."""

KILLS = 4
"""One of this many events is a kill, and every second kill ends a process."""

Arguments = tuple[str, str, str, str]
"""Servers, topic, group and strategy."""

ROOT = Path(__file__).parents[2]


@dataclass
class Stay:
    """The time in which one member owns a partition. ``until`` and ``how`` say when and how it ended, if it has."""

    member: str
    partition: int
    generation: int
    since: float
    until: float = float("inf")
    how: str = ""


class Reports:
    """The reports of all members of a test."""

    def __init__(self) -> None:
        self.stays: dict[int, list[Stay]] = defaultdict(list)
        self.done: dict[tuple[int, int], float] = {}
        """The time at which each record, by partition and offset, was first processed."""
        self.news = asyncio.Event()

    def owned(self, member: str | None = None) -> list[Stay]:
        """Return the partitions that have an owner now, or that this member owns now."""
        return [
            stay for stays in self.stays.values() for stay in stays if not stay.how and member in (None, stay.member)
        ]

    def hear(self, member: str, event: dict[str, Any]) -> None:
        match event["event"]:
            case "assigned":
                for partition in event["partitions"]:
                    self.stays[partition].append(Stay(member, partition, event["generation"], event["at"]))
            case "revoked" | "lost" as how:
                for partition in event["partitions"]:
                    self.end(member, partition, event["at"], how)
            case "done":
                self.done.setdefault((event["partition"], event["offset"]), event["at"])
        self.news.set()

    def end(self, member: str, partition: int, at: float, how: str) -> None:
        for stay in self.stays[partition]:
            if stay.member == member and not stay.how:
                stay.until, stay.how = at, how

    def end_all(self, member: str, at: float, how: str) -> None:
        for partition in list(self.stays):
            self.end(member, partition, at, how)

    async def until(self, condition: Callable[[], bool], within: float, claim: str) -> None:
        """Wait until the condition holds. Each report checks it again."""
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
                    await asyncio.sleep(0.02)  # every record is reported, and need not be checked by itself
        except TimeoutError:
            pytest.fail(f"not within {within:g} s: {claim}; owned: {self.owned()}")


class Member(Protocol):
    """A member of a test. It is started and ended by ``Members``."""

    name: str
    instance: str

    async def start(self) -> None:
        """Return when the member runs."""

    async def leave(self) -> None:
        """Close it cleanly."""

    async def kill(self) -> None:
        """Stop it without a leave request."""


class Process:
    """A member that is a process of its own."""

    def __init__(self, name: str, instance: str, said: Reports, arguments: Arguments) -> None:
        self.name = name
        self.instance = instance
        self._said = said
        self._arguments = arguments
        self._started = asyncio.Event()
        self._closed = False

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.end_to_end.member_process", *self._arguments, self.instance),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        self._listening = asyncio.create_task(self._listen())
        async with asyncio.timeout(DEADLINE):
            await self._started.wait()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if not line.endswith(b"\n"):
                break  # killed while it wrote a line
            event = json.loads(line)
            self._closed |= event["event"] == "closed"
            self._said.hear(self.name, event)
            self._started.set()
        self._started.set()

    async def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(DEADLINE):
            assert await self._process.wait() == 0, self.name
            await self._listening
        assert self._closed

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._listening


class Neighbour:
    """A member that lives in the process of the test."""

    def __init__(self, name: str, instance: str, said: Reports, arguments: Arguments) -> None:
        self.name = name
        self.instance = instance
        self._said = said
        self._work = Work(self._say, *arguments, instance)

    def _say(self, event: str, **facts: Any) -> None:
        self._said.hear(self.name, {"event": event, "at": time.monotonic(), **facts})

    async def start(self) -> None:
        await self._work.consumer.start()
        self._working = asyncio.create_task(self._work.run())

    async def leave(self) -> None:
        await self._work.consumer.close()
        await self._working

    async def kill(self) -> None:
        self._working.cancel()
        try:
            await self._work.consumer.close(timeout=0.0)
        except KafkaTimeout:  # on a busy machine the cancelled tasks take longer than two seconds to end
            await self._work.consumer.close()
        await asyncio.gather(self._working, return_exceptions=True)


class Members:
    """The living members of a group."""

    def __init__(self, kafka: Kafka, topic: str, strategy: str, *, static: bool) -> None:
        self.said = Reports()
        self.topic = topic
        self.living: list[Member] = []
        self.killed: list[tuple[float, list[Stay]]] = []
        self.killed_processes = 0
        self.count = 0
        self._arguments: Arguments = (kafka.bootstrap_servers, topic, new_group(), strategy)
        self.group = self._arguments[2]
        self._static = static
        self.session_timeout = BROKERS_SESSION_TIMEOUT if strategy == "consumer" else SESSION_TIMEOUT
        self.take_over = self.session_timeout + QUIET
        """Seconds after which the partitions of a killed member have another owner, while other members join and leave.
        Each kill makes the current rebalance wait until another session ends, so the time counts from the last kill
        before."""
        self._free = [f"instance-{number}" for number in range(2 * MEMBERS)]

    @property
    def processes(self) -> list[Process]:
        return [member for member in self.living if isinstance(member, Process)]

    async def join(self) -> None:
        """Start a member, and wait until it runs."""
        self.count += 1
        kind = Process if len(self.processes) < PROCESSES else Neighbour
        instance = self._free.pop(0) if self._static else ""
        member: Member = kind(f"{kind.__name__} {self.count}", instance, self.said, self._arguments)
        self.living.append(member)
        await member.start()

    async def leave(self, member: Member) -> None:
        """Close a member cleanly."""
        self.living.remove(member)
        await member.leave()
        self.said.end_all(member.name, time.monotonic(), "closed")
        self._give_back(member)

    async def kill(self, member: Member) -> None:
        """Kill a member."""
        self.living.remove(member)
        self.killed_processes += isinstance(member, Process)
        await member.kill()
        at = time.monotonic()
        self.killed.append((at, self.said.owned(member.name)))
        self.said.end_all(member.name, at, "killed")
        self._give_back(member)

    def owner_of(self, partition: int) -> Member:
        """Return the living member that owns the partition; only for a stable group."""
        (stay,) = (stay for stay in self.said.owned() if stay.partition == partition)
        return next(member for member in self.living if member.name == stay.member)

    def _give_back(self, member: Member) -> None:
        if member.instance:
            self._free.insert(0, member.instance)  # the next member is its restart

    async def end(self) -> None:
        """End all members, after any outcome of the test."""
        await asyncio.gather(*(member.kill() for member in self.living), return_exceptions=True)


@asynccontextmanager
async def members_of(kafka: Kafka, topic: str, strategy: str, *, static: bool) -> AsyncIterator[Members]:
    members = Members(kafka, topic, strategy, static=static)
    try:
        yield members
    finally:
        await members.end()


@asynccontextmanager
async def running(*coroutines: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these beside the block. An exception of one of them ends the test."""
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(coroutine) for coroutine in coroutines]
        yield
        for task in started:
            task.cancel()


async def write(kafka: Kafka, topic: str) -> None:
    """Write two records, as one batch, to every partition about five times a second, until cancelled."""
    async with Producer(kafka.bootstrap_servers) as producer:
        while True:
            for partition in range(PARTITIONS):
                for _ in range(2):
                    producer.send_nowait(topic, b"work", partition=partition)
            await producer.flush()
            await asyncio.sleep(0.2)  # the pace of the traffic


async def watch(kafka: Kafka, topic: str, group: str, seen: list[tuple[float, dict[int, int]]]) -> None:
    """Note the committed offsets again and again, with the time at which they were read."""
    async with Consumer(kafka.bootstrap_servers, group_id=group) as consumer:
        while True:
            seen.append((*await committed(consumer, topic),))
            await asyncio.sleep(0.2)  # the interval of the looks


async def committed(consumer: Consumer, topic: str) -> tuple[float, dict[int, int]]:
    committed = await consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return time.monotonic(), {
        partition.partition: offset.offset for partition, offset in committed.items() if offset is not None
    }


def all_of(ends: dict[TopicPartition, int]) -> dict[int, int]:
    """Return the committed offsets, by partition, when everything is committed."""
    return {partition.partition: end for partition, end in ends.items() if end}


KINDS = {
    "eager": ("eager", False, "1.0.0"),
    "cooperative": ("cooperative", False, "1.0.0"),
    "static": ("eager", True, "2.3.0"),  # KIP-345
    "consumer": ("consumer", False, "4.0.0"),  # KIP-848
}
"""The strategy of each group, whether its members are static, and the first release of Kafka that has such groups."""


async def test_twenty_members_that_join_leave_and_are_killed_share_the_work(
    kafka: Kafka, record_property: Callable[[str, object], None]
) -> None:
    if CHURN is None and (kafka.kind == "embedded" or (kafka.kind != "given" and kafka.version != NEWEST)):
        pytest.skip("the embedded cluster and older releases only when GROUP_CHURN_SECONDS asks for it")
    seconds = HALF_A_MINUTE if CHURN is None else float(CHURN)
    async with asyncio.TaskGroup() as tasks:
        stories = {
            kind: tasks.create_task(live_through(kafka, seconds, kind, strategy, static=static))
            for kind, (strategy, static, since) in KINDS.items()
            if kafka.speaks(since)
        }
    for kind, story in stories.items():
        record_property(kind, story.result())


async def live_through(kafka: Kafka, seconds: float, kind: str, strategy: str, *, static: bool) -> dict[str, object]:
    """Return the churn of one group and its checks; returns figures about the run."""
    topic = await kafka.create_topic(partitions=PARTITIONS)
    commits: list[tuple[float, dict[int, int]]] = []
    async with members_of(kafka, topic, strategy, static=static) as members:
        said = members.said
        async with running(write(kafka, topic), watch(kafka, topic, members.group, commits)):
            for _ in range(MEMBERS):
                await members.join()
            await said.until(lambda: len(said.owned()) == PARTITIONS, DEADLINE, "every partition has an owner")
            await churn(members, seconds, random.Random(kind))
            quiet_since = time.monotonic()
            quiet = QUIET + members.session_timeout - SESSION_TIMEOUT
            await said.until(lambda: is_settled(members), quiet, "every partition has one living owner")
            took = time.monotonic() - quiet_since
            await members.kill(members.owner_of(0))
            await said.until(lambda: is_settled(members), members.take_over, "one living owner again after a last kill")
            await said.until(lambda: all_taken_over(members), members.take_over, "what killed members had, others have")
        async with Consumer(kafka.bootstrap_servers, group_id=members.group) as consumer:
            ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
            written = {(partition.partition, offset) for partition, end in ends.items() for offset in range(end)}
            await said.until(lambda: len(said.done) >= len(written), DEADLINE, f"{len(written)} records are done with")
            # The successor of a killed member processes again what that member did not commit.
            async with asyncio.timeout(DEADLINE):
                while (await committed(consumer, topic))[1] != all_of(ends):
                    await asyncio.sleep(0.2)  # the interval of the looks
            await asyncio.gather(*(members.leave(member) for member in list(members.living)))
            commits.append(await committed(consumer, topic))
    assert set(said.done) == written, kind
    assert list(clashes(said)) == [], kind
    assert list(late_takeovers(members)) == [], kind
    assert list(unmarked(commits, said)) == [], kind
    assert members.killed_processes, kind
    assert commits[-1][1] == all_of(ends), kind
    return {
        "members": members.count,
        "killed": len(members.killed),
        "of these processes": members.killed_processes,
        "records": len(written),
        "seconds until all was owned": round(took, 1),
    }


async def churn(members: Members, seconds: float, choice: random.Random) -> None:
    """Keep about twenty members, with about one event a second: a member leaves or is killed, or one joins."""
    ends = time.monotonic() + seconds
    number = 0
    while time.monotonic() < ends:
        if len(members.living) >= MEMBERS:
            if number % KILLS == 0:
                await members.kill(choice.choice(members.processes if number % (2 * KILLS) == 0 else members.living))
            else:
                await members.leave(choice.choice(members.living))
            number += 1
        else:
            await members.join()
        await asyncio.sleep(choice.random())  # the pace of the churn


# ---- the claims


def is_settled(members: Members) -> bool:
    living = {member.name for member in members.living}
    owned = members.said.owned()
    return (
        sorted(stay.partition for stay in owned) == list(range(PARTITIONS))
        and {stay.member for stay in owned} <= living
    )


def all_taken_over(members: Members) -> bool:
    return all(taker(members.said, stay) is not None for _, stays in members.killed for stay in stays)


def taker(said: Reports, stay: Stay) -> Stay | None:
    later = (successor for successor in said.stays[stay.partition] if successor.since > stay.until)
    return min(later, key=lambda successor: successor.since, default=None)


def late_takeovers(members: Members) -> Iterable[str]:
    for at, stays in members.killed:
        for stay in stays:
            after = taker(members.said, stay)
            assert after is not None
            waited_for = max(kill for kill, _ in members.killed if at <= kill < after.since)
            if after.since - waited_for > members.take_over:
                yield f"{stay} was taken over by {after} {after.since - waited_for:.1f} s after the last kill"


def clashes(said: Reports) -> Iterable[str]:
    """Yield two owners at the same time, or an owner with an older generation than its predecessor."""
    for stays in said.stays.values():
        in_order = sorted(stays, key=lambda stay: stay.since)
        for before, after in pairwise(in_order):
            # A member that was silent for a whole session notices the loss after another member owns the partition.
            # That is harmless: the coordinator refuses commits of an older generation.
            fenced = before.how == "lost" and before.generation < after.generation
            if (after.since < before.until and not fenced) or after.generation < before.generation:
                yield f"{before} and {after}"


def unmarked(commits: list[tuple[float, dict[int, int]]], said: Reports) -> Iterable[str]:
    """Yield commits of records that were not processed at that time."""
    done_by: dict[int, list[float]] = {}  # by offset, the time at which all earlier records were processed
    for partition in range(PARTITIONS):
        times = done_by[partition] = [0.0]
        while (at := said.done.get((partition, len(times) - 1))) is not None:
            times.append(max(times[-1], at))
    for at, offsets in commits:
        for partition, offset in offsets.items():
            if offset >= len(done_by[partition]) or done_by[partition][offset] > at:
                yield f"{offset} of {partition} was committed, and not everything before it was done with"
