"""Random faults on three real brokers: ``make soak-real``, or ``python -m tests.real.soak --minutes 10``.

Each client is a process of its own: two writers, the members of groups of both protocols and of a share group, and
writers and workers with transactions (``soak_transactions``). Brokers are killed and suspended, and leaders are
elected. Clients are killed, suspended and replaced. A proxy in front of each broker cuts, delays and refuses
connections. At the end all faults end, the groups process the remaining records, and the history is checked:

- Acknowledged records are in the log, for the idempotent writer once and in order.
- Each group has processed everything, and no commit is beyond the processed records.
- No partition had two owners for longer than a session.
- The share group keeps the promises of ``soak_sharing``.
- Transactions are read whole or not at all, and each record is copied once.

``--transactions`` runs only clients with transactions, ``--members 20`` larger groups, ``--kafka 2.8.2`` another
release. ``--churn`` runs only three groups, one of the classic protocol, one of the consumer protocol and a share
group. In addition to the faults, it kills a member about once a second. Before Kafka 4.2 there are no share groups, and
all groups have the classic protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka_lite import Admin, KafkaError, Producer, TopicPartition
from aiokafka_lite.admin import NewTopic
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.member_process import SESSION_TIMEOUT
from tests.end_to_end.send_history import History, Promises, Send, violations
from tests.real.jvm_cluster import JvmCluster, JvmNode, NodeState
from tests.real.proxy import Proxy
from tests.real.releases import NEWEST
from tests.real.soak_reading import Logs, partitions_of, read_all
from tests.real.soak_sharing import GROUP as SHARE_GROUP
from tests.real.soak_sharing import Sharing
from tests.real.soak_transactions import PARTITIONS as TRANSACTION_PARTITIONS
from tests.real.soak_transactions import TOPICS as TRANSACTION_TOPICS
from tests.real.soak_transactions import WRITERS as TRANSACTIONAL_WRITERS
from tests.real.soak_transactions import Transactions

ROOT = Path(__file__).parents[2]
NEEDS_EPOCH = "which brokers before Kafka 2.5 do not assign"
"""In the error of a transactional producer that has to be replaced: its process ends, and another one starts."""
TOPIC = "soak"
PARTITIONS = 6
WRITERS = ("idempotent", "plain")
GROUPS: dict[str, tuple[str, ...]] = {
    "soak-eager": ("eager",),
    "soak-cooperative": ("cooperative",),
    "soak-consumer": ("consumer",),
    "soak-migrating": ("cooperative", "consumer"),
}
"""The kinds of members of each group, in turn."""
CHURNED = ("soak-cooperative", "soak-consumer")
"""The groups of ``--churn``, beside the share group."""
KILL_PAUSE = (0.5, 1.5)
"""Seconds between two kills of ``--churn``, at least and at most."""
MEMBERS = 2
HEAL_TIMEOUT = 180.0
SHARED = SESSION_TIMEOUT + 4.0
"""Seconds for which two members may own a partition, because the old one does not know yet that its session has
ended."""
LONGEST_FAULT = 12.0
"""Seconds in which a member may not reach its coordinator. Until then, a member with the consumer protocol does not
know that its session has ended."""


class Child:
    """A client process. It reports by lines of JSON on its standard output."""

    def __init__(self, kind: str, number: int, module: str, arguments: Sequence[str], soak: Soak) -> None:
        self.kind = kind
        self.name = f"{kind} {number}"
        self.is_frozen = False
        self.was_disturbed = False
        """Killed or suspended at some time, so that it could not notice what happened."""
        self.has_reported = False
        self._command = ("-m", module, *arguments)
        self._soak = soak
        self._reports: asyncio.Task[None] | None = None

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, limit=1 << 20
        )
        self._reports = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        while (line := await self.process.stdout.readline()).endswith(b"\n"):
            self.has_reported = True
            self._soak.hear(self, json.loads(line))
        errors = (await self.process.stderr.read()).decode(errors="replace")
        code = await self.process.wait()
        if code not in (0, -signal.SIGKILL) and NEEDS_EPOCH not in errors:
            self._soak.problems.append(f"{self.name} ended with {code}: {errors[-600:]}")

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    def kill(self) -> None:
        self.was_disturbed = True
        with suppress(ProcessLookupError):
            self.process.kill()

    def freeze(self) -> None:
        self.is_frozen = self.was_disturbed = True
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.is_frozen:
            self.is_frozen = False
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)

    async def finish(self) -> None:
        """End it cleanly, or kill it if that takes too long."""
        self.thaw()
        assert self.process.stdin is not None
        assert self._reports is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(120.0):
                await asyncio.shield(self._reports)
        except TimeoutError:
            self._soak.problems.append(f"{self.name} did not end within 120 s")
            self.kill()
            await self._reports


@dataclass
class Stay:
    """A partition at one member."""

    member: Child
    since: float
    until: float = float("inf")


@dataclass
class GroupState:
    """The reports of the members of a group."""

    stays: dict[int, list[Stay]] = field(default_factory=lambda: defaultdict(list))
    done: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))


class Soak:
    """The brokers, the clients, and their reports."""

    def __init__(self, cluster: JvmCluster, seed: int, *, members: int, only_transactions: bool, churns: bool) -> None:
        self.problems: list[str] = []
        self._cluster = cluster
        self._churns = churns
        self._partitions = max(PARTITIONS, members)
        self.kills = 0
        self._random = random.Random(seed)
        self._sends: dict[str, Send] = {}
        self._histories = {kind: History() for kind in WRITERS}
        has_new_protocols = tuple(map(int, cluster.version.split("."))) >= (4, 2)
        self._groups = {
            name: GroupState()
            for name, kinds in GROUPS.items()
            if (has_new_protocols or "consumer" not in kinds) and (not churns or name in CHURNED)
        }
        self._children: list[Child] = []
        self._started = 0
        self.faults: list[str] = []
        """The faults so far, with their times in seconds."""
        self.proxies = {node.node_id: Proxy(node.advertised_port, node.client_port) for node in cluster.nodes.values()}
        self._transactions = Transactions(self.servers)
        self._sharing = Sharing(self.servers, TOPIC, members) if has_new_protocols and not only_transactions else None
        self._kinds = {} if churns else dict(self._transactions.kinds)
        """The number of processes of each kind."""
        if not only_transactions:
            self._kinds |= {**dict.fromkeys(WRITERS, 1), **dict.fromkeys(self._groups, members)}
        if self._sharing is not None:
            self._kinds |= self._sharing.kinds

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies.values())

    # Reports.

    def hear(self, child: Child, event: dict[str, Any]) -> None:
        kind = child.kind
        if kind in self._transactions.kinds:
            self._transactions.hear(kind, child.name, event)
            return
        if kind == SHARE_GROUP:
            assert self._sharing is not None
            self._sharing.hear(child.name, event)
            return
        match event["event"]:
            case "sent":
                place = TopicPartition(TOPIC, event["partition"])
                self._sends[event["value"]] = self._histories[kind].invoke(place, event["value"].encode())
            case "acknowledged":
                place = TopicPartition(TOPIC, event["partition"])
                self._sends[event["value"]].acknowledged(place, event["offset"])
            case "failed":
                self._sends[event["value"]].failed(RuntimeError(event["error"]))
            case "assigned":
                for partition in event["partitions"]:
                    self._groups[kind].stays[partition].append(Stay(child, event["at"]))
            case "revoked" | "lost":
                for partition in event["partitions"]:
                    self._end(kind, partition, child, event["at"])
            case "done":
                self._groups[kind].done[event["partition"]].add(event["offset"])

    def _end(self, group: str, partition: int, child: Child, at: float) -> None:
        for stay in self._groups[group].stays[partition]:
            if stay.member is child and stay.until == float("inf"):
                stay.until = at

    # The run.

    async def run(self, minutes: float) -> None:
        async with AsyncExitStack() as stack:
            for proxy in self.proxies.values():
                await proxy.start()
                stack.push_async_callback(proxy.close)
            stack.callback(self._kill_all)
            configs = {"min.insync.replicas": "2"}
            topics = {TOPIC: self._partitions, **dict.fromkeys(TRANSACTION_TOPICS, TRANSACTION_PARTITIONS)}
            self._admin = await stack.enter_async_context(Admin(self.servers))
            await self._admin.topics.create(
                [NewTopic(name, count, replication_factor=3, configs=configs) for name, count in topics.items()]
            )
            if self._sharing is not None:
                await self._sharing.start(self._admin)
            async with Producer(self.servers, transactional_id="first"):
                pass  # the brokers create the log of transactions at the first request, if all of them are running
            await self._start_missing()
            reading = asyncio.create_task(self._transactions.read_live())
            self._began = time.monotonic()
            ends = self._began + minutes * 60
            churning = asyncio.create_task(self._churn(ends))
            while time.monotonic() < ends:
                await asyncio.sleep(self._random.uniform(2.0, 8.0))
                if not self._churns:
                    await self._start_missing()
                await self._disturb()
            await churning
            await self._heal()
            await self._finish({*WRITERS, *TRANSACTIONAL_WRITERS})
            logs = await read_all(self.servers, partitions_of(TOPIC, self._partitions))
            await self._wait_for_groups(logs)
            if self._sharing is not None:
                self.problems += await self._sharing.wait_until_read(self._admin, logs)
            if not self._churns:
                await self._transactions.wait_for_copies()
            await self._finish(set(self._kinds))
            await self._check(logs)
            if self._sharing is not None:
                self.problems += self._sharing.problems(logs)
            if not self._churns:
                self.problems += await self._transactions.problems()
            reading.cancel()
            (end,) = await asyncio.gather(reading, return_exceptions=True)
            if not isinstance(end, asyncio.CancelledError):
                self.problems.append(f"the live reader ended: {end!r}")

    async def _finish(self, kinds: set[str]) -> None:
        for child in self._children:
            if child.kind in kinds:
                await child.finish()

    async def _start_missing(self) -> None:
        """Start a process for each one that was killed, or has ended because it was fenced."""
        for kind, count in self._kinds.items():
            running = [child for child in self._children if child.kind == kind and child.is_running]
            for _ in range(count - len(running)):
                await self._start(kind)

    async def _start(self, kind: str) -> None:
        self._started += 1
        if kind in self._transactions.kinds:
            module, arguments = self._transactions.command(kind, self._started)
        elif kind == SHARE_GROUP:
            assert self._sharing is not None
            module, arguments = self._sharing.command(self._started)
        elif kind in GROUPS:
            of_member = GROUPS[kind][self._started % len(GROUPS[kind])]
            module, arguments = "tests.end_to_end.member_process", [self.servers, TOPIC, kind, of_member, ""]
        else:
            arguments = [self.servers, TOPIC, str(self._partitions), f"{kind}{self._started}", kind]
            module = "tests.real.soak_writer"
        child = Child(kind, self._started, module, arguments, self)
        await child.start()
        self._children.append(child)

    def _kill_all(self) -> None:
        for child in self._children:
            child.thaw()
            child.kill()

    # Faults.

    async def _churn(self, ends: float) -> None:
        """Kill, with ``--churn``, a member of a group about once a second, and start another one in its place."""
        groups = [kind for kind in self._kinds if kind not in WRITERS]
        while self._churns and time.monotonic() < ends:
            await asyncio.sleep(self._random.uniform(*KILL_PAUSE))
            await self._kill_client(groups)
            self.kills += 1
            await self._start_missing()

    async def _disturb(self) -> None:
        kinds = ("kill", "stop", "freeze", "elect", "cut", "cut", "delay", "refuse")
        client_kinds = ("freeze_client",) if self._churns else ("kill_client", "freeze_client", "replace_client")
        fault = self._random.choice((*kinds, *client_kinds))
        node = self._random.choice(list(self._cluster.nodes.values()))
        proxy = self.proxies[node.node_id]
        seconds = self._random.choice((0.5, 2.0, 5.0, 12.0))
        self.faults.append(f"{time.monotonic() - self._began:.1f} s: {fault}, node {node.node_id}, {seconds:g} s")
        match fault:
            case "kill" | "stop":
                await asyncio.to_thread(node.kill if fault == "kill" else node.stop)
                await asyncio.sleep(seconds)
                await self._start_broker(node)
            case "freeze":
                node.freeze()
                await asyncio.sleep(seconds)
                node.thaw()
            case "cut":
                proxy.cut()
            case "delay":
                proxy.delay = self._random.choice((0.05, 0.3, 1.0))
                await asyncio.sleep(seconds)
                proxy.delay = 0.0
            case "refuse":
                proxy.refuses = True
                proxy.cut()
                await asyncio.sleep(seconds)
                proxy.refuses = False
            case "elect":  # leaders and coordinators move, and no broker ends
                with suppress(KafkaError):
                    await self._admin.leaders.elect(timeout=10.0)
            case "kill_client":
                await self._kill_client(self._kinds)
            case "freeze_client":
                child = self._any_client(self._kinds)
                child.freeze()
                await asyncio.sleep(seconds)
                child.thaw()
            case "replace_client":  # the new one fences it
                if (child := self._any_writer()) is not None:
                    child.freeze()
                    await self._start(child.kind)
                    await asyncio.sleep(seconds)
                    child.thaw()

    async def _kill_client(self, kinds: Collection[str]) -> None:
        child = self._any_client(kinds)
        child.thaw()
        child.kill()
        await child.process.wait()
        self._note_end(child)

    def _any_client(self, kinds: Collection[str]) -> Child:
        return self._random.choice([child for child in self._children if child.kind in kinds and child.is_running])

    def _any_writer(self) -> Child | None:
        """Return a transactional writer that has started alone. If two start at once, the older one may fence the newer
        one. Then their records have an order that the checks do not expect.
        """
        running = [child for child in self._children if child.kind in TRANSACTIONAL_WRITERS and child.is_running]
        of_kind = Counter(child.kind for child in running)
        alone = [child for child in running if child.has_reported and of_kind[child.kind] == 1]
        return self._random.choice(alone) if alone else None

    async def _start_broker(self, node: JvmNode) -> None:
        node.launch()  # in this thread: the process ends with the thread that started it
        await asyncio.to_thread(node.wait_until_ready)

    def _note_end(self, child: Child) -> None:
        for name, group in self._groups.items():
            for partition in group.stays:
                self._end(name, partition, child, time.monotonic())

    async def _heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.delay, proxy.refuses = 0.0, False
        for child in self._children:
            child.thaw()
        for node in self._cluster.nodes.values():
            node.thaw()
            if node.state is NodeState.STOPPED:
                await self._start_broker(node)
        await self._start_missing()

    # Checks.

    def _missing(self, logs: Logs) -> dict[str, int]:
        counts = {
            name: sum(
                record.offset not in group.done[partition.partition]
                for partition, log in logs.items()
                for record in log
            )
            for name, group in self._groups.items()
        }
        return {name: count for name, count in counts.items() if count}

    async def _wait_for_groups(self, logs: Logs) -> None:
        end = time.monotonic() + HEAL_TIMEOUT
        while (missing := self._missing(logs)) and time.monotonic() < end:
            await asyncio.sleep(0.5)
        for name, count in missing.items():
            self.problems.append(f"group {name} never processed {count} records")

    async def _check(self, logs: Logs) -> None:
        records = [record for log in logs.values() for record in log]
        for kind, promises in (("idempotent", Promises()), ("plain", Promises(once=False))):
            history = self._histories[kind]
            for send in history.sends:
                if send.outcome.name == "PENDING":
                    send.failed(RuntimeError("the process was killed"))
            own = [record for record in records if record.value.startswith(kind.encode())]
            for violation, evidence in violations(history, own, promises):
                self.problems.append(f"{kind}: {violation.value}: {evidence}")
        for name, group in self._groups.items():
            committed = (await self._admin.groups.offsets([name]))[name]
            for place, offset in committed.items():
                early = len(set(range(offset.offset)) - group.done[place.partition])
                if early:
                    text = f"committed {place} up to {offset.offset}, with {early} records that are not processed"
                    self.problems.append(f"group {name} {text}")
        for name, group in self._groups.items():
            for partition, stays in group.stays.items():
                self._check_owners(name, partition, stays)

    def _check_owners(self, group: str, partition: int, stays: list[Stay]) -> None:
        for number, one in enumerate(stays):
            for other in stays[number + 1 :]:
                shared = min(one.until, other.until) - max(one.since, other.since)
                bound = SHARED + LONGEST_FAULT * ("consumer" in GROUPS[group])
                if shared > bound and not one.member.was_disturbed and not other.member.was_disturbed:
                    names = f"{one.member.name} and {other.member.name}"
                    self.problems.append(f"{names} of {group} both owned partition {partition} for {shared:.1f} s")

    def summary(self) -> str:
        sends = sum(len(history.sends) for history in self._histories.values())
        shared = 0 if self._sharing is None else self._sharing.count
        return (
            f"{len(self.faults)} faults, {sends} sends, {self._transactions.count} transactions, {shared} deliveries "
            f"to a share group, {self._started} client processes, {self.kills} of them killed by --churn, "
            f"{len(self.problems)} problems"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="decides the order of the faults")
    parser.add_argument("--kafka", default=NEWEST, help="the release of the brokers")
    parser.add_argument("--members", type=int, default=MEMBERS, help="the members of each group")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--transactions", action="store_true", help="only writers and workers with transactions")
    only.add_argument("--churn", action="store_true", help="only three groups; kill a member about once a second")
    options = parser.parse_args()
    print(f"three brokers {options.kafka}, {options.minutes:g} minutes, seed {options.seed}", flush=True)
    cluster = JvmCluster(options.kafka)
    for node in cluster.nodes.values():
        node.advertised_port = free_port()
    cluster.start()
    try:
        soak = Soak(
            cluster,
            options.seed,
            members=options.members,
            only_transactions=options.transactions,
            churns=options.churn,
        )
        asyncio.run(soak.run(options.minutes))
    finally:
        cluster.close()
    if soak.problems:
        print("\n".join(soak.faults))
    for problem in soak.problems[:20]:
        print(f"  {problem[:600]}")
    print(soak.summary())
    return bool(soak.problems)


if __name__ == "__main__":
    sys.exit(main())
