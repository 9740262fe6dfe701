"""An awaitable in a context of its own: as a part of the task that awaits it, and without an effect on its context."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest

from aiokafka_lite.aio.callbacks import in_copy
from aiokafka_lite.aio.user_context import InContext
from tests.virtual import in_virtual_time

name: ContextVar[str] = ContextVar("name", default="")


async def rename(to: str) -> str:
    before = name.get()
    name.set(to)
    await asyncio.sleep(0.1)
    assert name.get() == to, "the variable stays set over a suspension"
    return before


@in_virtual_time
async def test_a_variable_that_is_set_in_the_context_is_not_set_outside() -> None:
    name.set("outside")
    context = copy_context()
    assert await InContext(rename("inside"), context) == "outside"
    assert (name.get(), context[name]) == ("outside", "inside")


def test_a_function_in_a_copy_sets_no_variable_of_the_caller() -> None:
    assert in_copy(name.set, "inside") is not None
    assert name.get() == ""


@in_virtual_time
async def test_it_runs_in_the_task_that_awaits_it() -> None:
    async def current() -> object:
        await asyncio.sleep(0)
        return asyncio.current_task()

    assert await InContext(current(), copy_context()) is asyncio.current_task()


@in_virtual_time
async def test_a_future_and_an_object_with_await_have_their_results() -> None:
    class Answer:
        def __await__(self) -> Generator[Any, Any, int]:
            yield from asyncio.sleep(0.1).__await__()
            return 42

    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_result(41)
    assert await InContext(future, copy_context()) == 41
    assert await InContext(Answer(), copy_context()) == 42


@in_virtual_time
async def test_an_exception_and_a_timeout_pass_through() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name.get())

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("wrong")

    context = copy_context()
    context.run(name.set, "inside")
    with pytest.raises(ValueError, match="wrong"):
        await InContext(fails(), context)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(InContext(forever(), context), 1.0)
    with anyio.move_on_after(1.0) as scope:
        await InContext(forever(), context)
    assert scope.cancelled_caught
    assert ended == ["inside", "inside"]


@in_virtual_time
async def test_an_exception_from_outside_can_be_caught_inside() -> None:
    """A cancellation is thrown into the coroutine, which may catch it and go on."""

    async def persistent() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "went on"

    task = asyncio.ensure_future(InContext(persistent(), copy_context()))
    await asyncio.sleep(1)
    task.cancel()
    assert await task == "went on"


def test_a_coroutine_that_is_dropped_is_closed_in_its_context() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(name.get())

    async def outer() -> None:
        context = copy_context()
        context.run(name.set, "inside")
        await InContext(forever(), context)

    coroutine = outer()
    coroutine.send(None)
    coroutine.close()
    assert ended == ["inside"]
