"""Settles the items of one admin call: in rounds, with retries, until the deadline.

Rule 1: Each round finds the brokers of the unsettled items, and asks all these brokers at the same time, each once. A
  round does not wait for the end of the previous one, so a broker that does not answer delays only its own items.

Rule 2: An item whose error is retriable stays for the next round, which begins after a backoff and with new metadata.
At the deadline it fails with KafkaTimeout, which names its last error.

Rule 3: Three answers are treated differently from ``aio.retry.is_retriable``, as Java's admin client does.
UNKNOWN_TOPIC_OR_PARTITION is final from the controller, which knows all topics. Other brokers may not know a new topic
yet, so their answer is retried for ``GRACE`` seconds. Codes in ``final`` are not retried. Codes in ``already``
are a success if an earlier attempt of the same call may have been executed.

This module does not know what requests contain, nor how the broker of an item is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import anyio
import anyio.abc

from ..aio.light_event import LightEvent
from ..aio.retry import is_retriable
from ..aio.service import unwrapped
from ..arguments import in_seconds
from ..cluster.coordinators import CoordinatorKey
from ..errors import BrokerError, ConnectionLost, ErrorCode, KafkaError, KafkaTimeout, ProtocolError, error_for
from .peer import Ask, Brokers, Deadline, FindTargets
from .results import Results

K = TypeVar("K")
V = TypeVar("V")

GRACE = 0.5
"""Seconds for which a new topic may be unknown to a broker."""

NOT_FOUND = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
_MAYBE_DONE = "An earlier attempt of this call had no answer, and may have been carried out."
_COORDINATOR_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Generic[K]):
    """The rules by which a call classifies errors.

    - ``grace`` is the number of seconds for which a missing topic is retried.
    - ``final`` contains the codes that are not retried.
    - ``already`` contains the codes that are a success of a repeated request, whose result is None. For example,
      UNKNOWN_TOPIC_OR_PARTITION is a success of a deletion whose first request had no answer.
    - ``key_of`` returns the group or transactional id of an item whose coordinator is asked. If the coordinator has
      moved, it is looked up again.
    """

    grace: float = GRACE
    final: Collection[ErrorCode] = ()
    already: Collection[ErrorCode] = ()
    key_of: Callable[[K], CoordinatorKey] | None = None


class Settling(Generic[K, V]):
    """One call of ``Calls.settle``: the pending items with their last errors, and the settled ones."""

    def __init__(self, brokers: Brokers, what: str, items: Iterable[K], deadline: Deadline, rules: Rules[K]) -> None:
        self._brokers = brokers
        self._what = what
        self._deadline = deadline
        self._rules = rules
        self._started = asyncio.get_running_loop().time()
        self._items = list(dict.fromkeys(items))
        self._pending: dict[K, KafkaError | None] = dict.fromkeys(self._items)
        self._done: dict[K, V] = {}
        self._failed: dict[K, KafkaError] = {}
        # Items of which an earlier attempt had no answer. The broker may have executed it, so an error such as "exists
        # already" may be the result of this call itself.
        self._repeated: set[K] = set()
        self._asked: set[K] = set()  # items with a request in flight
        self._answered = LightEvent()
        self._wrong: list[Exception] = []  # errors of the caller's arguments, not of an item

    async def run(self, find_targets: FindTargets, ask: Ask[K, V]) -> Results[K, V]:
        backoff = self._brokers.client.retry_backoff()
        try:
            with anyio.CancelScope(deadline=self._deadline.at) as scope:
                async with anyio.create_task_group() as requests:
                    while self._pending:
                        await self._begin_round(requests, find_targets, ask)
                        await self._wait_for_answer()
                        if self._pending:
                            # The error may come from old metadata, such as a leader that has moved (rule 2).
                            await asyncio.sleep(backoff.next())
                            await self._refresh_metadata()
        except BaseExceptionGroup as errors:
            raise unwrapped(errors) from None
        if scope.cancelled_caught:
            self._time_out()
        # Code of the program may have cancelled the task of a request. Its items have no result, but an error.
        for item, error in list(self._pending.items()):
            self._fail(item, error or KafkaError(f"{self._what}: the task of the request was cancelled"))
        return Results(
            {item: self._done[item] for item in self._items if item in self._done},
            {item: self._failed[item] for item in self._items if item in self._failed},
        )

    async def _begin_round(self, requests: anyio.abc.TaskGroup, find_targets: FindTargets, ask: Ask[K, V]) -> None:
        items = [item for item in self._pending if item not in self._asked]
        try:
            targets = await find_targets(items, self._deadline)
        except KafkaError as error:
            self._classify_all(items, error)
            return
        self._classify(targets.errors)
        for node_id, share in targets.by_node.items():
            assert self._asked.isdisjoint(share), "an item is asked for at one broker at a time"
            self._asked.update(share)
            requests.start_soon(self._ask_one, node_id, share, ask, 0.5 if targets.any_broker else 1.0)

    async def _wait_for_answer(self) -> None:
        """Wait until some pending item has no request in flight, or no item is pending.

        Raises the TypeError or ValueError with which the encoding refused an argument of the call.
        """
        while self._pending and self._asked.issuperset(self._pending):
            self._answered.clear()
            await self._answered.wait()
        if self._wrong:
            raise self._wrong[0]

    async def _ask_one(self, node_id: int, share: list[K], ask: Ask[K, V], of_time: float) -> None:
        try:
            await self._ask(node_id, share, ask, of_time)
        except (TypeError, ValueError) as error:
            self._wrong.append(error)
        self._asked.difference_update(share)
        self._answered.set()

    async def _ask(self, node_id: int, share: list[K], ask: Ask[K, V], of_time: float) -> None:
        try:
            peer = await self._brokers.peer(node_id, self._deadline, share=of_time)
            answers = await ask(peer, share)
        except KafkaError as error:
            self._note_unreachable(node_id, share, error)
            self._classify_all(share, error)
            return
        self._brokers.answered(node_id)
        self._classify(answers, node_id)
        unanswered = [item for item in share if item in self._pending and item not in answers]
        text = f"{self._what}: the response does not have this item"
        self._classify_all(unanswered, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text))

    def _note_unreachable(self, node_id: int, share: list[K], error: KafkaError) -> None:
        if not isinstance(error, ConnectionLost | KafkaTimeout | ProtocolError):
            return
        # Unless the request was never sent, the broker may have executed it.
        if not (isinstance(error, ConnectionLost) and not error.sent):
            self._repeated.update(share)
        self._brokers.failed(node_id)
        self._forget_coordinators(share, node_id)

    def _forget_coordinators(self, items: Iterable[K], node_id: int) -> None:
        if self._rules.key_of is not None:
            for key in dict.fromkeys(map(self._rules.key_of, items)):
                self._brokers.client.forget_coordinator(key.name, key.kind, node_id=node_id)

    # Classifying answers.

    def _classify_all(self, items: Iterable[K], error: KafkaError) -> None:
        self._classify(dict.fromkeys(items, error))

    def _classify(self, answers: Mapping[K, V | KafkaError], node_id: int = -1) -> None:
        for item, answer in answers.items():
            # A broker may also answer for items that it was not asked about.
            if item not in self._pending:
                continue
            if not isinstance(answer, KafkaError):
                self._succeed(item, answer)
                continue
            code = answer.code if isinstance(answer, BrokerError) else None
            if code in _COORDINATOR_MOVED:
                self._forget_coordinators([item], node_id)
            # The broker may still complete the operation after this answer.
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self._repeated.add(item)
            if code in self._rules.already and item in self._repeated:
                self._succeed(item, cast(V, None))  # calls that have such codes have no other result
            elif self._is_retriable(answer):
                self._pending[item] = answer
            else:
                self._fail(item, answer)

    def _succeed(self, item: K, value: V) -> None:
        del self._pending[item]
        self._done[item] = value

    def _fail(self, item: K, error: KafkaError) -> None:
        del self._pending[item]
        if item in self._repeated and _MAYBE_DONE not in getattr(error, "__notes__", ()):
            error.add_note(_MAYBE_DONE)
        self._failed[item] = error

    def _is_retriable(self, error: KafkaError) -> bool:
        """Decide as ``is_retriable`` does, with the exceptions of rule 3."""
        if isinstance(error, BrokerError):
            if error.code in NOT_FOUND:
                return asyncio.get_running_loop().time() < self._started + self._rules.grace
            if error.code in self._rules.final:
                return False
        return is_retriable(error)

    def _time_out(self) -> None:
        for item, error in list(self._pending.items()):
            last = "no broker answered" if error is None else f"the last error was: {error}"
            what = self._what if item == self._what else f"{self._what}: {item}"
            text = f"{what} did not succeed within {in_seconds(self._deadline.timeout)}; {last}"
            self._fail(item, KafkaTimeout(text))

    async def _refresh_metadata(self) -> None:
        """Wait for metadata that is newer than the errors, if any broker answers."""
        try:
            timeout = min(self._deadline.left, self._brokers.client.config.request_timeout)
            await self._brokers.client.refresh(timeout=max(timeout, 0.001))
        except KafkaTimeout:
            pass  # the next round uses the old metadata
