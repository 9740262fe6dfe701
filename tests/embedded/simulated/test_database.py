"""The database of a simulation: what transactions see, locks, lost transactions and unknown outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from aiokafka_lite.aio import virtual_time
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.processing.stores.store import OffsetChange, StaleClaim
from aiokafka_lite.testing.simulation import (
    DatabaseFailed,
    DatabaseSession,
    History,
    Instance,
    Outcome,
    RowExists,
    SimulatedStore,
    orders,
    simulate,
)
from aiokafka_lite.testing.simulation.database import Database
from aiokafka_lite.testing.simulation.effects import EffectFaults
from aiokafka_lite.types import GroupMetadata, TopicPartition

ORDERS = TopicPartition("orders", 0)


@dataclass
class Process:
    name: str
    is_dead: bool = False

    async def step_of_work(self, place: str) -> None:
        """Do nothing: no fault waits for it."""


class Server:
    """A database with two sessions, as two processes have them."""

    def __init__(self) -> None:
        self.history = History()
        self.faults = EffectFaults(Random(0))
        self.database = Database(self.history, self.faults)
        self.processes = [Process("instance 1"), Process("instance 2")]
        self.first, self.second = (DatabaseSession(self.database, process) for process in self.processes)

    @property
    def rows(self) -> dict[str, Any]:
        return self.database.tables.get("orders", {})


def run(test: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Server())

    virtual_time.run(main())


def test_a_transaction_is_seen_by_others_after_its_commit_and_not_after_its_rollback() -> None:
    async def both(server: Server) -> None:
        async with server.first.transaction() as writing:
            await writing.put("orders", "a", {"amount": 1})
            assert await writing.get("orders", "a") == {"amount": 1}
            async with server.second.transaction() as reading:
                assert await reading.get("orders", "a") is None
        with pytest.raises(LookupError):
            async with server.first.transaction() as failing:
                assert await failing.delete("orders", "a")
                await failing.insert("orders", {"amount": 2}, key="b")
                raise LookupError
        async with server.second.transaction() as reading:
            assert await reading.select("orders") == {"a": {"amount": 1}}

    run(both)


def test_a_row_that_is_changed_afterwards_is_not_changed_in_the_database() -> None:
    async def change(server: Server) -> None:
        row = {"amount": 1}
        async with server.first.transaction() as transaction:
            await transaction.put("orders", "a", row)
            row["amount"] = 2
        async with server.first.transaction() as transaction:
            (await transaction.get("orders", "a"))["amount"] = 3
        assert server.rows == {"a": {"amount": 1}}

    run(change)


def test_a_second_change_of_a_row_waits_for_the_end_of_the_first_transaction() -> None:
    async def add(session: DatabaseSession) -> None:
        async with session.transaction() as transaction:
            amount = await transaction.get("orders", "a", lock=True) or 0
            await asyncio.sleep(1.0)
            await transaction.put("orders", "a", amount + 1)

    async def both(server: Server) -> None:
        await asyncio.gather(add(server.first), add(server.second), add(server.first))
        assert server.rows == {"a": 3}

    run(both)


def test_a_row_with_the_same_key_is_refused_after_the_first_transaction_has_committed() -> None:
    async def insert(session: DatabaseSession) -> bool:
        async with session.transaction() as transaction:
            try:
                await transaction.insert("orders", 1, key="a")
            except RowExists:
                return False
            await asyncio.sleep(1.0)
            return True

    async def both(server: Server) -> None:
        assert await asyncio.gather(insert(server.first), insert(server.second)) == [True, False]

    run(both)


def test_numbers_of_a_sequence_are_not_given_twice_after_a_rollback() -> None:
    async def insert(server: Server) -> None:
        with pytest.raises(LookupError):
            async with server.first.transaction() as transaction:
                assert await transaction.insert("orders", "lost") == 1
                raise LookupError
        async with server.first.transaction() as transaction:
            assert await transaction.insert("orders", "kept") == 2
        assert server.rows == {2: "kept"}

    run(insert)


def test_a_deadlock_ends_one_of_the_two_transactions() -> None:
    async def change(session: DatabaseSession, keys: str) -> str:
        try:
            async with session.transaction() as transaction:
                for key in keys:
                    await transaction.put("orders", key, keys)
                    await asyncio.sleep(0.1)
        except DatabaseFailed as failed:
            return str(failed)
        return "committed"

    async def both(server: Server) -> None:
        results = await asyncio.gather(change(server.first, "ab"), change(server.second, "ba"))
        assert sorted(result.partition(":")[0] for result in results) == ["committed", "deadlock"]
        assert len(set(server.rows.values())) == 1

    run(both)


def test_a_restart_ends_the_transactions_and_refuses_new_ones_until_the_server_is_up() -> None:
    async def restart(server: Server) -> None:
        with pytest.raises(DatabaseFailed, match="has ended the transaction"):
            async with server.first.transaction() as transaction:
                await transaction.put("orders", "a", 1)
                server.database.restart(2.0)
        with pytest.raises(DatabaseFailed, match="is down"):
            async with server.second.transaction():
                pass
        await asyncio.sleep(2.0)
        async with server.second.transaction() as transaction:
            assert await transaction.get("orders", "a") is None

    run(restart)


def test_a_killed_process_frees_its_locks_and_commits_nothing() -> None:
    async def kill(server: Server) -> None:
        with pytest.raises(asyncio.CancelledError):
            async with server.first.transaction() as transaction:
                await transaction.put("orders", "a", 1)
                server.processes[0].is_dead = True
                server.database.disconnect(server.processes[0])
        async with server.second.transaction() as transaction:
            await transaction.insert("orders", 2, key="a")
        assert server.rows == {"a": 2}

    run(kill)


@pytest.mark.parametrize(("outcome", "rows"), [(Outcome.FAILED, {}), (Outcome.UNKNOWN, {"a": 1})])
def test_a_commit_fails_before_or_after_it_happened(outcome: Outcome, rows: dict[str, int]) -> None:
    async def commit(server: Server) -> None:
        server.faults.failing.append(outcome)
        with pytest.raises(DatabaseFailed):
            async with server.first.transaction() as transaction:
                transaction.effect("charge", "a")
                await transaction.put("orders", "a", 1)
        assert server.rows == rows
        assert [effect.outcome for effect in server.history.effects] == [outcome]

    run(commit)


def test_a_cancelled_commit_may_have_happened() -> None:
    async def commit(server: Server, key: str) -> None:
        async with server.first.transaction() as transaction:
            transaction.effect("charge", key)
            await transaction.put("orders", key, 1)

    async def cancel(server: Server) -> None:
        for number in range(20):
            server.faults.slow.append(5.0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await commit(server, f"order-{number}")
        assert 0 < len(server.rows) < 20
        assert [effect.id for effect in server.history.effects] == list(server.rows)
        assert {effect.outcome for effect in server.history.effects} == {Outcome.UNKNOWN}

    run(cancel)


def test_the_store_refuses_offsets_of_a_former_owner_and_of_another_place() -> None:
    async def save(server: Server, member: GroupMetadata, expected: int | None) -> None:
        change = OffsetChange(member.generation_id, member.member_id, expected, 5)
        async with server.first.transaction() as transaction:
            await SimulatedStore(server.first).save(transaction, "billing", {ORDERS: change})

    async def claim(server: Server, member: GroupMetadata, *, force: bool = False) -> int | None:
        async with server.first.transaction() as transaction:
            return (await SimulatedStore(server.first).claim(transaction, member, [ORDERS], force=force))[ORDERS]

    async def change_owners(server: Server) -> None:
        former, owner = GroupMetadata("billing", 1, "former"), GroupMetadata("billing", 2, "owner")
        assert await claim(server, former) is None
        await save(server, former, None)
        assert await claim(server, owner) == 5
        with pytest.raises(StaleClaim):
            await save(server, former, 5)
        with pytest.raises(StaleClaim):
            await save(server, owner, 4)
        with pytest.raises(StaleClaim):
            await claim(server, former)
        assert await claim(server, former, force=True) == 5

    run(change_owners)


def test_wrong_use_is_refused() -> None:
    async def misuse(server: Server) -> None:
        async with server.first.transaction() as transaction:
            with pytest.raises(ValueError, match=r"orders\['a'\] must not be None"):
                await transaction.put("orders", "a", None)
        with pytest.raises(IllegalStateError, match="has ended"):
            await transaction.get("orders", "a")
        with pytest.raises(IllegalStateError, match="has ended"):
            transaction.effect("charge", "a")

    run(misuse)


def test_a_check_sees_the_tables_at_the_end() -> None:
    async def stores(instance: Instance) -> None:
        async with instance.database.transaction() as transaction:
            await transaction.put("started", instance.number, True)
        await instance.stopping.wait()

    def both_started(history: History) -> str | None:
        return None if history.tables == {"started": {1: True, 2: True}} else f"tables: {history.tables}"

    simulate(stores, orders(3), seeds=1, seconds=1.0, faults=(), checks=[both_started])
