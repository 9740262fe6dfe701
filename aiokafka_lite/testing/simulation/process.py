"""One process of the service in a simulation: its tasks, its effects, and the ways in which it ends."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from traceback import walk_tb
from typing import Any, TypeVar

from ...aio.memory_pipe import MemoryTransport
from ...errors import KafkaError
from ...net.connector import default_connector
from .blocking import OwnProcess, current_process
from .database import Database, DatabaseSession
from .effects import EffectFailed, EffectFaults
from .history import Effect, Event, History, Outcome
from .network import Network
from .real_io import RealIOError, SimulationLoop, is_of_a_user, stop_signal

P = TypeVar("P", bound=asyncio.BaseProtocol)

BROKER_HOST = "127.0.0.1"
"""The host of the simulated brokers."""
ERRORS_OF_AIOKAFKA = "aiokafka_lite.compat.aiokafka.errors"
"""The module with the errors of clients that have aiokafka's names. They are no subclasses of this client's."""
CANCELLATIONS = 10
"""The number of times that the tasks of a process are cancelled before it counts as one that never ends."""


class Instance:
    """What a service is given: the address of its cluster, and the effects that it has outside Kafka.

    ``number`` is the number of the instance, from 1; the process that is started after a crash has the same number, and
    another ``name``. Clients that are created in the service connect to the simulated cluster. ``database`` is a
    database of all processes of the service.
    """

    def __init__(self, process: Process, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.name = process.name
        self.number = process.number
        self.database = DatabaseSession(process.database, process)
        self._process = process

    def __repr__(self) -> str:
        return f"<Instance {self.name}>"

    @property
    def stopping(self) -> asyncio.Event:
        """An event that is set when the instance receives SIGTERM, for a service that waits for it."""
        self._process.watches_stop = True
        return self._process.stopping

    async def effect(self, name: str, message: object, *, idempotence_key: object = None) -> None:
        """Record an effect outside Kafka: ``name`` says what, and ``message`` is the id of its message.

        It takes some time. It may raise EffectFailed, before or after the effect happened. An effect with an
        ``idempotence_key`` that was used before does not happen again.
        """
        await self._process.effect(name, str(message), None if idempotence_key is None else str(idempotence_key))

    def happened(self, name: str, message: object) -> None:
        """Record an effect that has just happened, such as a printed line. It takes no time and cannot fail."""
        self._process.happened(name, str(message))


class Process:
    """A process. ``ended`` is set when it has ended, in whatever way."""

    def __init__(
        self, name: str, number: int, history: History, network: Network, faults: EffectFaults, database: Database
    ) -> None:
        self.name = name
        self.number = number
        self.database = database
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.signal_handlers: dict[int, Callable[[], object]] = {}
        self.refused: list[str] = []
        self.stopping = asyncio.Event()
        self.watches_stop = False
        self.ended = asyncio.Event()
        self.is_dead = False
        self.failure = ""
        """The error of a client, or of an effect, that has ended it. Faults cause such errors."""
        self._history = history
        self._network = network
        self._faults = faults
        self._service: Any = None
        self._main: asyncio.Task[None] | None = None
        self._stop_call: asyncio.Task[Any] | None = None
        self._context = copy_context()
        self._context.run(current_process.set, self)
        self._context.run(default_connector.set, _ProcessConnector(self, network))

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self.ended.is_set()

    def start(self, service: Callable[[Instance], Any], bootstrap_servers: str) -> None:
        """Run the service in a task of its own."""
        self.note("starts")
        running = self._run(service, Instance(self, bootstrap_servers))
        self._main = asyncio.get_running_loop().create_task(running, name=self.name, context=self._context)

    async def _run(self, service: Callable[[Instance], Any], instance: Instance) -> None:
        try:
            result = service(instance)
            if inspect.isawaitable(result):
                await result
            elif inspect.iscoroutinefunction(getattr(result, "run", None)):
                self._service = result
                await result.run()
            else:
                raise TypeError(f"a service is an async function or has an async run(), got {result!r}")
        except BaseException as error:  # noqa: BLE001 - what ends the process is judged below
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self.ended.is_set():
            return
        if isinstance(error, asyncio.CancelledError) and (self.is_dead or self.stopping.is_set()):
            error = None
        self.note("ends" if error is None else f"ends with {_short(error)}")
        if error is not None and not self.is_dead:
            text = f"{self.name} ended with {_short(error)}{_place_of(error)}"
            if _is_fault(error):
                self.failure = text
            else:
                self._history.errors.append(text)
        self.ended.set()

    def kill(self, place: str = "") -> None:
        """End as ``kill -9`` does: connections drop, and nothing that its tasks still do has an effect.

        ``place`` says where in its work it stands.
        """
        self.note(f"is killed {place}".rstrip())
        self.exit()

    def exit(self) -> None:
        """End what the process has not ended itself: its tasks, connections and transactions."""
        self.is_dead = True
        self._network.kill(self.name)
        self.database.disconnect(self)
        self.ended.set()
        for task in list(self.tasks):
            task.cancel()

    async def stop(self, timeout: float) -> None:
        """Send SIGTERM, and wait until the process has ended, or ``timeout`` seconds."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        self.note("receives SIGTERM")
        self.stopping.set()
        loop.call_soon(self._handle_signal, context=self._context)
        await asyncio.sleep(max(0.0, loop.blocked_until(self) - loop.time()))  # the process cannot end before
        begun = loop.time()
        try:
            async with asyncio.timeout(timeout):
                await self.ended.wait()
        except TimeoutError:
            self._history.stops.append((self.name, None))
            self.kill()
            return
        if self.is_dead:  # a fault killed it meanwhile, so it could not clean up
            return
        self._history.stops.append((self.name, loop.time() - begun))
        await asyncio.sleep(1.0)  # connections close, and callbacks run
        if tasks := [task for task in self.tasks if not task.done()]:
            name = getattr(tasks[0].get_coro(), "__qualname__", tasks[0].get_name())
            self._history.left_behind.append(f"{self.name} left a task behind: {name}")
        elif links := self._network.open_links_of(self.name):
            self._history.left_behind.append(f"{self.name} left {links} connections open")

    def _handle_signal(self) -> None:
        """Handle SIGTERM, in the context of the process, when its loop is not blocked."""
        handler = stop_signal(self.signal_handlers) or getattr(self._service, "stop", None)
        if handler is not None:
            result = handler()
            if inspect.iscoroutine(result):
                self._stop_call = asyncio.get_running_loop().create_task(result)
        elif not self.watches_stop and self._main is not None:
            self._main.cancel()

    async def clear(self) -> None:
        """Cancel what a process left behind."""
        for _ in range(CANCELLATIONS):
            if not self.tasks:
                return
            for task in list(self.tasks):
                task.cancel()
            await asyncio.wait(list(self.tasks), timeout=0.1)
        for task in list(self.tasks):
            _abandon(task)
        self.tasks.clear()

    async def effect(self, name: str, message: str, idempotence_key: str | None) -> None:
        """Do an effect, with the faults that are due."""
        faults, loop = self._faults, asyncio.get_running_loop()
        self._refuse_if_dead()
        await self.step_of_work("before an effect")
        effect = Effect(loop.time(), self.name, name, message, idempotence_key=idempotence_key)
        self._history.effects.append(effect)
        try:
            await asyncio.sleep(faults.next_duration())
            self._refuse_if_dead()
            failure = Outcome.FAILED if faults.are_down() else faults.next_failure()
            if failure is Outcome.FAILED:
                effect.outcome = Outcome.FAILED
                raise EffectFailed(f"{name} of {message} failed")
            faults.apply(effect, Outcome.DONE if failure is None else Outcome.UNKNOWN)
        except asyncio.CancelledError:  # the service gives up, but what it has asked for may happen
            if not self.is_dead and not faults.are_down() and faults.outlasts_its_caller():
                faults.apply(effect, Outcome.UNKNOWN)
            raise
        finally:
            effect.ended_at = loop.time()
            if effect.outcome is Outcome.RUNS:
                effect.outcome = Outcome.FAILED
        await self.step_of_work("after an effect")
        if effect.outcome is Outcome.UNKNOWN:
            raise EffectFailed(f"the answer to {name} of {message} was lost")

    async def step_of_work(self, place: str) -> None:
        """Note that an effect, a change of a row or a commit begins, or has ended. Do the faults that wait for it."""
        if self._faults.at_work and (due := self._faults.due_at_work(self.number)):
            for fault in due:
                asyncio.get_running_loop().call_soon(fault.do, self.number, place, context=fault.context)
            await asyncio.sleep(0)  # they happen before the next line, which a process that was killed never reaches

    def happened(self, name: str, message: str) -> None:
        """Record an effect without faults."""
        self._refuse_if_dead()
        now = asyncio.get_running_loop().time()
        self._history.effects.append(Effect(now, self.name, name, message, Outcome.DONE, now))

    def _refuse_if_dead(self) -> None:
        if self.is_dead:
            raise asyncio.CancelledError

    def note(self, text: str) -> None:
        """Add a line to the timeline, which begins with the name of the process."""
        self._history.events.append(Event(asyncio.get_running_loop().time(), f"{self.name} {text}"))


