"""The heartbeat thread of one member: a second, small event loop that works only while the member's loop does not turn.

It has a ``Client`` of its own, with the same settings, so connections, TLS, login and the search for the coordinator
are the same code. The client exists from the first heartbeat until the loop has turned for a minute.

``post``, ``turned``, ``newest``, ``start`` and ``stop`` are called in the member's loop, which alone writes ``_posted``
and ``_turn``. Everything else belongs to the thread. Both only replace references, so no lock is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

import anyio

from ..aio import forks
from ..aio.light_event import LightEvent
from ..aio.retry import Backoff
from ..cluster.client import Client
from ..cluster.coordinator_channel import CoordinatorChannel
from ..errors import ErrorCode, KafkaError
from ..net.connection import Purpose
from .beats import SHORTEST_PATIENCE, Beat

logger = logging.getLogger(__name__)

LONGEST_CHECK = 2.0
"""The longest time between two looks at the member's loop, in seconds, because a newer ``Beat`` may have less patience.
"""

RETRY = 0.5
"""Seconds after a failed attempt."""

LONGEST_RETRY = 5.0
"""The longest pause between two attempts to connect, in seconds."""

KEPT_OPEN = 60.0
"""Seconds without a heartbeat after which the thread closes its connections."""

STACK_INTERVAL = 60.0
"""Seconds between two stacks of a blocked loop in the log, for all members of one loop together."""

FRAMES = 12
"""The number of innermost calls of a stack in the log."""

_RENEWS_SESSION = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

Deliver = Callable[[Beat, Beat, object, float, float], None]
"""Receives an answer in the member's loop: the posted ``Beat``, the sent one, the response, and ``time.monotonic()`` of
the request and of the response."""

_stack_logged_at: dict[int, float] = {}
"""The time of the last stack in the log, by the thread of the loop."""


class _Turn(NamedTuple):
    """A turn of the member's loop. ``at`` is ``time.monotonic()``; ``poll_left`` is in seconds from then on."""

    at: float
    poll_left: float


