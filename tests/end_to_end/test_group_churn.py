"""Group members that are processes come, go and are killed, and the group keeps its promises.

How long they do is set by GROUP_CHURN_SECONDS. Nothing is decided by what one process thinks of another: each says what
it gets, loses, reads and has done, with the time of one clock, and the claims are checked on all that was said.
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
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer, TopicPartition
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.member_process import SESSION_TIMEOUT
from tests.end_to_end.test_groups import new_group
from tests.real.servers import NEWEST

CHURN = float(os.environ.get("GROUP_CHURN_SECONDS", "12"))
QUIET = 10.0
"""Seconds of quiet after which every partition has an owner."""

TAKE_OVER = SESSION_TIMEOUT + QUIET
"""Seconds after which what a killed member owned has another owner, while others go on coming and going. Each kill
makes the rebalance of the moment wait for another session to end, so they are counted from the last one before that."""

PARTITIONS = 12
MEMBERS = 4
ROOT = Path(__file__).parents[2]


@dataclass
class Stay:
    """A partition at one member, as long as nobody else may have it; ``until`` and ``how`` it ended, if it has."""

    member: str
    partition: int
    generation: int
    since: float
    until: float = float("inf")
    how: str = ""


class Said:
    """What all members of a test have said."""

    def __init__(self) -> None:
        self.stays: dict[int, list[Stay]] = defaultdict(list)
        self.done: dict[tuple[int, int], float] = {}
        """When each record, by partition and offset, was first done with."""
        self.news = asyncio.Event()

    def owned(self, member: str | None = None) -> list[Stay]:
        """What has an owner, or this one, at present."""
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
        """Wait for news until the condition holds."""
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            pytest.fail(f"not within {within:g} s: {claim}; owned: {self.owned()}")


@dataclass
class Member:
    """A process. It is started and ended by ``Members``."""

    name: str
    instance: str
    process: asyncio.subprocess.Process
    said: Said
    started: asyncio.Event = field(default_factory=asyncio.Event)
    errors: list[str] = field(default_factory=list)
    closed: bool = False

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            if not line.endswith(b"\n"):
                break  # killed in the midst of a word
            event = json.loads(line)
            self.closed |= event["event"] == "closed"
            self.said.hear(self.name, event)
            self.started.set()
        self.started.set()


class Members:
    """The living processes of a test."""

    def __init__(self, kafka: Kafka, topic: str, strategy: str, *, static: bool) -> None:
        self.said = Said()
        self.living: list[Member] = []
        self.killed: list[tuple[float, list[Stay]]] = []
        self._arguments = (kafka.bootstrap_servers, topic, new_group(), strategy)
        self.group = self._arguments[2]
        self._static = static
        self._free = [f"instance-{number}" for number in range(2 * MEMBERS)]
        self._count = 0
        self._processes: list[Member] = []
        self._listening: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Start one, and wait until it says that it runs."""
        instance = self._free.pop(0) if self._static else ""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.end_to_end.member_process", *self._arguments, instance),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        self._count += 1
        member = Member(f"{self._count}:{process.pid}", instance, process, self.said)
        self._processes.append(member)
        self._listening.append(asyncio.create_task(member.listen()))
        self.living.append(member)
        async with asyncio.timeout(60):
            await member.started.wait()

    async def leave(self, member: Member) -> None:
        """Have one close in good order."""
        self.living.remove(member)
        assert member.process.stdin is not None
        member.process.stdin.close()
        async with asyncio.timeout(60):
            assert await member.process.wait() == 0, member
            await self._listening[self._processes.index(member)]
        assert member.closed
        self.said.end_all(member.name, time.monotonic(), "closed")
        self._give_back(member)

    async def kill(self, member: Member) -> None:
        """Kill one by SIGKILL."""
        self.living.remove(member)
        member.process.kill()
        await member.process.wait()
        at = time.monotonic()
        await self._listening[self._processes.index(member)]
        self.killed.append((at, self.said.owned(member.name)))
        self.said.end_all(member.name, at, "killed")
        self._give_back(member)

    def owner_of(self, partition: int) -> Member:
        """The living member that owns it; of a settled group."""
        (stay,) = (stay for stay in self.said.owned() if stay.partition == partition)
        return next(member for member in self.living if member.name == stay.member)

    def _give_back(self, member: Member) -> None:
        if member.instance:
            self._free.insert(0, member.instance)  # the next one is its restart

    async def end(self) -> None:
        """However the test went: no process is left."""
        for member in self._processes:
            with suppress(ProcessLookupError):
                if member.process.returncode is None:
                    member.process.kill()
            await member.process.wait()
        await asyncio.gather(*self._listening, return_exceptions=True)


@asynccontextmanager
async def members_of(kafka: Kafka, topic: str, strategy: str, *, static: bool) -> AsyncIterator[Members]:
    members = Members(kafka, topic, strategy, static=static)
    try:
        yield members
    finally:
        await members.end()


