"""Tests in virtual time: the clock jumps to the next timer, so an hour of waiting takes no time.

``run(main())`` replaces ``asyncio.run``. ``VirtualTimeLoop`` is a loop factory, for ``asyncio.Runner`` and for the hook
``pytest_asyncio_loop_factories`` of pytest-asyncio.

An embedded cluster with ``tcp=False``, and its clients, need no sockets and run in one loop. With the same ``seed``
they make the same choices in every run. Both ends of a real socket must be in this loop. While the loop waits for
another process or thread, the clock jumps to the next timer, so timeouts expire early.
"""

from __future__ import annotations

from ..aio.virtual_time import VirtualTimeLoop, run

__all__ = ["VirtualTimeLoop", "run"]
