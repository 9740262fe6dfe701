"""Bytes are granted in the order of the calls, for any sequence of acquire, release and cancel."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aiokafka_lite.aio.byte_budget import ByteBudget

TOTAL = 100


class BudgetMachine(RuleBasedStateMachine):
    """The loop runs only in the rules that turn it, so every order of events occurs."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.budget = ByteBudget(TOTAL)
        self.held: list[int] = []
        self.had: list[int] = []
        self.calls: list[asyncio.Task[None]] = []
        self.lookers: list[asyncio.Task[None]] = []
        self.cancelled: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> list[asyncio.Task[None]]:
        return [call for call in self.calls if not call.done() and call not in self.cancelled]

    @rule(size=st.integers(1, TOTAL))
    def acquire(self, size: int) -> None:
        number = len(self.calls)

        async def call() -> None:
            await self.budget.acquire(size)
            self.had.append(number)
            self.held.append(size)

        self.calls.append(self.loop.create_task(call()))
        self.turn()

    @rule(size=st.integers(1, TOTAL))
    def try_acquire(self, size: int) -> None:
        waiting = self.waiting
        if self.budget.try_acquire(size):
            assert not waiting, "it has overtaken a call that came before"
            self.held.append(size)

    @rule(size=st.integers(1, TOTAL))
    def room_for(self, size: int) -> None:
        self.lookers.append(self.loop.create_task(self.budget.room_for(size)))
        self.turn()

    @rule(choice=st.randoms(use_true_random=False))
    def release(self, choice: Random) -> None:
        if self.held:
            self.budget.release(self.held.pop(choice.randrange(len(self.held))))

    @rule(choice=st.randoms(use_true_random=False))
    def cancel(self, choice: Random) -> None:
        open_calls = [*self.waiting, *(looker for looker in self.lookers if not looker.done())]
        if open_calls:
            call = choice.choice(open_calls)
            call.cancel()
            self.cancelled.add(call)

    @rule()
    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    @invariant()
    def in_order(self) -> None:
        assert self.had == sorted(self.had)
        assert sum(self.held) <= self.budget.used <= TOTAL

    def teardown(self) -> None:
        for _ in range(len(self.calls) + len(self.lookers) + 1):
            while self.held:
                self.budget.release(self.held.pop())
            self.turn()
            self.turn()
        assert all(call.done() for call in (*self.calls, *self.lookers)), "with all bytes released no caller waits"
        assert (self.budget.used, self.budget.waiting, self.budget.is_short) == (0, 0, False)
        self.loop.close()


TestByteBudget = BudgetMachine.TestCase
TestByteBudget.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
