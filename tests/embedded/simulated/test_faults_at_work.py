"""Faults that hit the work of a service: between two steps of it, and after the service has given an effect up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from aiokafka_lite.testing.simulation import (
    EffectFailed,
    History,
    Instance,
    SimulationFailure,
    orders,
    processed_at_least_once,
    simulate,
)
from tests.embedded.simulated.classic_mistakes import order_of, orders_of


def test_an_instance_is_killed_and_blocked_between_two_steps_of_its_work() -> None:
    async def works(instance: Instance) -> None:
        async with orders_of(instance) as consumer:
            async for record in consumer:
                await instance.effect("reserve", order_of(record))
                await instance.effect("charge", order_of(record))

    between: set[str] = set()

    def see(history: History) -> None:
        ends = {(effect.process, effect.ended_at): effect.id for effect in history.effects if effect.name == "reserve"}
        charges = {(effect.process, effect.id): effect.at for effect in history.effects if effect.name == "charge"}
        for event in history.events:
            process, _, text = event.text.partition(" is ")
            if order := ends.get((process, event.at)):
                assert charges.get((process, order), float("inf")) > event.at
                between.add(text)

    simulate(works, orders(40), seeds=40, checks=[see], faults=["instance_killed", "instance_blocked"])
    assert {text.partition(" ")[0] for text in between} == {"killed", "blocked"}
    assert all(text.endswith(("before an effect", "after an effect")) for text in between), between


def test_a_process_that_an_error_has_ended_does_nothing_more() -> None:
    """Its tasks and clients once went on beside those of the next process."""

    async def fails(instance: Instance) -> None:
        async def work() -> None:
            async with orders_of(instance) as consumer:
                async for record in consumer:
                    await instance.effect("charge", order_of(record))

        working = asyncio.create_task(work())
        if "start" in instance.name:  # its second process
            await working
        await asyncio.sleep(5.0)
        raise EffectFailed("the price list is away")

    def ends(history: History) -> str | None:
        ended = {event.text.partition(" ends")[0]: event.at for event in history.events if " ends with" in event.text}
        late = [effect for effect in history.effects if effect.at > ended.get(effect.process, float("inf"))]
        return f"{late[0].process} has an effect at {late[0].at}" if late else None

    simulate(fails, orders(40), seeds=5, checks=[ends, processed_at_least_once()], faults=())


def test_an_effect_that_the_service_gives_up_may_have_happened() -> None:
    def gives_up(*, has_key: bool) -> Callable[[Instance], Awaitable[None]]:
        async def service(instance: Instance) -> None:
            async with orders_of(instance) as consumer:
                async for record in consumer:
                    order = order_of(record)
                    while True:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(1.0):
                                await instance.effect("charge", order, idempotence_key=order if has_key else None)
                            break

        return service

    with pytest.raises(SimulationFailure, match=r"the effect 'charge' of 'order-\d+' happened 2 times") as failure:
        simulate(gives_up(has_key=False), orders(40), seeds=50, faults=["effect_slow"])
    assert "the effect 'charge': done, but the answer was lost" in str(failure.value)
    assert simulate(gives_up(has_key=True), orders(40), seeds=50, faults=["effect_slow"]).seeds == 50