class ThreadWorker:
    """One thread, for the member whose ``client`` this is. ``deliver`` gets the answers in the member's loop."""

    def __init__(self, client: Client, group_id: str, deliver: Deliver) -> None:
        self._member_client = client
        self._group_id = group_id
        self._deliver = deliver
        self._home = asyncio.get_running_loop()
        self._home_thread = threading.get_ident()
        self.ended: LightEvent = LightEvent()
        """Set in the member's loop when the thread has ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope = anyio.CancelScope()  # of all that the thread does
        self._posted: Beat | None = None
        self._turn = _Turn(time.monotonic(), 0.0)
        self._base: Beat | None = None  # the posted ``Beat`` that ``_next`` comes from
        self._next: Beat | None = None
        self._is_over_limit = False
        self.renewals: int = 0
        """The heartbeats that have renewed the session. Written by the thread."""

    # Called in the member's loop.

    def post(self, beat: Beat | None) -> None:
        """Replace the heartbeat to send; None while the member needs none."""
        self._posted = beat

    def turned(self, poll_left: float) -> None:
        """Record that the loop turns now, and that ``max_poll_interval`` ends in ``poll_left`` seconds."""
        self._turn = _Turn(time.monotonic(), poll_left)

    @property
    def newest(self) -> Beat | None:
        """The next heartbeat of the thread, made from the present ``Beat`` of the member; None if there is none."""
        return self._next if self._base is self._posted else None

    def start(self) -> None:
        """Start the thread. Raises OSError or RuntimeError if the system refuses an event loop or a thread."""
        loop = asyncio.new_event_loop()
        try:
            # A daemon: the interpreter does not wait for it.
            threading.Thread(target=self._run, args=(loop,), name="kafka-heartbeats", daemon=True).start()
        except RuntimeError:
            loop.close()
            raise
        self._loop = loop

    def stop(self) -> None:
        """Tell the thread to end. ``ended`` is set afterwards."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the thread has closed its loop
                self._loop.call_soon_threadsafe(self._scope.cancel)

    # The thread.

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        origin = forks.generation
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._main())
        except Exception:
            logger.exception("the heartbeat thread ended")
        finally:
            if origin == forks.generation:
                with contextlib.suppress(RuntimeError):  # the member's loop is closed
                    self._home.call_soon_threadsafe(self.ended.set)

    async def _main(self) -> None:
        with self._scope:
            await self._watch()

    async def _watch(self) -> None:
        keeps_open = self._member_client.login_needs_loop
        backoff = Backoff(RETRY, LONGEST_RETRY)
        while not self._home.is_closed():
            if not keeps_open and self._due() is None:
                await asyncio.sleep(self._pause())
                continue
            try:
                async with self._member_client.twin(self._home) as client:
                    backoff.reset()
                    await self._send_while_blocked(client, keeps_open=keeps_open)
            except KafkaError as error:
                logger.debug("group %s: the heartbeat thread failed: %s", self._group_id, error)
                await asyncio.sleep(backoff.next())

    async def _send_while_blocked(self, client: Client, *, keeps_open: bool) -> None:
        """Send heartbeats until none was due for ``KEPT_OPEN`` seconds; with ``keeps_open``, without an end."""
        channel = CoordinatorChannel(client, self._group_id)
        last = time.monotonic()
        while keeps_open or time.monotonic() < last + KEPT_OPEN:
            beat = self._due()
            if beat is not None:
                last = time.monotonic()
                await asyncio.sleep(await self._send(channel, beat))
                continue
            if keeps_open:
                # A login needs the member's loop, so the thread logs in before a block.
                with contextlib.suppress(KafkaError):
                    await channel.versions()
            await asyncio.sleep(self._pause())

    def _due(self) -> Beat | None:
        """Return the heartbeat to send now; None while the loop turns, and after ``max_poll_interval``."""
        posted, turn = self._posted, self._turn
        if posted is not self._base:
            self._base = self._next = posted
        beat, blocked = self._next, time.monotonic() - turn.at
        if beat is None or blocked < beat.patience:
            self._is_over_limit = False
            return None
        self._log_stack(blocked)
        if blocked > turn.poll_left:
            if not self._is_over_limit:
                logger.warning(
                    "group %s: the event loop is still blocked, and max_poll_interval is over; the heartbeat thread "
                    "stops, so the session ends",
                    self._group_id,
                )
            self._is_over_limit = True
            return None
        return beat

    def _pause(self) -> float:
        """Return the seconds until the next look at the member's loop."""
        patience = SHORTEST_PATIENCE if self._next is None else self._next.patience
        seconds = self._turn.at + patience - time.monotonic()
        return min(seconds, LONGEST_CHECK) if seconds > 0 else RETRY

    async def _send(self, channel: CoordinatorChannel, beat: Beat) -> float:
        """Send one heartbeat. Returns the seconds until the next one."""
        posted, sent_at, timeout = self._base, time.monotonic(), max(beat.patience, beat.interval)
        assert posted is not None
        with anyio.move_on_after(2 * timeout) as attempt:
            try:
                response, node_id = await channel.send(
                    lambda versions: beat.request(), purpose=Purpose.GROUP, timeout=timeout
                )
            except KafkaError as error:
                logger.debug("group %s: a heartbeat of the heartbeat thread failed: %s", self._group_id, error)
                return RETRY
        if attempt.cancelled_caught:
            return RETRY
        answered_at, code = time.monotonic(), ErrorCode.of(response.error_code)
        channel.record([code], node_id)
        self._next = beat.following(response)
        self.renewals += code in _RENEWS_SESSION
        logger.debug("group %s: the heartbeat thread got the answer %s", self._group_id, code.name)
        if not self._home.is_closed():
            with contextlib.suppress(RuntimeError):  # closed since then
                self._home.call_soon_threadsafe(self._deliver, posted, beat, response, sent_at, answered_at)
        return beat.interval if code in _RENEWS_SESSION else RETRY

    def _log_stack(self, blocked: float) -> None:
        now = time.monotonic()
        if now - _stack_logged_at.get(self._home_thread, -STACK_INTERVAL) < STACK_INTERVAL:
            return
        if not _has_gil():
            _stack_logged_at[self._home_thread] = now
            logger.warning("group %s: the event loop has been blocked for %.1f s", self._group_id, blocked)
            return
        frame = sys._current_frames().get(self._home_thread)  # noqa: SLF001 - public by its documentation
        if frame is None:
            return  # the thread of the loop has ended
        _stack_logged_at[self._home_thread] = now
        text = "group %s: the event loop has been blocked for %.1f s in:\n%s"
        logger.warning(text, self._group_id, blocked, _stack_of(frame))


def _has_gil() -> bool:
    """Return whether this Python has a GIL.

    Without one, ``sys._current_frames()`` stops all threads, and waits for one that is in C code. So would heartbeats.
    """
    is_enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)  # since Python 3.13
    return is_enabled is None or is_enabled()


def _stack_of(frame: FrameType) -> str:
    """Return the innermost calls, without those of asyncio that lead to the program's code."""
    calls = traceback.extract_stack(frame)
    for position, call in enumerate(calls):
        if call.name == "_run" and call.filename.endswith(os.path.join("asyncio", "events.py")):
            calls = traceback.StackSummary.from_list(calls[position + 1 :])
            break
    return "".join(traceback.StackSummary.from_list(calls[-FRAMES:]).format()).rstrip()