class _ProcessConnector:
    """Connects the clients of a process, and refuses addresses that are not in the simulation."""

    def __init__(self, process: Process, network: Network) -> None:
        self._process = process
        self._network = network

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], P]) -> tuple[MemoryTransport, P]:
        if host != BROKER_HOST:
            text = (
                f"{self._process.name} connects to {host}:{port}, which is no broker of the simulation; "
                "the clients of a service connect to instance.bootstrap_servers"
            )
            self._process.refused.append(text)
            raise ConnectionRefusedError(text)
        return await self._network.connect(self._process.name, host, port, protocol_factory)


def track_tasks(loop: asyncio.AbstractEventLoop, coro: Any, **settings: Any) -> asyncio.Task[Any]:
    """Make a task, as the task factory of the loop, and note it in the process to which it belongs."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **settings)
    context = settings.get("context")
    process = current_process.get() if context is None else context.get(current_process)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(partial(_forget, process))
    return task


def _forget(process: OwnProcess, task: asyncio.Task[Any]) -> None:
    """Forget a task that has ended. If an exception has ended a task of the service, it is a line of the timeline."""
    process.tasks.pop(task, None)
    error: BaseException | None = task._exception  # noqa: SLF001 - see below
    if error is None:
        return
    # task.exception() would say that somebody has seen the exception.
    code = getattr(task.get_coro(), "cr_code", None)
    if code is not None and is_of_a_user(code.co_filename):
        process.note(f"sees its task {code.co_name}() end with {_short(error)}")


def _abandon(task: Any) -> None:
    """Make the loop forget a task that ignores its cancellation. Its shutdown would wait for the task for ever."""
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - for event loops of third parties
    task._log_destroy_pending = False  # noqa: SLF001 - as above


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _is_fault(error: BaseException) -> bool:
    """Return whether an exception is what a fault may do: production restarts such a process."""
    of_aiokafka = sys.modules.get(ERRORS_OF_AIOKAFKA)  # not imported: a service without these names has no such error
    compatible = () if of_aiokafka is None else (of_aiokafka.KafkaError,)
    return all(
        isinstance(leaf, (KafkaError, EffectFailed, asyncio.CancelledError, *compatible))
        and not isinstance(leaf, RealIOError)
        for leaf in _leaves(error)
    )


def _short(error: BaseException) -> str:
    return ", ".join(f"{type(leaf).__name__}: {leaf}"[:200] for leaf in _leaves(error)[:2])


def _place_of(error: BaseException) -> str:
    """Return the last line of the service, or else of this package, that raised an exception, as the end of a sentence.

    The line of a library does not say what the service has called it for.
    """
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(_leaves(error)[0].__traceback__)]
    own = [place for place in places if is_of_a_user(place[0])]
    for name, line in (own or places)[-1:]:
        return f" at {name}:{line}"
    return ""
