"""Heartbeats while the event loop is blocked: the event loop's side of the heartbeat thread of one member.

Rules of this file:

Rule 1: No thread exists until the loop has been blocked once for more than ``BLOCK`` seconds, or ``heartbeat_thread``
        is "always". The session of a member may end in the first block.
Rule 2: State has one owner. The thread gets an immutable ``Beat`` at each change of the member, and the time of the
        loop's last turn once a second. It posts its answers to the loop, and touches nothing else of the member.
Rule 3: The thread sends heartbeats only while the loop does not turn, and only until ``max_poll_interval``, so that a
        program that is stuck loses its partitions.
Rule 4: There is no thread on a loop in virtual time. A connector of the user may depend on its loop, so it is used in a
        thread only with "always".
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from ..aio.loop_delay import BLOCK
from ..cluster.client import Client
from ..errors import ErrorCode, IllegalStateError
from ..settings.group import HeartbeatThreadMode
from .topic_watcher import Spawn

if TYPE_CHECKING:
    from .beats import Beat
    from .thread_worker import ThreadWorker

logger = logging.getLogger(__name__)

END_TIMEOUT = 1.0
"""Seconds that a closing member waits for the end of the thread, which may be connecting."""


@dataclass(frozen=True, slots=True)
class ThreadAnswer:
    """The answer to a heartbeat of the thread. The times are the loop's.

    ``beat`` was sent, and ``posted`` is the member's ``Beat`` from which it was made.
    """

    posted: Any
    beat: Any
    response: Any
    sent_at: float
    answered_at: float

    @property
    def code(self) -> ErrorCode:
        return ErrorCode.of(self.response.error_code)


class HeartbeatThread:
    """Starts, feeds and ends the thread. Owner: the membership, in whose loop all methods run.

    ``beat`` makes the present heartbeat, None while the member has no session. ``poll_left`` returns the seconds after
    which the thread must stop: what is left of ``max_poll_interval``. ``on_start`` is called when the thread starts,
    ``on_answer`` with each answer, in the event loop.
    """

    def __init__(
        self,
        client: Client,
        group_id: str,
        mode: HeartbeatThreadMode,
        spawn: Spawn,
        *,
        beat: Callable[[], Beat | None],
        on_answer: Callable[[ThreadAnswer], None],
        poll_left: Callable[[], float],
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._mode = mode
        self._spawn = spawn
        self._beat = beat
        self._on_answer = on_answer
        self._poll_left = poll_left
        self._on_start = on_start
        self._worker: ThreadWorker | None = None
        self._reported = 0  # the heartbeats of this thread that ``take_count`` has returned

    def watch(self) -> None:
        """Measure the loop from now on, and start the thread when it is needed."""
        if self._mode == "never":
            return
        self._client.loop_delay.on_measured(self._measured)
        if self._mode == "always":
            self._start()

    def member_changed(self) -> None:
        """Give the thread the present heartbeat of the member."""
        if self._worker is not None:
            self._worker.post(self._beat())

    @property
    def newest(self) -> Any:
        """The next ``Beat`` of the thread, which may know a newer epoch than the member; None without one.

        A heartbeat that the member made before a block is sent after it, perhaps before the thread's answers are
        handled. It then needs this epoch.
        """
        return None if self._worker is None else self._worker.newest

    def take_count(self) -> int:
        """Return the number of heartbeats with which the thread has renewed the session since the last call.

        After a block, uvloop may run timers before the thread's answers, so these are not counted on their arrival.
        """
        if self._worker is None:
            return 0
        before, self._reported = self._reported, self._worker.renewals
        return self._reported - before

    def _measured(self, seconds: float) -> None:
        if self._worker is not None:
            self._worker.turned(self._poll_left())
        elif seconds > BLOCK:
            try:
                self._start()
            except IllegalStateError:  # the member is closing
                self._worker = None

    def _start(self) -> None:
        from ..aio.virtual_time import VirtualTimeLoop  # imported here: few programs block their loop

        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualTimeLoop) or (self._client.has_own_connector and self._mode != "always"):
            return  # rule 4
        from .thread_worker import ThreadWorker

        self._worker, self._reported = ThreadWorker(self._client, self._group_id, self._answered), 0
        self._worker.turned(self._poll_left())
        self._worker.post(self._beat())
        self._spawn(self._run, self._worker, name="heartbeat thread")
        self._on_start()

    async def _run(self, worker: ThreadWorker) -> None:
        """Run the thread until this task is cancelled. If the thread ends by itself, the next block starts another."""
        try:
            worker.start()
        except (OSError, RuntimeError) as error:
            self._worker = None
            logger.warning("group %s: the heartbeat thread could not start: %s", self._group_id, error)
            return
        try:
            await worker.ended.wait()
        finally:
            self._worker = None
            worker.stop()
            with anyio.move_on_after(END_TIMEOUT, shield=True):
                await worker.ended.wait()

    def _answered(self, posted: Beat, beat: Beat, response: object, sent_at: float, answered_at: float) -> None:
        if self._worker is None:
            return  # the member is closing
        difference = asyncio.get_running_loop().time() - time.monotonic()  # the loop may have another clock
        self._on_answer(ThreadAnswer(posted, beat, response, sent_at + difference, answered_at + difference))