@asynccontextmanager
async def running(*coroutines: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these beside the block; what one of them raises ends the test."""
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(coroutine) for coroutine in coroutines]
        yield
        for task in started:
            task.cancel()


async def write(kafka: Kafka, topic: str) -> None:
    """A record to every partition some twenty times a second, for ever."""
    async with Producer(kafka.bootstrap_servers) as producer:
        while True:
            for partition in range(PARTITIONS):
                await producer.send(topic, b"work", partition=partition)
            await asyncio.sleep(0.05)  # the pace of the traffic


async def watch(kafka: Kafka, topic: str, group: str, seen: list[tuple[float, dict[int, int]]]) -> None:
    """See what is committed, again and again, and when it had been committed at the latest."""
    async with Consumer(kafka.bootstrap_servers, group_id=group) as consumer:
        while True:
            seen.append((*await committed(consumer, topic),))
            await asyncio.sleep(0.2)  # how often


async def committed(consumer: Consumer, topic: str) -> tuple[float, dict[int, int]]:
    found = await consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return time.monotonic(), {each.partition: offset.offset for each, offset in found.items() if offset is not None}


KINDS = {"eager": ("eager", False), "cooperative": ("cooperative", False), "static": ("eager", True)}


@pytest.mark.parametrize("kind", KINDS)
async def test_processes_that_join_leave_and_are_killed_share_the_work(
    kafka: Kafka, kind: str, record_property: Callable[[str, object], None]
) -> None:
    if "GROUP_CHURN_SECONDS" not in os.environ and kafka.kind == "jvm" and kafka.version != NEWEST:
        pytest.skip("half a minute a test: older releases only when GROUP_CHURN_SECONDS asks for it")
    strategy, static = KINDS[kind]
    if static and not kafka.speaks("2.3.0"):
        pytest.skip("Kafka has static members since 2.3 (KIP-345)")
    choice = random.Random(kind)
    topic = await kafka.create_topic(partitions=PARTITIONS)
    commits: list[tuple[float, dict[int, int]]] = []
    async with members_of(kafka, topic, strategy, static=static) as members:
        said = members.said
        async with running(write(kafka, topic), watch(kafka, topic, members.group, commits)):
            await asyncio.gather(*(members.join() for _ in range(MEMBERS)))
            await said.until(lambda: len(said.owned()) == PARTITIONS, 30.0, "every partition has an owner")
            await churn(members, choice)
            quiet_since = time.monotonic()
            await said.until(lambda: is_settled(members), QUIET, "every partition has one living owner")
            took = time.monotonic() - quiet_since
            await members.kill(members.owner_of(0))
            await said.until(lambda: is_settled(members), TAKE_OVER, "one living owner again after a last kill")
            await said.until(lambda: all_taken_over(members), TAKE_OVER, "what killed members had, others have")
        async with Consumer(kafka.bootstrap_servers, group_id=members.group) as consumer:
            ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
            written = {(each.partition, offset) for each, end in ends.items() for offset in range(end)}
            await said.until(lambda: len(said.done) == len(written), 60.0, f"{len(written)} records are done with")
            for member in list(members.living):
                await members.leave(member)
            commits.append(await committed(consumer, topic))
    record_property("members", members._count)
    record_property("killed", len(members.killed))
    record_property("records", len(written))
    record_property("seconds until all was owned", round(took, 1))
    assert set(said.done) == written
    assert list(clashes(said)) == []
    assert list(late_takeovers(members)) == []
    assert list(unmarked(commits, said)) == []
    assert members.killed
    assert commits[-1][1] == {each.partition: end for each, end in ends.items()}


async def churn(members: Members, choice: random.Random) -> None:
    ends = time.monotonic() + CHURN
    number = 0
    while time.monotonic() < ends:
        if len(members.living) > 2 and (number % 2 == 0 or len(members.living) > MEMBERS):
            victim = choice.choice(members.living)
            await (members.kill(victim) if number % 4 == 0 else members.leave(victim))
        else:
            await members.join()
        number += 1
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


def taker(said: Said, stay: Stay) -> Stay | None:
    later = (each for each in said.stays[stay.partition] if each.since > stay.until)
    return min(later, key=lambda each: each.since, default=None)


def late_takeovers(members: Members) -> Iterable[str]:
    for at, stays in members.killed:
        for stay in stays:
            after = taker(members.said, stay)
            assert after is not None
            waited_for = max(kill for kill, _ in members.killed if at <= kill < after.since)
            if after.since - waited_for > TAKE_OVER:
                yield f"{stay} was taken over by {after} {after.since - waited_for:.1f} s after the last kill"


def clashes(said: Said) -> Iterable[str]:
    """Two owners at once, or one that came later and is of an older generation."""
    for stays in said.stays.values():
        in_order = sorted(stays, key=lambda stay: stay.since)
        for before, after in pairwise(in_order):
            # Who was not heard of for a whole session hears that it has lost a partition after another one got it. It
            # can do no harm, as the coordinator refuses the commits of an older generation.
            fenced = before.how == "lost" and before.generation < after.generation
            if (after.since < before.until and not fenced) or after.generation < before.generation:
                yield f"{before} and {after}"


def unmarked(commits: list[tuple[float, dict[int, int]]], said: Said) -> Iterable[str]:
    """Commits beyond what had been done with at that time."""
    for at, offsets in commits:
        for partition, offset in offsets.items():
            early = [each for each in range(offset) if said.done.get((partition, each), float("inf")) > at]
            if early:
                yield f"{offset} of {partition} was committed, but {early} were not done with"
